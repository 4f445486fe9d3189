"""What keeps a run alive: fallbacks, resume, stop; standard library only, and copied into every run folder."""

"""The program that keeps a run alive: fallbacks, resume, stop; standard library only, copied into every run folder."""

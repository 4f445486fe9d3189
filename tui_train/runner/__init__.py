"""The program that keeps a run alive: fallbacks, resume, stop; standard library only, a zip in every run folder."""

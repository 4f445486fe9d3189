"""Run: a training as it goes, and its end."""

"""Home: runs, profiles, a new training."""

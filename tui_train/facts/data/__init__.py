"""Training data: what was read in it, and what a training makes of it."""

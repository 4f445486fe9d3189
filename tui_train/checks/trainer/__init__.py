"""Checks of what trains and of what starts it: trainer, launcher, script, preset, tracking."""

"""Runs on other machines: over ssh, and as jobs of Slurm."""

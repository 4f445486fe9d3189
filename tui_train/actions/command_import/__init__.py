"""Profiles from what starts a training elsewhere: command lines, sbatch files, YAML of accelerate and of trainers."""

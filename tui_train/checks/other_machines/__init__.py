"""Checks of other machines: hosts over ssh, the Slurm cluster."""

"""Other machines: hosts over ssh, machine files, the Slurm cluster."""

"""What a machine is asked over ssh by another: its facts, the runs on it, and its Slurm."""

"""Questions that a machine answers over ssh to another one: its facts, the runs on it, and its Slurm."""

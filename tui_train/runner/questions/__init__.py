"""Questions that a machine answers over ssh to another one: its facts, runs, Slurm, and what it is to make or run."""

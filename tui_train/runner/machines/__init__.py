"""Several machines of one training, over ssh, by Slurm, or started by hand."""

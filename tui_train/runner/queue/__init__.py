"""The queue of this machine: who waits for GPUs or CPU cores, who has them, and whose turn it is."""

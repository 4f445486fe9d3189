"""Results of a run: weights, losses, and the checkpoint from which it resumes."""

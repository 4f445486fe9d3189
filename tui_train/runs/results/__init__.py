"""What a run leaves: weights, losses, and the checkpoint from which it resumes."""

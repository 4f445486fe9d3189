"""Data: what the training data holds."""

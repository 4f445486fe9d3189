"""The command about training data."""

"""A chat with what a run made."""

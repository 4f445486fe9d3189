"""The container that a training runs in."""

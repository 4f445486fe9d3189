"""Base classes and rows of the five steps."""

"""What the five steps share."""

"""A log of any size: its lines, its growing end, a search in it."""

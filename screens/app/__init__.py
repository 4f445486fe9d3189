"""The wizard itself: what it knows, finds out and keeps, and the way through its screens."""

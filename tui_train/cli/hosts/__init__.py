"""Commands about hosts that are saved by name."""

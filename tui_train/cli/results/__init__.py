"""Commands about what came of runs."""

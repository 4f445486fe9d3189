"""Result: what a run made, and what follows from it."""

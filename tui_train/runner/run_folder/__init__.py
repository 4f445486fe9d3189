"""A run folder: its plan, its events, its state, its lock and its checkpoints."""

"""GPUs: their current state, their capabilities, and which can train."""

"""GPUs: what the driver says of them now, what each can do, and which can train."""

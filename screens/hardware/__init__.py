"""Hardware: which machine and which GPUs."""

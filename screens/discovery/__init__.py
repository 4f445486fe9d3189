"""What the wizard finds out of machines, and the parts of the facts that come of it."""

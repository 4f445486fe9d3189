"""The user's training script: what its source and its --help say."""

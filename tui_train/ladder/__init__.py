"""What is tried after a GPU ran out of memory."""

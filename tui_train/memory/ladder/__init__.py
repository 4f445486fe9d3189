"""The fallbacks after a GPU runs out of memory."""

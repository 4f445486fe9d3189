"""Models: their shapes, their folders, the Hub and its cache, NeMo's recipes."""

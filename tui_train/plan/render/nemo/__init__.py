"""The files that NeMo, Megatron-Bridge and AutoModel read."""

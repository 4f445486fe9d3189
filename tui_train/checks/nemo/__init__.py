"""Checks of NeMo and Megatron-Bridge."""

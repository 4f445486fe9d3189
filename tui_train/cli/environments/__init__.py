"""Commands about environments, and data and models for NeMo."""

"""An environment that is being made."""

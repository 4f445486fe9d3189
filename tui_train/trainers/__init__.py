"""What trains."""

"""Commands about machines, profiles and plans."""

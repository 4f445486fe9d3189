"""The installation of an environment, and its screen."""

"""What keeps a run alive, copied into its folder: standard library only, Python 3.8 or newer."""

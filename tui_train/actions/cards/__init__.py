"""Proves this program's own claims on the machine itself, by real runs."""

"""Checks of this machine: cards, disk, container, communication, what other runs use."""

"""Foundations: errors, text, files, folders of ours, secrets, versions."""

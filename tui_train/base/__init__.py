"""Foundations: errors, text, files, places, secrets, versions."""

"""Consequences of choices and facts: Python, devices, processes, effective values, words of commands."""

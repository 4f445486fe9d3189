"""Logs of trainings, line by line: what they say of progress, of errors and of memory."""

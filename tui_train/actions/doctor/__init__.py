"""The doctor: tests of a few seconds before a training of hours."""

"""The doctor: what is found out by trying it, in seconds, before a training of hours."""

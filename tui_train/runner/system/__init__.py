"""This machine's processes, files and programs, handled so that nothing of them can hurt."""

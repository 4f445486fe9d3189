"""The command line: every wizard feature without a terminal UI."""

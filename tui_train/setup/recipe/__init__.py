"""The recipe half of a Setup: options, arguments, files, and the values in force."""

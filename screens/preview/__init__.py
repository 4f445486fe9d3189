"""Preview: the plan, the command, the files."""

"""launch.sh: its head, its one command, its table of attempts, its end."""

"""What follows from choice and fact: the Python, devices, processes, the values in force, the words of commands."""

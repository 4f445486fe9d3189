"""This machine without its GPUs: host, Pythons, containers, and the children that are asked."""

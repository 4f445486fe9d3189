"""Queries of the wizard about machines, and the parts of the facts that their answers become."""

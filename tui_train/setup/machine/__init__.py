"""The machine half of a Setup: Python, cards, processes, container, communication."""

"""Checks of the recipe, its model and its data."""

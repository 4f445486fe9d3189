"""A form in one widget: its lines, what is typed and chosen in it."""

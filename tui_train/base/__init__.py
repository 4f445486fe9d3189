"""What everything rests on: errors, text, files, places, secrets, versions."""

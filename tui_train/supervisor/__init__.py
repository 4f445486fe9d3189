"""What keeps a training alive: standard library only, Python 3.8 or newer; a copy of it lies in every run folder."""

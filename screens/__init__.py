"""The wizard's screens: they show and edit state and compute nothing. STEPS are the five, in order."""

import threading
from importlib import import_module
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A step of the wizard: the word for it, and its module, imported when the step is first opened."""

    title: str
    module: str


STEPS = (
    Step("Hardware", "hardware"),
    Step("Backend", "backend"),
    Step("Recipe", "recipe"),
    Step("Preview", "preview"),
    Step("Run", "run"),
)

# Two threads that import parts of one package at once can each meet a half of it.
IMPORT_LOCK = threading.RLock()


def load_step_module(module: str) -> Any:
    """Return a module of the screens, imported while no other thread imports one."""
    with IMPORT_LOCK:
        return import_module(f".{module}.screen", __package__)

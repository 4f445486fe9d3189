"""The wizard's screens: they show and edit state and compute nothing. STEPS are the five, in order."""

from typing import NamedTuple


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

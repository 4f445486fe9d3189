"""Recipes: those that the NeMo or the Megatron-Bridge of a Python has, by asking it, and those known to be there."""

import functools
from importlib import resources

import msgspec

from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.ask import ask
from tui_train.facts.types import Facts, NemoRecipes

# The import alone takes 12 s on an idle machine.
DEADLINE = 180.0
_RUN = "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv[1], 'nemo_recipes.py', 'exec'))"


class _Told(msgspec.Struct):
    recipes: dict[str, tuple[str, ...]] = {}
    problem: str = ""


def recipes(python: str, flavour: str | None = "recipes", deadline: float = DEADLINE) -> NemoRecipes:
    """Return which recipes an interpreter has, "bridge" asks its Megatron-Bridge; `problem` says why it cannot tell."""
    source = resources.files("tui_train").joinpath("target/nemo_recipes.py").read_text("utf-8")
    answer = ask([python, "-B", "-c", _RUN, source, flavour or "recipes"], deadline)
    told = read(answer.out.decode("utf-8", "replace"))
    return told or NemoRecipes({}, answer.ending())


def read(printed: str) -> NemoRecipes | None:
    """Return the recipes that an interpreter has printed, None where it printed none."""
    for line in reversed(printed.splitlines()):
        try:
            told = json_as(line, _Told)
        except Unparsable:
            continue
        none = "it was imported, and has none of them: a library that they need is missing or too new"
        return NemoRecipes(told.recipes, told.problem or ("" if told.recipes else none))
    return None


@functools.cache
def known(flavour: str | None = "recipes") -> dict[str, tuple[str, ...]]:
    """Return the tasks of recipes by name: those of NeMo 2.7, the last with any, or of Megatron-Bridge 0.3 and 0.6."""
    file = "bridge-recipes.txt" if flavour == "bridge" else "nemo-recipes.txt"
    text = resources.files("tui_train").joinpath(f"target/{file}").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: tuple(tasks) for name, *tasks in rows}


def of(facts: Facts, python: str, flavour: str | None) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the recipes of a Python and True where it was asked and told them, else the known ones and False."""
    asked = facts.recipes.get(python)
    return (asked.tasks, True) if asked and asked.tasks else (known(flavour), False)

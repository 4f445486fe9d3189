"""NeMo recipes: those that a Python has, by running it, and those known from the releases."""

import functools
from importlib import resources

import msgspec

from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.machine.child_process import run_child
from tui_train.facts.types import Facts, NemoRecipes

# The import alone takes 12 s.
PROBE_DEADLINE_SECONDS = 180.0
_RUN_PROGRAM_CODE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv[1], 'nemo_recipes.py', 'exec'))"
)


class _RecipesAnswer(msgspec.Struct):
    recipes: dict[str, tuple[str, ...]] = {}
    problem: str = ""


def probe_recipes(
    python: str, flavour: str | None = "recipes", deadline: float = PROBE_DEADLINE_SECONDS
) -> NemoRecipes:
    """Return the recipes of an interpreter ("bridge": of its Megatron-Bridge), or the `problem`."""
    source = resources.files("tui_train").joinpath("programs/nemo_recipes.py").read_text("utf-8")
    answer = run_child([python, "-B", "-c", _RUN_PROGRAM_CODE, source, flavour or "recipes"], deadline)
    listed = parse_recipes(answer.out)
    return listed or NemoRecipes({}, answer.why_unusable())


def parse_recipes(output: bytes) -> NemoRecipes | None:
    """Return the recipes in the output of an interpreter, None if there are none."""
    for line in reversed(output.splitlines()):
        try:
            answer = json_as(line, _RecipesAnswer)
        except Unparsable:
            continue
        none = "the import worked, but no recipe could be loaded: a library is missing or too new"
        return NemoRecipes(answer.recipes, answer.problem or ("" if answer.recipes else none))
    return None


@functools.cache
def known_tasks_by_recipe(flavour: str | None = "recipes") -> dict[str, tuple[str, ...]]:
    """Return the tasks of the known recipes: of NeMo 2.7 (the last with recipes), or Megatron-Bridge 0.3 and 0.6."""
    file = "bridge-recipes.txt" if flavour == "bridge" else "nemo-recipes.txt"
    text = resources.files("tui_train").joinpath(f"programs/{file}").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: tuple(tasks) for name, *tasks in rows}


def tasks_by_recipe_and_whether_probed(
    facts: Facts, python: str, flavour: str | None
) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the recipes of a Python and True if it was probed, else the known ones and False."""
    probed = facts.recipes.get(python)
    return (probed.tasks, True) if probed and probed.tasks else (known_tasks_by_recipe(flavour), False)

"""Writes docs/checks.md from the checks themselves: `python assets/checks_page.py`."""

import inspect
from collections import defaultdict
from pathlib import Path

from tui_train.checks import CHECKS
from tui_train.checks.finding import CheckFunction

_PAGE = Path(__file__).parents[1] / "docs" / "checks.md"
_TITLE_BY_FOLDER = {
    "machine": "The machine",
    "trainer": "What trains, and what starts it",
    "recipe": "Recipe, model and data",
    "nemo": "NeMo",
    "other_machines": "Other machines",
}
_HEAD = """\
# Checks

`tui-train check PROFILE`, and every screen, look for these before a start. An *error* keeps a plan from being made, or
only this machine from starting it now; a *warning* and a *note* do not. Each finding says why and what to do; where one
key or `--set` fixes it, F2 on a screen does.
"""


def checks_page() -> str:
    """Return the page: a table of the checks of each folder, in the order in which they run."""
    rows_by_folder = defaultdict[str, list[str]](list)
    for check in CHECKS:
        rows_by_folder[inspect.unwrap(check).__module__.split(".")[-2]].append(_table_row(check))
    tables = (
        f"\n## {title}\n\n| Check | Finds |\n|---|---|\n" + "\n".join(rows_by_folder[folder]) + "\n"
        for folder, title in _TITLE_BY_FOLDER.items()
    )
    return _HEAD + "".join(tables)


def _table_row(check: CheckFunction) -> str:
    name = check.__name__.replace("_", " ")
    first_sentence = (inspect.getdoc(check) or "").partition("\n")[0]
    return f"| {name} | {first_sentence.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    _PAGE.write_text(checks_page(), encoding="utf-8")

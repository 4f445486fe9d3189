"""Finding, what a check returns, and the signature of a check."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from msgspec import Struct

from tui_train.profile.changes import Change
from tui_train.setup.recipe.given_arguments import argument_row_key
from tui_train.setup.setup import Setup


class EnvironmentInstall(Struct, frozen=True):
    """An environment to make: its package set, and what is installed, as the title of a fix."""

    set_name: str
    title: str
    with_cuda: bool = False  # known to be one for GPUs


class Finding(Struct, frozen=True):
    """One thing that is wrong (an error stops the run), its key, what to do, and a Change where one helps.

    `argument` is the parameter of the user's script that it is of, empty for none; the key is trainer.arguments then.
    `install` is a fix that comes before the change; `keys` is the remedy in the keys of the screens, empty if it is the
    same there; `details` are the places in the data that it is of, a line each. `start`: an error that only keeps this
    machine from starting it now; it can be planned and exported. `is_being_fixed`: what it lacks is being installed.
    """

    level: Literal["error", "warning", "note"]
    key: str
    message: str
    remedy: str
    change: Change | None = None
    install: EnvironmentInstall | None = None
    keys: str = ""
    machine: bool = False
    start: bool = False
    is_being_fixed: bool = False
    argument: str = ""
    details: tuple[str, ...] = ()

    @property
    def fix(self) -> EnvironmentInstall | Change | None:
        """The fix that one key applies."""
        return self.install or self.change

    @property
    def form_row_key(self) -> str:
        """The row of a form that it is of."""
        return argument_row_key(self.argument) if self.argument else self.key

    @property
    def screen_remedy(self) -> str:
        """The remedy as a screen gives it."""
        return self.keys or self.remedy

    @property
    def forbids_plan(self) -> bool:
        """Return whether it must be fixed before anything can be planned."""
        return self.level == "error" and not self.start


error, warning, note = partial(Finding, "error"), partial(Finding, "warning"), partial(Finding, "note")
CheckFunction = Callable[[Setup], Iterator[Finding]]


def severity_sort_key(finding: Finding) -> tuple[bool, int]:
    """Return how far to the end a finding stands: the worst are first."""
    return not finding.forbids_plan, ("error", "warning", "note").index(finding.level)

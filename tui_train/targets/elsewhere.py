"""The machine in a file: it can be planned for, but nothing is started on it."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, ClassVar, NoReturn

import msgspec
from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.facts import saved
from tui_train.facts.documents import documents
from tui_train.facts.types import Facts
from tui_train.memory import settings
from tui_train.plan.types import Plan
from tui_train.presets.user import user_presets
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared
from tui_train.runs.interrupts import NONE, Interrupts
from tui_train.runs.rundir import RunDir
from tui_train.supervisor.state import Status
from tui_train.targets.here import configs, shape, sources_of


def with_files_here(profile: Profile, facts: Facts) -> Facts:
    """Return another machine's facts with the files that a plan needs, as far as they are on this one's disks.

    A YAML file and a model may be on both; one that is missing here is no error.
    """
    read = facts.documents or documents(configs(profile))
    shapes = {name: shape(profile, name) for name in settings.models_of(profile, read)}
    known = {
        name: found
        for name, found in shapes.items()
        if found.path or (name[0] == "/" and Path(name, "config.json").is_file())
    }
    sources = facts.sources or {path: found for path, found in sources_of(profile).items() if not found.problem}
    return msgspec.structs.replace(facts, documents=read, presets=user_presets(), models=known, sources=sources)


class MachineFile(Struct, frozen=True):
    """The machine in a file that `tui-train facts --save` wrote."""

    path: Path
    runs: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The file."""
        return str(self.path)

    def survey(self) -> Facts:
        """Return the facts in the file."""
        return saved.load_machine(self.path)

    def look(self, profile: Profile, waits: Callable[[str], None] = lambda _: None) -> Facts:
        """Return them with what a plan needs besides."""
        del waits
        return with_files_here(profile, saved.load_to_plan(self.path))

    def submit(self, prepared: Prepared, plan: Plan, interrupts: Interrupts = NONE) -> RunDir:
        """Raise Unavailable: nothing is started there."""
        del prepared, plan, interrupts
        _nothing_runs()

    def state(self, run: RunDir) -> Status:
        """Raise Unavailable: nothing is started there."""
        del run
        _nothing_runs()

    def probe_state(self, run: RunDir) -> Status:
        """Raise Unavailable: nothing is started there."""
        del run
        _nothing_runs()

    def resume(self, run: RunDir, interrupts: Interrupts = NONE) -> str:
        """Raise Unavailable: nothing is started there."""
        del run, interrupts
        _nothing_runs()

    def stop(self, run: RunDir, *, waiting: object = None, at_once: bool = False) -> Status:
        """Raise Unavailable: nothing is started there."""
        del run, waiting, at_once
        _nothing_runs()

    def open_log(self, run: RunDir, attempt: int) -> BinaryIO:
        """Raise Unavailable: nothing is started there."""
        del run, attempt
        _nothing_runs()


def _nothing_runs() -> NoReturn:
    raise Unavailable(
        "a training cannot be started on another machine", "Export it, copy it there, and run: bash launch.sh"
    )

"""The machine in a file: it can be planned for, but nothing is started on it."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

import msgspec
from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.facts.other_machines import machine_files
from tui_train.facts.types import Facts
from tui_train.facts.yaml_documents import read_documents
from tui_train.memory import workload
from tui_train.places.local_facts import config_file_paths, read_model_shape, read_script_sources
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.types import Plan
from tui_train.profile.presets.user_presets import user_presets
from tui_train.profile.types import Profile
from tui_train.runner.state import Status
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.rundir import RunDir


def with_local_files(profile: Profile, facts: Facts) -> Facts:
    """Return another machine's facts with the files that a plan needs, as far as they are on this one's disks.

    A YAML file and a model may be on both; one that is missing here is no error.
    """
    documents = facts.documents or read_documents(config_file_paths(profile))
    shapes = {name: read_model_shape(profile, name) for name in workload.models_to_read(profile, documents)}
    known = {
        name: found
        for name, found in shapes.items()
        if found.path or (name[0] == "/" and Path(name, "config.json").is_file())
    }
    sources = facts.sources or {
        path: found for path, found in read_script_sources(profile).items() if not found.problem
    }
    return msgspec.structs.replace(facts, documents=documents, presets=user_presets(), models=known, sources=sources)


class MachineFile(Struct, frozen=True):
    """The machine in a file that `tui-train facts --save` wrote."""

    path: Path
    can_start: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The file."""
        return str(self.path)

    def probe_machine_facts(self) -> Facts:
        """Return the facts in the file."""
        return machine_files.load_machine_file(self.path)

    def probe_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return them with what a plan needs besides."""
        return with_local_files(profile, machine_files.load_planning_facts(self.path))

    def submit(self, prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
        """Raise Unavailable: nothing is started there."""
        _refuse_start()

    def state(self, run: RunDir) -> Status:
        """Raise Unavailable: nothing is started there."""
        _refuse_start()

    def probe_state(self, run: RunDir) -> Status:
        """Raise Unavailable: nothing is started there."""
        _refuse_start()

    def resume(self, run: RunDir, interrupts: Interrupts = NO_INTERRUPTS) -> str:
        """Raise Unavailable: nothing is started there."""
        _refuse_start()

    def stop(self, run: RunDir, *, while_waiting: object = None, at_once: bool = False) -> Status:
        """Raise Unavailable: nothing is started there."""
        _refuse_start()


def _refuse_start() -> NoReturn:
    raise Unavailable(
        "a training cannot be started on another machine", "Export it, copy it there, and run: bash launch.sh"
    )

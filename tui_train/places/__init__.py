"""The machines where a training runs or is planned for: one class each, of one Protocol."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from tui_train.facts.types import Facts
from tui_train.places.local_facts import LocalTarget
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.types import Plan
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.runner.state import Status
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.other_machines.place import read_place
from tui_train.runs.rundir import RunDir


class Place(Protocol):
    """A machine for trainings: `name` is empty for this one, `can_start` is whether a training can be started there.

    Where none can, submit, state and stop raise Unavailable with what to do instead.
    """

    @property
    def name(self) -> str:
        """Name that the user calls it by."""
        ...

    can_start: ClassVar[bool]

    def probe_machine_facts(self) -> Facts:
        """Return the facts of the machine, without those of a profile."""
        ...

    def probe_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread.

        `on_wait` gets what may take longer, before it does.
        """
        ...

    def submit(self, prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
        """Write the run folder of these very files and start it."""
        ...

    def resume(self, run: RunDir, interrupts: Interrupts = NO_INTERRUPTS) -> str:
        """Start a run again, from its newest checkpoint; return what else must be known of that."""
        ...

    def state(self, run: RunDir) -> Status:
        """Return a run's state."""
        ...

    def probe_state(self, run: RunDir) -> Status:
        """Return a run's state, of one elsewhere without bringing what it wrote."""
        ...

    def stop(self, run: RunDir, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """End a run and every process of it, and return its state."""
        ...


def place_of(machine_file: Path | None = None, host: str = "", *, slurm: bool = False) -> Place:
    """Return the target of a machine file or a host, which may be saved by its name: this machine without both.

    With `slurm` it is the cluster of this machine or the host, whose nodes are like the machine in the file.
    """
    # Most commands are about this machine, and what the others need takes long to import.
    if slurm:
        from tui_train.places.slurm import Slurm

        return Slurm(machine_file, hosts.host_address(host) if host else "")
    if machine_file:
        from tui_train.places.elsewhere import MachineFile

        return MachineFile(machine_file)
    return _host_place(hosts.host_address(host)) if host else LocalTarget()


def place_of_run(run: RunDir) -> Place:
    """Return the target on which a run is."""
    from tui_train.runs.other_machines.queue import read_job

    place = read_place(run.path)
    if read_job(run.path):
        from tui_train.places.slurm import Slurm

        return Slurm(host=place.host if place else "")
    return _host_place(place.host) if place else LocalTarget()


def _host_place(host: str) -> Place:
    from tui_train.places.host import Host

    return Host(host)

"""Slurm: trainings that are submitted here or on a host, whose run folders are on a disk that the nodes share."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.facts import saved
from tui_train.facts.cluster import Cluster
from tui_train.facts.slurm import as_machine, gres_of, read_cluster
from tui_train.facts.types import Facts, Machine, Taken
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared
from tui_train.render.slurm import NAME as SCRIPT
from tui_train.runs import far, queue, rundir, submission
from tui_train.runs.interrupts import NONE, Interrupts
from tui_train.runs.place import place_of
from tui_train.runs.resuming import resumption
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import nothing_left
from tui_train.runs.status import status
from tui_train.supervisor.regular import open_regular
from tui_train.supervisor.state import Status
from tui_train.targets.here import look, named
from tui_train.targets.host import Host, ended_there, put


def planned_for(here: Machine, cluster: Cluster, profile: Profile) -> Machine:
    """Return the node that a profile's job may get, where it is submitted from here."""
    return as_machine(here, cluster, profile.slurm.partition, gres_of(profile.slurm.options))


def taken_by_jobs(taken: tuple[Taken, ...]) -> tuple[Taken, ...]:
    """Return what runs hold that a job could take: cards and ports that are taken here are not those of the nodes."""
    return tuple(msgspec.structs.replace(other, gpus=(), port=0) for other in taken if other.run)


class Slurm(Struct, frozen=True):
    """The cluster to which this machine submits, or that of a host, by its name for ssh.

    `machine` has the facts of a node (None: as Slurm counts them).
    """

    machine: Path | None = None
    host: str = ""
    runs: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What the user calls it."""
        return queue.where(self.host)

    def survey(self) -> Facts:
        """Return the facts of a node, without those of a profile."""
        return self.look(Profile())

    def look(self, profile: Profile, waits: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts that a profile needs; its files are those of where it is submitted, on the shared disk."""
        facts = self._files(profile, waits)
        cluster = read_cluster(self.host)
        machine = facts.machine if self.machine else planned_for(facts.machine, cluster, profile)
        return msgspec.structs.replace(
            facts, machine=machine, cluster=cluster, taken=taken_by_jobs(facts.taken), scheduler="slurm"
        )

    def _files(self, profile: Profile, waits: Callable[[str], None]) -> Facts:
        """Return the facts of where it is submitted, with the node and the Pythons of a file where one is given."""
        there = Host(self.host).look(profile) if self.host else None
        if self.machine is None:
            return there or look(profile, waits)
        node = saved.load_to_plan(self.machine)
        if there:
            return msgspec.structs.replace(there, machine=node.machine, toolchains=node.toolchains)
        files = named(profile)
        own = {name: getattr(files, name) for name in files.__struct_fields__}
        return msgspec.structs.replace(node, **own, elsewhere="")

    def submit(self, prepared: Prepared, plan: Plan, interrupts: Interrupts = NONE) -> RunDir:
        """Write the run folder and submit its job, after `sbatch --test-only`."""
        interrupts.check("")
        submission.try_out(next(file.text for file in prepared.files if file.path == SCRIPT), self.host)
        run = rundir.create(plan.name, prepared.files)
        try:
            if self.host:
                put(self.host, run, prepared)
            submission.submit(run)
        except TuiTrainError:
            # A run that never started would only clutter the list; one whose job Slurm may have is kept for it.
            if not queue.in_queue(run.path):
                _discard(run)
            raise
        return run

    def resume(self, run: RunDir, interrupts: Interrupts = NONE) -> str:
        """Submit a run's job again; it resumes from its newest checkpoint."""
        interrupts.check(run.name)
        job, name = queue.wait_while_completing(run), visible(run.name)
        if self._now(run).live:
            raise Unavailable(f"{name} is queued or running already", f"Watch it: tui-train attach {name}")
        if job:
            why = f"Slurm still has job {job.number} of {name} ({visible(job.state)})"
            raise Unavailable(why, f"Wait until it has left the queue, or take it out: tui-train stop {name}")
        if nothing_left(run):
            raise Unavailable(f"{name} has finished: there is nothing left to train", "Run its profile.")
        submission.submit(run)
        return "its trainer cannot resume: it begins with the first step." if resumption(run) == "never" else ""

    def state(self, run: RunDir) -> Status:
        """Ask Slurm for a run's state, and its host for how it ended where Slurm has nothing of it."""
        queue.refresh([run])
        return self._now(run)

    def probe_state(self, run: RunDir) -> Status:
        """Ask Slurm for a run's state, or its host, without what it wrote."""
        queue.refresh([run], logs=False)
        waits = not self.host or queue.in_queue(run.path)
        return status(run) if waits else Host(self.host).probe_state(run)._replace(host=self.name)

    def _now(self, run: RunDir) -> Status:
        return Host(self.host).state(run) if self.host and not queue.in_queue(run.path) else status(run)

    def stop(self, run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """Take a run out of the queue, or have it save and end, and return its state."""
        queue.stop(run, at_once=at_once, grace=status(run).grace, waiting=waiting)
        return ended_there(run, self.probe_state(run)) if self.host else status(run)

    def open_log(self, run: RunDir, attempt: int) -> BinaryIO:
        """Open the log of an attempt for reading."""
        return open_regular(run.attempt_log(attempt))


def _discard(run: RunDir) -> None:
    """Remove the folder of a run that was refused, on its host as well."""
    if place := place_of(run.path):
        with suppress(Unavailable):
            far.drop(place)
    shutil.rmtree(run.path, ignore_errors=True)

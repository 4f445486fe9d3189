"""Slurm: trainings that are submitted here or on a host, whose run folders are on a disk that the nodes share."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.facts.other_machines import machine_files
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.other_machines.slurm import last_gres_value, planned_machine, read_cluster
from tui_train.facts.types import Facts, Machine, ResourcesInUse
from tui_train.places.host import Host, copy_to_host, receive_last_log
from tui_train.places.local_facts import probe_facts, read_profile_files
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.render.slurm import SCRIPT_NAME as SLURM_SCRIPT
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.runner.state import Status
from tui_train.runs import rundir
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.other_machines import far, queue, submission
from tui_train.runs.other_machines.place import read_place
from tui_train.runs.results.resuming import resume_mode
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import is_all_trained
from tui_train.runs.status import read_status


def node_for_profile(submit_machine: Machine, cluster: Cluster, profile: Profile) -> Machine:
    """Return the node that a profile's job may get, where it is submitted from here."""
    return planned_machine(submit_machine, cluster, profile.slurm.partition, last_gres_value(profile.slurm.options))


def resources_in_use_on_nodes(in_use: tuple[ResourcesInUse, ...]) -> tuple[ResourcesInUse, ...]:
    """Return what runs hold that a job could take: cards and ports that are taken here are not those of the nodes."""
    return tuple(msgspec.structs.replace(other, gpus=(), port=0) for other in in_use if other.run)


class Slurm(Struct, frozen=True):
    """The cluster to which this machine submits, or that of a host, by its name for ssh.

    `machine_file` has the facts of a node (None: as Slurm counts them).
    """

    machine_file: Path | None = None
    host: str = ""
    can_start: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name that the user calls it by."""
        return queue.cluster_title(self.host)

    def probe_machine_facts(self) -> Facts:
        """Return the facts of a node, without those of a profile."""
        return self.probe_for(Profile())

    def probe_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts that a profile needs; its files are those of where it is submitted, on the shared disk."""
        facts = self._submission_facts(profile, on_wait)
        cluster = read_cluster(self.host)
        machine = facts.machine if self.machine_file else node_for_profile(facts.machine, cluster, profile)
        return msgspec.structs.replace(
            facts,
            machine=machine,
            cluster=cluster,
            resources_in_use=resources_in_use_on_nodes(facts.resources_in_use),
            scheduler="slurm",
        )

    def _submission_facts(self, profile: Profile, on_wait: Callable[[str], None]) -> Facts:
        """Return the facts of where it is submitted, with the node and the Pythons of a file where one is given."""
        there = Host(self.host).probe_for(profile) if self.host else None
        if self.machine_file is None:
            return there or probe_facts(profile, on_wait)
        node = machine_files.load_planning_facts(self.machine_file)
        if there:
            return msgspec.structs.replace(there, machine=node.machine, toolchains=node.toolchains)
        files = read_profile_files(profile)
        own = {name: getattr(files, name) for name in files.__struct_fields__}
        return msgspec.structs.replace(node, **own, other_machine="")

    def submit(self, prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
        """Write the run folder and submit its job, after `sbatch --test-only`."""
        interrupts.raise_if_interrupted("")
        submission.dry_run_job(next(file.text for file in prepared.files if file.path == SLURM_SCRIPT), self.host)
        run = rundir.create_run(plan.name, prepared.files)
        try:
            if self.host:
                copy_to_host(self.host, run, prepared)
            submission.submit_job(run)
        except TuiTrainError:
            # A run that never started would only clutter the list; one whose job Slurm may have is kept for it.
            if not queue.is_in_queue(run.path):
                _remove_refused_run(run)
            raise
        return run

    def resume(self, run: RunDir, interrupts: Interrupts = NO_INTERRUPTS) -> str:
        """Submit a run's job again; it resumes from its newest checkpoint."""
        interrupts.raise_if_interrupted(run.name)
        job, name = queue.wait_while_completing(run), visible(run.name)
        if self._current_status(run).live:
            raise Unavailable(f"{name} is queued or running already", f"Watch it: tui-train attach {name}")
        if job:
            why = f"Slurm still has job {job.number} of {name} ({visible(job.state)})"
            raise Unavailable(why, f"Wait until it has left the queue, or take it out: tui-train stop {name}")
        if is_all_trained(run):
            raise Unavailable(f"{name} has finished: there is nothing left to train", "Run its profile.")
        submission.submit_job(run)
        return "its trainer cannot resume: it begins with the first step." if resume_mode(run) == "never" else ""

    def state(self, run: RunDir) -> Status:
        """Ask Slurm for a run's state, and its host for how it ended where Slurm has nothing of it."""
        queue.refresh_jobs([run])
        return self._current_status(run)

    def probe_state(self, run: RunDir) -> Status:
        """Ask Slurm for a run's state, or its host, without what it wrote."""
        queue.refresh_jobs([run], with_logs=False)
        waits = not self.host or queue.is_in_queue(run.path)
        return read_status(run) if waits else Host(self.host).probe_state(run)._replace(host=self.name)

    def _current_status(self, run: RunDir) -> Status:
        return Host(self.host).state(run) if self.host and not queue.is_in_queue(run.path) else read_status(run)

    def stop(self, run: RunDir, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """Take a run out of the queue, or have it save and end, and return its state."""
        queue.stop_job(run, at_once=at_once, grace_seconds=read_status(run).grace, while_waiting=while_waiting)
        return receive_last_log(run, self.probe_state(run)) if self.host else read_status(run)


def _remove_refused_run(run: RunDir) -> None:
    """Remove the folder of a run that was refused, on its host as well."""
    if place := read_place(run.path):
        with suppress(Unavailable):
            far.remove_on_host(place)
    shutil.rmtree(run.path, ignore_errors=True)

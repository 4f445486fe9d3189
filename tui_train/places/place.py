"""A place: the machine that is asked, near or far, and what starts a training there."""

import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base.errors import CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.text import duration_text, visible
from tui_train.facts.other_machines import machine_files, remote
from tui_train.facts.other_machines.slurm import read_cluster
from tui_train.facts.types import Facts
from tui_train.places import profile_facts
from tui_train.places.host_questions import (
    RunFolderGone,
    StartUnderWay,
    ask_removable_size,
    ask_removal,
    ask_report,
    ask_stop,
    create_run_folder_on_host,
    unreachable_remedy,
)
from tui_train.places.jobs import cancel_if_impossible, dry_run_job, refresh_jobs, stop_job, wait_while_completing
from tui_train.places.project_code import code_record_files
from tui_train.places.receive_changes import receive_run_changes
from tui_train.places.remote_start import resolve_unconfirmed_start, start_sent_run
from tui_train.places.run_mirror import update_local_copy
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.render.slurm import SLURM_SCRIPT_FILE_NAME as SLURM_SCRIPT
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.plan.types import Plan
from tui_train.profile.hosts import host_address
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.state import UNCONFIRMED_STATE, RunStatus
from tui_train.runs import folders, run_folders
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.local_start import (
    START_AT_ONCE,
    StartOptions,
    WhenFree,
    has_nothing_left_to_train,
    restart_difference_text,
    start_run,
    unfinished_wait_mode,
)
from tui_train.runs.remote_run import (
    RunLocation,
    read_host_report,
    read_remote_location,
    read_run_location,
    write_host_report,
    write_run_location,
)
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import read_queued_job, slurm_host_text
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

# Seconds in which the log of a run that was stopped comes along.
_MAX_LAST_LOG_SECONDS = 10.0
# Seconds in which the host of a run that could not be started removes its folder, which has files of ours alone.
_MAX_UNSTARTED_REMOVAL_SECONDS = 30.0


class Place(Struct, frozen=True):
    """A machine by its name, a saved one or for ssh (empty: this one), and whether Slurm starts a training there.

    `machine_file` has the facts of the machine, or of a node: without Slurm it can only be planned for it.
    """

    host: str = ""
    slurm: bool = False
    machine_file: Path | None = None

    @property
    def address(self) -> str:
        """Name of the machine for ssh, empty for this one."""
        return host_address(self.host)

    @property
    def name(self) -> str:
        """Name that the user calls it by, empty for this machine."""
        return slurm_host_text(self.host) if self.slurm else self.host or str(self.machine_file or "")

    @property
    def can_start(self) -> bool:
        """True where a training can be started; elsewhere a start raises Unavailable with what to do instead."""
        return self.slurm or self.machine_file is None

    # Facts

    def probe_machine_facts(self) -> Facts:
        """Return the facts of the machine, without those of a profile."""
        if self.slurm or not self.name:
            return self.probe_facts_for(Profile())
        if self.machine_file:
            return machine_files.load_machine_file(self.machine_file)
        return remote.read_host_facts(self.address)

    def probe_facts_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread.

        `on_wait` gets what may take longer, before it does. Files are those of where a job is submitted, on the disk
        that the nodes share.
        """
        node = None
        if self.machine_file:
            node = profile_facts.load_machine_file_facts(
                self.machine_file, profile, is_node=self.slurm and not self.host
            )
        if self.host:
            facts = profile_facts.probe_host_facts(self.address, profile)
        else:
            facts = node or profile_facts.probe_profile_facts(profile, on_wait)
        if not self.slurm:
            return facts
        cluster = read_cluster(self.address)
        return msgspec.structs.replace(
            facts,
            machine=node.machine if node else profile_facts.node_for_profile(facts.machine, cluster, profile),
            toolchains=node.toolchains if node else facts.toolchains,
            cluster=cluster,
            resources_in_use=profile_facts.resources_shared_with_nodes(facts.resources_in_use),
            cards_in_queue=(),
            scheduler="slurm",
        )

    # Runs

    def submit(
        self,
        prepared: PreparedPlan,
        plan: Plan,
        interrupts: Interrupts = NO_INTERRUPTS,
        options: StartOptions = START_AT_ONCE,
    ) -> RunFolder:
        """Write the run folder of these very files, here and there, and start it."""
        self._require_startable()
        if options.when_free:
            _require_can_wait(by_slurm=plan.slurm is not None, machine_count=plan.nodes)
        interrupts.raise_if_start_interrupted("")
        if self.slurm:
            dry_run_job(next(file.text for file in prepared.files if file.path == SLURM_SCRIPT), self.address)
        files = (*prepared.files, *code_record_files(self.address, prepared.profile))
        interrupts.raise_if_start_interrupted("")
        run = run_folders.create_run_folder(plan.name, files)
        try:
            if self.host:
                write_run_location(run.path, create_run_folder_on_host(self.address, run, files))
                interrupts.raise_if_start_interrupted("")
            self._start(run, interrupts, options)
        except TuiTrainError as error:
            # One that never started would only clutter the list.
            if read_status(run).state == "new" and (left := _remove_unstarted(run)):
                error.remedy = f"{error.remedy} {left}"
            raise
        return run

    def resume(self, run: RunFolder, interrupts: Interrupts = NO_INTERRUPTS, *, when_free: WhenFree = "") -> str:
        """Start a run again, from its newest checkpoint; return what that does which is not just going on.

        One that ended while it waited for GPUs waits again.
        """
        self._require_startable()
        if when_free:
            machine_count = run.plan().get("nodes")
            _require_can_wait(by_slurm=self.slurm, machine_count=machine_count if isinstance(machine_count, int) else 1)
        if self.name:
            interrupts.raise_if_start_interrupted(run.name)
            job, name = wait_while_completing(run) if self.slurm else None, visible(run.name)
            if self.ask_state(run).is_live:
                raise Unavailable(f"{name} is queued or running already", f"Watch it: tui-train attach {name}")
            if job:
                why = f"Slurm still has job {job.number} of {name} ({visible(job.state)})"
                raise Unavailable(why, f"Wait until it has left the queue, or take it out: tui-train stop {name}")
            if has_nothing_left_to_train(run):
                raise Unavailable(f"{name} has finished: there is nothing left to train", "Run its profile.")
        self._start(run, interrupts, StartOptions(when_free or unfinished_wait_mode(run)), resume=True)
        return restart_difference_text(run)

    def _start(self, run: RunFolder, interrupts: Interrupts, options: StartOptions, *, resume: bool = False) -> None:
        if not self.name:
            start_run(
                run, resume=resume, when_free=options.when_free, end_after=options.end_after, interrupts=interrupts
            )
            return
        start_sent_run(run, options, slurm=self.slurm, resume=resume)
        if self.slurm:
            cancel_if_impossible(run)
        else:
            # What cannot be kept here is told by whoever follows the run.
            with suppress(TuiTrainError):
                update_local_copy(run)

    def ask_state(self, run: RunFolder, *, with_log: bool = True) -> RunStatus:
        """Return a run's state as it is now; `with_log`: of one elsewhere, what it wrote is brought here as well."""
        self._require_startable()
        if not self.name:
            return read_status(run)
        if with_log:
            if why := update_local_copy(run):
                raise Unavailable(f"{_unknown_state_text(run)}: {why}", _manual_stop_remedy(run))
            return read_status(run)
        with _adding_last_known_state(run):
            refresh_jobs([run], with_logs=False)
            place = read_remote_location(run.path)
            if place is None or read_queued_job(run.path):
                return read_status(run)
            report = ask_report(place)
        # A disk that is full here keeps nobody from stopping it.
        with suppress(CannotWrite):
            write_host_report(run.path, report)
        return report.status._replace(host=self.name)

    def stop(self, run: RunFolder, *, at_once: bool = False) -> RunStatus:
        """End a run and every process of it, and return its state."""
        self._require_startable()
        if not self.name:
            return stop_local_run(run, at_once=at_once)
        grace = read_status(run).grace
        with _adding_last_known_state(run):
            there = read_run_location(run.path)
            try:
                resolve_unconfirmed_start(run)
            except StartUnderWay:
                if self.slurm:
                    raise
                # It may hang before it has reported itself: then what is ended is that start.
                ask_stop(there, at_once=at_once, grace_seconds=grace)
                resolve_unconfirmed_start(run)
            if self.slurm:
                stop_job(run, at_once=at_once, grace_seconds=grace)
            else:
                ask_stop(there, at_once=at_once, grace_seconds=grace)
        ended = self.ask_state(run, with_log=False)
        if place := read_remote_location(run.path):
            # What does not come is brought by whoever reads the log.
            with suppress(TuiTrainError):
                receive_run_changes(run, place, within_seconds=_MAX_LAST_LOG_SECONDS)
        return ended

    def remove(self, run: RunFolder) -> int:
        """Remove the folder of a run that has ended, on all hosts that it ran on and here; return the bytes freed here.

        What it left there is gone for good. Where it is left on one of the other hosts, the first one and this machine
        keep theirs, so that it can be removed again.
        """
        _remove_copies_on_other_hosts(run)
        if (there := read_remote_location(run.path)) and not there.shared:
            with suppress(RunFolderGone):
                ask_removal(there, ended=True)
        return folders.remove_run(run)

    def removable_size_elsewhere(self, run: RunFolder) -> int:
        """Return the bytes of a run's folder on its host, 0 without one; Unavailable where it cannot be removed."""
        there = read_remote_location(run.path)
        if there is None or there.shared:
            return 0
        try:
            return ask_removable_size(there)
        except RunFolderGone:
            return 0

    def refuse_if_active_or_outside(self, run: RunFolder) -> None:
        """Raise Unavailable where a run trains, or left processes; a host that has its very folder is asked."""
        place = read_remote_location(run.path)
        folders.refuse_if_active_or_outside(
            run, self.ask_state(run, with_log=False) if place and place.shared else None
        )

    def _require_startable(self) -> None:
        if not self.can_start:
            raise Unavailable(
                "a training cannot be started on another machine",
                "Export it, copy it there, and run: bash launch.sh",
            )


def _require_can_wait(*, by_slurm: bool, machine_count: int) -> None:
    """Refuse to wait with a training whose GPUs are not all in the queue of one machine."""
    if by_slurm:
        raise Unavailable("Slurm has a queue of its own", "Start it without --when-free.")
    if machine_count > 1:
        why = "a training on several machines cannot wait for GPUs: each machine has a queue of its own"
        remedy = "Start it without --when-free once `tui-train facts --on HOST` shows the GPUs of all of them free"
        raise Unavailable(why, f"{remedy}, or let Slurm start it (--slurm).")


def _remove_copies_on_other_hosts(run: RunFolder) -> None:
    """Remove the copies of a run that has ended; Unavailable names the hosts on which they are left, and why.

    A host that sees the very folder of the first one has none: something was started in it.
    """
    if not (hosts := folders.other_hosts_of_run(run)):
        return
    place = read_run_location(run.path)
    if place.host and not place.shared:
        with suppress(RunFolderGone):
            ask_removable_size(place)
    else:
        folders.refuse_if_active_or_outside(run)
    asking_host = host_address(place.host) if place.host else None
    left: list[str] = []
    for host in hosts:
        try:
            ask_removal(RunLocation(host, place.folder), asking_host=asking_host)
        except RunFolderGone:
            continue
        except Unavailable as error:
            left.append(f"{visible(host)} ({error.message.rstrip('.')})")
    if left:
        why = f"{visible(place.folder)} is left on {', '.join(left)}, and on {visible(place.host) or 'this machine'}"
        remedy = f"Try again, or remove it there by hand and then: tui-train runs rm --here {visible(run.name)}"
        raise Unavailable(why, remedy)


def _remove_unstarted(run: RunFolder) -> str:
    """Remove the folder of a run that was never started, on its host as well; return how one left there is removed."""
    left = ""
    if place := read_remote_location(run.path):
        try:
            ask_removal(place, within_seconds=_MAX_UNSTARTED_REMOVAL_SECONDS)
        except RunFolderGone:
            pass
        except Unavailable:
            host, name = visible(place.host), visible(Path(place.folder).name)
            left = f"Its folder may be left on {host}: tui-train runs rm {name} --on {host}"
    shutil.rmtree(run.path, ignore_errors=True)
    return left


@contextmanager
def _adding_last_known_state(run: RunFolder) -> Iterator[None]:
    """Say of a host that does not answer what was known of its run last, and how it is stopped there."""
    try:
        yield
    except NoAnswer as error:
        raise type(error)(f"{_unknown_state_text(run)}: {error.message}", _manual_stop_remedy(run)) from None


def _unknown_state_text(run: RunFolder) -> str:
    report, name = read_host_report(run.path), visible(run.name)
    if read_status(run).state == UNCONFIRMED_STATE:
        return f"it is not known whether {name} trains"
    ago = f" ({report.status.state} {duration_text(max(0.0, time.time() - report.at))} ago)" if report else ""
    return f"it is not known how {name} stands{ago}"


def _manual_stop_remedy(run: RunFolder) -> str:
    """Return how a run is stopped on a host that answers no question."""
    place = read_remote_location(run.path)
    if place is None:
        return "Check `squeue`."
    there = f"python3 {shlex.quote(f'{place.folder}/{RUNNER_ZIP_FILE_NAME}')} stop"
    return f"{unreachable_remedy(place)}. It is stopped there by: {visible(there)}"

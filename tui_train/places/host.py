"""A host over ssh: its facts, and the trainings on it, which need nothing there but python3 and bash."""

import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.files import reporting_write_errors, write_atomically
from tui_train.base.text import duration_text, visible
from tui_train.facts.other_machines import remote
from tui_train.facts.types import Facts
from tui_train.places.elsewhere import with_local_files
from tui_train.places.local_facts import config_file_paths, named_python
from tui_train.plan.render import RUNNER_NAME
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.runner.state import UNCONFIRMED_STATE, Status
from tui_train.runs import rundir
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.other_machines import far
from tui_train.runs.other_machines.feed import receive_from_host
from tui_train.runs.other_machines.heard import write_report
from tui_train.runs.other_machines.host_lines import RunGone
from tui_train.runs.other_machines.mirror import RunMirror
from tui_train.runs.other_machines.place import PLACE_FILE, HostReport, RunPlace, read_host_report, read_place
from tui_train.runs.results.resuming import resume_mode
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import DETACH_SCRIPT
from tui_train.runs.status import read_status
from tui_train.trainers import profile_paths, trainer_has_own_field

# Seconds in which the log of a run that was stopped comes along.
_LAST_LOG_SECONDS = 10.0


class Host(Struct, frozen=True):
    """A host, by its name for ssh."""

    name: str
    can_start: ClassVar[bool] = True

    def probe_machine_facts(self) -> Facts:
        """Return the facts of the host."""
        return remote.read_host_facts(self.name)

    def probe_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts of the host that a plan needs."""
        python, paths, files = named_python(profile), profile_paths(profile), config_file_paths(profile)
        script = profile.trainer.script if trainer_has_own_field(profile, "trainer.script") else ""
        return with_local_files(profile, remote.read_planning_facts(self.name, python, paths, files, script))

    def submit(self, prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
        """Write the run folder here and there, and start it there."""
        interrupts.raise_if_interrupted("")
        run = rundir.create_run(plan.name, prepared.files)
        try:
            place = copy_to_host(self.name, run, prepared)
            interrupts.raise_if_interrupted("")
        except TuiTrainError:
            # No start was sent: a run that never started would only clutter the list.
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        _start_on_host(run, place, ())
        return run

    def resume(self, run: RunDir, interrupts: Interrupts = NO_INTERRUPTS) -> str:
        """Start a run again on its host."""
        self.state(run)
        plan = run.plan()
        by_hand = plan.get("nodes") not in {None, 1} and not plan.get("hosts")
        _start_on_host(run, _required_place(run), ("--resume",) if by_hand and resume_mode(run) == "told" else ())
        return ""

    def state(self, run: RunDir) -> Status:
        """Ask the host for a run's state, and bring what it wrote."""
        if read_status(run).state == UNCONFIRMED_STATE:
            self.probe_state(run)
        if why := RunMirror(run, follow=False).update_once():
            raise Unavailable(f"{_unknown_state_text(run)}: {why}", _manual_stop_remedy(_required_place(run)))
        return read_status(run)

    def probe_state(self, run: RunDir) -> Status:
        """Ask the host for a run's state and keep it, without what the run wrote."""
        place = _required_place(run)
        try:
            report = far.ask_host_report(place)
        except RunGone:
            if read_status(run).state == UNCONFIRMED_STATE:
                # Only a start that was refused removes the folder.
                write_report(run, HostReport(at=time.time(), status=Status("new")))
            raise
        except NoAnswer as error:
            raise NoAnswer(f"{_unknown_state_text(run)}: {error.message}", _manual_stop_remedy(place)) from None
        # A disk that is full here keeps nobody from stopping it.
        with suppress(CannotWrite):
            write_report(run, report)
        return report.status._replace(host=place.host)

    def stop(self, run: RunDir, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """End a run and every process of it there, and return its state."""
        while_waiting()
        place = _required_place(run)
        try:
            far.stop_on_host(place, at_once=at_once, grace_seconds=read_status(run).grace)
        except NoAnswer as error:
            raise NoAnswer(f"{_unknown_state_text(run)}: {error.message}", _manual_stop_remedy(place)) from None
        return receive_last_log(run, self.probe_state(run))


def receive_last_log(run: RunDir, known_status: Status) -> Status:
    """Bring the log of a run that was stopped on a host as far as that comes in some seconds; return how it stands."""
    # What does not come is brought by whoever reads the log.
    with suppress(TuiTrainError):
        receive_from_host(run, _required_place(run), within_seconds=_LAST_LOG_SECONDS)
    return known_status


def copy_to_host(host: str, run: RunDir, prepared: PreparedPlan) -> RunPlace:
    """Write a run's files on a host as well, and keep in its folder here where they are."""
    place = far.create_on_host(host, run, prepared.files)
    with reporting_write_errors(run.path / PLACE_FILE):
        write_atomically(run.path / PLACE_FILE, msgspec.json.encode(place))
    return place


def _start_on_host(run: RunDir, place: RunPlace, options: tuple[str, ...]) -> None:
    """Have the host start a run; NoAnswer where it does not say whether it has, and the run stays as unconfirmed."""
    previous = read_host_report(run.path)
    report = previous or HostReport(at=time.time(), status=Status("new"))
    # From here on it may train, whatever becomes of the answer.
    write_report(
        run, msgspec.structs.replace(report, at=time.time(), status=report.status._replace(state=UNCONFIRMED_STATE))
    )
    try:
        failure = far.start_on_host(place, DETACH_SCRIPT, options, report.starts)
    except NoAnswer as error:
        if not _has_started(place, report.starts):
            message = f"{place.host} did not confirm that {visible(run.name)} has started: {error.message}"
            raise NoAnswer(message, f"See whether it trains: tui-train attach {visible(run.name)}") from None
        failure = ""
    except Unavailable:
        _restore_report(run, previous)
        raise
    if failure:
        _restore_report(run, previous)
        raise Unavailable(f"the run did not start on {place.host}: {failure}", "Fix that, then start again.")
    # What cannot be kept here is told by whoever follows the run.
    with suppress(TuiTrainError):
        write_report(
            run, msgspec.structs.replace(report, at=time.time(), status=report.status._replace(state="running"))
        )
        RunMirror(run, follow=False).update_once()


def _has_started(place: RunPlace, known_starts: int) -> bool:
    """Ask whether a start whose answer was lost has been made."""
    try:
        return far.ask_host_report(place).starts > known_starts
    except Unavailable:
        return False


def _restore_report(run: RunDir, previous: HostReport | None) -> None:
    """Put back what was known of a run that its host refused to start; of a new one nothing is kept."""
    if previous:
        write_report(run, previous)
    else:
        shutil.rmtree(run.path, ignore_errors=True)


def _unknown_state_text(run: RunDir) -> str:
    """Return the beginning of an error about a run on a host that does not answer, with what was known of it last."""
    report, name = read_host_report(run.path), visible(run.name)
    if report is None or report.status.state == UNCONFIRMED_STATE:
        return f"it is not known whether {name} trains"
    ago = duration_text(max(0.0, time.time() - report.at))
    return f"it is not known how {name} stands ({report.status.state} {ago} ago)"


def _manual_stop_remedy(place: RunPlace) -> str:
    """Return how a run is stopped on a host that answers no question."""
    there = f"python3 {shlex.quote(f'{place.folder}/{RUNNER_NAME}')} stop"
    return f"Try again once `ssh {place.host} true` works, or stop it there: {visible(there)}"


def _required_place(run: RunDir) -> RunPlace:
    place = read_place(run.path)
    assert place is not None, "only a run with a place is a host's"  # noqa: S101 - for the type
    return place

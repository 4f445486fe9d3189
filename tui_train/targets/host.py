"""A host over ssh: its facts, and the trainings on it, which need nothing there but python3 and bash."""

import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.base.files import reporting_write_errors, write_beside
from tui_train.base.text import duration, visible
from tui_train.facts import remote
from tui_train.facts.types import Facts
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared
from tui_train.runs import far, rundir
from tui_train.runs.feed import feed
from tui_train.runs.heard import keep
from tui_train.runs.host_lines import Gone
from tui_train.runs.interrupts import NONE, Interrupts
from tui_train.runs.mirror import Mirror
from tui_train.runs.place import PLACE, Heard, Place, heard_of, place_of
from tui_train.runs.resuming import resumption
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import BETWEEN
from tui_train.runs.status import status
from tui_train.supervisor.regular import open_regular
from tui_train.supervisor.state import UNCONFIRMED, Status
from tui_train.targets.elsewhere import with_files_here
from tui_train.targets.here import configs, named_python
from tui_train.trainers import paths_of, takes_field

# Seconds in which the log of a run that was stopped comes along.
_LOG = 10.0


class Host(Struct, frozen=True):
    """A host, by its name for ssh."""

    name: str
    runs: ClassVar[bool] = True

    def survey(self) -> Facts:
        """Return the facts of the host."""
        return remote.facts(self.name)

    def look(self, profile: Profile, waits: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts of the host that a plan needs."""
        del waits
        python, paths, files = named_python(profile), paths_of(profile), configs(profile)
        script = profile.trainer.script if takes_field(profile, "trainer.script") else ""
        return with_files_here(profile, remote.to_plan(self.name, python, paths, files, script))

    def submit(self, prepared: Prepared, plan: Plan, interrupts: Interrupts = NONE) -> RunDir:
        """Write the run folder here and there, and start it there."""
        interrupts.check("")
        run = rundir.create(plan.name, prepared.files)
        try:
            place = put(self.name, run, prepared)
            interrupts.check("")
        except TuiTrainError:
            # No start was sent: a run that never started would only clutter the list.
            shutil.rmtree(run.path, ignore_errors=True)
            raise
        _start(run, place, ())
        return run

    def resume(self, run: RunDir, interrupts: Interrupts = NONE) -> str:
        """Start a run again on its host."""
        del interrupts
        self.state(run)
        plan = run.plan()
        by_hand = plan.get("nodes") not in {None, 1} and not plan.get("hosts")
        _start(run, _place(run), ("--resume",) if by_hand and resumption(run) == "told" else ())
        return ""

    def state(self, run: RunDir) -> Status:
        """Ask the host for a run's state, and bring what it wrote."""
        if status(run).state == UNCONFIRMED:
            self.probe_state(run)
        if why := Mirror(run, follow=False).once():
            raise Unavailable(f"{_unclear(run)}: {why}", _by_hand(_place(run)))
        return status(run)

    def probe_state(self, run: RunDir) -> Status:
        """Ask the host for a run's state and keep it, without what the run wrote."""
        place = _place(run)
        try:
            heard = far.status(place)
        except Gone:
            if status(run).state == UNCONFIRMED:
                # Only a start that was refused removes the folder.
                keep(run, Heard(at=time.time(), status=Status("new")))
            raise
        except NoAnswer as error:
            raise NoAnswer(f"{_unclear(run)}: {error.message}", _by_hand(place)) from None
        # A disk that is full here keeps nobody from stopping it.
        with suppress(CannotWrite):
            keep(run, heard)
        return heard.status._replace(host=place.host)

    def stop(self, run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """End a run and every process of it there, and return its state."""
        waiting()
        place = _place(run)
        try:
            far.stop(place, at_once=at_once, grace=status(run).grace)
        except NoAnswer as error:
            raise NoAnswer(f"{_unclear(run)}: {error.message}", _by_hand(place)) from None
        return ended_there(run, self.probe_state(run))

    def open_log(self, run: RunDir, attempt: int) -> BinaryIO:
        """Open the copy of the log of an attempt for reading."""
        return open_regular(run.attempt_log(attempt))


def ended_there(run: RunDir, now: Status) -> Status:
    """Bring the log of a run that was stopped on a host as far as that comes in some seconds; return how it stands."""
    # What does not come is brought by whoever reads the log.
    with suppress(TuiTrainError):
        feed(run, _place(run), within=_LOG)
    return now


def put(host: str, run: RunDir, prepared: Prepared) -> Place:
    """Write a run's files on a host as well, and keep in its folder here where they are."""
    place = far.put(host, run.name, prepared.files)
    with reporting_write_errors(run.path / PLACE):
        write_beside(run.path / PLACE, msgspec.json.encode(place))
    return place


def _start(run: RunDir, place: Place, options: tuple[str, ...]) -> None:
    """Have the host start a run; NoAnswer where it does not say whether it has, and the run stays as unconfirmed."""
    before = heard_of(run.path)
    asked = before or Heard(at=time.time(), status=Status("new"))
    # From here on it may train, whatever becomes of the answer.
    keep(run, msgspec.structs.replace(asked, at=time.time(), status=asked.status._replace(state=UNCONFIRMED)))
    try:
        refused = far.start(place, BETWEEN, options, asked.starts)
    except NoAnswer as error:
        if not _has_started(place, asked.starts):
            message = f"{place.host} did not confirm that {visible(run.name)} has started: {error.message}"
            raise NoAnswer(message, f"See whether it trains: tui-train attach {visible(run.name)}") from None
        refused = ""
    except Unavailable:
        _forget(run, before)
        raise
    if refused:
        _forget(run, before)
        raise Unavailable(f"the run did not start on {place.host}: {refused}", "Fix that, then start again.")
    # What cannot be kept here is told by whoever follows the run.
    with suppress(TuiTrainError):
        keep(run, msgspec.structs.replace(asked, at=time.time(), status=asked.status._replace(state="running")))
        Mirror(run, follow=False).once()


def _has_started(place: Place, starts: int) -> bool:
    """Ask whether a start whose answer was lost has been made."""
    try:
        return far.status(place).starts > starts
    except Unavailable:
        return False


def _forget(run: RunDir, before: Heard | None) -> None:
    """Put back what was known of a run that its host refused to start; of a new one nothing is kept."""
    if before:
        keep(run, before)
    else:
        shutil.rmtree(run.path, ignore_errors=True)


def _unclear(run: RunDir) -> str:
    """Return the beginning of an error about a run on a host that does not answer, with what was known of it last."""
    heard, name = heard_of(run.path), visible(run.name)
    if heard is None or heard.status.state == UNCONFIRMED:
        return f"it is not known whether {name} trains"
    ago = duration(max(0.0, time.time() - heard.at))
    return f"it is not known how {name} stands ({heard.status.state} {ago} ago)"


def _by_hand(place: Place) -> str:
    """Return how a run is stopped on a host that answers no question."""
    there = f"python3 {shlex.quote(place.folder)}/supervisor stop"
    return f"Try again once `ssh {place.host} true` works, or stop it there: {visible(there)}"


def _place(run: RunDir) -> Place:
    place = place_of(run.path)
    assert place is not None, "only a run with a place is a host's"  # noqa: S101 - for the type
    return place

"""A host over ssh: its facts, and the trainings on it, which need nothing there but python3 and bash."""

import shutil
from collections.abc import Callable
from typing import BinaryIO, ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.files import write_beside, writing
from tui_train.base.text import visible
from tui_train.facts import remote
from tui_train.facts.types import Facts
from tui_train.plan.types import Plan
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared
from tui_train.runs import far, rundir
from tui_train.runs.interrupts import NONE, Interrupts
from tui_train.runs.mirror import Mirror
from tui_train.runs.place import PLACE, Place, place_of
from tui_train.runs.resuming import resumption
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import BETWEEN
from tui_train.runs.status import status
from tui_train.supervisor.regular import open_regular
from tui_train.supervisor.state import Status
from tui_train.targets.elsewhere import with_files_here
from tui_train.targets.here import configs, named_python
from tui_train.trainers import paths_of


class Host(Struct, frozen=True):
    """A host, by its name for ssh."""

    name: str
    runs: ClassVar[bool] = True

    def survey(self) -> Facts:
        """Return the facts of the host."""
        return remote.facts(self.name)

    def look(self, profile: Profile) -> Facts:
        """Return the facts of the host that a plan needs."""
        python, paths, files = named_python(profile), paths_of(profile), configs(profile)
        return with_files_here(profile, remote.to_plan(self.name, python, paths, files))

    def submit(self, prepared: Prepared, plan: Plan, interrupts: Interrupts = NONE) -> RunDir:
        """Write the run folder here and there, and start it there."""
        interrupts.check("")
        run = rundir.create(plan.name, prepared.files)
        try:
            place = put(self.name, run, prepared)
            interrupts.check("")
            _start(run, place, ())
        except TuiTrainError:
            # A run that never started would only clutter the list.
            if not run.events():
                shutil.rmtree(run.path, ignore_errors=True)
            raise
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
        """Ask the host for a run's state."""
        if why := Mirror(run, follow=False).once():
            raise Unavailable(f"{visible(run.name)} cannot be asked about: {why}", f"Look at it there: ssh {self.name}")
        return status(run)

    def stop(self, run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """End a run and every process of it there, and return its state."""
        waiting()
        far.stop(_place(run), at_once=at_once, grace=status(run).grace)
        return self.state(run)

    def open_log(self, run: RunDir, attempt: int) -> BinaryIO:
        """Open the copy of the log of an attempt for reading."""
        return open_regular(run.attempt_log(attempt))


def put(host: str, run: RunDir, prepared: Prepared) -> Place:
    """Write a run's files on a host as well, and keep in its folder here where they are."""
    place = far.put(host, run.name, prepared.files)
    with writing(run.path / PLACE):
        write_beside(run.path / PLACE, msgspec.json.encode(place))
    return place


def _start(run: RunDir, place: Place, options: tuple[str, ...]) -> None:
    if said := far.start(place, BETWEEN, options):
        raise Unavailable(f"the run did not start on {place.host}: {said}", "Fix that, then start again.")
    Mirror(run, follow=False).once()


def _place(run: RunDir) -> Place:
    place = place_of(run.path)
    assert place is not None, "only a run with a place is a host's"  # noqa: S101 - for the type
    return place

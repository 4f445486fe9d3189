"""What Home reads: runs and profiles, the newest first, and live runs on other hosts from time to time."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from textual import work
from textual.message import Message
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError

from .home_actions import HomeActions

if TYPE_CHECKING:
    from tui_train.runs.rundir import RunDir
    from tui_train.workflow.cards import Card, Cards
    from tui_train.workflow.digest import Digest, Digests

_FIRST = 20  # runs that are read before any is shown
_PARTS = frozenset({_FIRST, 60, 200, 500})  # after how many of them all that is known is shown
_BREATH = 0.001  # in which keys are handled while many runs are read


class Found(Message):
    """The profiles and runs that are there."""

    def __init__(self, profiles: "tuple[Card, ...]", runs: "tuple[Digest, ...]", draft: "Card | None") -> None:
        """Carry both, and what was edited last."""
        super().__init__()
        self.profiles = profiles
        self.runs = runs
        self.draft = draft


class HomeReading(HomeActions):
    """A screen that posts what it finds, in parts while much of it is new."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        super().__init__()
        self.digests: Digests | None = None
        self.posted: tuple[tuple[Card, ...], tuple[Digest, ...], Card | None] | None = None
        self._cards: Cards | None = None
        self._order: tuple[int, tuple[RunDir, ...]] | None = None
        self._seen: tuple[str, ...] = ()
        self._reading = self._again = False

    def look(self) -> None:
        """Read what has changed, in a worker; one at a time."""
        self._again = self._reading
        if self._reading or self.app.screen is not self:
            return
        self._reading = True
        self._seen = self.list.seen
        self._read()

    @work(thread=True, group="home")
    def _read(self) -> None:
        from tui_train.workflow.cards import Cards
        from tui_train.workflow.digest import Digests

        self.digests = self.digests or Digests()
        self._cards = self._cards or Cards()
        self._read_all(self.digests, self._cards)
        self.app.call_from_thread(self._read_on)

    def _read_on(self) -> None:
        self._reading = False
        if self._again:
            self.look()

    def recover(self, group: str) -> None:
        """Read again later."""
        if group == "home":
            self._reading = False

    def _read_all(self, digests: "Digests", cards: "Cards") -> None:
        """Read runs and profiles; the newest are shown before the others are read."""
        worker, first = get_current_worker(), self._order is None
        profiles, runs = cards.list(read=not first), self._listed(quick=first)
        for number, run in enumerate(runs):
            if worker.is_cancelled:
                return
            digests.run(run)
            if first and number in _PARTS:
                self._post(profiles, tuple(map(digests.known, runs)))
            if first and number > _FIRST:
                time.sleep(_BREATH)
        if first:
            profiles, runs = cards.list(), self._listed(quick=False)
        self._post(profiles, tuple(map(digests.run, runs)))
        for run in runs:
            # The log of a failure is read when somebody sees that run.
            digest = digests.known(run)
            if f"run:{run.path}" in self._seen and digests.unexplained(digest) and not worker.is_cancelled:
                digests.explain(digest)
                self._post(profiles, tuple(map(digests.known, runs)))

    def _listed(self, *, quick: bool) -> "tuple[RunDir, ...]":
        """Return the runs, newest first; `quick`: many by their names alone, where a clock that was set back shows."""
        from tui_train.runs.rundir import all_runs, changed, runs_by_name

        now = changed()
        if quick and len(by_name := runs_by_name()) > _FIRST:
            return by_name
        if self._order is None or self._order[0] != now:
            self._order = now, all_runs()
        return self._order[1]

    def _post(self, profiles: "tuple[Card, ...]", runs: "tuple[Digest, ...]") -> None:
        draft = self._cards.draft() if self._cards else None
        if (profiles, runs, draft) != self.posted:
            self.posted = profiles, runs, draft
            self.post_message(Found(profiles, runs, draft))

    def ask_hosts(self) -> None:
        """Have the hosts of live runs asked, while the screen is shown."""
        asking = any(worker.group == "hosts" and not worker.is_finished for worker in self.app.workers)
        elsewhere = any(digest.now and digest.now.host for digest in self.runs.values())
        if self.app.screen is self and elsewhere and not asking:
            self._ask_each_host(tuple(digest.run for digest in self.runs.values() if digest.going))

    @work(thread=True, group="hosts")
    def _ask_each_host(self, runs: "tuple[RunDir, ...]") -> None:
        """Bring the live runs on other hosts, and those in a queue, up to date.

        What does not answer stays as it was heard.
        """
        from tui_train.runs.mirror import Mirror
        from tui_train.runs.place import place_of
        from tui_train.runs.queue import in_queue, refresh

        worker = get_current_worker()
        with suppress(TuiTrainError):
            refresh(runs)
        for run in runs:
            if worker.is_cancelled:
                return
            if place_of(run.path) and not in_queue(run.path):
                with suppress(TuiTrainError):
                    Mirror(run, follow=False).once()

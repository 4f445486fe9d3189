"""Reading for Home: runs and profiles, the newest first, and live runs on other hosts from time to time."""

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
    from tui_train.views.profile_cards import ProfileCard, ProfileCards
    from tui_train.views.run_digest import Digest, DigestCache

_FIRST_RUNS = 20  # runs that are read before any is shown
_POST_AFTER = frozenset({_FIRST_RUNS, 60, 200, 500})  # after how many of them all that is known is shown
_YIELD_SECONDS = 0.001  # in which keys are handled while many runs are read


class HomeContents(Message):
    """The profiles and runs that are there."""

    def __init__(
        self, profiles: "tuple[ProfileCard, ...]", runs: "tuple[Digest, ...]", draft: "ProfileCard | None"
    ) -> None:
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
        self.digests: DigestCache | None = None
        self.posted: tuple[tuple[ProfileCard, ...], tuple[Digest, ...], ProfileCard | None] | None = None
        self._cards: ProfileCards | None = None
        self._run_order: tuple[int, tuple[RunDir, ...]] | None = None
        self._visible_keys: tuple[str, ...] = ()
        self._reading = self._is_read_again = False

    def refresh_list(self) -> None:
        """Read what has changed, in a worker; one at a time."""
        self._is_read_again = self._reading
        if self._reading or self.app.screen is not self:
            return
        self._reading = True
        self._visible_keys = self.row_list.visible_keys
        self._read()

    @work(thread=True, group="home")
    def _read(self) -> None:
        from tui_train.views.profile_cards import ProfileCards
        from tui_train.views.run_digest import DigestCache

        self.digests = self.digests or DigestCache()
        self._cards = self._cards or ProfileCards()
        self._read_all(self.digests, self._cards)
        self.app.call_from_thread(self._read_if_asked)

    def _read_if_asked(self) -> None:
        self._reading = False
        if self._is_read_again:
            self.refresh_list()

    def recover(self, group: str) -> None:
        """Read again later."""
        if group == "home":
            self._reading = False

    def _read_all(self, digests: "DigestCache", cards: "ProfileCards") -> None:
        """Read runs and profiles; the newest are shown before the others are read."""
        worker, first = get_current_worker(), self._run_order is None
        profiles, runs = cards.saved_cards(read=not first), self._ordered_runs(quick=first)
        for number, run in enumerate(runs):
            if worker.is_cancelled:
                return
            digests.digest_of(run)
            if first and number in _POST_AFTER:
                self._post_contents(profiles, tuple(map(digests.last_digest, runs)))
            if first and number > _FIRST_RUNS:
                time.sleep(_YIELD_SECONDS)
        if first:
            profiles, runs = cards.saved_cards(), self._ordered_runs(quick=False)
        self._post_contents(profiles, tuple(map(digests.digest_of, runs)))
        for run in runs:
            # The log of a failure is read when somebody sees that run.
            digest = digests.last_digest(run)
            if (
                f"run:{run.path}" in self._visible_keys
                and digests.needs_explanation(digest)
                and not worker.is_cancelled
            ):
                digests.explain(digest)
                self._post_contents(profiles, tuple(map(digests.last_digest, runs)))

    def _ordered_runs(self, *, quick: bool) -> "tuple[RunDir, ...]":
        """Return the runs, newest first; `quick`: many by their names alone, where a clock that was set back shows."""
        from tui_train.runs.rundir import all_runs, runs_by_name, runs_stamp

        now = runs_stamp()
        if quick and len(by_name := runs_by_name()) > _FIRST_RUNS:
            return by_name
        if self._run_order is None or self._run_order[0] != now:
            self._run_order = now, all_runs()
        return self._run_order[1]

    def _post_contents(self, profiles: "tuple[ProfileCard, ...]", runs: "tuple[Digest, ...]") -> None:
        draft = self._cards.draft() if self._cards else None
        if (profiles, runs, draft) != self.posted:
            self.posted = profiles, runs, draft
            self.post_message(HomeContents(profiles, runs, draft))

    def update_hosts(self) -> None:
        """Have the hosts of live runs asked, while the screen is shown."""
        asking = any(worker.group == "hosts" and not worker.is_finished for worker in self.app.workers)
        elsewhere = any(digest.now and digest.now.host for digest in self.runs.values())
        if self.app.screen is self and elsewhere and not asking:
            self._update_host_runs(tuple(digest.run for digest in self.runs.values() if digest.stoppable))

    @work(thread=True, group="hosts")
    def _update_host_runs(self, runs: "tuple[RunDir, ...]") -> None:
        """Bring the live runs on other hosts, and those in a queue, up to date.

        What does not answer stays as it was heard.
        """
        from tui_train.runs.other_machines.mirror import Mirror
        from tui_train.runs.other_machines.place import place_of
        from tui_train.runs.other_machines.queue import in_queue, refresh_jobs

        worker = get_current_worker()
        with suppress(TuiTrainError):
            refresh_jobs(runs)
        for run in runs:
            if worker.is_cancelled:
                return
            if place_of(run.path) and not in_queue(run.path):
                with suppress(TuiTrainError):
                    Mirror(run, follow=False).update_once()

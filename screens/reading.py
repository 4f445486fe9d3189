"""The part of the wizard that reads training data: in a child of the Python that trains, after a second of quiet."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from textual import on
from textual.timer import Timer
from textual.worker import get_current_worker

from .keeping import Keeping
from .messages import OpenData

if TYPE_CHECKING:
    from tui_train.facts.data import DataQuestion, DataReport
    from tui_train.facts.types import Toolchain
    from tui_train.workflow.machines import Source

_PART = "data"
_QUIET = 1.0  # seconds without a change


class _Asked(NamedTuple):
    key: str
    question: "DataQuestion"
    toolchain: "Toolchain"

    @property
    def python(self) -> str:
        """The Python that reads."""
        return self.toolchain.python


class Reading(Keeping):
    """An app that has the data of a fine-tuning read; a newer question takes the place of an older one."""

    def __init__(self, source: "Source | None" = None) -> None:
        """Begin with nothing read."""
        super().__init__(source)
        self._wants: _Asked | None = None  # what is being read, or will be once nothing changes
        self._read_by: dict[str, str] = {}  # the Python of each answer
        self._quiet: Timer | None = None

    def watch_profile(self) -> None:
        """Read what a changed profile names."""
        super().watch_profile()
        self._read_data()

    def watch_facts(self) -> None:
        """Read once the Python and the files are known."""
        super().watch_facts()
        self._read_data()

    def action_look(self, later: float = 0) -> None:
        """Look at everything again, the data as well: it may have changed."""
        if self.facts and self._source is None:
            self._read_by.clear()
            self._wants = None
            self.facts = replace(self.facts, data={})
            self._read_data()
        super().action_look(later)

    def _read_data(self) -> None:
        wanted = self._unread()
        if wanted == self._wants:
            return
        before, self._wants = self._wants, wanted
        if self._quiet:
            self._quiet.stop()
        # One that has just answered ends by itself.
        if before and self._read_by.get(before.key) != before.python:
            self.workers.cancel_group(self, _PART)
        if wanted is None:
            self.looking -= {_PART}
            return
        self.expect(_PART)
        self._quiet = self.set_timer(_QUIET, partial(self.ask, _PART, partial(self._answer, wanted)))

    def _unread(self) -> _Asked | None:
        """Return what is to be asked of the data and was not; None where nothing is."""
        profile, facts = self.profile, self.facts
        if facts is None or self._source:
            return None
        from tui_train.trainers import trainer_of

        if not trainer_of(profile).wants_data:
            return None
        from tui_train.targets.here import data_question

        asked = data_question(profile, facts)
        if asked is None or any(facts.paths.get(path, "missing") == "missing" for path in asked[1].files):
            return None
        wanted = _Asked(*asked)
        known = wanted.key in facts.data and self._read_by.get(wanted.key, wanted.python) == wanted.python
        return None if known else wanted

    def _answer(self, asked: _Asked) -> "dict[str, DataReport]":
        from tui_train.facts.data_cache import read_data

        worker = get_current_worker()
        look = read_data(asked.toolchain, asked.question, cancelled=lambda: worker.is_cancelled)
        if worker.is_cancelled:
            # It says no more than that it was ended.
            return {}
        self._read_by[asked.key] = asked.python
        return {asked.key: look}

    @on(OpenData)
    def _open_data(self) -> None:
        from .data import DataView
        from .step import Step

        if not isinstance(self.screen, DataView):
            view = DataView(self.screen.place if isinstance(self.screen, Step) else "")
            self.share(view)
            self.push_screen(view)

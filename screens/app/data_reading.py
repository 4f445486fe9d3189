"""The part of the wizard that reads training data: in a child of the Python that trains, after a second of quiet."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from textual.timer import Timer
from textual.worker import get_current_worker

from .profile_edits import ProfileEditingApp

if TYPE_CHECKING:
    from tui_train.actions.machine_facts import FactsSource
    from tui_train.facts.data.data_report import DataQuestion, DataReport
    from tui_train.facts.types import Toolchain

_DATA_FACTS_PART = "data"
_UNCHANGED_SECONDS_BEFORE_READING = 1.0  # seconds without a change


class _DataQuery(NamedTuple):
    key: str
    question: "DataQuestion"
    toolchain: "Toolchain"

    @property
    def python(self) -> str:
        """The Python that reads."""
        return self.toolchain.python


class DataReadingApp(ProfileEditingApp):
    """An app that has the data of a fine-tuning read; a newer question takes the place of an older one."""

    def __init__(self, source: "FactsSource | None" = None) -> None:
        super().__init__(source)
        self._wanted_query: _DataQuery | None = None  # what is being read, or will be once nothing changes
        self._pythons_by_key: dict[str, str] = {}  # the Python of each answer
        self._quiet_timer: Timer | None = None

    def watch_profile(self) -> None:
        """Read what a changed profile names."""
        super().watch_profile()
        self._start_reading_data()

    def watch_facts(self) -> None:
        """Read once the Python and the files are known."""
        super().watch_facts()
        self._start_reading_data()

    def action_look(self, delay_seconds: float = 0) -> None:
        """Look at everything again, the data as well: it may have changed."""
        if self.facts and self._source is None:
            self._pythons_by_key.clear()
            self._wanted_query = None
            self.facts = replace(self.facts, data={})
            self._start_reading_data()
        super().action_look(delay_seconds)

    def _start_reading_data(self) -> None:
        wanted = self._query_for_unread_data()
        if wanted == self._wanted_query:
            return
        before, self._wanted_query = self._wanted_query, wanted
        if self._quiet_timer:
            self._quiet_timer.stop()
        # One that has just answered ends by itself.
        if before and self._pythons_by_key.get(before.key) != before.python:
            self.workers.cancel_group(self, _DATA_FACTS_PART)
        if wanted is None:
            self.looking -= {_DATA_FACTS_PART}
            return
        self.mark_parts_expected(_DATA_FACTS_PART)
        self._quiet_timer = self.set_timer(
            _UNCHANGED_SECONDS_BEFORE_READING,
            partial(self.run_query, _DATA_FACTS_PART, partial(self._read_data, wanted)),
        )

    def _query_for_unread_data(self) -> _DataQuery | None:
        """Return what is to be asked of the data and was not; None where nothing is."""
        profile, facts = self.profile, self.facts
        if facts is None or self._source:
            return None
        from tui_train.trainers import trainer_of

        if not trainer_of(profile).wants_data:
            return None
        from tui_train.places.profile_facts import data_question_with_key_and_python

        asked = data_question_with_key_and_python(profile, facts)
        if asked is None or any(facts.paths.get(path, "missing") == "missing" for path in asked[1].files):
            return None
        wanted = _DataQuery(*asked)
        known = wanted.key in facts.data and self._pythons_by_key.get(wanted.key, wanted.python) == wanted.python
        return None if known else wanted

    def _read_data(self, query: _DataQuery) -> "dict[str, DataReport]":
        from tui_train.facts.data.data_cache import read_data_report

        worker = get_current_worker()
        look = read_data_report(query.toolchain, query.question, is_cancelled=lambda: worker.is_cancelled)
        if worker.is_cancelled:
            # It says no more than that it was ended.
            return {}
        self._pythons_by_key[query.key] = query.python
        return {query.key: look}

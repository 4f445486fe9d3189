"""Reading of the training data: by the Python that trains, where it trains, after a second of quiet."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from textual.timer import Timer
from textual.worker import get_current_worker

from ..discovery.discovery import DiscoveryApp

if TYPE_CHECKING:
    from tui_train.facts.data.data_report import DataQuestion, DataReport
    from tui_train.facts.types import Toolchain

_DATA_FACTS_PART = "data"
_UNCHANGED_SECONDS_BEFORE_READING = 1.0  # seconds without a change


class _DataQuery(NamedTuple):
    key: str
    question: "DataQuestion"
    toolchain: "Toolchain"
    host: str  # empty for this machine
    file_states: tuple[object, ...]

    @property
    def basis(self) -> tuple[object, ...]:
        """On what an answer to the question depends: the Python that reads, its host, and the files as they are."""
        return self.host, self.toolchain.python, self.file_states


class DataReader:
    """Reads the data of a fine-tuning in a worker; a newer question replaces an older one."""

    def __init__(self, app: DiscoveryApp) -> None:
        """Begin with nothing read."""
        self._app = app
        self._wanted_query: _DataQuery | None = None  # what is being read, or will be once nothing changes
        self._basis_by_key: dict[str, tuple[object, ...]] = {}  # of each answer
        self._quiet_timer: Timer | None = None

    def read_again(self) -> None:
        """Read all of it again: it may have changed."""
        if self._app.facts and self._is_read_where_it_trains:
            self._basis_by_key.clear()
            self._wanted_query = None
            self._app.facts = replace(self._app.facts, data={})
            self.read_if_changed()

    @property
    def _is_read_where_it_trains(self) -> bool:
        """True on this machine and on a host; not on the machine of a file, nor on a login node."""
        place = self._app.other_place
        return place is None or bool(place.host and not place.slurm)

    def read_if_changed(self) -> None:
        """Read what the profile names, once the Python and the files are known and nothing changes."""
        wanted = self._unread_data_query()
        if wanted == self._wanted_query:
            return
        before, self._wanted_query = self._wanted_query, wanted
        if self._quiet_timer:
            self._quiet_timer.stop()
        # One that has just answered ends by itself.
        if before and self._basis_by_key.get(before.key) != before.basis:
            self._app.workers.cancel_group(self._app, _DATA_FACTS_PART)
        if wanted is None:
            self._app.awaited_parts -= {_DATA_FACTS_PART}
            return
        self._app.mark_parts_awaited(_DATA_FACTS_PART)
        self._quiet_timer = self._app.set_timer(
            _UNCHANGED_SECONDS_BEFORE_READING,
            partial(self._app.run_query, _DATA_FACTS_PART, partial(self._read_data, wanted)),
        )

    def _unread_data_query(self) -> _DataQuery | None:
        """Return what is to be asked of the data and was not; None where nothing is."""
        profile, facts = self._app.profile, self._app.facts
        if facts is None or not self._is_read_where_it_trains:
            return None
        from tui_train.trainers import trainer_of

        if not trainer_of(profile).requires_user_data:
            return None
        from tui_train.places.profile_facts import data_question_with_key_and_python

        asked = data_question_with_key_and_python(profile, facts)
        if asked is None or any(facts.paths.get(path, "missing") == "missing" for path in asked[1].files):
            return None
        key, question, toolchain = asked
        named = (*question.files, *(reward.file for reward in question.rewards), question.model)
        states = tuple(facts.file_states.get(path) for path in named)
        wanted = _DataQuery(key, question, toolchain, facts.host, states)
        is_known = key in facts.data and self._basis_by_key.get(key, wanted.basis) == wanted.basis
        return None if is_known else wanted

    def _read_data(self, query: _DataQuery) -> "dict[str, DataReport]":
        from tui_train.actions.host_data import read_data_or_say_why_not
        from tui_train.facts.data.data_cache import read_data_report

        worker = get_current_worker()
        if query.host:
            python, question = query.toolchain.python, query.question
            look = read_data_or_say_why_not(query.host, python, question, lambda: worker.is_cancelled)
        else:
            look = read_data_report(query.toolchain, query.question, is_cancelled=lambda: worker.is_cancelled)
        if worker.is_cancelled:
            # It says no more than that it was ended.
            return {}
        self._basis_by_key[query.key] = query.basis
        return {query.key: look}

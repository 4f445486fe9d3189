"""Random keys, mouse, pastes and sizes do not hurt the wizard; TUI_TRAIN_TEST_EVENTS says how many (100)."""

import os

import pytest
import random_events
from random_events import failure_report, play_session
from try_counts import TRIES_PROPERTY

_EVENTS = int(os.environ.get("TUI_TRAIN_TEST_EVENTS", "100"))
_SESSION = min(300, _EVENTS)
# So that several processes share them, and one that fails leaves the others.
_PARTS = max(1, _EVENTS // 10_000)
_SESSIONS = -(-_EVENTS // _SESSION // _PARTS)
_FIRST = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))


@pytest.mark.timeout(300 + _EVENTS)
@pytest.mark.parametrize("part", range(_PARTS))
def test_random_events_bring_no_fault(part, record_property):
    failed = []
    for seed in range(_FIRST + part * _SESSIONS, _FIRST + (part + 1) * _SESSIONS):
        every = dict(enumerate(random_events.random_events(seed, _SESSION)))
        if faults := play_session(seed, [*every.values()]):
            failed.append(failure_report(seed, every, faults[0]))
    record_property(TRIES_PROPERTY, ["random events in the wizard", _SESSIONS * _SESSION, len(failed)])
    assert not failed, "\n".join(failed)

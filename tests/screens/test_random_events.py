"""Random keys, mouse, pastes and sizes do not hurt the wizard; TUI_TRAIN_TEST_EVENTS says how many (100)."""

import os
from typing import Any
from unittest import mock

import pytest
import random_events
from counting import PROPERTY
from random_events import Fault, describe, play
from tui_train.screens.home.screen import Home

_EVENTS = int(os.environ.get("TUI_TRAIN_TEST_EVENTS", "100"))
_SESSION = min(300, _EVENTS)
# So that several processes share them, and one that fails leaves the others.
_PARTS = max(1, _EVENTS // 10_000)
_SESSIONS = -(-_EVENTS // _SESSION // _PARTS)
_FIRST = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))


@pytest.mark.timeout(300 + _EVENTS)
@pytest.mark.parametrize("part", range(_PARTS))
def test_random_events_bring_no_fault(part: int, record_property: Any) -> None:
    failed = []
    for seed in range(_FIRST + part * _SESSIONS, _FIRST + (part + 1) * _SESSIONS):
        every = dict(enumerate(random_events.random_events(seed, _SESSION)))
        if faults := play(seed, [*every.values()]):
            failed.append(describe(seed, every, faults[0]))
    record_property(PROPERTY, ["random events in the wizard", _SESSIONS * _SESSION, len(failed)])
    assert not failed, "\n".join(failed)


@pytest.mark.whole
def test_a_fault_is_found_shrunk_and_can_be_played_again(capsys: Any, monkeypatch: Any) -> None:
    """The harness itself: it finds a fault that needs two events, and no others are left."""
    opened: list[str] = []

    def new(self: Home) -> None:
        opened.append("new")
        if len(opened) == 2:
            raise RuntimeError("the second time")

    events = [("key", "tab", True), *[("letter", "n", True), ("size", 90, 30, True)] * 2, ("key", "down", True)]
    original = play

    def again(*arguments: Any) -> list[Fault]:
        opened.clear()
        return original(*arguments)

    monkeypatch.setattr(random_events, "random_events", lambda *_: events)
    monkeypatch.setattr(random_events, "play", again)
    with mock.patch.object(Home, "action_new", new):
        every = dict(enumerate(events))
        (fault, *_) = again(7, events)
        assert fault.name == "RuntimeError in test_random_events.py:new: the second time"
        words = describe(7, every, fault)
        assert '  1: ["letter", "n", true]\n  3: ["letter", "n", true]\nAgain' in words
        arguments = words.split("tests/random_events.py ")[1].split()
        assert arguments == ["7", "--events", "6", "--only", "1,3"]
        monkeypatch.setattr("sys.argv", ["random_events.py", *arguments])
        assert random_events.main() == 1
        assert "7: 2 events" in capsys.readouterr().out


@pytest.mark.whole
def test_a_wizard_that_no_longer_answers_is_a_fault(monkeypatch: Any) -> None:
    monkeypatch.setattr(random_events, "_STUCK", 0.3)

    def never(_self: Home) -> None:
        while True:
            pass

    with mock.patch.object(Home, "action_new", never):
        (fault, *_) = play(7, [("letter", "n", True)])
    assert fault.name.startswith("Stuck in ")

"""Keys as a terminal sends them: Esc counts at once, and one whose bytes come in pieces is one key."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import textual._parser
from terminal import Terminal, go_to_recipe
from textual import events
from tui_train.screens.app import terminal as terminal_module
from tui_train.screens.app.terminal import KeyParser

Type = Callable[..., list[str]]


@pytest.fixture(params=[pytest.param("", id="local"), pytest.param("10.0.0.1 50000 10.0.0.2 22", id="ssh")])
def ssh(request: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Have the terminal at this machine, or at the other end of ssh."""
    monkeypatch.delenv("ESCDELAY", raising=False)
    monkeypatch.setenv("SSH_CONNECTION", request.param)
    return bool(request.param)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, ssh: bool) -> Type:
    """Return what feeds bytes, and lets seconds go by where a number stands, and returns the keys."""
    now = [1000.0]
    monkeypatch.setattr(terminal_module, "get_time", lambda: now[0])
    monkeypatch.setattr(textual._parser, "get_time", lambda: now[0])
    parser = KeyParser()

    def feed(*parts: str | float) -> list[str]:
        found = []
        for part in parts:
            if isinstance(part, str):
                found += parser.feed(part)
            else:
                now[0] += part
                found += parser.tick()
        return [event.key for event in found if isinstance(event, events.Key)]

    return feed


def test_esc_waits_only_where_the_line_is_slow(typed, ssh):
    assert typed("\x1b", 0.03) == ([] if ssh else ["escape"])
    assert typed(0.1) == (["escape"] if ssh else [])
    assert typed("\x1b\x1b", 0.2) == ["escape", "escape"]


@pytest.mark.parametrize(("answer", "slow"), [(0.005, False), (0.2, True)])
def test_a_terminal_that_answers_shows_how_slow_it_is(typed, answer, slow):
    assert typed(answer, "\x1b[?2026;2$y") == []
    assert typed("\x1b", 0.03) == ([] if slow else ["escape"])


@pytest.mark.parametrize("gap", [0.01, 0.4])
def test_an_arrow_in_two_pieces_is_one_key(typed, gap, ssh):
    assert typed("\x1b[", gap, "B") == ["down"]
    assert typed("\x1bO", gap, "B") == ["down"]
    assert typed("\x1b[1;", gap, "5A", "x") == ["ctrl+up", "x"]
    if gap < 0.02:
        assert typed("\x1b", gap, "[B") == ["down"]


@pytest.mark.parametrize("rest", ["[B", "OB", "[1;5A", "[3~", "[<0;10;10M"])
def test_the_rest_of_a_key_that_was_taken_for_esc_is_not_typed(typed, rest):
    """And from then on such a pause is waited for."""
    assert typed("\x1b", 0.13, rest, "x") == ["escape", "x"]
    assert typed(1.0, "\x1b", 0.13, "[B", "x") == ["down", "x"]


def test_what_is_typed_after_esc_is_typed_and_a_sequence_whose_end_is_lost_types_nothing(typed):
    assert typed("\x1b", 0.2, "[", "B") == ["escape", "left_square_bracket", "B"]
    assert typed("\x1b", 0.2, "OK") == ["escape", "O", "K"]
    assert typed("\x1b", 0.2, 1.0, "[B") == ["escape", "left_square_bracket", "B"]
    assert typed("\x1b[1;", 1.0, "x") == ["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines", "two\nlines"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("up\x1b[A, q\x1bq", "up, q"),
        ("\x1b", ""),
        ("end\x1b[201", "end"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("bytes_at_once", [1, 5, 99])
def test_escape_sequences_in_a_paste_are_neither_keys_nor_its_end(text, expected, bytes_at_once):
    parser, found = KeyParser(), []
    sent = f"x\x1b[200~{text}\x1b[201~y"
    for at in range(0, len(sent), bytes_at_once):
        found += parser.feed(sent[at : at + bytes_at_once])
    assert [event.key for event in found if isinstance(event, events.Key)] == ["x", "y"]
    pasted = "".join(event.text for event in found if isinstance(event, events.Paste))
    assert "\x1b" not in pasted
    # Of a sequence that comes in pieces, a rest may be left as text.
    assert pasted == expected or bytes_at_once < len(sent)


def test_escdelay_is_what_the_user_says(monkeypatch):
    monkeypatch.setenv("ESCDELAY", "500")
    parser = KeyParser()
    before = parser._escape_delay
    assert [*parser.feed("\x1b[?2026;2$y")] != []
    assert parser._escape_delay == before == terminal_module.ESCAPE_DELAY


@pytest.mark.whole
@pytest.mark.training
def test_esc_and_a_divided_arrow_in_a_terminal(terminals):
    terminals.append(terminal := Terminal(SSH_CONNECTION=""))
    go_to_recipe(terminal)
    terminal.wait_for_any("▌Layers")
    os.write(terminal.child.fileno(), b"\x1b[")
    time.sleep(0.2)
    os.write(terminal.child.fileno(), b"B")
    shown = terminal.wait_for_any("▌Hidden size")
    assert "B" not in shown.split("Hidden size")[1].splitlines()[0]
    terminal.press("\x1b", "● 2 Backend")

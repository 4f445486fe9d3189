"""LogFile: the lines of a log of any size, from any place, whatever bytes it holds and whatever becomes of it."""

import os
import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import example_count

from tui_train.runner.logs.lines import (
    RANK_PREFIX_PATTERN_TEMPLATE,
    StyledPart,
    lines_left_on_terminal,
    rank_in_line,
    styled_lines_left_on_terminal,
)
from tui_train.runs.logs import logfile
from tui_train.runs.logs.logfile import LogFile, LogFileLine

PIECES = [*"\x1b[31m;0K\t\r\x07]", "\x1b[1;31m", "\x1b[m", "\x1b[0m", "ab", "中", "\x1b[A"]
# Short blocks show in few bytes what long ones show in many.
SMALL = 8
LOGS = st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bc", b"0123456789", b"\xff", b"\x1b[31m"]), max_size=60).map(
    b"".join
)


@pytest.fixture
def log(tmp_path):
    return LogFile(tmp_path / "log")


def whole(log):
    return [*log.lines_from(0)]


@settings(max_examples=example_count(300))
@given(data=LOGS)
def test_every_place_of_a_log_gives_the_lines_of_the_whole_of_which_only_long_ones_are_cut(tmp_path_factory, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logfile, "BLOCK_BYTES", SMALL)
        patch.setattr(logfile, "_BYTES_PER_READ", 2 * SMALL)
        log = LogFile(tmp_path_factory.mktemp("log") / "log")
        log.path.write_bytes(data)
        lines = whole(log)
        assert b"".join(data[line.start : line.end] for line in lines) == data
        for offset in range(len(data) + 2):
            assert [*log.lines_from(offset)] == [line for line in lines if line.end > offset]
            assert [*log.lines_before(offset)] == [line for line in lines if line.start < offset][::-1]
    joined = [b""]
    for line in lines:
        joined[-1] += line.data
        assert len(line.data) < 2 * SMALL
        if not line.cut:
            joined.append(b"")
    split = data.split(b"\n")
    assert joined[:-1] == split[: len(joined) - 1]
    assert {piece for piece in split if len(piece) < SMALL} <= {*joined}
    # In blocks as they are, none is.
    lines = whole(log)
    assert [line.data for line in lines] == (split if split[-1] else split[:-1])
    assert not any(line.cut for line in lines)


def test_an_endless_bar_shows_few_of_its_states(log):
    bar = b"\r 17%|##        | 2/12 [00:00<00:01,  5.51it/s]"
    log.path.write_bytes(bar * ((8 << 20) // len(bar)))
    shown = [line for line in whole(log) if not line.is_hidden_bar_state]
    assert 7 <= len(shown) <= 10
    assert not shown[-1].cut
    assert all(lines_left_on_terminal(line.shown_data)[-1].startswith(" 17%|##") for line in shown)


def test_what_is_not_there_has_no_lines(log, tmp_path):
    assert (whole(log), [*log.lines_before(100)], log.size(), log.read_bytes(0, 9)) == ([], [], 0, b"")
    log.path.write_bytes(b"")
    assert (whole(log), [*log.lines_before(100)]) == ([], [])
    folder = LogFile(tmp_path)
    assert (whole(folder), [*folder.lines_before(5)], folder.read_bytes(0, 9)) == ([], [], b"")


def test_a_log_may_change_under_its_reader(log):
    log.path.write_bytes(b"one\n" * 100_000)
    reading = log.lines_from(0)
    assert next(reading) == LogFileLine(0, 4, b"one")
    os.truncate(log.path, 12)
    assert len([*reading]) < 100_000
    before = log.change_stamp()
    beside = log.path.with_name("beside")
    beside.write_bytes(b"new\n" * 3)
    beside.rename(log.path)
    assert log.change_stamp() != before
    assert [line.data for line in log.lines_before(log.size())] == [b"new"] * 3
    assert next(log.lines_before(1 << 40)).data == b"new"
    log.path.unlink()
    assert (log.change_stamp(), whole(log)) == ((0, 0), [])


def test_the_end_of_a_large_log_costs_no_more_than_that_of_a_small_one(log, monkeypatch):
    with log.path.open("wb") as file:
        file.seek(1 << 40)
        file.write(b"\n" + b"line\n" * 100_000)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: read.append(count) or pread(fd, count, at))
    assert len([*islice(log.lines_before(log.size()), 40)]) == 40
    assert sum(read) < 1 << 20
    assert [line.data for line in islice(log.lines_from((1 << 40) + 3), 2)] == [b"line", b"line"]


@settings(max_examples=example_count(500))
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_colours_leave_the_text_as_it_is(text):
    line = text.encode()
    assert ["".join(run.text for run in row) for row in styled_lines_left_on_terminal(line)] == lines_left_on_terminal(
        line
    )


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        (b"\x1b[31mred\x1b[0m not", (StyledPart("red", "31"), StyledPart(" not"))),
        (b"\x1b[1m\x1b[31mx\x1b[my", (StyledPart("x", "1;31"), StyledPart("y"))),
        (b"a\x1b[1mb\x1b[00;32mc", (StyledPart("a"), StyledPart("b", "1"), StyledPart("c"))),
        (b"\x1b[38;5;196mx", (StyledPart("x", "38;5;196"),)),
        (b"\x1b[2Ja\x1b]8;;http://x\x07b\x1b[5n", (StyledPart("ab"),)),
    ],
)
def test_colours_are_told_apart_and_nothing_else_is_obeyed(line, runs):
    assert styled_lines_left_on_terminal(line) == [runs]


def test_colours_without_end_cost_nothing():
    assert max(len(run.colour) for run in styled_lines_left_on_terminal(b"\x1b[1;31mx" * 10_000)[0]) < 300


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("[rank1]: Traceback (most recent call last):", 1),
        ("[default0]:step 5", 0),
        ("[12]: x", 12),
        ("i.llm/0 [default3]:Training epoch 0", 3),
        ("[NeMo W 2026] x", None),
        ("x [rank1]: y", None),
        ("[rank1] x", None),
    ],
)
def test_lines_tell_their_rank(line, number):
    assert rank_in_line(line) == number
    assert number is None or re.search(RANK_PREFIX_PATTERN_TEMPLATE % number, line)

"""Tail: a growing log in pieces, as a terminal would leave its lines, whatever bytes it holds."""

import tracemalloc
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import example_count

from tui_train.runner.logs.lines import MAX_LINE_LENGTH, lines_left_on_terminal
from tui_train.runs.logs.tail import LogTail

BAR = b"\r 17%|\xe2\x96\x88\xe2\x96\x8b        | 2/12 [00:00<00:01,  5.51it/s]"
SHOWN = " 17%|█▋        | 2/12 [00:00<00:01,  5.51it/s]"
BLANKED = b"\r" + b" " * 46 + b"\r"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "attempt-1.log"


def written(log, data):
    with log.open("ab") as file:
        file.write(data)


def everything(log, **where):
    tail = LogTail(log, **where)
    return [*tail.remaining_lines()], tail


def test_lines_come_when_they_are_whole(log):
    tail = LogTail(log)
    assert (tail.next_lines(), tail.unfinished_line, tail.unread_bytes) == ([], "", 0)
    written(log, b"one\ntw")
    assert tail.unread_bytes == 6
    assert (tail.next_lines(), tail.unfinished_line) == (["one"], "tw")
    assert (tail.next_lines(), tail.unfinished_line) == ([], "tw")
    written(log, b"o\n\nthree\n")
    assert (tail.next_lines(), tail.unfinished_line, tail.unread_bytes) == (["two", "", "three"], "", 0)


@settings(max_examples=example_count(200))
@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(1, 40)))
def test_how_a_log_is_cut_makes_no_difference(tmp_path_factory, lines, cuts):
    log = tmp_path_factory.mktemp("tail") / "log"
    data = b"\n".join(lines)
    tail, found, rest = LogTail(log), [], data
    for cut in cuts:
        written(log, rest[:cut])
        rest = rest[cut:]
        found += tail.remaining_lines()
    written(log, rest)
    found += tail.remaining_lines()
    whole, _, last = data.rpartition(b"\n")
    assert found == (
        [shown for line in whole.split(b"\n") for shown in lines_left_on_terminal(line)] if b"\n" in data else []
    )
    assert tail.offset == len(data)
    for shown in (*found, tail.unfinished_line):
        assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert bool(tail.unfinished_line) <= bool(last)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", ["plain"]),
        (b"", [""]),
        (b"windows\r", ["windows"]),
        (b"a\tb", ["a       b"]),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x", ["red x"]),
        (b"\x1b[2K\x1b[1;5Htext\x1b(B", ["text\\x1b(B"]),
        (b"bell\x07 null\0 del\x7f", ["bell\\x07 null\\x00 del\\x7f"]),
        ("left\u202eright \u2028 \ufeff".encode(), ["left\\u202eright \\u2028 \\ufeff"]),
        (b"caf\xe9 \xff", ["caf\ufffd \ufffd"]),
        ("中文 🚀".encode(), ["中文 🚀"]),
        (b"[bold]markup[/bold]", ["[bold]markup[/bold]"]),
        (b"10%\r20%\r30%", ["30%"]),
        (b"10%\r20%\r   ", ["20%"]),
        (b"10%\r20%\r\r", ["20%"]),
        # A bar alone, a bar that a log line overwrites, a bar below another one, and one that is wiped away.
        (BAR + BAR, [SHOWN]),
        (BAR + BLANKED + b"{'loss': '3.911'}", [SHOWN, "{'loss': '3.911'}"]),
        (BAR + BLANKED, [SHOWN]),
        (BAR + b"\x1b[A", []),
        (BLANKED + b"\x1b[A{'eval_loss': '3.906'}", ["{'eval_loss': '3.906'}"]),
        (b"\r" + b" " * 9 + b"\x1b[A" + BAR + BLANKED + b"{'loss': '3.9'}", [SHOWN, "{'loss': '3.9'}"]),
        (BLANKED, []),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_leave_it(line, shown):
    assert lines_left_on_terminal(line) == shown


def test_a_bar_at_work_is_the_unfinished_line(log):
    tail = LogTail(log)
    written(log, BAR)
    assert (tail.next_lines(), tail.unfinished_line, tail.progress_bar) == ([], SHOWN, SHOWN)
    written(log, b"\r  0%|   | 0/8 [00:00<?, ?it/s]\x1b[A")
    tail.next_lines()
    # The bar of an evaluation is shown while it works, but tells nothing of the training.
    assert (tail.unfinished_line, tail.progress_bar) == ("  0%|   | 0/8 [00:00<?, ?it/s]", SHOWN)
    written(log, b"\n")
    assert (tail.next_lines(), tail.unfinished_line, tail.progress_bar) == ([SHOWN], "", "")


def test_reading_takes_bounded_memory_however_long_the_line(log):
    with log.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
    tracemalloc.start()
    tail = LogTail(log)
    pieces = 0
    while tail.unread_bytes:
        before = tail.offset
        assert tail.next_lines() == []
        assert tail.offset - before <= 1 << 20
        assert len(tail.unfinished_line) <= MAX_LINE_LENGTH
        pieces += 1
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert pieces == 64
    written(log, b"\nend\n")
    lines = tail.next_lines()
    assert [lines[0][:3], len(lines[0]), lines[1]] == ["xxx", MAX_LINE_LENGTH, "end"]


def test_nothing_after_a_long_line_is_missed(log):
    written(log, BAR * 60_000 + b"\nend\n")
    assert everything(log)[0] == [SHOWN, "end"]


def test_one_may_begin_near_the_end_also_within_a_progress_bar(log):
    written(log, b"".join(b"line %d\n" % number for number in range(10_000)))
    lines, tail = everything(log, last_bytes=100)
    assert lines == [f"line {number}" for number in range(9991, 10_000)]
    assert tail.skipped + len("".join(f"{line}\n" for line in lines)) == log.stat().st_size == tail.offset
    assert everything(log, last_bytes=1 << 30)[0][0] == "line 0"
    written(log, BAR * 5000)
    lines, tail = everything(log, last_bytes=1000)
    assert (lines, tail.unfinished_line) == ([], SHOWN)


def test_one_may_skip_ahead(log):
    written(log, b"a\n" * 1000)
    tail = LogTail(log)
    tail.skip_to_last(10)
    assert len([*tail.remaining_lines()]) <= 5
    assert tail.skipped >= 1990
    tail.skip_to_last(100)
    assert tail.skipped <= 2000


def test_an_emptied_log_is_read_anew(log):
    written(log, b"before\n" * 100 + b"half")
    tail = LogTail(log)
    assert len([*tail.remaining_lines()]) == 100
    log.write_bytes(b"after\n")
    assert tail.unread_bytes == 6
    assert [*tail.remaining_lines()] == ["after"]


def test_a_log_that_cannot_be_read_ends(log):
    log.mkdir()
    tail = LogTail(log)
    assert ([*tail.remaining_lines()], tail.unfinished_line) == ([], "")

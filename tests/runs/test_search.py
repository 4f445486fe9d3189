"""Searching a log: the nearest line up and down, all lines that match, in a child that can be ended at any time."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import wait_until

from tui_train.runner.logs.lines import RANK_PREFIX_PATTERN_TEMPLATE, lines_left_on_terminal
from tui_train.runs.logs import scan as scanning
from tui_train.runs.logs.logfile import LogFile
from tui_train.runs.logs.scan import LogScan
from tui_train.runs.logs.search import FilteredLog, start_nearest_search

LINES = ["loss 1", "LOSS 2", "\x1b[1mlo\x1b[0mss 3", "x\rloss 4", "loss 5\rx", "", "é loss"]


@pytest.fixture
def log(tmp_path):
    return LogFile(tmp_path / "log")


def found(log, expressions, offset=0, *, up=False):
    search = start_nearest_search(log.path, offset, expressions, upward=up)
    told = [*search.updates()][-1]
    search.cancel()
    return told


def shown(filtered):
    return [line.data.decode() for line in filtered.lines_from(0)]


@settings(max_examples=40)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=30),
    expression=st.sampled_from(["loss", "LOSS", "^loss \\d$", "s+ [2-4]", "x$", "é", "$", "\\sloss", "o.s"]),
    window=st.sampled_from([7, 64, 1 << 20]),
)  # fmt: skip
def test_what_matches_is_what_matches_as_it_is_shown(tmp_path_factory, lines, expression, window):
    log = LogFile(tmp_path_factory.mktemp("scan") / "log")
    log.path.write_text("\n".join(lines), newline="")
    search = re.compile(expression, re.IGNORECASE if expression == expression.lower() else 0).search
    wanted = [line.start for line in log.lines_from(0) if any(map(search, lines_left_on_terminal(line.data)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "SCAN_WINDOW_BYTES", window)
        scan = LogScan(log, (expression,))
        assert [
            line.start for part in scanning.split_into_windows(0, log.size()) for line in scan.matching_lines(*part)
        ] == wanted
        for offset in range(log.size() + 1):
            for up in (False, True):
                told = []
                scanning.report_nearest_match(
                    scan, offset, upward=up, report=lambda told=told, **news: told.append(news)
                )
                ahead = [start for start in wanted if (start < offset if up else start >= offset)]
                order = (ahead or wanted)[:: -1 if up else 1]
                assert told[-1].get("hit") == (order[0] if order else None)
                assert told[-1].get("around", False) == bool(order and not ahead)


def test_a_hit_tells_where_it_matches(log):
    log.path.write_bytes(b"first\n\x1b[31mloss\x1b[0m 1, Loss 2\nlast loss\n")
    told = found(log, ["loss"])
    assert (told.hit, told.end, told.spans, told.around) == (6, 30, (((0, 4), (8, 12)),), False)
    assert found(log, ["Loss"]).spans == (((8, 12),),)
    assert (told.number, told.line_count) == (1, 2)
    assert found(log, ["loss"], 7).hit == 30
    assert found(log, ["loss"], 7, up=True).number == 1
    assert found(log, ["loss"], 7).number == 2
    assert found(log, ["loss"], 31).around
    assert found(log, ["loss", "last"]).hit == 30
    assert found(log, ["absent"]).done
    assert found(log, ["absent"]).hit is None


@pytest.mark.parametrize("expression", ["(a", "[", "*", "(?P<x>a)(?P<x>b)", "a{2,1}"])
def test_what_is_no_expression_is_said(log, expression):
    log.path.write_bytes(b"a\n")
    assert found(log, [expression]).error


def test_an_expression_that_takes_for_ever_can_be_ended(log):
    log.path.write_bytes(b"a" * 60 + b"!\n")
    search = start_nearest_search(log.path, 0, ["(a+)+$"], upward=False)
    child = psutil.Process(search._child.pid)
    wait_until(lambda: sum(child.cpu_times()[:2]) > 0.3)
    search.cancel()
    assert not psutil.pid_exists(child.pid)
    assert [*search.updates()] == []


def test_a_search_ends_with_its_viewer(log, tmp_path):
    log.path.write_bytes(b"a" * 60 + b"!\n")
    code = (
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n"
        "import time; from pathlib import Path; from tui_train.runs.logs.search import start_nearest_search\n"
        f"print(start_nearest_search(Path({str(log.path)!r}), 0, ['(a+)+$'], upward=False)._child.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as viewer:
        child = int(viewer.stdout.readline())
        wait_until(lambda: sum(psutil.Process(child).cpu_times()[:2]) > 0.3)
        viewer.send_signal(signal.SIGKILL)
        viewer.wait()
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.whole
def test_a_filter_follows_the_log(log):
    log.path.write_bytes(b"".join(b"line %d\n" % number for number in range(300_000)) + b"line 9")
    filtered = FilteredLog(log, ["9$"])
    try:
        assert [*filtered.search.updates()][-1].done
        wanted = [f"line {number}" for number in range(300_000) if number % 10 == 9]
        assert shown(filtered) == wanted
        with log.path.open("ab") as file:
            file.write(b"9\nno\nline 19\n")
        wait_until(lambda: filtered.line_count() == len(wanted) + 2)
        wanted += ["line 99", "line 19"]
        assert shown(filtered) == wanted
        assert [line.data.decode() for line in filtered.lines_before(log.size())] == wanted[::-1]
        middle = next(log.lines_from(1_000_000)).start
        assert next(filtered.lines_from(middle)).start >= middle > next(filtered.lines_before(middle)).start
    finally:
        filtered.close()


def test_a_filter_shows_one_rank(log):
    log.path.write_bytes(b"[rank0]: a\n[default1]:b loss\nc loss\n[rank1]: d\ni.llm/0 [default1]:e loss\n")
    for expressions, wanted in (
        ((RANK_PREFIX_PATTERN_TEMPLATE % 1,), 3),
        ((RANK_PREFIX_PATTERN_TEMPLATE % 1, "loss"), 2),
        ((RANK_PREFIX_PATTERN_TEMPLATE % 7,), 0),
    ):
        filtered = FilteredLog(log, expressions)
        assert [*filtered.search.updates()][-1].done
        assert filtered.line_count() == wanted
        filtered.close()

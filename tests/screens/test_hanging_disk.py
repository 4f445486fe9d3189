"""A disk that does not answer: the screens still do, and can be left."""

import os
import threading
import time
from contextlib import suppress

import pexpect
import pytest
from pilot import live_run, screen_text, until_true, wait_for_text
from terminal import Terminal

from tui_train.base import time_limit
from tui_train.base.app_paths import runs_folder
from tui_train.base.time_limit import TimeLimitError, call_within
from tui_train.views import run_ends
from tui_train.wizard import make_wizard

# Put before the program: whatever reads the folder of the runs waits for good.
HANGING_OS = """\
import os, time
def hanging(real):
    def read(path=".", *words, **options):
        while isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith({folder!r}):
            time.sleep(60)
        return real(path, *words, **options)
    return read
for name in ("scandir", "listdir", "stat", "lstat", "open"):
    setattr(os, name, hanging(getattr(os, name)))
"""


@pytest.fixture
def hanging_runs(monkeypatch):
    """Make the folder of the runs one that is listed only once this is set."""
    answers, list_folder = threading.Event(), os.scandir

    def wait_and_list(path="."):
        if os.fspath(path) == str(runs_folder()):
            answers.wait(60)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", wait_and_list)
    yield answers
    answers.set()


def test_a_call_that_is_late_is_left_behind():
    assert call_within(60, lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        call_within(60, lambda: 1 / 0)
    with pytest.raises(TimeLimitError):
        call_within(0.01, lambda: time.sleep(0.5))


def test_a_call_that_ends_as_it_is_given_up_is_not_late(monkeypatch):
    released, ended = threading.Event(), threading.Event()

    class EndsWhenGivenUp(time_limit.Future):
        def set_result(self, result):
            super().set_result(result)
            ended.set()

        def done(self):
            released.set()
            ended.wait(60)
            return super().done()

    monkeypatch.setattr(time_limit, "Future", EndsWhenGivenUp)
    assert call_within(0.01, lambda: released.wait(60)) is True


async def test_home_answers_and_is_left_while_the_runs_cannot_be_listed(machine, hanging_runs):
    before = time.monotonic()
    app = make_wizard()
    async with app.run_test() as pilot:
        await pilot.press("f1")
        await until_true(pilot, lambda: "PgUp PgDn" in screen_text(pilot))
        await pilot.press("escape", "q")
        await until_true(pilot, lambda: app.return_code == 0)
        assert time.monotonic() - before < 30
        hanging_runs.set()


@pytest.mark.whole
def test_the_program_ends_while_the_runs_cannot_be_read(tmp_path):
    runs_folder().mkdir(parents=True)
    (tmp_path / "sitecustomize.py").write_text(HANGING_OS.format(folder=str(runs_folder())))
    terminal = Terminal(PYTHONPATH=str(tmp_path))
    try:
        terminal.wait_for_any("1/6", "Home")
        terminal.press("\x1bOP", "PgUp PgDn")
        terminal.press("\x1b", "Enter Open")
        terminal.child.send("q")
        with suppress(pexpect.EOF):
            terminal.child.expect(pexpect.EOF, timeout=30)
        terminal.child.wait()
        assert terminal.child.exitstatus == 0
    finally:
        terminal.child.close(force=True)


async def test_the_question_before_a_stop_waits_for_no_disk(machine, tmp_path, monkeypatch):
    answers, newest_checkpoint = threading.Event(), run_ends.newest_checkpoint

    def wait_and_look(*words):
        answers.wait(60)
        return newest_checkpoint(*words)

    monkeypatch.setattr(run_ends, "newest_checkpoint", wait_and_look)
    async with make_wizard(str(live_run(tmp_path).path)).run_test(size=(80, 24)) as pilot:
        try:
            await wait_for_text(pilot, "s Stop", during=True)
            await pilot.press("s")
            await wait_for_text(pilot, "Stop this training?", "Reading its checkpoints", "No, let it run", during=True)
        finally:
            answers.set()
        await wait_for_text(pilot, "It has no checkpoint yet", during=True)
        assert "Reading its checkpoints" not in screen_text(pilot)

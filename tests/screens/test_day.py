"""A day's work by keys alone, in a real terminal: yesterday's failed run is found, changed, run again and compared."""

import json
import time
from pathlib import Path

import pexpect
import pytest
from support import bash, copies, facts, ready, sleeping
from terminal import Terminal

from tui_train.profile import store
from tui_train.runs import rundir
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import read_status

pytestmark = pytest.mark.training

FITS_TWO = """
import sys
for step in range(1, 21):
    print(f"step {step}/20 | loss {4 / step:.4f}", flush=True)
    if step == 5 and int(sys.argv[1]) > 2:
        sys.exit("ValueError: the loss needs at most two samples")
"""
DOWN, ENTER, ESCAPE = "\x1b[B", "\r", "\x1b"


def made(script: Path, name: str, micro_batch: int, days: float) -> RunDir:
    """A run of so many days ago, which fails with more than two samples."""
    chosen = {"trainer.script": str(script), "recipe.micro_batch": micro_batch}
    run = rundir.create_run(name, ready(sleeping("{micro_batch}", **chosen, name=name), facts()).files)
    bash(run)
    events = [json.loads(line) for line in run.events_file.read_text().splitlines()]
    moved = [{**event, "time": event["time"] - days * 86400} for event in events]
    run.events_file.write_text("".join(f"{json.dumps(event)}\n" for event in moved))
    return run


def to_row(terminal: Terminal, label: str) -> None:
    """Move down to a row, one at a time."""
    for _ in range(30):
        if f"▌{label}" in terminal.text():
            return
        here = cursor(terminal)
        terminal.child.send(DOWN)
        deadline = time.monotonic() + 20
        while cursor(terminal) == here and time.monotonic() < deadline:
            pass
    terminal.see(f"▌{label}")


def cursor(terminal: Terminal) -> list[str]:
    """The rows of the screen with the mark of the cursor."""
    return [line for line in terminal.text().splitlines() if line.startswith("▌")]


def test_a_failed_run_is_found_changed_run_again_compared_and_deleted(terminals, tmp_path):
    script = tmp_path / "fits.py"
    script.write_text(FITS_TWO)
    copies(made(script, "older", 1, 9), 58)
    failed = made(script, "qwen", 8, 1)
    assert read_status(failed).state == "failed"
    terminals.append(terminal := Terminal(NO_COLOR="1"))
    terminal.see("yesterday")
    terminal.press("/", "Filter")
    terminal.press("failed", "1 of 60 runs")
    to_row(terminal, "✗")
    terminal.press(ENTER, "● 5 Run")
    terminal.see("The script raised")
    terminal.press("e", "● 3 Recipe")
    to_row(terminal, "Micro")
    terminal.child.send("2")
    terminal.press(ENTER, "● 4 Preview")
    terminal.see("8 → 2")
    terminal.press(ENTER, "● 5 Run")
    terminal.see("✓ finished")
    (again,) = (run for run in rundir.all_runs() if run.name > failed.name)
    assert store.load(str(again.profile)).recipe.micro_batch == 2
    # The footer of Run has the word as well.
    terminal.press("c", "› Compare")
    compared = terminal.see("Micro batch")
    assert ["Micro", "batch", "8", "2"] in [line.split() for line in compared.splitlines()]
    for key, wanted in ((ESCAPE, "✓ finished"), (ESCAPE, "✗ failed"), (ESCAPE, "1 of 61 runs"), ("d", "Delete the")):
        terminal.press(key, wanted)
    terminal.press(DOWN, "▌ Delete")
    terminal.press(ENTER, "0 of 60 runs")
    assert not failed.path.exists()
    assert again.path.exists()
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)

"""The wizard as users meet it: in a real terminal of 80x24, by keys alone, while real trainings run."""

import json
import select
import signal
import time
from pathlib import Path

import pexpect
import psutil
import pytest
from fake_driver import MACHINES, driver_environment
from support import marked, until
from terminal import Terminal

from tui_train.actions.last_profile import remember_profile
from tui_train.profile.fields import put
from tui_train.profile.types import Profile
from tui_train.runs.rundir import RunDir, all_runs
from tui_train.runs.status import status

pytestmark = pytest.mark.training


def to_preview(terminal: Terminal) -> None:
    """Go from Home to Preview by Enter alone."""
    terminal.see("New training")
    terminal.press("\r", "● 1 Hardware")
    terminal.see("No GPU was found")
    terminal.press("\r", "● 2 Backend")
    terminal.see("the best one")
    terminal.press("\r", "● 3 Recipe")
    terminal.see("= 8 × accumulation 2")


@pytest.fixture
def quick(warm_python: str) -> None:
    """The wizard begins with a Python that has imported what trains."""
    remember_profile(put(Profile(), "trainer.python", warm_python))


def running(terminal: Terminal) -> RunDir:
    """Start a training that lasts until it is stopped; return its run."""
    terminal.see("Continue the draft")
    terminal.press("\x1b[B", "▌+ Continue")
    terminal.press("\r", "● 1 Hardware")
    terminal.see("No GPU was found")
    terminal.press("\r", "● 2 Backend")
    terminal.press("\r", "● 3 Recipe")
    for row in ("Hidden", "Heads", "Sequence", "Micro", "Global", "Steps"):
        terminal.press("\x1b[B", f"▌{row}")
    terminal.press("600000", "600000")
    terminal.press("\r", "● 4 Preview")
    terminal.see("Command")
    terminal.press("\r", "● 5 Run")
    terminal.see("tokens/s", 90)
    return all_runs()[0]


def test_from_home_to_a_finished_training_by_keys_alone(terminals: list[Terminal], tmp_path: Path) -> None:
    terminals.append(terminal := Terminal(NO_COLOR="1"))
    to_preview(terminal)
    preview = terminal.press("\r", "● 4 Preview")
    assert "What will happen" in terminal.see("Command"), preview
    terminal.press("f", "#!/usr/bin/env")
    terminal.press("\r", "● 5 Run")
    terminal.see("tokens/s", 90)
    ui = psutil.Process(terminal.child.pid)
    libraries = Path(f"/proc/{ui.pid}/maps").read_text()
    assert "libtorch" not in libraries, "the UI process must not load torch"
    assert "_psutil" in libraries or "msgspec" in libraries, "this is the process that we mean"
    terminal.see("finished", 120)
    shown = terminal.see("60/60")
    assert "loss" in shown
    run = all_runs()[0]
    assert status(run).exit_code == 0
    assert (run.path / "output" / "model.safetensors").is_file()
    terminal.press("\x1b", "New training")
    terminal.see("finished")
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0


@pytest.mark.usefixtures("quick")
def test_a_killed_wizard_leaves_the_training_which_is_opened_again_and_stopped(terminals: list[Terminal]) -> None:
    terminals.append(first := Terminal())
    run = running(first)
    first.child.kill(signal.SIGKILL)
    first.child.close(force=True)
    time.sleep(1)
    before = status(run)
    assert before.live
    terminals.append(second := Terminal())
    second.see("Running")
    second.press("\t", "Stop run")
    second.press("\r", "● 5 Run")
    second.see("tokens/s")
    second.press("s", "Stop this training?")
    second.child.send("\x1b[B\r")
    second.see("stopped", 60)
    # The trainer says so first.
    until(lambda: status(run).state == "stopped", 60)
    assert marked(before.mark) == ()


@pytest.mark.whole
def test_a_large_log_is_read_at_its_ends_and_searched_at_once(terminals: list[Terminal], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "launch.sh").touch()
    now = time.time()
    started = {"time": now, "event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"}
    attempt = {"time": now, "event": "attempt_started", "attempt": 1, "position": 1}
    ended = {"time": now, "event": "run_ended", "state": "finished", "exit_code": 0}
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in (started, attempt, ended)))
    with (run / "attempt-1.log").open("wb") as log:
        log.write(b"the first line\n\x1b[2J\x1b[31mno escape\x07\n")
        log.seek(1 << 24)  # one endless line
        log.write(b"\nthe needle\n" + b"after it\n" * 100_000 + b"the last line\n")
    terminals.append(terminal := Terminal("attach", str(run), NO_COLOR="1"))
    terminal.see("the last line")
    terminal.press("g", "no escape\\x07")
    assert "the first line" in terminal.text()
    # All in one write, as a slow line may bring it.
    terminal.press("/the nee.le$\r", "/the nee.le$")
    assert "the needle" in terminal.text()
    terminal.press("G", "the last line")
    terminal.press("f^the\r", "matching ^the")
    assert "after it" not in terminal.see("3 lines matching")
    ui = psutil.Process(terminal.child.pid)
    assert ui.memory_info().rss < 120 << 20
    quiet = 0
    for _ in range(20):  # seconds, of which some go by while the machine is looked at
        quiet = 0 if select.select([terminal.child.fileno()], [], [], 1)[0] else quiet + 1
        terminal.text()
        if quiet == 5:
            break
    assert quiet == 5, "nothing changes, and something is sent"


@pytest.mark.usefixtures("quick")
def test_q_asks_before_it_leaves_a_live_run_which_then_goes_on(terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal())
    run = running(terminal)
    terminal.press("q", "Leave it running")
    terminal.child.send("\r")
    terminal.child.expect(pexpect.EOF)
    assert status(run).live


def test_a_driver_that_hangs_delays_neither_the_first_screen_nor_the_end(terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(**driver_environment("init-hangs")))
    terminal.see("New training", 5)
    terminal.press("\r", "● 1 Hardware")
    assert "Looking at this machine" in terminal.see("Looking")
    began = time.monotonic()
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0
    assert time.monotonic() - began < 2


def test_a_card_that_hangs_hides_no_other_and_delays_nothing(terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(columns=120, **driver_environment("one-card-hangs")))
    terminal.see("New training", 5)
    terminal.press("\r", "● 1 Hardware")
    shown = terminal.see("does not respond", 15)
    assert shown.count("RTX 3090") >= 1
    began = time.monotonic()
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)
    assert time.monotonic() - began < 2


def test_a_card_that_is_lost_under_the_wizard_shows_as_lost(terminals: list[Terminal], tmp_path: Path) -> None:
    file = tmp_path / "machine.txt"
    whole = (MACHINES / "seed-3090-gt1030-3090.txt").read_text()
    file.write_text(whole)
    terminals.append(terminal := Terminal(columns=120, **driver_environment(file)))
    terminal.see("New training", 5)
    terminal.press("\r", "● 1 Hardware")
    terminal.see("GT 1030", 15)
    beside = tmp_path / "beside.txt"
    beside.write_text(whole.replace("used = 310 MiB", "used = 1500 MiB").replace("display = on", "temperature = 93"))
    beside.rename(file)
    terminal.see("93 °C", 10)
    lost = whole.replace("uuid = GPU-addf6be6-9a6e-c331-da9e-b0ab90813984", "uuid = !GPU_IS_LOST")
    beside.write_text(lost.replace("memory = 2048 MiB", "memory = !GPU_IS_LOST"))
    beside.rename(file)
    assert "RTX 3090" in terminal.see("fallen off the bus", 10)
    ui = psutil.Process(terminal.child.pid)
    libraries = Path(f"/proc/{ui.pid}/maps").read_text()
    assert "libnvidia-ml" not in libraries, "the driver's library is for child processes"


def test_a_terminal_that_cannot_show_it_is_told_what_else_there_is() -> None:
    terminal = Terminal(TERM="dumb")
    assert "tui-train quickstart" in terminal.see("quickstart")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 69

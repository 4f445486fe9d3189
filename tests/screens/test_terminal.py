"""The wizard as users meet it: in a real terminal of 80x24, by keys alone, while real trainings run."""

import signal
from pathlib import Path

import pexpect
import pytest
from fake_driver import MACHINES_FOLDER, driver_environment
from support import export_run, facts, living_run_pids, profile, run_launch_script, sleeper_profile, wait_until
from terminal import Terminal, go_to_preview

from tui_train.actions.last_profile import remember_profile_without_secrets
from tui_train.runs.run_folders import list_runs
from tui_train.runs.status import read_status

pytestmark = pytest.mark.training


def leave(terminal: Terminal) -> None:
    """Leave the wizard, and wait until it has ended."""
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0


def libraries_of(terminal: Terminal) -> str:
    """Return what the wizard's process has loaded."""
    libraries = Path(f"/proc/{terminal.child.pid}/maps").read_text()
    assert "_psutil" in libraries or "msgspec" in libraries, "this is the process that we mean"
    return libraries


@pytest.mark.whole
def test_from_home_to_a_finished_training_by_keys_alone(terminals):
    terminals.append(terminal := Terminal(NO_COLOR="1"))
    terminal.wait_for_any("See it work")
    for pressed, step, words in (
        ("\r", "● 1 Hardware", "no GPU was found"), ("\r", "● 2 Backend", "▌Model"),
        ("\x1b[A", "▌Trainer", "Python, launcher"), ("\x1b[C", "Pretrain a new one", "python, 1 process"),
        ("\r", "● 3 Recipe", "= 8 × accumulation 2"), ("\r", "● 4 Preview", "Command"),
    ):  # fmt: skip
        terminal.press(pressed, step)
        terminal.wait_for_any(words)
    assert "What will happen" in terminal.text()
    terminal.press("f", "#!/usr/bin/env")
    terminal.press("\r", "● 5 Run")
    terminal.wait_for_any("tokens/s", seconds=90)
    assert "libtorch" not in libraries_of(terminal), "the UI process must not load torch"
    terminal.wait_for_any("finished", seconds=120)
    assert "loss" in terminal.wait_for_any("60/60")
    run = list_runs()[0]
    assert read_status(run).exit_code == 0
    assert (run.path / "output" / "model.safetensors").is_file()
    terminal.press("\x1b", "New training")
    terminal.wait_for_any("finished")
    leave(terminal)


ENDS_IN_A_CALLBACK = """
import os, signal, sys, weakref

class Ends:
    def find_spec(self, name, path=None, target=None):
        if name == "textual.app" and sys.meta_path[0] is self:
            del sys.meta_path[0]
            last = Ends()
            kept = weakref.ref(last, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del last

sys.meta_path.insert(0, Ends())
"""


def test_a_signal_in_the_middle_of_an_import_ends_it(terminals, tmp_path):
    """What a handler raises there is lost, as in any callback of a weak reference."""
    (tmp_path / "sitecustomize.py").write_text(ENDS_IN_A_CALLBACK)
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=600"), facts())
    terminals.append(terminal := Terminal("attach", str(run.path), PYTHONPATH=str(tmp_path)))
    terminal.child.expect(pexpect.EOF, timeout=60)
    terminal.child.close()
    assert terminal.child.signalstatus == signal.SIGTERM


def test_the_script_of_a_mistake_is_opened_where_it_is(terminals, tmp_path):
    script, asked = tmp_path / "own.py", tmp_path / "asked"
    script.write_text("rows = {}\nprint(rows['label'])\n")
    own = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(script)}
    run, _ = export_run(tmp_path / "run", profile(own), facts())
    assert run_launch_script(run).returncode == 1
    editor = f"sh -c 'echo $0 $1 > {asked}; sleep 1'"
    terminals.append(terminal := Terminal("attach", str(run.path), EDITOR=editor, VISUAL=""))
    terminal.wait_for_any("2  print(rows['label'])")
    terminal.press("E", "")
    wait_until(asked.exists)
    assert asked.read_text() == f"+2 {script}\n"
    terminal.wait_for_any("Look at line 2")
    terminal.child.send("q")
    terminal.child.expect(pexpect.EOF)


def test_a_killed_wizard_leaves_the_training_which_is_opened_again_and_stopped(terminals):
    remember_profile_without_secrets(sleeper_profile("--seconds=600"))
    terminals.append(first := Terminal())
    go_to_preview(first)
    first.press("\r", "● 5 Run")
    first.wait_for_any("tick")
    (run,) = list_runs()
    first.child.kill(signal.SIGKILL)
    first.child.close(force=True)
    terminals.append(second := Terminal())
    second.wait_for_any("Running")
    before = read_status(run)
    assert before.is_live
    second.wait_for_any("Stop run")
    second.press("\r", "● 5 Run")
    second.wait_for_any("tick")
    second.press("s", "Stop this training?")
    second.child.send("\x1b[B\r")
    second.wait_for_any("stopped")
    # The trainer says so first.
    wait_until(lambda: read_status(run).state == "stopped", 60)
    assert living_run_pids(before.mark) == ()


@pytest.mark.whole
@pytest.mark.parametrize(
    ("driver", "seen", "words"),
    [("init-hangs", "Looking", "Looking at this machine"), ("one-card-hangs", "does not respond", "RTX 3090")],
)
def test_a_driver_or_card_that_hangs_hides_no_other_and_delays_nothing(terminals, driver, seen, words):
    terminals.append(terminal := Terminal(columns=120, **driver_environment(driver)))
    terminal.wait_for_any("See it work")
    terminal.press("\r", "● 1 Hardware")
    assert words in terminal.wait_for_any(seen)
    leave(terminal)


@pytest.mark.whole
def test_a_card_that_is_lost_under_the_wizard_shows_as_lost(terminals, tmp_path):
    file = tmp_path / "machine.txt"
    whole = (MACHINES_FOLDER / "seed-3090-gt1030-3090.txt").read_text()
    file.write_text(whole)
    terminals.append(terminal := Terminal(columns=120, **driver_environment(file)))
    terminal.wait_for_any("See it work")
    terminal.press("\r", "● 1 Hardware")
    terminal.wait_for_any("GT 1030")
    beside = tmp_path / "beside.txt"
    beside.write_text(whole.replace("used = 310 MiB", "used = 1500 MiB").replace("display = on", "temperature = 93"))
    beside.rename(file)
    terminal.wait_for_any("93 °C")
    lost = whole.replace("uuid = GPU-addf6be6-9a6e-c331-da9e-b0ab90813984", "uuid = !GPU_IS_LOST")
    beside.write_text(lost.replace("memory = 2048 MiB", "memory = !GPU_IS_LOST"))
    beside.rename(file)
    assert "RTX 3090" in terminal.wait_for_any("fallen off the bus")
    assert "libnvidia-ml" not in libraries_of(terminal), "the driver's library is for child processes"


def test_a_terminal_that_cannot_show_it_is_told_what_else_there_is():
    terminal = Terminal(TERM="dumb")
    assert "tui-train quickstart" in terminal.wait_for_any("quickstart")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 69

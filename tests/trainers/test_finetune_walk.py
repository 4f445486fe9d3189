"""Fine-tuning as users meet it: in a real terminal of 80x24, by keys alone, from a chat file to a trained adapter."""

import json
import subprocess
from pathlib import Path

import pytest
from chats import MARKED, says, user, written
from support import SCRIPTS, TRL, with_trl
from terminal import Terminal

from tui_train.actions.last_profile import remember_profile
from tui_train.profile import store
from tui_train.profile.fields import with_value
from tui_train.profile.types import Profile
from tui_train.runs.rundir import all_runs
from tui_train.runs.status import read_status
from tui_train.views.previous_run import expected_pace, find_previous_run

pytestmark = pytest.mark.training
DOWN, RIGHT, LEFT, F5 = "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[15~"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model with a chat template, and a chat file with two bad rows."""
    (tmp_path / "template").write_text(MARKED)
    made = tmp_path / "tiny"
    made.mkdir()
    words = [TRL, str(SCRIPTS / "tokenizer.py"), str(made), "--with-model", f"--template={tmp_path}/template"]
    subprocess.run(words, check=True, capture_output=True)
    rows = [{"messages": [user(f"the quick {n}"), says(f"brown fox {n}")]} for n in range(30)]
    written(tmp_path / "chat.jsonl", [rows[0], {"messages": []}, *rows[1:], {"messages": [user("hi")]}])
    return tmp_path


@with_trl
def test_from_home_to_an_adapter_by_keys_alone(terminals: list[Terminal], folder: Path) -> None:
    # Where Python is: this machine has more of them than a new user's.
    remember_profile(with_value(Profile(), "trainer.python", TRL))
    terminals.append(terminal := Terminal(NO_COLOR="1", HF_HUB_OFFLINE="1"))
    terminal.see("Continue the draft")
    terminal.press(DOWN, "▌+ Continue")
    terminal.press("\r", "● 1 Hardware")
    terminal.see("No GPU was found")
    terminal.press("\r", "● 2 Backend")
    terminal.press(LEFT, "● Fine-tune a model")
    terminal.press(DOWN, "▌Model")
    terminal.press(f"{folder}/tiny", "tiny")
    terminal.press(DOWN, "▌Training data")
    terminal.press(f"{folder}/chat.jsonl", "chat.jsonl")
    shown = terminal.see("2 left out", 90)
    assert "32 rows · messages" in shown
    shown = terminal.press(F5, "Backend › Data")
    assert "Sample 1" in terminal.see("▌ brown fox", 20), "without colour the mark of what is learned is there"
    terminal.press(RIGHT, "Sample 2")
    terminal.press("\x1b", "● 2 Backend")
    terminal.press("\r", "● 3 Recipe")
    terminal.see("≈ 6 steps")
    terminal.press("\r", "● 4 Preview")
    shown = terminal.see("Command", 60)
    terminal.press("\r", "● 5 Run")
    terminal.see("finished", 240)
    (run,) = all_runs()
    assert read_status(run).exit_code == 0
    assert "tiny-chat-sft-lora" in run.name
    lines = (run.path / "data/train.jsonl").read_text().splitlines()
    assert len(lines) == 30
    assert all(json.loads(line)["messages"] for line in lines)
    assert [*(run.path / "output").rglob("adapter_model.safetensors")]
    profile = store.load(str(run.profile))
    found = expected_pace(find_previous_run(profile), profile)
    assert found, "the next one like it says how long it takes, though epochs end it"
    assert 0 < found.seconds < 60

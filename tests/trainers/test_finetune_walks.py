"""Ways through a fine-tuning by keys alone, in a terminal of 80x24: DPO, and what the Hub and the disk refuse."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub
from support import SCRIPTS, profile
from test_data import MARKED, ROWS, TRL, with_trl, written
from test_hub import files
from test_terminal import Terminal
from test_terminal import terminals as terminals  # noqa: PLC0414 - a fixture

from tui_train.actions.last_profile import remember_profile
from tui_train.runs.rundir import RunDir, all_runs
from tui_train.runs.status import status

pytestmark = [pytest.mark.training, pytest.mark.whole, pytest.mark.timeout(600)]
UP, DOWN, F2, F5 = "\x1b[A", "\x1b[B", "\x1bOQ", "\x1b[15~"
SMALL = {
    "trainer.kind": "finetune", "trainer.python": TRL, "recipe.sequence_length": 128, "recipe.micro_batch": 2,
    "recipe.global_batch": 4, "recipe.steps": 3, "ladder.rungs": (),
}  # fmt: skip


def rows(name: str) -> list[dict[str, object]]:
    """Return twelve rows of a format, each another one."""
    words = {"quick": "quick {}", "Yes": "Yes {}", '"yo"': '"yo {}"', '"3"': '"3 {}"', "blue": "blue {}"}
    made = []
    for number in range(12):
        text = json.dumps(ROWS[name])
        for word, numbered in words.items():
            text = text.replace(word, numbered.format(number))
        made.append(json.loads(text))
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a chat template."""
    made = tmp_path_factory.mktemp("walks") / "tiny"
    made.mkdir()
    (made / "template").write_text(MARKED)
    words = [TRL, str(SCRIPTS / "tokenizer.py"), str(made), "--with-model", f"--template={made}/template"]
    subprocess.run(words, check=True, capture_output=True)
    return made


def to_backend(terminals: list[Terminal], *, command: list[str] | None = None, **environment: str) -> Terminal:
    """Go to the model's row of Backend, with a small fine-tuning as the draft."""
    terminals.append(terminal := Terminal(command=command, **{"NO_COLOR": "1", **environment}))
    terminal.see("Continue the draft")
    terminal.press(DOWN, "▌+ Continue")
    terminal.press("\r", "● 1 Hardware")
    terminal.see("No GPU was found")
    terminal.press("\r", "● 2 Backend")
    terminal.press(DOWN, "▌Model")
    return terminal


def to_run(terminal: Terminal) -> RunDir:
    """Start from Backend, and return the run."""
    terminal.press("\r", "● 3 Recipe")
    terminal.press("\r", "● 4 Preview")
    terminal.see("writes the run folder", 60)
    terminal.press("\r", "● 5 Run")
    (run,) = all_runs()
    return run


def chosen(terminal: Terminal, model: Path | str, data: Path) -> None:
    """Type the model and the data."""
    terminal.press(str(model), Path(model).name)
    if not Path(model).is_absolute():
        terminal.press(DOWN, "▌Revision")
    terminal.press(DOWN, "▌Training data")
    terminal.press(str(data), data.name)


@with_trl
def test_preferences_are_learned_by_dpo(terminals: list[Terminal], tmp_path: Path, model: Path) -> None:
    remember_profile(profile(SMALL))
    data = written(tmp_path / "rows.jsonl", rows("preference"))
    terminal = to_backend(terminals, HF_HUB_OFFLINE="1")
    chosen(terminal, model, data)
    terminal.see("12 rows · preference pairs", 90)
    terminal.press(F5, "Backend › Data")
    terminal.see("method dpo")
    terminal.press(F2, "✗  green")
    terminal.press("\x1b", "● 2 Backend")
    run = to_run(terminal)
    assert "dpo" in run.name
    terminal.see("finished", 240)
    assert [*(run.path / "output").rglob("adapter_model.safetensors")]


class Huge(bytes):
    """Weights that would fill any disk."""

    def __len__(self) -> int:
        """Return a petabyte."""
        return 2**50


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with a model of 3 MiB, one that is gated, and one that is larger than any disk."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    huge = files() | {"model.safetensors": Huge(b"x")}
    models = {"acme/tiny": files(3 << 20), "acme/gated": files(), "acme/huge": huge}
    with Hub(models, gated=["acme/gated"]) as stood_in:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", stood_in.url)
        yield stood_in


@with_trl
@pytest.mark.usefixtures("hub")
def test_a_gated_model_and_a_full_disk_are_said_before_the_start(terminals: list[Terminal], tmp_path: Path) -> None:
    remember_profile(profile(SMALL))
    data = written(tmp_path / "rows.jsonl", rows("text"))
    terminal = to_backend(terminals)
    chosen(terminal, "acme/huge", data)
    terminal.see("acme/huge needs", 20)
    terminal.press(UP, "▌Revision")
    terminal.press(UP, "▌Model")
    terminal.press("\x15acme/gated", "acme/gated is gated")
    assert all_runs() == ()


@with_trl
@pytest.mark.parametrize(
    ("name", "limit", "words"),
    [("acme/gated", "unlimited", "acme/gated needs an account"), ("acme/tiny", "1024", "The disk is full")],
)
def test_a_download_that_fails_is_explained(request: pytest.FixtureRequest, name: str, limit: str, words: str) -> None:
    terminals, folder = request.getfixturevalue("terminals"), request.getfixturevalue("tmp_path")
    request.getfixturevalue("hub")
    remember_profile(profile(SMALL))
    data = written(folder / "rows.jsonl", rows("text"))
    limited = ["bash", "-c", f"ulimit -f {limit}; exec {sys.executable} -m tui_train"]
    terminal = to_backend(terminals, command=limited, HF_TOKEN="hf_" + "b" * 34)
    chosen(terminal, name, data)
    terminal.see("12 rows", 90)
    run = to_run(terminal)
    terminal.see(words, 120)
    assert status(run).state == "failed"

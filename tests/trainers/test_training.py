"""Real trainings on the CPU, from a profile through the exported script; test_ladder_real.py has those with faults."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from support import SCRIPTS, export_run, facts, profile, run_launch_script, values_taken_by_preset, wait_until
from tiny_trainings import TINY_RECIPE, attempt_log_text, checkpoint_losses, train_tiny_model

from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.runner.logs.progress import Progress, advance_progress
from tui_train.runs.local_start import start_run
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.results.result import read_result
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training


@pytest.fixture(scope="module", autouse=True)
def _python(warm_python):
    """All but a few of these train with a Python that has imported the libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TINY_RECIPE, "trainer.python", warm_python)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A training that nothing happens to: its run and the loss of each step."""
    run, _ = train_tiny_model(tmp_path_factory.mktemp("undisturbed"))
    return run, checkpoint_losses(run.path / "output")


def test_plain_python(undisturbed):
    run, found = undisturbed
    assert sorted(found) == [*range(1, 9)]
    assert found[8] < found[1] - 0.3
    left = read_result(run)
    assert (left.source, left.weights.kind, left.weights.problem) == ("final", "model", "")
    assert (run.path / "output" / "tokenizer.json").is_file()
    now = read_status(run)
    assert (now.state, len(now.attempts)) == ("finished", 1)
    progress = advance_progress(Progress(), LogTail(run.attempt_log(1)).remaining_lines())
    assert (progress.step, progress.steps, len(progress.curve.points())) == (8, 8, 8)
    assert progress.tokens_per_second > 0
    assert re.search(r"rank 0/1 \| .* device cpu", attempt_log_text(run, 1))


@pytest.mark.whole
def test_started_again_it_says_from_where_it_resumes_and_that_nothing_was_left(tmp_path, undisturbed):
    run = RunFolder(tmp_path / "again")
    shutil.copytree(undisturbed[0].path, run.path)
    newest = str(run.path / "output" / "checkpoint-8")
    done = run_launch_script(run, timeout=240)
    watch, begun, ended = done.stdout.decode().splitlines()
    assert "follow" in watch
    assert newest in begun
    assert str(run.attempt_log(2)) in begun
    assert "no checkpoint newer" in ended
    assert newest in ended
    command = [sys.executable, "-I", "-S", run.path / RUNNER_ZIP_FILE_NAME, "status"]
    words, log = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert words.startswith("finished, ")
    assert "resumed from step 8" in words.split(", ")
    assert log == f"log: {run.attempt_log(2)}"


@pytest.mark.whole
def test_a_stop_saves_where_the_hf_trainer_was(tmp_path):
    """What the built-in trainer does then is in test_trainer.py."""
    values = {
        "trainer.kind": "script", "trainer.preset": "hf-trainer", "trainer.script": str(SCRIPTS / "hf_trainer.py"),
        "trainer.arguments": ("--logging_steps=1", "--report_to=none"), "recipe.steps": 100000,
        "recipe.checkpoint_every": 100000,
    }  # fmt: skip
    run, _ = export_run(
        tmp_path / "run",
        profile(values_taken_by_preset({**TINY_RECIPE, **values})),
        facts(python=TINY_RECIPE["trainer.python"]),
    )
    start_run(run)
    wait_until(lambda: "{'loss'" in attempt_log_text(run, 1), 120)
    assert stop_local_run(run).state == "stopped"
    (saved,) = (run.path / "output").glob("checkpoint-*")
    state = json.loads((saved / "trainer_state.json").read_text())
    assert state["global_step"] == int(saved.name.removeprefix("checkpoint-")) > 0
    assert str(saved) in run_launch_script(run, "--dry-run").stdout.decode()


def test_a_failed_run_says_why_and_what_to_try(tmp_path):
    script = tmp_path / "own.py"
    script.write_text('import torch\nraise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")\n')
    chosen = {
        "trainer.kind": "script", "trainer.preset": "custom", "trainer.script": script,
        "trainer.arguments": "--batch={micro_batch} --accumulation={accumulation}", "ladder.rungs": "",
        "recipe.micro_batch": 8, "recipe.global_batch": 16,
    }  # fmt: skip
    words = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "tui_train", "run", "quickstart", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"failed +out of GPU memory", done.stderr)
    assert re.search(
        r"^try it +tui-train run \S+/profile\.toml --set recipe\.micro_batch=4 --set recipe\.global_batch=16$",
        done.stderr,
        re.MULTILINE,
    )

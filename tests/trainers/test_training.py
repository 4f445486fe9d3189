"""Real trainings on the CPU, from a profile through the exported script: undisturbed, and after failures."""

import json
import math
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import SCRIPTS, bash, exported, facts, free_port, profile, sample, taken, until
from trainings import TINY, failing, log_of, losses, run_of, together

from tui_train.plan.render import RUNNER_NAME
from tui_train.runner.progress import Progress, advance
from tui_train.runs.logs.tail import Tail
from tui_train.runs.results.result import read_result
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import start
from tui_train.runs.status import status
from tui_train.runs.stop import stop_run

pytestmark = pytest.mark.training


@pytest.fixture(scope="module", autouse=True)
def _python(warm_python):
    """All but a few of these train with a Python that has imported the libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TINY, "trainer.python", warm_python)
        yield


TWO = {"hardware.processes": 2, "recipe.micro_batch": 4}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A training that nothing happens to: its run and the loss of each step."""
    run, _ = run_of(tmp_path_factory.mktemp("undisturbed"))
    return run, losses(run.path / "output")


def same(found, undisturbed):
    return found == pytest.approx(undisturbed[1], rel=0, abs=1e-5)


def test_plain_python(undisturbed):
    run, found = undisturbed
    assert sorted(found) == [*range(1, 9)]
    assert found[8] < found[1] - 0.3
    left = read_result(run)
    assert (left.source, left.weights.kind, left.weights.problem) == ("final", "model", "")
    assert (run.path / "output" / "tokenizer.json").is_file()
    now = status(run)
    assert (now.state, len(now.attempts)) == ("finished", 1)
    progress = advance(Progress(), Tail(run.attempt_log(1)).lines())
    assert (progress.step, progress.steps, len(progress.curve.points())) == (8, 8, 8)
    assert progress.tokens_per_second > 0
    assert re.search(r"rank 0/1 \| .* device cpu", log_of(run, 1))


def test_started_again_it_says_from_where_it_resumes_and_that_nothing_was_left(tmp_path, undisturbed):
    run = RunDir(tmp_path / "again")
    shutil.copytree(undisturbed[0].path, run.path)
    newest = str(run.path / "output" / "checkpoint-8")
    done = bash(run, timeout=240)
    watch, begun, ended = done.stdout.decode().splitlines()
    assert "follow" in watch
    assert newest in begun
    assert str(run.attempt_log(2)) in begun
    assert "no checkpoint newer" in ended
    assert newest in ended
    command = [sys.executable, "-I", "-S", run.path / RUNNER_NAME, "status"]
    words, log = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert words.startswith("finished, ")
    assert "resumed from step 8" in words.split(", ")
    assert log == f"log: {run.attempt_log(2)}"


@pytest.mark.parametrize(("launcher", "where"), sample([("torchrun", "forward"), ("accelerate", "backward")], 2))
def test_two_processes_climb_down_after_out_of_memory_and_learn_the_same(tmp_path, undisturbed, launcher, where):
    fault = {"in": where, "step": 5, "above": 2}
    run, plan = run_of(tmp_path, values={**TWO, "trainer.launcher": launcher}, faults=[fault])
    now = status(run)
    assert now.state == "finished"
    assert [(attempt.position, attempt.out_of_memory) for attempt in now.attempts] == [(1, True), (2, False)]
    for number in (1, 2):
        log = log_of(run, number)
        assert {*re.findall(r"^rank (\d/\d) ", log, re.MULTILINE)} == {"0/2", "1/2"}
        assert plan.attempts[number - 1].batch.startswith(
            f"micro batch {4 // number} x accumulation {number} x 2 processes"
        )
        assert f"batch | micro {4 // number} x accumulation {number} x world 2 = global 8" in log
    # It went on after step 3.
    assert log_of(run, 2).count("{'loss'") == 5
    assert same(losses(run.path / "output"), undisturbed)


def test_machines_that_are_started_by_hand_have_one_attempt(tmp_path):
    """Memory runs out on the second one; the first sees only that its peer is gone."""
    values = {
        **TINY,
        "recipe.micro_batch": 4,
        "trainer.launcher": "torchrun",
        "nodes.count": 2,
        "nodes.address": "127.0.0.1",
        "nodes.port": free_port(),
    }
    run, plan = exported(tmp_path / "my run", profile(values), facts(python=TINY["trainer.python"]))
    there = RunDir(run.path / "node-1")
    assert len(plan.attempts) == 1
    codes, said = together([run, run], **failing(tmp_path, {"in": "forward", "step": 5, "above": 2}))
    assert all(codes), said
    assert [(attempt.position, attempt.out_of_memory) for attempt in status(there).attempts] == [(1, True)]
    assert len(status(run).attempts) == 1
    assert "OutOfMemoryError" in log_of(there, 1)


def test_a_half_written_checkpoint_is_passed_over_and_kept(tmp_path, undisturbed):
    def half_written(run):
        (run.path / "output" / "checkpoint-99").mkdir(parents=True)
        (run.path / "output" / "checkpoint-99" / "model.safetensors").write_text("half")

    fault = {"in": "forward", "step": 7, "above": 4}
    run, _ = run_of(tmp_path, "--save_total_limit=9", faults=[fault], before=half_written)
    assert [log_of(run, number).count("{'loss'") for number in (1, 2)] == [6, 2]
    assert [path.name for path in (run.path / "output" / "checkpoint-99").iterdir()] == ["model.safetensors"]
    assert same(losses(run.path / "output"), undisturbed)


@pytest.mark.parametrize(("launcher", "code"), [("python", 7), ("torchrun", 1)])
def test_another_failure_ends_it_at_once(tmp_path, launcher, code):
    """torchrun itself has no other code for a failure than 1."""
    fault = {"in": "forward", "step": 2, "code": 7}
    run, plan = run_of(tmp_path, values={"trainer.launcher": launcher}, faults=[fault], code=code)
    now = status(run)
    assert (now.state, now.exit_code, len(now.attempts)) == ("failed", code, 1)
    assert len(plan.attempts) > 1
    assert "shapes cannot be multiplied" in log_of(run, 1)


def test_a_script_with_the_hf_trainer(tmp_path):
    """It climbs down, resumes, and learns what it would have learned; its log tells its progress."""
    values = {
        "trainer.kind": "script",
        "trainer.preset": "hf-trainer",
        "trainer.script": str(SCRIPTS / "hf_trainer.py"),
        "recipe.steps": 6,
        "recipe.micro_batch": 4,
        "recipe.checkpoint_every": 2,
    }
    words = ("--logging_steps=1", "--report_to=none", "--memory_for=2")

    def trained(fails):
        run, _ = run_of(tmp_path / str(fails), *words, f"--fails_in_step={fails}", values=values)
        state = json.loads((run.path / "output" / "checkpoint-6" / "trainer_state.json").read_text())
        return run, [entry["loss"] for entry in state["log_history"] if "loss" in entry]

    with ThreadPoolExecutor() as pool:
        (_, whole), (run, climbed) = pool.map(trained, (0, 6))
    assert [attempt.out_of_memory for attempt in status(run).attempts] == [True, False]
    assert len(whole) == 6
    assert climbed == pytest.approx(whole, abs=1e-4)
    lines = [*Tail(run.attempt_log(2)).lines()]
    progress = advance(Progress(), lines)
    assert (progress.step, progress.steps) == (6, 6)
    assert progress.curve.points()
    # It went on after step 4, and did not start over.
    assert sum(line.startswith("{'loss'") for line in lines) == 2


WAYS = [("builtin", "python"), ("builtin", "torchrun"), ("builtin", "accelerate"), ("hf-trainer", "python")]


@pytest.mark.parametrize(("trainer", "launcher"), sample(WAYS, 2))
def test_a_stop_saves_where_it_was(tmp_path, trainer, launcher):
    values = {"recipe.steps": 100000, "recipe.checkpoint_every": 100000, "trainer.launcher": launcher}
    values |= TWO if launcher != "python" else {}
    words = ()
    if trainer == "hf-trainer":
        script = {"trainer.kind": "script", "trainer.preset": trainer, "trainer.script": str(SCRIPTS / "hf_trainer.py")}
        values |= script
        words = ("--logging_steps=1", "--report_to=none")
    # A signal reaches real processes here, and a fork of the warm one elsewhere.
    values["trainer.python"] = sys.executable if launcher == "torchrun" else TINY["trainer.python"]
    chosen = profile(taken({**TINY, "trainer.arguments": words, **values}))
    run, _ = exported(tmp_path / "run", chosen, facts(python=values["trainer.python"]))
    start(run)
    until(lambda: "{'loss'" in log_of(run, 1), 120)
    assert stop_run(run).state == "stopped"
    (saved,) = (run.path / "output").glob("checkpoint-*")
    state = json.loads((saved / "trainer_state.json").read_text())
    step = int(saved.name.removeprefix("checkpoint-"))
    assert state["global_step"] == step > 0
    dry = bash(run, "--dry-run").stdout.decode()
    assert str(saved) in dry


@pytest.mark.whole
def test_a_script_whose_batch_size_is_the_total(tmp_path):
    """It starts where its configuration is, and sees the same number of samples in each step after a rung."""
    work = tmp_path / "my project"
    (work / "configs").mkdir(parents=True)
    (work / "configs" / "vlm_pretrain.yaml").write_text("steps: 4\n")
    (work / "train_vlm.py").write_text((SCRIPTS / "total_batch.py").read_text())
    values = {
        **TWO,
        "trainer.kind": "script",
        "trainer.launcher": "torchrun",
        "trainer.preset": "total-batch",
        "trainer.script": str(work / "train_vlm.py"),
        "recipe.learning_rate": 0.1,
    }
    words = ("--config", "configs/vlm_pretrain.yaml", "--stage", "pretrain", "--memory_for=4")
    run, _ = run_of(tmp_path, *words, values=values)
    assert [attempt.out_of_memory for attempt in status(run).attempts] == [True, False]
    for number, batch in ((1, 8), (2, 4)):
        told = {f"rank {rank}/2 | stage pretrain | batch {batch} | in {work}" for rank in (0, 1)}
        # Two ranks that print at once may share a line.
        assert all(words in log_of(run, number) for words in told)
        assert {*re.findall(r"samples (\d+)", log_of(run, number))} == {"8"}
    found = advance(Progress(), Tail(run.attempt_log(2)).lines())
    assert [point.step for point in found.curve.points()] == [1, 2, 3, 4]
    assert found.last.loss == pytest.approx(math.pow(0.8, 6), abs=1e-5)


def test_a_failed_run_says_why_and_what_to_try(tmp_path):
    script = tmp_path / "own.py"
    script.write_text('import torch\nraise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")\n')
    chosen = {
        "trainer.kind": "script",
        "trainer.preset": "custom",
        "trainer.script": script,
        "trainer.arguments": "--batch={micro_batch} --accumulation={accumulation}",
        "ladder.rungs": "",
        "recipe.micro_batch": 8,
        "recipe.global_batch": 16,
    }
    words = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "tui_train", "run", "quickstart", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"failed +cuda oom", done.stderr)
    assert re.search(
        r"^try it +tui-train run \S+/profile\.toml --set recipe\.micro_batch=4 --set recipe\.global_batch=16$",
        done.stderr,
        re.MULTILINE,
    )

"""launch.sh after an out-of-memory: which attempt follows, what is not tried again, and that the training stays."""

import json
import re

import pytest
from support import (
    SCRIPTS,
    UUIDS,
    export_run,
    facts,
    gpu,
    make_stub,
    patch_runner_module,
    plain_environment,
    profile,
    run_launch_script,
    stub_calls,
    values_taken_by_preset,
)
from tiny_trainings import TINY_RECIPE, attempt_log_text, train_tiny_model

from tui_train.base.command import argv
from tui_train.diagnose import diagnose_log
from tui_train.diagnose.named_changes import OOM_REMEDY_BY_PHASE
from tui_train.diagnose.signatures import load_signatures
from tui_train.runner.logs.memory_patterns import TEXT_BY_MEMORY_PHASE
from tui_train.runs.status import read_status

OLD = {"torch": "2.7.1", "transformers": "4.57.0", "packages": {}}
MANY = {
    "trainer.kind": "script",
    "trainer.script": "/t.py",
    "trainer.launcher": "accelerate",
    "recipe.global_batch": 32,
    "recipe.micro_batch": 2,
    "ladder.rungs": ("fused_optimizer", "eval_batch", "micro_batch", "sharding"),
}
HALVE = next(signature.remedy for signature, _ in load_signatures() if signature.failure == "cuda_oom")
PLAIN = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def ran(folder, said, *, code="1", smi="", card_wait=60.0):
    """A run that says this in every attempt, with nvidia-smi as a script; its folder, its plan, and what it said."""
    python = make_stub(folder / "python")
    found = facts(python=python, gpus=[gpu(0), gpu(1)], **OLD)
    run, plan = export_run(folder / "run", profile(MANY), found)
    patch_runner_module(run, "run.py", "\n_MAX_CARD_WAIT_SECONDS = 60.0\n", f"\n_MAX_CARD_WAIT_SECONDS = {card_wait}\n")
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), STUB_SAYS=said, STUB_CODE=code)
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/bash\n{smi or 'exit 9'}\n")
    (tools / "nvidia-smi").chmod(0o755)
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    done = run_launch_script(run, env=environment)
    return run, plan, done.stdout.decode() + done.stderr.decode()


def tried(run):
    return [attempt.position for attempt in read_status(run).attempts]


# Every place that torch's tracebacks show is read in test_memory_end.
PHASES = {"trial": "loss", "evaluation": "eval", "clipping": "step", "resume": "load"}


@pytest.mark.parametrize("where", PHASES)
def test_the_phase_is_read_from_the_traceback(tmp_path, tracebacks, where):
    phase = PHASES[where]
    lines = tracebacks[where].splitlines()
    # What came before tells nothing.
    earlier = tracebacks["step" if phase != "step" else "load"].splitlines()[:-1]
    lines = [line for line in (*earlier, *lines) if "CUDA" not in line or line.startswith("torch")]
    run, plan, said = ran(tmp_path, "\n".join(f"[rank1]: {line}" for line in lines))
    path = [*plan.fallback_attempt_numbers(phase)]
    assert tried(run) == path, said
    started = [note["argv"] for note in stub_calls(tmp_path / "notes")]
    assert started == [argv(plan.attempts[number - 1].command, str(run.path)) for number in path]
    micro = {word for words in started for word in words if word.startswith("--per_device_train_batch_size=")}
    assert len(micro) == (2 if phase == "loss" else 1)
    evaluates_less = ["--per_device_eval_batch_size=1" in words for words in started]
    assert evaluates_less == [False, *[phase == "eval"] * (len(path) - 1)]
    assert f"ran out of GPU memory {TEXT_BY_MEMORY_PHASE[phase]}" in said
    assert read_status(run).why == "the plan has no further fallback"
    ended = [json.loads(line) for line in run.events_file.read_text().splitlines() if "attempt_ended" in line]
    assert {event["phase"] for event in ended} == {phase}
    # A log without a run tells it as well.
    assert diagnose_log(str(run.attempt_log(1)), 1).remedy == OOM_REMEDY_BY_PHASE.get(phase, HALVE)


def test_an_out_of_memory_that_the_training_got_over_is_none(tmp_path):
    run, _, told = ran(tmp_path, PLAIN, code="0")
    assert tried(run) == [1]
    assert "finished" in told


HELD = (
    f"{PLAIN} GPU 0 has a total capacity of 23.69 GiB of which 1.00 MiB is free. Process 4242 has 20.50 GiB memory in "
    "use. Including non-PyTorch memory, this process has 2.00 GiB memory in use. Of the allocated memory 1 GiB is"
)


@pytest.mark.parametrize(
    ("said", "code", "part"),
    [
        (HELD, 1, "another process (4242) fills the GPU"),
        ("exitcode  : -9 (pid: 17)", 1, "the host's memory may have run out"),
        ("", 137, "killed by signal 9 (exit code 137)"),
        ("ValueError: out of memory of nothing", 3, "failed with exit code 3: see"),
    ],
)
def test_what_less_gpu_memory_does_not_mend_is_not_tried_again(tmp_path, said, code, part):
    run, _, told = ran(tmp_path, said, code=str(code))
    assert tried(run) == [1]
    assert part in told
    now = read_status(run)
    assert now.exit_code == code
    # Only of what ran out of GPU memory is it said why no fallback was tried.
    assert now.why.startswith(part) == bool(now.why) == ("GPU" in part)


def test_a_card_that_is_full_before_the_training_begins_is_told(tmp_path, tracebacks):
    run, _, told = ran(tmp_path, tracebacks["barrier"])
    assert tried(run) == [1]
    assert "full or faulty before the training began: look at nvidia-smi" in told


def test_a_later_start_goes_on_where_the_phase_led(tmp_path, tracebacks):
    run, plan, _ = ran(tmp_path, tracebacks["step"])
    path = plan.fallback_attempt_numbers("step")
    events = run.events_file.read_text().splitlines(keepends=True)
    ended = [number for number, line in enumerate(events) if "attempt_ended" in line]
    run.events_file.write_text("".join(events[: ended[1] + 1]))
    done = run_launch_script(run, env=plain_environment(STUB_NOTES=str(tmp_path / "notes")))
    assert f"begins with attempt {path[2]} of {len(plan.attempts)}" in done.stdout.decode()
    assert tried(run)[-1] == path[2]


CARDS = f"""case $* in *-L*) printf 'GPU 0: X (UUID: {UUIDS[0]})\\nGPU 1: X (UUID: {UUIDS[1]})\\n'; exit ;; esac
read -r left < "${{0%/*}}/../left" 2> /dev/null || left=0
[ "$left" -gt 9 ] || echo $((left + 1)) > "${{0%/*}}/../left"
echo '{UUIDS[0]}, 77'
"""


def test_a_card_that_stays_full_does_not_hold_it_for_ever(tmp_path):
    busy = CARDS + f"[ \"$left\" -lt 1 ] || echo '{UUIDS[1]}, 88'\n"
    run, plan, told = ran(tmp_path, PLAIN, smi=busy, card_wait=0.0)
    assert tried(run) == [*plan.fallback_attempt_numbers("loss")]
    assert "a GPU is not empty after 0 s (process 88): goes on all the same" in told


@pytest.fixture(scope="module", autouse=True)
def _python(warm_python):
    """They train with a Python that has imported the libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TINY_RECIPE, "trainer.python", warm_python)
        yield


@pytest.mark.training
def test_the_batch_is_left_alone_where_nothing_helps_the_optimizer_step(tmp_path):
    run, plan = train_tiny_model(tmp_path, faults=[{"in": "step", "step": 2}], code=1)
    assert len(plan.attempts) > 1
    assert (read_status(run).state, tried(run)) == ("failed", [1])
    assert attempt_log_text(run, 1).count("{'loss'") == 1


def hf_trained(folder, rungs, *words):
    """A training by the Hugging Face Trainer, as if there was a card: its run, and what it logged at each step."""
    values = {
        **TINY_RECIPE,
        "trainer.kind": "script",
        "trainer.preset": "hf-trainer",
        "trainer.launcher": "python",
        "trainer.script": str(SCRIPTS / "hf_trainer.py"),
        "trainer.arguments": ("--logging_steps=1", "--report_to=none", *words),
        "recipe.steps": 4,
        "recipe.checkpoint_every": 2,
        "ladder.rungs": rungs,
    }
    run, _ = export_run(
        folder,
        profile(values_taken_by_preset(values)),
        facts(python=TINY_RECIPE["trainer.python"], gpus=(gpu(0),), **OLD),
    )
    done = run_launch_script(run, env=plain_environment(HF_HUB_OFFLINE="1"), timeout=240)
    assert done.returncode == 0, attempt_log_text(run, 1)
    state = json.loads((run.path / "output" / "checkpoint-4" / "trainer_state.json").read_text())
    return run, state["log_history"]


def logged(history, name):
    return [entry[name] for entry in history if name in entry]


@pytest.mark.training
@pytest.mark.whole
def test_the_hf_trainer_evaluates_less_at_a_time_and_learns_the_same(tmp_path):
    """The evaluation after step 3 fails with the Trainer's own batch of 8; that of the training is as large."""
    rungs = ("micro_batch", "activation_checkpointing", "eval_batch")
    evaluating = ("--eval_strategy=steps", "--eval_steps=3")
    _, whole = hf_trained(tmp_path / "whole", (), *evaluating)
    run, fell = hf_trained(tmp_path / "fell", rungs, *evaluating, "--evaluates_for=2")
    assert [attempt.out_of_memory for attempt in read_status(run).attempts] == [True, False]
    assert {*re.findall(r"evaluated (\d+) at a time", attempt_log_text(run, 2))} == {"1"}
    assert re.findall(r"samples (\d+)", attempt_log_text(run, 2)) == ["8"]
    for name in ("loss", "eval_loss"):
        assert logged(fell, name) == pytest.approx(logged(whole, name), rel=0, abs=1e-5)
        assert logged(fell, name)
    events = [json.loads(line) for line in run.events_file.read_text().splitlines()]
    assert [event["phase"] for event in events if "phase" in event] == ["eval"]

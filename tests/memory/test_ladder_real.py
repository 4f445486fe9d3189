"""The fallback ladder under real trainings on the CPU, whose memory runs out inside torch's own functions.

Each trainer with each launcher, in each phase; TUI_TRAIN_TEST_LADDER=all tests those too that say much the same.
"""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from functools import cache
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from chat_data import write_rows
from fine_tuning import TUNING_LIBRARIES
from support import (
    SCRIPTS,
    TRL_PYTHON,
    export_run,
    facts,
    gpu,
    needs_trl,
    plain_environment,
    prepare_without_errors,
    profile,
    run_launch_script,
    values_taken_by_preset,
)
from tiny_trainings import TINY_RECIPE, attempt_log_text, checkpoint_losses

from tui_train.profile.presets import CheckpointConventions, UserPreset, shipped_presets
from tui_train.runs.status import read_status

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

STEPS, SAVED, GLOBAL = 10, 3, 8
EXPANDABLE = "expandable_segments:True"
TRAINERS = ("builtin", "hf-trainer", "total-batch", "finetune")
BY_TRANSFORMERS = {"builtin", "hf-trainer", "finetune"}
LAUNCHERS = ("python", "torchrun", "accelerate")
SCRIPT = {"hf-trainer": "hf_trainer.py", "total-batch": "language_model.py"}
WORDS = {
    "builtin": ("--save_total_limit=9",),
    "hf-trainer": ("--logging_steps=1", "--report_to=none"),
    "total-batch": ("--out={output}", "--steps={steps}", "--save_every={checkpoint_every}"),
}
# Where memory can run out, and the phase that it is.
PHASE_OF = {"forward": "loss", "backward": "loss", "state": "step", "step": "step", "load": "load", "resume": "load"}
PHASES = ("loss", "step", "load")
WITH = {"finetune": (needs_trl,)}
# What the default run of the tests has of all this.
USUAL = {
    ("builtin", "python", "load"),
    ("finetune", "torchrun", "loss"),
    ("hf-trainer", "python", "step"),
    ("total-batch", "accelerate", "loss"),
}


class Trained(NamedTuple):
    """A run that ended: its folder, its plan, its exit code, what launch.sh said, and what each attempt noted."""

    run: object
    plan: object
    code: int
    said: str
    attempts: list

    @property
    def positions(self):
        return [attempt.position for attempt in read_status(self.run).attempts]

    @property
    def told(self):
        return "\n".join(
            [self.said, *(attempt_log_text(self.run, number + 1) for number in range(len(self.positions)))]
        )


def cells():
    """Every trainer with every launcher in every phase, but for a few only where all are asked for."""
    why = "NOT TESTED: most of the fallback ladder under real trainings: TUI_TRAIN_TEST_LADDER=all"
    left_out = pytest.mark.skipif(os.environ.get("TUI_TRAIN_TEST_LADDER") != "all", reason=why)
    return [
        pytest.param(*cell, marks=[*(() if cell in USUAL else (left_out,)), *(WITH.get(cell[0], ()))])
        for cell in product(TRAINERS, LAUNCHERS, PHASES)
    ]


@cache
def small_model():
    """The folder of a small model that is fine-tuned, and a file of rows that are equally long."""
    folder = Path(tempfile.mkdtemp(prefix="tui-train-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    words = [TRL_PYTHON, str(SCRIPTS / "tokenizer.py"), str(folder / "model"), "--with-model"]
    subprocess.run(words, check=True, capture_output=True)
    rows = ({"text": f"{number:03d} the quick brown fox"} for number in range(GLOBAL * STEPS))
    write_rows(folder / "rows.jsonl", rows)
    return folder


def train(folder, cell, *, faults=(), micro=0):
    """Train to the end with faults, in a folder with a half-written checkpoint.

    What helps an optimizer's step or a load is for cards alone: there the plan is for some that are not here.
    """
    trainer, launcher, phase = cell
    world = 1 if launcher == "python" else 2
    cards = phase != "loss"
    values = {
        **TINY_RECIPE, "trainer.launcher": launcher, "trainer.arguments": WORDS.get(trainer, ()),
        "hardware.processes": world, "recipe.micro_batch": micro or GLOBAL // world, "recipe.global_batch": GLOBAL,
        "recipe.steps": STEPS, "recipe.checkpoint_every": SAVED,
        "ladder.rungs": ("micro_batch", "expandable_segments", "fused_optimizer"),
    }  # fmt: skip
    if cards:
        values["communication.backend"] = "gloo"
    if trainer == "builtin":
        # A share of the steps has another name in the version that the plan of a step is for.
        values["recipe.warmup"] = 0
    if trainer in SCRIPT:
        preset = "own" if trainer == "total-batch" else trainer
        values |= {"trainer.kind": "script", "trainer.preset": preset, "trainer.script": str(SCRIPTS / SCRIPT[trainer])}
    saves = CheckpointConventions(
        prefix="checkpoint-", complete=("trainer_state.json",), resume=("--resume={checkpoint}",)
    )
    own = UserPreset(
        path="own.toml", preset=msgspec.structs.replace(shipped_presets()["total-batch"], checkpoints=saves)
    )
    if trainer == "finetune":
        sizes = {f"recipe.{name}": None for name in ("layers", "hidden_size", "heads")}
        values |= sizes | {
            "trainer.kind": "finetune",
            "trainer.python": TRL_PYTHON,
            "trainer.model": str(small_model() / "model"),
            "trainer.data": (str(small_model() / "rows.jsonl"),),
            "finetune.dropout": 0.0,
            "recipe.precision": "fp32",
            # A share of the steps has another name in the version that the plan of a step is for.
            "recipe.warmup": 0,
        }
    gpus = tuple(gpu(index) for index in range(world)) if cards else ()
    # The optimizer of a newer one is fused by itself.
    transformers = "4.57.0" if phase == "step" else "5.23.0"
    found = msgspec.structs.replace(
        facts(python=values["trainer.python"], gpus=gpus, transformers=transformers, packages=TUNING_LIBRARIES),
        presets={"own": own},
    )
    run, plan = export_run(
        folder / "run", profile(values_taken_by_preset(values, own.preset if trainer == "total-batch" else None)), found
    )
    half = run.path / "output" / "checkpoint-99"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_text("half")
    notes = folder / "notes"
    notes.mkdir()
    environment = plain_environment(
        HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", PYTHONPATH=str(SCRIPTS / "faults"),
        FAULTS=json.dumps(faults), NOTES=str(notes),
    )  # fmt: skip
    done = run_launch_script(run, env=environment, timeout=580)
    return Trained(run, plan, done.returncode, done.stdout.decode() + done.stderr.decode(), noted(notes))


def noted(folder):
    """What each attempt noted, in order: for each rank its lines."""
    attempts = defaultdict(list)
    for path in sorted(folder.iterdir(), key=lambda path: path.stem.split("-")[2]):
        attempts[path.stem.split("-")[0]].append([json.loads(line) for line in path.read_text().splitlines()])
    return [*attempts.values()]


def lines(attempt, name):
    """The lines of all ranks that tell of this."""
    return [line for rank in attempt for line in rank if name in line]


def samples(attempt):
    """The samples that all ranks together trained on in each step that an attempt finished."""
    found = {line["done"]: Counter() for line in lines(attempt, "done")}
    for line in lines(attempt, "samples"):
        found.get(line["step"], Counter()).update(map(tuple, line["samples"]))
    return found


def micro_batches(attempt):
    return {len(line["samples"]) for line in lines(attempt, "samples")}


def learned(trainer, run):
    """The loss of each step, the newest where a step was done again."""
    if trainer in BY_TRANSFORMERS:
        return checkpoint_losses(run.path / "output")
    records = [json.loads(line) for line in (run.path / "output" / "losses.jsonl").read_text().splitlines()]
    return {record["step"]: record["loss"] for record in records}


@pytest.fixture(scope="module", autouse=True)
def _python(warm_python):
    """They train with a Python that has imported the libraries; where all are asked for, with one that has not."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("TUI_TRAIN_TEST_LADDER") != "all":
            patch.setitem(TINY_RECIPE, "trainer.python", warm_python)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a trainer under a launcher does that nothing happens to."""

    @cache
    def trained(trainer, launcher):
        found = train(tmp_path_factory.mktemp("whole"), (trainer, launcher, "loss"))
        assert found.code == 0, attempt_log_text(found.run, 1)
        return found

    return trained


def faults_of(trainer, phase, micro):
    """The faults of a training whose memory runs out in a phase, as often as a rung helps there."""
    if phase == "loss":
        forward = {"in": "forward", "step": 5, "above": micro // 2}
        return [forward, {"in": "backward", "step": STEPS, "above": micro // 4}]
    if phase == "load":
        return [{"in": "backward", "step": 5, "above": micro // 2}, {"in": "resume", "until": EXPANDABLE}]
    if trainer in BY_TRANSFORMERS:
        first = {"in": "state", "step": 1, "until": EXPANDABLE}
        return [first, {"in": "step", "step": 5, "until": "--optim=adamw_torch_fused"}]
    return [{"in": "step", "step": 5, "until": EXPANDABLE}]


@pytest.mark.parametrize(("trainer", "launcher", "phase"), cells())
def test_it_climbs_down_and_learns_what_it_would_have_learned(tmp_path, undisturbed, trainer, launcher, phase):
    whole = undisturbed(trainer, launcher)
    faults = faults_of(trainer, phase, micro := whole.plan.micro_batch)
    found = train(tmp_path, (trainer, launcher, phase), faults=faults)
    assert found.code == 0, found.told
    # Each fault came, and then the attempt that the plan has for it.
    assert [[line["fault"] for line in lines(attempt, "fault")] for attempt in found.attempts] == [
        *([fault["in"]] for fault in faults),
        [],
    ]
    way = [1]
    for fault in faults:
        way.append(found.plan.attempts[way[-1] - 1].then[PHASE_OF[fault["in"]]])
    assert found.positions == way
    # It went on from the newest whole checkpoint, and with a smaller micro batch only after a loss.
    begins = 1
    for number, attempt, fault in zip_longest(way, found.attempts, faults, fillvalue={}):
        assert f"micro batch {micro} x " in found.plan.attempts[number - 1].batch
        assert micro_batches(attempt) <= {micro}
        assert min((line["step"] for line in lines(attempt, "samples")), default=begins) == begins
        begins = (fault["step"] - 1) // SAVED * SAVED + 1 if "step" in fault else begins
        micro //= 2 if PHASE_OF.get(fault.get("in")) == "loss" else 1
    # A fine-tuning keeps two checkpoints, and transformers counts a folder that it did not finish as one of them.
    if trainer != "finetune":
        kept = found.run.path / "output" / "checkpoint-99"
        assert [(path.name, path.read_text()) for path in kept.iterdir()] == [("model.safetensors", "half")]
    # Each step, whichever attempt did it, saw the same samples, as many as the global batch, and lost the same.
    expected = samples(whole.attempts[0])
    assert sorted(expected) == [*range(1, STEPS + 1)]
    assert {seen.total() for seen in expected.values()} == {GLOBAL}
    done = [*chain.from_iterable(samples(attempt).items() for attempt in found.attempts)]
    assert all(seen == expected[step] for step, seen in done)
    assert {step for step, _ in done} == {*expected}
    assert learned(trainer, found.run) == pytest.approx(learned(trainer, whole.run), rel=0, abs=1e-5)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("trainer", "launcher", "phase"), [("builtin", "python", "loss"), ("total-batch", "torchrun", "step")]
)
def test_another_failure_stops_at_once(tmp_path, trainer, launcher, phase):
    """With the code of the training; torchrun and accelerate have 1 for all of them."""
    place = {"loss": "forward"}.get(phase, phase)
    found = train(tmp_path, (trainer, launcher, phase), faults=[{"in": place, "code": 7}])
    assert found.code == (7 if launcher == "python" else 1), found.told
    assert found.positions == [1]
    assert len(found.plan.attempts) > 2
    assert f"failed with exit code {found.code}: see attempt-1.log" in found.said
    assert "shapes cannot be multiplied" in attempt_log_text(found.run, 1)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("trainer", "place", "phase"), [("builtin", "backward", "loss"), ("total-batch", "load", "load")]
)
def test_the_ladder_ends(tmp_path, trainer, place, phase):
    found = train(tmp_path, (trainer, "python", phase), faults=[{"in": place}], micro=2)
    assert found.code == 1, found.told
    assert "the plan has no further fallback" in found.said
    assert read_status(found.run).state == "failed"
    way = found.plan.fallback_attempt_numbers(phase)
    assert found.positions == [*way]
    assert [bool(lines(attempt, "fault")) for attempt in found.attempts] == [True] * len(way)
    sizes = [2, 1] if phase == "loss" else [2] * len(way)
    assert len(way) > 1
    assert all(micro_batches(one) <= {size} for one, size in zip(found.attempts, sizes, strict=phase == "loss"))


def test_an_older_trainer_resumes_with_the_micro_batch_that_it_is_told(tmp_path, warm_python):
    """Its own choice is the checkpoint's, with the accumulation of the smaller one: another global batch."""
    values = {"trainer.kind": "script", "trainer.preset": "hf-trainer", "trainer.script": "/t.py"}
    chosen = profile(values_taken_by_preset(values) | {"recipe.micro_batch": 8, "ladder.rungs": ("micro_batch",)})
    run, plan = export_run(tmp_path / "run", chosen, facts(transformers="5.1.0"))
    told = [{one.name: one.value for one in attempt.command.env} for attempt in plan.attempts]
    assert [names["TUI_TRAIN_MICRO_BATCH"] for names in told] == ["8", "4", "2", "1"]
    newer = prepare_without_errors(chosen, facts(transformers="5.2.0")).plan.attempts
    assert not any(one.name == "TUI_TRAIN_MICRO_BATCH" for attempt in newer for one in attempt.command.env)
    for batch in (8, None):
        (tmp_path / f"{batch}.json").write_text(json.dumps({"train_batch_size": batch}))
    code = "import sys; from transformers import TrainerState as S\n"
    code += "print([S.load_from_json(path).train_batch_size for path in sys.argv[1:]])"
    done = subprocess.run(
        [warm_python, "-c", code, tmp_path / "8.json", tmp_path / "None.json"],
        env=plain_environment(PYTHONPATH=str(run.path / "shim"), TUI_TRAIN_MICRO_BATCH="4"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[4, None]\n"

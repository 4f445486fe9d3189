"""Writes the folders of two fine-tunes on GPUs that are simulated, with the events and the logs of such trainings."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import Profile
from tui_train.runs import run_folders

_STEPS = 900
_SECONDS_BY_ATTEMPT = (41.0, 1490.0)
_FINE_TUNE = {
    "trainer.kind": "finetune",
    "trainer.model": "/models/qwen2.5-1.5b-instruct",
    "trainer.data": ("/data/chats.jsonl",),
    "recipe.steps": _STEPS,
    "ladder.rungs": ("micro_batch", "activation_checkpointing"),
}
_OUT_OF_MEMORY_LINES = (
    "Traceback (most recent call last):",
    '  File "/opt/train/lib/python3.11/site-packages/trl/scripts/sft.py", line 132, in main',
    "    trainer.train()",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 23.56 GiB.",
)
_WRONG_TARGETS_LINES = (
    "Traceback (most recent call last):",
    '  File "/opt/train/lib/python3.11/site-packages/trl/scripts/sft.py", line 118, in main',
    "    trainer = SFTTrainer(",
    "ValueError: Target modules {'query_key_value'} not found in the base model. Please check the target modules.",
)


def write_run_that_fell_back(facts: Facts) -> Path:
    """Write a fine-tune that ran out of memory at once, and trained to its end with another setting."""
    profile = _fine_tune("chat", facts)
    return _write_run(profile, facts, (list(_OUT_OF_MEMORY_LINES), list(_training_lines())), ends_well=True)


def write_run_that_failed(facts: Facts) -> Path:
    """Write a fine-tune that failed for a cause that one key fixes."""
    profile = profile_with_value(_fine_tune("chat-falcon", facts), "finetune.targets", ("query_key_value",))
    return _write_run(profile, facts, (list(_WRONG_TARGETS_LINES),), ends_well=False)


def _fine_tune(name: str, facts: Facts) -> Profile:
    profile = Profile(name=name)
    for key, value in {**_FINE_TUNE, "trainer.python": facts.toolchains[0].python}.items():
        profile = profile_with_value(profile, key, value)
    return profile


def _write_run(profile: Profile, facts: Facts, logs: tuple[list[str], ...], *, ends_well: bool) -> Path:
    """Write the folder of a run with a log for each of its attempts."""
    trainer = profile.trainer
    paths = {trainer.model: "folder", **dict.fromkeys(trainer.data, "file")}
    prepared = prepare_plan(make_setup(profile, msgspec.structs.replace(facts, paths=paths)))
    if prepared.plan is None:
        raise ValueError(f"{profile.name} cannot be planned: {prepared.findings}")
    run = run_folders.create_run_folder(profile.name, prepared.files)
    now = time.time() - sum(_SECONDS_BY_ATTEMPT)
    start = {"time": now, "event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"}
    events: list[dict[str, object]] = [start]
    for number, lines in enumerate(logs, start=1):
        last = number == len(logs)
        code = 0 if last and ends_well else 1
        events.append({"time": now, "event": "attempt_started", "attempt": number, "position": number})
        now += _SECONDS_BY_ATTEMPT[number - 1]
        end = {"time": now, "event": "attempt_ended", "attempt": number, "exit_code": code}
        events.append(end if last else {**end, "out_of_memory": True})
        run.attempt_log(number).write_text("".join(f"{line}\n" for line in lines))
    state = "finished" if ends_well else "failed"
    events.append({"time": now, "event": "run_ended", "state": state, "exit_code": int(not ends_well)})
    run.events_file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return run.path


def _training_lines() -> Iterator[str]:
    """Yield what TRL writes of a training whose loss falls."""
    for step in range(10, _STEPS + 1, 10):
        loss = 1.02 + 1.35 * math.exp(-4 * step / _STEPS) + 0.03 * math.sin(step)
        rate = 2e-4 * (1 + math.cos(math.pi * step / _STEPS)) / 2
        epoch = f"{3 * step / _STEPS:.2f}"
        values = {"loss": f"{loss:.4f}", "grad_norm": f"{0.6 + 0.1 * math.sin(step / 7):.4f}"}
        seconds = round(_SECONDS_BY_ATTEMPT[1] * step / _STEPS)
        passed = f"{seconds // 60:02d}:{seconds % 60:02d}"
        yield f"{100 * step // _STEPS}%|#####     | {step}/{_STEPS} [{passed}<00:00, 1.65s/it]"
        yield str({**values, "learning_rate": f"{rate:.3e}", "epoch": epoch})
        if step % 100 == 0:
            yield str({"eval_loss": f"{loss + 0.05:.4f}", "epoch": epoch})

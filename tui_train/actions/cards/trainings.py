"""Small real trainings of the built-in trainer, started as any training is, and what came of them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from tui_train.actions.doctor.short_runs import ShortRunContext, temporary_run, wait_for_end_in_time
from tui_train.base.errors import TuiTrainError
from tui_train.diagnose import diagnose_run
from tui_train.memory.data_defaults import make_setup
from tui_train.profile import fields
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Profile, TrainerSettings
from tui_train.runner.run_folder.state import AttemptStatus
from tui_train.runs.follow import read_progress
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.setup.setup import Setup

# Libraries are imported from slow disks, and NCCL looks for its ways.
MAX_TRAINING_SECONDS = 300.0
_SMALL_RECIPE: dict[str, FieldValue] = {
    "recipe.layers": 2,
    "recipe.hidden_size": 128,
    "recipe.heads": 4,
    "recipe.sequence_length": 128,
    "recipe.micro_batch": 4,
    "recipe.global_batch": 8,
    "recipe.steps": 6,
    "recipe.checkpoint_every": 2,
    "recipe.warmup": 0.0,
    "recipe.precision": "fp32",
    "recipe.seed": 1,
    "ladder.rungs": (),
}


class EndedTraining(NamedTuple):
    """A training that ended: its losses by step, its attempts, and why it did not finish, empty where it did."""

    loss_by_step: dict[int, float]
    attempts: tuple[AttemptStatus, ...]
    why_failed: str


def machine_part_of_profile(profile: Profile) -> Profile:
    """Return a profile that has of another one what is proved: its Python, cards and communication."""
    trainer = TrainerSettings(python=profile.trainer.python, environment=profile.trainer.environment)
    return Profile(name="cards", hardware=profile.hardware, trainer=trainer, communication=profile.communication)


def small_training_profile(base: Profile, values: Mapping[str, FieldValue]) -> Profile:
    """Return a training of seconds with the Python, cards and communication of a profile, changed by `values`."""
    profile = machine_part_of_profile(base)
    for key, value in {**_SMALL_RECIPE, **values}.items():
        profile = fields.profile_with_value(profile, key, value)
    return profile


def one_process_values(setup: Setup) -> dict[str, FieldValue]:
    """Return the values with which one process trains on the first card, or on the CPU."""
    first = tuple(gpu.uuid for gpu in setup.gpus[:1])
    return {"hardware.gpus": first, "hardware.processes": 1, "trainer.launcher": "python"}


def train(profile: Profile, run_context: ShortRunContext, max_seconds: float = MAX_TRAINING_SECONDS) -> EndedTraining:
    """Train to the end; it leaves no process, and no folder. Raises Unavailable where the plan refuses."""
    with temporary_run(make_setup(profile, run_context.facts), run_context) as temporary:
        run = temporary.run
        in_time = wait_for_end_in_time(run, run_context, max_seconds)
        status = read_status(run)
        why = "" if in_time else f"no end within {max_seconds:.0f} s"
        if in_time and status.state != "finished":
            why = _why_failed(run) or f"it ended as {status.state}"
        losses = {point.step: point.loss for point in read_progress(run, status.attempts).curve.points()}
        return EndedTraining(losses, status.attempts, why)


def _why_failed(run: RunFolder) -> str:
    with suppress(TuiTrainError):
        diagnosis = diagnose_run(run)
        return diagnosis.cause if diagnosis else ""
    return ""


def losses_text(training: EndedTraining) -> str:
    """Return the losses of a training, or why there are none."""
    if training.why_failed:
        return training.why_failed
    return " ".join(f"{loss:.4g}" for loss in training.loss_by_step.values()) or "no loss was logged"


def have_same_losses(one: EndedTraining, other: EndedTraining, tolerance: float) -> bool:
    """Return whether two trainings finished with the losses of the same steps, up to a relative `tolerance`."""
    if (
        one.why_failed
        or other.why_failed
        or not one.loss_by_step
        or one.loss_by_step.keys() != other.loss_by_step.keys()
    ):
        return False
    return all(
        math.isclose(loss, other.loss_by_step[step], rel_tol=tolerance) for step, loss in one.loss_by_step.items()
    )

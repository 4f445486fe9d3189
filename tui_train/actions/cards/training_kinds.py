"""Proves that precisions, optimizers and shardings train as the plain training does."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.trainings import (
    have_same_losses,
    losses_text,
    one_process_values,
    small_training_profile,
    train,
)
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import percent
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup

_ACCELERATE_LAUNCHER: Mapping[str, FieldValue] = {"trainer.launcher": "accelerate"}


class _TrainingKind(NamedTuple):
    """A way to train: its changes of the plain one, and how far its losses may be off.

    `needs_two_processes`: by two processes; `package`: a library for GPUs that it needs.
    """

    name: str
    values: Mapping[str, FieldValue]
    tolerance: float
    needs_two_processes: bool = False
    package: str = ""


_TRAINING_KINDS = (
    _TrainingKind("bf16", {"recipe.precision": "bf16"}, 0.02),
    _TrainingKind("fp16", {"recipe.precision": "fp16"}, 0.02),
    _TrainingKind("the fused optimizer", {"recipe.fused_optimizer": True}, 1e-3),
    _TrainingKind("the 8-bit optimizer", {"recipe.optimizer_8bit": True}, 0.1, package="bitsandbytes"),
    _TrainingKind("activation checkpointing", {"recipe.activation_checkpointing": True}, 1e-3),
    _TrainingKind("DDP", {}, 1e-3, needs_two_processes=True),
    _TrainingKind("FSDP2", {"trainer.strategy": "fsdp2", **_ACCELERATE_LAUNCHER}, 0.01, needs_two_processes=True),
    _TrainingKind("ZeRO-2", {"trainer.strategy": "zero2", **_ACCELERATE_LAUNCHER}, 0.01, needs_two_processes=True),
    _TrainingKind("ZeRO-3", {"trainer.strategy": "zero3", **_ACCELERATE_LAUNCHER}, 0.01, needs_two_processes=True),
)


def training_kind_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield the losses of each kind of training beside those of one process in fp32, which has the same samples."""
    setup = make_setup(profile, run_context.facts)
    alone = one_process_values(setup)
    plain = train(small_training_profile(profile, alone), run_context)
    yield checked_claim(
        "One process trains in fp32", "a loss for each step", losses_text(plain), holds=not plain.why_failed
    )
    for kind in () if plain.why_failed else _TRAINING_KINDS:
        claim = f"{kind.name} trains with the losses of one process in fp32"
        if why := _why_kind_untestable(kind, setup):
            yield untested_claim(claim, why)
            continue
        values = {**kind.values, **(_two_process_values(setup) if kind.needs_two_processes else alone)}
        try:
            trained = train(small_training_profile(profile, values), run_context)
        except TuiTrainError as error:
            yield untested_claim(claim, error.message)
            continue
        yield checked_claim(
            claim,
            f"{losses_text(plain)} ± {percent(kind.tolerance, 1)}",
            losses_text(trained),
            holds=have_same_losses(trained, plain, kind.tolerance),
        )


def _why_kind_untestable(kind: _TrainingKind, setup: Setup) -> str:
    """Return what a kind of training lacks here beyond what its plan says, empty if nothing."""
    if kind.needs_two_processes and setup.device == "cuda" and len(setup.gpus) < 2:
        return "it needs two GPUs that can train"
    if kind.package and (setup.toolchain is None or kind.package not in setup.toolchain.packages):
        return f"this Python has no {kind.package}"
    return "it needs a GPU that can train" if kind.package and setup.device == "cpu" else ""


def _two_process_values(setup: Setup) -> dict[str, FieldValue]:
    """Return the values with which two processes train, on two cards or on the CPU."""
    return {"hardware.gpus": tuple(gpu.uuid for gpu in setup.gpus[:2]), "hardware.processes": 2}

"""The disk that the checkpoints of a training take, by its model and its settings; pure."""

import math

from msgspec import Struct

from tui_train.memory.estimate import saved
from tui_train.memory.predict import predict
from tui_train.memory.trainers import on
from tui_train.resolve.data import steps_of
from tui_train.resolve.setup import Setup
from tui_train.trainers import takes_field, trainer_of
from tui_train.trainers.finetune import KEPT, keeps_best

# What transformers' Trainer calls its checkpoints, and what it keeps; the built-in trainer sets the latter itself.
_TRANSFORMERS = "checkpoint-"
LIMIT = "save_total_limit"
_BUILTIN = 2
# NeMo 2 keeps the newest ones (save_top_k of its default_log); the other flavours keep all.
_NEMO = 10


class Disk(Struct, frozen=True, kw_only=True):
    """The bytes of weights and optimizer states in a checkpoint, and the relative `error` of both.

    `made` checkpoints are written in all, 0 if unknown, and `kept` of them stay, 0 for all. `limited`: the trainer
    takes a limit, which is `least` or more.
    """

    weights: int
    states: int
    error: float
    made: int
    kept: int
    limited: bool = False
    least: int = 1

    @property
    def one(self) -> int:
        """The bytes of one checkpoint."""
        return self.weights + self.states

    @property
    def at_once(self) -> int:
        """How many are there at a time: a new one is written before an old one is removed. 0 if unknown."""
        return min(self.made or self.kept + 1, self.kept + 1) if self.kept else self.made

    def needed(self) -> int:
        """Return the most bytes at a time, the final weights included; those of one checkpoint where all is unknown."""
        stay = min(filter(None, (self.made, self.kept)), default=1)
        return max(self.at_once * self.one, stay * self.one + self.weights)


def disk(setup: Setup) -> Disk | None:
    """Return what the checkpoints of a training take; None where its model or its checkpoints are not known."""
    found, profile = predict(setup), setup.rung
    model, how = found.workload.model, found.workload.how
    options = setup.options
    checkpoints = setup.preset.checkpoints
    transformers = checkpoints is not None and checkpoints.prefix == _TRANSFORMERS
    nemo = takes_field(profile, "nemo")
    if found.estimate is None or model is None or how is None or not (transformers or nemo):
        return None
    weights, states = saved(model, how)
    best = (takes_field(profile, "finetune") and keeps_best(profile)) or on(options, "load_best_model_at_end")
    least = 2 if best else 1
    kept = _kept(setup)
    return Disk(
        weights=weights,
        states=0 if on(options, "save_only_model") else states,
        error=found.estimate.error,
        made=_made(setup),
        kept=max(kept, least) if kept else 0,
        limited=transformers and not profile.trainer.config,
        least=least,
    )


def _kept(setup: Setup) -> int:
    """Return how many checkpoints stay, 0 for all."""
    profile = setup.rung
    if takes_field(profile, "nemo"):
        return _NEMO if setup.nemo == "recipes" else 0
    usual = KEPT if takes_field(profile, "finetune") else _BUILTIN if trainer_of(profile).makes_model else 0
    said = str(setup.options.get(LIMIT, usual))
    return int(said) if said.isdecimal() else 0


def _made(setup: Setup) -> int:
    """Return how many checkpoints are written, that of the end included; 0 if unknown."""
    recipe, strategy = setup.rung.recipe, setup.options.get("save_strategy")
    if strategy in {"no", "best"}:
        return 1
    if strategy == "epoch":
        return math.ceil(recipe.epochs) if recipe.epochs and not recipe.steps else 0
    return math.ceil(steps_of(setup) / recipe.checkpoint_every) if recipe.checkpoint_every else 0

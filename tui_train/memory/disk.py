"""The disk that the checkpoints of a training take, by its model and its settings; pure."""

import math

from msgspec import Struct

from tui_train.memory.estimate import checkpoint_weight_and_state_bytes
from tui_train.memory.predict import predict_memory
from tui_train.setup.recipe.data_questions import total_training_steps
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field, trainer_of
from tui_train.trainers.finetune import KEPT_TRL_CHECKPOINT_COUNT, keeps_best_checkpoint

# What transformers' Trainer calls its checkpoints, and what it keeps; the built-in trainer sets the latter itself.
_TRANSFORMERS_CHECKPOINT_PREFIX = "checkpoint-"
CHECKPOINT_LIMIT_OPTION = "save_total_limit"
_CHECKPOINTS_KEPT_BY_BUILTIN = 2
# NeMo 2 keeps the newest ones (save_top_k of its default_log); the other flavours keep all.
_CHECKPOINTS_KEPT_BY_NEMO = 10


class CheckpointDiskUse(Struct, frozen=True, kw_only=True):
    """The bytes of weights and optimizer states in a checkpoint."""

    weight_bytes: int
    state_bytes: int
    relative_error: float
    """The relative error of both."""
    written_count: int
    """The number of checkpoints written in all; 0: unknown."""
    kept_count: int
    """The number of checkpoints that are kept; 0: all."""
    can_be_limited: bool = False
    """The trainer takes a limit."""
    min_kept: int = 1
    """The lowest limit."""

    @property
    def checkpoint_bytes(self) -> int:
        """The bytes of one checkpoint."""
        return self.weight_bytes + self.state_bytes

    @property
    def max_count_at_once(self) -> int:
        """Largest number of checkpoints at a time: a new one is written before an old one is removed. 0 if unknown."""
        return (
            min(self.written_count or self.kept_count + 1, self.kept_count + 1)
            if self.kept_count
            else self.written_count
        )

    def peak_bytes(self) -> int:
        """Return the most bytes at a time, the final weights included; those of one checkpoint where all is unknown."""
        final_count = min(filter(None, (self.written_count, self.kept_count)), default=1)
        return max(
            self.max_count_at_once * self.checkpoint_bytes, final_count * self.checkpoint_bytes + self.weight_bytes
        )


def checkpoint_disk_use(setup: Setup) -> CheckpointDiskUse | None:
    """Return what the checkpoints of a training take; None where its model or its checkpoints are not known."""
    prediction, profile = predict_memory(setup), setup.effective_profile
    model, how = prediction.workload.model, prediction.workload.settings
    options = setup.trainer_options
    checkpoints = setup.preset.checkpoints
    transformers = checkpoints is not None and checkpoints.prefix == _TRANSFORMERS_CHECKPOINT_PREFIX
    nemo = trainer_has_own_field(profile, "nemo")
    if prediction.estimate is None or model is None or how is None or not (transformers or nemo):
        return None
    weights, states = checkpoint_weight_and_state_bytes(model, how)
    best = (trainer_has_own_field(profile, "finetune") and keeps_best_checkpoint(profile)) or options.is_on(
        "load_best_model_at_end"
    )
    min_kept = 2 if best else 1
    kept = _kept_checkpoint_count(setup)
    return CheckpointDiskUse(
        weight_bytes=weights,
        state_bytes=0 if options.is_on("save_only_model") else states,
        relative_error=prediction.estimate.relative_error,
        written_count=_written_checkpoint_count(setup),
        kept_count=max(kept, min_kept) if kept else 0,
        can_be_limited=transformers and not profile.trainer.config,
        min_kept=min_kept,
    )


def _kept_checkpoint_count(setup: Setup) -> int:
    """Return how many checkpoints stay, 0 for all."""
    profile = setup.effective_profile
    if trainer_has_own_field(profile, "nemo"):
        return _CHECKPOINTS_KEPT_BY_NEMO if setup.nemo_flavour == "recipes" else 0
    default = _CHECKPOINTS_KEPT_BY_BUILTIN if trainer_of(profile).can_create_model else 0
    if trainer_has_own_field(profile, "finetune"):
        default = KEPT_TRL_CHECKPOINT_COUNT
    limit = str(setup.trainer_options.get(CHECKPOINT_LIMIT_OPTION, default))
    return int(limit) if limit.isdecimal() else 0


def _written_checkpoint_count(setup: Setup) -> int:
    """Return how many checkpoints are written, that of the end included; 0 if unknown."""
    recipe, strategy = setup.effective_profile.recipe, setup.trainer_options.get("save_strategy")
    if strategy in {"no", "best"}:
        return 1
    if strategy == "epoch":
        return math.ceil(recipe.epochs) if recipe.epochs and not recipe.steps else 0
    return math.ceil(total_training_steps(setup) / recipe.checkpoint_every) if recipe.checkpoint_every else 0

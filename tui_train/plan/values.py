"""What each placeholder stands for: values with their types, and as words of a command."""

from collections.abc import Mapping

from tui_train.plan import batch
from tui_train.plan.resolve import Resolved
from tui_train.plan.types import Joined, Word, in_run_dir
from tui_train.profile.types import Profile

SAMPLE = "sample.txt"

# A tuple is a placeholder of any number of values.
Value = Word | int | float | bool | tuple[Word, ...]

_PLAIN = (
    "layers", "hidden_size", "heads", "sequence_length", "micro_batch", "global_batch", "precision", "steps",
    "activation_checkpointing", "fused_optimizer", "fused_cross_entropy", "optimizer_8bit", "lora",
    "checkpoint_every", "seed",
)  # fmt: skip


def accumulation(profile: Profile, world_size: int) -> int:
    """Return the gradient accumulation steps, 1 where the micro batch does not divide the global batch."""
    recipe = profile.recipe
    return batch.accumulation(recipe.global_batch, recipe.micro_batch, world_size) or 1


def values(profile: Profile, resolved: Resolved, output: Word, config: Word) -> dict[str, Value]:
    """Return what the placeholders of presets stand for; an empty text is none."""
    recipe, trainer, world = profile.recipe, profile.trainer, resolved.world_size
    data: tuple[Word, ...] = trainer.data
    if trainer.kind == "builtin" and not data:
        data = (in_run_dir(SAMPLE),)
    steps = accumulation(profile, resolved.copies)
    found: dict[str, Value] = {
        "output": output,
        "data": data,
        "validation_data": trainer.validation_data,
        "test_data": trainer.test_data,
        "model": trainer.model,
        "config": config,
        "learning_rate": batch.learning_rate(recipe),
        "accumulation": steps,
        "total_accumulation": steps * world,
        "total_batch": recipe.micro_batch * world,
        "eval_batch": recipe.eval_batch or "",
        "world_size": world,
        "device": resolved.device,
        "backend": resolved.backend if resolved.device == "cuda" else "",
    }
    return found | {name: getattr(recipe, name) for name in _PLAIN}


def words(found: Mapping[str, Value]) -> dict[str, tuple[Word, ...]]:
    """Return each placeholder's values as words: none where it is empty."""
    return {name: _words(value) for name, value in found.items()}


def _words(value: Value) -> tuple[Word, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, (str, Joined)):
        return (value,) if value else ()
    return (repr(value) if isinstance(value, float) else str(value),)

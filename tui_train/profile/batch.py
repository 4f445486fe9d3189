"""The arithmetic of batches and learning rates: global batch = micro batch x accumulation x world size, exactly."""

import math

from tui_train.profile.types import Recipe

# The placeholders by any of which a trainer is told its batch.
BATCH_PLACEHOLDERS = frozenset({"micro_batch", "total_batch", "accumulation", "total_accumulation", "global_batch"})


def gradient_accumulation(global_batch: int, micro_batch: int, world_size: int) -> int | None:
    """Return the gradient accumulation steps, None when micro batch x world size does not divide the global batch."""
    steps, rest = divmod(global_batch, micro_batch * world_size)
    return steps if steps and not rest else None


def nearest_global_batches(global_batch: int, micro_batch: int, world_size: int) -> tuple[int, ...]:
    """Return the global batches nearest below and above that the micro batch and world size divide."""
    return nearest_multiples(global_batch, micro_batch * world_size)


def nearest_multiples(number: int, unit: int) -> tuple[int, ...]:
    """Return the positive multiples of a unit nearest below (or at) a number, and above it."""
    below = number // unit * unit
    return tuple(value for value in (below, below + unit) if value)


def nearest_micro_batches(global_batch: int, micro_batch: int, world_size: int) -> tuple[int, ...]:
    """Return the micro batches nearest below and above that divide the global batch over the world size."""
    batch_per_process, rest = divmod(global_batch, world_size)
    if rest or not batch_per_process:
        return ()
    below = [value for value in divisors(batch_per_process) if value < micro_batch]
    above = [value for value in divisors(batch_per_process) if value > micro_batch]
    return tuple(below[-1:] + above[:1])


def largest_micro_batch(global_batch: int, max_micro: int, world_size: int, min_micro: int) -> int | None:
    """Return the largest micro batch of `min_micro` to `max_micro` that keeps the global batch, None for none."""
    batch_per_process, rest = divmod(global_batch, world_size)
    fitting = [value for value in divisors(batch_per_process) if min_micro <= value <= max_micro]
    return fitting[-1] if fitting and not rest else None


def scaled_learning_rate(recipe: Recipe) -> float | None:
    """Return the learning rate scaled by the ratio of the global batch to its reference batch, None if not known."""
    if recipe.learning_rate is None or recipe.lr_scaling == "none":
        return recipe.learning_rate
    if recipe.global_batch is None:
        return None
    ratio = recipe.global_batch / (recipe.lr_base_batch or recipe.global_batch)
    factor = {"linear": ratio, "sqrt": math.sqrt(ratio)}[recipe.lr_scaling]
    return recipe.learning_rate * factor


def divisors(number: int) -> list[int]:
    """Return all divisors, ascending."""
    small = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return sorted({*small, *(number // value for value in small)})

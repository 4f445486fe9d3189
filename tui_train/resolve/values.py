"""What each placeholder stands for: values with their types, and as words of a command."""

import math
from collections.abc import Iterable, Mapping

from tui_train.base.command import Joined, Word, in_run_dir
from tui_train.base.versions import at_least, known_since
from tui_train.facts.types import Toolchain
from tui_train.presets import PLACEHOLDERS, condition_holds
from tui_train.profile import batch, fields
from tui_train.profile.types import Profile, Recipe, Tracking
from tui_train.resolve.arguments import plain
from tui_train.resolve.setup import Setup
from tui_train.trainers import trainer_of
from tui_train.trainers.builtin import SAMPLE

# By a file's ending, what the library datasets reads it with.
FORMATS = {"jsonl": "json", "json": "json", "parquet": "parquet", "csv": "csv", "txt": "text"}

# A tuple is a placeholder of any number of values.
Value = Word | int | float | bool | tuple[Word, ...]

# The recipe's values that are passed as they are.
_PLAIN = tuple(
    name
    for name, key in PLACEHOLDERS.items()
    if key == f"recipe.{name}" and name not in {"learning_rate", "eval_batch"}
)


def accumulation(profile: Profile, copies: int) -> int | None:
    """Return the gradient accumulation steps of a settled profile; None where they are not known or not whole."""
    recipe = profile.recipe
    if recipe.global_batch is None or recipe.micro_batch is None:
        return None
    return batch.gradient_accumulation(recipe.global_batch, recipe.micro_batch, copies)


def keys_to_pass(chosen: Profile, edits: Iterable[str]) -> frozenset[str]:
    """Return the keys of the recipe whose values are passed: the chosen ones and those that an attempt changes.

    Some trainers are passed all of them.
    """
    if trainer_of(chosen).passed_all:
        return frozenset(key for key in PLACEHOLDERS.values() if key.startswith("recipe."))
    keys = {key for key in fields.chosen_keys(chosen) if key.startswith("recipe.")} | set(edits)
    # A scaled learning rate is another one than the trainer's own.
    return frozenset(keys | ({"recipe.learning_rate"} if chosen.recipe.lr_scaling != "none" else set()))


def values(
    setup: Setup, output: Word, config: Word, passed_keys: frozenset[str], *, user_output: bool
) -> dict[str, Value]:
    """Return what the placeholders of presets stand for in a settled profile; an empty text is none.

    `passed_keys` reach the trainer. With `user_output` the user's arguments or file name the output folder.
    """
    profile = setup.rung
    recipe, trainer, world = profile.recipe, profile.trainer, setup.world_size
    data: tuple[Word, ...] = trainer.data
    if trainer_of(profile).makes_model and not data:
        data = (in_run_dir(SAMPLE),)
    steps = accumulation(profile, setup.copies)
    from_recipe: dict[str, Value | None] = {
        "learning_rate": batch.learning_rate(recipe),
        "accumulation": steps,
        "total_accumulation": steps and steps * world,
        "total_batch": recipe.micro_batch and recipe.micro_batch * world,
        "whole_epochs": int(recipe.epochs) if recipe.epochs and recipe.epochs.is_integer() else None,
        **_warmup(recipe, setup.toolchain),
        **{name: getattr(recipe, name) for name in _PLAIN},
    }
    for name, value in from_recipe.items():
        if value is None or PLACEHOLDERS[name] not in passed_keys:
            from_recipe[name] = ""
    return {
        "output": "" if user_output else output,
        "data": data,
        "data_format": data_format(trainer.data),
        "validation_data": trainer.validation_data,
        "test_data": trainer.test_data,
        "model": trainer.model,
        "revision": trainer.revision,
        "config": config,
        "eval_batch": recipe.eval_batch or "",
        "world_size": world,
        "device": setup.device,
        "backend": setup.backend if setup.device == "cuda" else "",
        **_reports(profile.tracking),
        **{name: value for name, value in from_recipe.items() if value is not None},
    }


def _warmup(recipe: Recipe, toolchain: Toolchain | None) -> dict[str, Value | None]:
    """Return the warmup as steps or a share, in the words of this transformers, and as steps alone."""
    warmup = recipe.warmup
    share = warmup is not None and 0 < warmup < 1
    older = share and toolchain is not None and not at_least(toolchain.transformers, "5.0")
    whole = None if warmup is None or share else int(warmup)
    counted = math.ceil(warmup * recipe.steps) if warmup is not None and share and recipe.steps else whole
    return {
        "warmup_steps": None if older else warmup if share else whole,
        "warmup_ratio": warmup if older else None,
        "num_warmup_steps": counted,
    }


def _reports(tracking: Tracking) -> dict[str, Value]:
    """Return which loggers were chosen, each by itself and in one word; empty for none."""
    chosen = tuple(name for name in ("tensorboard", "wandb") if getattr(tracking, name))
    together = "both" if len(chosen) > 1 else "".join(chosen)
    return {"tensorboard": "", "wandb": "", **dict.fromkeys(chosen, "yes"), "report_to": together}


def data_format(data: tuple[str, ...]) -> str:
    """Return the name that the library datasets has for the form of files, empty where they have none or several."""
    formats = {FORMATS.get(path.rpartition(".")[2].lower(), "") for path in data}
    return formats.pop() if len(formats) == 1 else ""


def words(values: Mapping[str, Value]) -> dict[str, tuple[Word, ...]]:
    """Return each placeholder's values as words: none where it is empty."""
    return {name: _words(value) for name, value in values.items()}


def _words(value: Value) -> tuple[Word, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, (str, Joined)):
        return (value,) if value else ()
    return (repr(value) if isinstance(value, float) else str(value),)


def saving(setup: Setup, passed_values: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the arguments that make the trainer save on SIGTERM, if its library is new enough."""
    stop, tool = setup.preset.stop, setup.toolchain
    library, _, since = stop.needs.partition(" ")
    versions = {"transformers": tool.transformers, **tool.packages} if tool else {}
    fits = not library or known_since(versions.get(library), since)
    return stop.arguments if fits and condition_holds(stop.when, plain(words(passed_values))) else ()

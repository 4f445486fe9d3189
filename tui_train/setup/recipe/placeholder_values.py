"""Values of the placeholders such as {micro_batch}, typed and as words of a command, and how they fill words."""

import math
from collections.abc import Iterable, Mapping, Sequence

from tui_train.base.command import CommandWord, JoinedWord, join_pieces, word_in_run_dir
from tui_train.base.versions import is_at_least_or_unknown, is_known_at_least
from tui_train.facts.types import Toolchain
from tui_train.profile import batch, fields
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN, PresetArgument, condition_holds
from tui_train.profile.types import TRACKER_NAMES, Profile, Recipe, Tracking
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_of
from tui_train.trainers.builtin import SAMPLE_TEXT_FILE

# By a file's ending, what the library datasets reads it with.
DATASETS_FORMAT_BY_ENDING = {"jsonl": "json", "json": "json", "parquet": "parquet", "csv": "csv", "txt": "text"}

# A tuple is a placeholder of any number of values.
PlaceholderValue = CommandWord | int | float | bool | tuple[CommandWord, ...]
PlaceholderWords = Mapping[str, Sequence[CommandWord]]

# The recipe's values that are passed as they are.
_VALUE_NAMES_PASSED_UNCHANGED = tuple(
    name
    for name, key in KEY_BY_PLACEHOLDER.items()
    if key == f"recipe.{name}" and name not in {"learning_rate", "eval_batch"}
)


def effective_accumulation(profile: Profile, copies: int) -> int | None:
    """Return the gradient accumulation steps of an effective profile; None where they are not known or not whole."""
    recipe = profile.recipe
    if recipe.global_batch is None or recipe.micro_batch is None:
        return None
    return batch.gradient_accumulation(recipe.global_batch, recipe.micro_batch, copies)


def recipe_keys_to_pass(profile: Profile, changed_keys: Iterable[str]) -> frozenset[str]:
    """Return the keys of the recipe whose values are passed: the chosen ones and those that an attempt changes.

    Some trainers are passed all of them.
    """
    if trainer_of(profile).takes_every_recipe_value:
        return frozenset(key for key in KEY_BY_PLACEHOLDER.values() if key.startswith("recipe."))
    keys = {key for key in fields.chosen_keys(profile) if key.startswith("recipe.")} | set(changed_keys)
    # A scaled learning rate is another one than the trainer's own.
    return frozenset(keys | ({"recipe.learning_rate"} if profile.recipe.lr_scaling != "none" else set()))


def placeholder_values(
    setup: Setup, output: CommandWord, config: CommandWord, passed_keys: frozenset[str], *, user_output: bool
) -> dict[str, PlaceholderValue]:
    """Return what the placeholders of presets stand for in an effective profile; an empty text is none.

    `passed_keys` reach the trainer. With `user_output` the user's arguments or file name the output folder.
    """
    profile = setup.effective_profile
    recipe, trainer, world_size = profile.recipe, profile.trainer, setup.world_size
    data: tuple[CommandWord, ...] = trainer.data
    if trainer_of(profile).can_create_model and not data:
        data = (word_in_run_dir(SAMPLE_TEXT_FILE),)
    steps = effective_accumulation(profile, setup.model_copies)
    from_recipe: dict[str, PlaceholderValue | None] = {
        "learning_rate": batch.scaled_learning_rate(recipe),
        "accumulation": steps,
        "total_accumulation": steps and steps * world_size,
        "total_batch": recipe.micro_batch and recipe.micro_batch * world_size,
        "whole_epochs": int(recipe.epochs) if recipe.epochs and recipe.epochs.is_integer() else None,
        **_warmup_values(recipe, setup.toolchain),
        **{name: getattr(recipe, name) for name in _VALUE_NAMES_PASSED_UNCHANGED},
    }
    for name, value in from_recipe.items():
        if value is None or KEY_BY_PLACEHOLDER[name] not in passed_keys:
            from_recipe[name] = ""
    return {
        "output": "" if user_output else output,
        "data": data,
        "data_format": datasets_library_format(trainer.data),
        "validation_data": trainer.validation_data,
        "test_data": trainer.test_data,
        "model": trainer.model,
        "revision": trainer.revision,
        "config": config,
        "eval_batch": recipe.eval_batch or "",
        "generations": profile.finetune.generations or "",
        "completion_length": profile.finetune.completion_length or "",
        "completions": profile.finetune.completions or "",
        "world_size": world_size,
        "device": setup.device,
        "backend": setup.communication_backend if setup.device == "cuda" else "",
        **_tracker_values(profile.tracking, setup.toolchain),
        **{name: value for name, value in from_recipe.items() if value is not None},
    }


def _warmup_values(recipe: Recipe, toolchain: Toolchain | None) -> dict[str, PlaceholderValue | None]:
    """Return the warmup as steps or a share, in the words of this transformers, and as steps alone."""
    warmup = recipe.warmup
    is_share = warmup is not None and 0 < warmup < 1
    before_version_5 = is_share and toolchain is not None and not is_at_least_or_unknown(toolchain.transformers, "5.0")
    whole_steps = None if warmup is None or is_share else int(warmup)
    computed_steps = (
        math.ceil(warmup * recipe.steps) if warmup is not None and is_share and recipe.steps else whole_steps
    )
    return {
        "warmup_steps": None if before_version_5 else warmup if is_share else whole_steps,
        "warmup_ratio": warmup if before_version_5 else None,
        "num_warmup_steps": computed_steps,
    }


def _tracker_values(tracking: Tracking, toolchain: Toolchain | None) -> dict[str, PlaceholderValue]:
    """Return the chosen trackers, each by itself, as a list and as one word, and Trackio's project; empty for none."""
    chosen = tracking.chosen_trackers
    return {
        **dict.fromkeys(TRACKER_NAMES, ""),
        **dict.fromkeys(chosen, "yes"),
        "trackers": chosen,
        "report_to": ",".join(chosen),
        # Its script takes one.
        "log_with": ",".join(chosen),
        "trackio_project": tracking.project
        if tracking.trackio and takes_trackio_project_as_argument(toolchain)
        else "",
    }


def takes_trackio_project_as_argument(toolchain: Toolchain | None) -> bool:
    """Return whether Trackio's project is an argument of this transformers, not the variable TRACKIO_PROJECT."""
    return toolchain is None or is_at_least_or_unknown(toolchain.transformers, "4.57")


def datasets_library_format(data: tuple[str, ...]) -> str:
    """Return the name that the library datasets has for the form of files, empty where they have none or several."""
    formats = {DATASETS_FORMAT_BY_ENDING.get(path.rpartition(".")[2].lower(), "") for path in data}
    return formats.pop() if len(formats) == 1 else ""


def placeholder_words(values: Mapping[str, PlaceholderValue]) -> dict[str, tuple[CommandWord, ...]]:
    """Return each placeholder's values as words: none where it is empty."""
    return {name: _value_words(value) for name, value in values.items()}


def _value_words(value: PlaceholderValue) -> tuple[CommandWord, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, (str, JoinedWord)):
        return (value,) if value else ()
    return (repr(value) if isinstance(value, float) else str(value),)


def save_on_stop_arguments(setup: Setup, passed_values: Mapping[str, PlaceholderValue]) -> tuple[str, ...]:
    """Return the arguments that make the trainer save on SIGTERM, if its library is new enough."""
    stop, tool = setup.preset.stop, setup.toolchain
    library, _, since = stop.needs.partition(" ")
    versions = {"transformers": tool.transformers, **tool.packages} if tool else {}
    fits = not library or is_known_at_least(versions.get(library), since)
    holds = condition_holds(stop.when, first_word_by_placeholder(placeholder_words(passed_values)))
    return stop.arguments if fits and holds else ()


def fill_placeholders(argument: PresetArgument, values: PlaceholderWords) -> tuple[tuple[CommandWord, ...], ...]:
    """Return the words with placeholders filled: none if one is empty, once for each value if one has several."""
    if not condition_holds(argument.when, first_word_by_placeholder(values)):
        return ()
    named = [name for name in PLACEHOLDER_PATTERN.findall("\n".join(argument.words)) if name in values]
    repeats = min((len(values[name]) for name in named), default=1)
    if repeats:
        repeats = max((len(values[name]) for name in named), default=1)
    return tuple(
        tuple(_word_with_placeholders_filled(word, values, turn) for word in argument.words) for turn in range(repeats)
    )


def first_word_by_placeholder(values: PlaceholderWords) -> dict[str, str]:
    """Return the first of each placeholder's values as text, for conditions."""
    return {name: str(texts[0]) if texts else "" for name, texts in values.items()}


def _word_with_placeholders_filled(word: str, values: PlaceholderWords, value_index: int) -> CommandWord:
    filled: list[CommandWord] = []
    for position, piece in enumerate(PLACEHOLDER_PATTERN.split(word)):
        if position % 2 and piece in values:
            choices = values[piece]
            filled.append(choices[min(value_index, len(choices) - 1)])
        else:
            filled.append(f"{{{piece}}}" if position % 2 else piece)
    if all(isinstance(piece, str) for piece in filled):
        return "".join(str(piece) for piece in filled)
    return join_pieces(
        part for piece in filled for part in (piece.pieces if isinstance(piece, JoinedWord) else (piece,))
    )

"""Outline of a profile's training in five lines, for Preview and `tui-train plan`."""

import re
from pathlib import PurePath

from msgspec import Struct

from tui_train.base.text import duration_text, grouped_digits, percent, quantity, visible
from tui_train.facts.data.data_use import FORMAT_LABELS, learns_whole_chats
from tui_train.memory.predict import predict_memory
from tui_train.memory.workload import chosen_model_name
from tui_train.plan.description import warm_up_text
from tui_train.profile import batch
from tui_train.profile.types import FinetuneSettings, Profile
from tui_train.setup.recipe.data_questions import (
    data_report_at_length_in_force,
    question_about_data,
    total_training_steps,
    training_epoch_size,
)
from tui_train.setup.recipe.effective_values import is_unset_by_user
from tui_train.setup.recipe.given_arguments import ValueInForce, likely_data, likely_steps
from tui_train.setup.recipe.options import script_options
from tui_train.setup.recipe.placeholder_values import effective_accumulation
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field, trainer_of
from tui_train.trainers.auto_preset import SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT, SCRIPT_OWN_VALUE_SOURCE_TEXT
from tui_train.trainers.finetune import default_learning_rate
from tui_train.trainers.script import script_or_module_to_start

_COUNT_UNIT_FACTOR = 1000
_MIN_SHARE_WITHOUT_DECIMAL = 0.01  # a share below it is shown with a decimal
_COMMIT_PATTERN, _SHORT_COMMIT_LENGTH = re.compile("[0-9a-f]{40}"), 12
_SMALLEST_SHORTENED_COUNT = 100_000  # below it a count is shown with all its digits


class OverviewLine(Struct, frozen=True):
    """One line: what it is about, the value that answers it, and what explains that; all safe to show."""

    label: str
    value: str
    note: str = ""


class MeasuredPace(Struct, frozen=True):
    """Seconds per step of an earlier run with the same settings, and its name.

    `includes_startup`: they are a share of the whole run, so a step takes less; else `other_seconds` are what the run
    took besides its steps, to start and to end.
    """

    seconds_per_step: float
    run_name: str
    includes_startup: bool = False
    other_seconds: float = 0.0

    def time_text(self, steps: int) -> str:
        """Return how long so many steps take: `about 2 min 00 s`."""
        return f"{'at most' if self.includes_startup else 'about'} {duration_text(self.seconds_per_step * steps)}"

    def whole_time_text(self, steps: int) -> str:
        """Return how long a run of so many steps takes from its start to its end."""
        about = "at most" if self.includes_startup else "about"
        return f"{about} {duration_text(self.seconds_per_step * steps + self.other_seconds)}"


def training_outline_lines(setup: Setup, pace: MeasuredPace | None = None) -> tuple[OverviewLine, ...]:
    """Return model, data, batch, rate and steps of a resolved profile, and a length with its source; pure."""
    return (
        _model_line(setup),
        _finetune_data_line(setup) if trainer_of(setup.effective_profile).requires_user_data else _data_line(setup),
        *_sequence_length_lines_if_from_data(setup),
        _batch_line(setup),
        _learning_rate_line(setup),
        _steps_line(setup, pace),
    )


def overview_text(lines: tuple[OverviewLine, ...]) -> str:
    """Return the lines in columns."""
    widths = [max(len(line.label) for line in lines), max(len(line.value) for line in lines)]
    rows = (f"{line.label:<{widths[0]}}  {line.value:<{widths[1]}}  {line.note}" for line in lines)
    return "\n".join(row.rstrip() for row in rows)


def _model_line(setup: Setup) -> OverviewLine:
    profile, prediction = setup.effective_profile, predict_memory(setup)
    recipe, new = profile.recipe, trainer_of(profile).can_create_model
    asked, estimate, note = prediction.workload, prediction.estimate, []
    name = chosen_model_name(profile, script_options(profile, setup.facts.documents))
    if trainer_has_own_field(profile, "nemo"):
        value = profile.nemo.recipe or "no recipe"
    elif name:
        value = _file_name(name) + _revision_suffix(profile)
    elif new:
        value = f"new, {quantity(recipe.layers, 'layer')}" if recipe.layers else "new"
        note.append(f"{recipe.hidden_size} wide" if recipe.hidden_size else "")
    else:
        value = f"that of {_file_name(script_or_module_to_start(profile, setup.preset)) or 'the script'}"
    if asked.settings and asked.settings.trained == "lora":
        note.append(f"LoRA rank {asked.settings.lora_rank}")
    if estimate and estimate.trained_count != estimate.parameters:
        # An adapter's are new ones beside those of the model.
        total = estimate.parameters + (
            estimate.trained_count if asked.settings and asked.settings.trained == "lora" else 0
        )
        note.append(f"{short_count_text(estimate.trained_count)} of {short_count_text(total)} parameters learn")
    elif estimate:
        note.append(f"{short_count_text(estimate.parameters)} parameters")
    note.append(setup.effective_values["precision"].other_form_text or recipe.precision or "")
    return OverviewLine("Model", visible(value), visible(", ".join(filter(None, note))))


def _revision_suffix(profile: Profile) -> str:
    """Return the revision of a model as it follows the model's name, a commit as git shortens it; empty for main."""
    revision = profile.trainer.revision
    return (
        f"@{revision[:_SHORT_COMMIT_LENGTH] if _COMMIT_PATTERN.fullmatch(revision) else revision}" if revision else ""
    )


def _data_line(setup: Setup) -> OverviewLine:
    trainer = setup.effective_profile.trainer
    held_out = f"evaluated on {_files_text(trainer.validation_data)}" if trainer.validation_data else ""
    if trainer.data:
        return OverviewLine("Data", _files_text(trainer.data), held_out)
    if trainer_of(setup.effective_profile).can_create_model:
        return OverviewLine("Data", "sample text", "included")
    if trainer_has_own_field(setup.effective_profile, "nemo") and setup.effective_profile.nemo.mock_data:
        return OverviewLine("Data", "random tokens", "only to see whether it runs")
    if known := likely_data(setup.script_source, trainer.arguments) if setup.script_source else None:
        return OverviewLine("Data", _files_text(known.values), held_out or _argument_origin_text(known))
    where = f"in {_file_name(trainer.config)} or the arguments" if trainer.config else "its code or arguments name it"
    return OverviewLine("Data", SCRIPT_OWN_VALUE_SOURCE_TEXT, held_out or visible(where))


def _argument_origin_text(value: ValueInForce) -> str:
    """Return which argument of the script a value is, and whether it is the script's default."""
    return visible(
        f"{value.parameter.name}{'' if value.is_from_arguments else f', {SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT}'}"
    )


def _finetune_data_line(setup: Setup) -> OverviewLine:
    """Return the data of a fine-tuning: its rows and format once it was read, and what is kept for evaluations."""
    profile, look, one = setup.effective_profile, data_report_at_length_in_force(setup), training_epoch_size(setup)
    trainer, share = profile.trainer, profile.data.evaluation or 0.0
    notes = []
    if look and one:
        about = "about " if one.estimated and not look.all_read else ""
        notes = [f"{about}{grouped_digits(one.rows)} rows", FORMAT_LABELS.get(look.format, "")]
        notes.append(f"{short_count_text(one.tokens)} tokens" if one.tokens else "")
    if trainer.validation_data:
        notes.append(f"evaluated on {_files_text(trainer.validation_data)}")
    elif share:
        notes.append(f"{percent(share, 1 if share < _MIN_SHARE_WITHOUT_DECIMAL else 0)} for evaluations")
    question = question_about_data(setup)
    if look and question and learns_whole_chats(look, question):
        notes.append("whole chats learned")
    return OverviewLine(
        "Data", _files_text(trainer.data) if trainer.data else "none", visible(", ".join(filter(None, notes)))
    )


def _sequence_length_lines_if_from_data(setup: Setup) -> tuple[OverviewLine, ...]:
    """Return the sequence length that follows from the data, and why it is that."""
    held = setup.effective_values["sequence_length"]
    if not isinstance(held.value, int) or not is_unset_by_user(held) or held.source.endswith("default"):
        return ()
    return (OverviewLine("Length", f"{grouped_digits(held.value)} tokens", visible(held.source)),)


def _batch_line(setup: Setup) -> OverviewLine:
    profile = setup.effective_profile
    recipe = profile.recipe
    split = setup.model_copies != setup.world_size
    unit = ("copy", "copies") if split else ("GPU", "GPUs") if setup.device == "cuda" else ("process", "processes")
    copies = quantity(setup.model_copies, *unit)
    if not recipe.micro_batch:
        return OverviewLine("Batch", SCRIPT_OWN_VALUE_SOURCE_TEXT, copies)
    steps = effective_accumulation(profile, setup.model_copies)
    if not (recipe.global_batch and steps):
        return OverviewLine("Batch", f"{recipe.micro_batch} × {setup.model_copies}", f"micro batch × {copies}")
    value = f"{recipe.micro_batch} × {steps} × {setup.model_copies} = {recipe.global_batch}"
    words = f"micro × accumulation × {copies}"
    if recipe.sequence_length:
        words += f"; {short_count_text(recipe.global_batch * recipe.sequence_length)} tokens"
    return OverviewLine("Batch", value, words)


def _learning_rate_line(setup: Setup) -> OverviewLine:
    profile = setup.effective_profile
    rate, held = batch.scaled_learning_rate(profile.recipe), setup.effective_values["learning_rate"]
    if rate is None:
        return OverviewLine(
            "Rate",
            visible(held.other_form_text) or _trainer_default_text(profile),
            visible(held.source if held.other_form_text else ""),
        )
    notes = []
    if rate != profile.recipe.learning_rate:
        notes.append(f"{profile.recipe.lr_scaling} scaling of {profile.recipe.learning_rate:g}")
    elif held.source not in {"", "default"}:
        notes.append(held.source)
    recipe, value = profile.recipe, f"{rate:g}"
    if trainer_of(profile).takes_every_recipe_value:
        value += f" {recipe.schedule}" if recipe.schedule else ""
    if trainer_of(profile).can_create_model:
        notes.append(warm_up_text(recipe.warmup, recipe.steps or 0))
    elif trainer_of(profile).requires_user_data:
        notes = [
            held.source or usual_learning_rate_text(profile.finetune),
            warm_up_text(recipe.warmup, total_training_steps(setup)),
        ]
    return OverviewLine("Rate", value, visible("; ".join(filter(None, notes))))


def _trainer_default_text(profile: Profile) -> str:
    return SCRIPT_OWN_VALUE_SOURCE_TEXT if trainer_has_own_field(profile, "trainer.script") else "the trainer's own"


def usual_learning_rate_text(chosen: FinetuneSettings) -> str:
    """Return the learning rate that is usual for a fine-tuning, in words."""
    tuning = {"full": "a full fine-tune", "lora": "LoRA", "qlora": "QLoRA"}[chosen.tuning]
    return f"usual for {tuning}: {default_learning_rate(chosen):g}"


def _steps_line(setup: Setup, pace: MeasuredPace | None) -> OverviewLine:
    recipe, held = setup.effective_profile.recipe, setup.effective_values["steps"]
    epochs = "" if recipe.steps else _epochs_text(recipe.epochs)
    total = total_training_steps(setup) if trainer_of(setup.effective_profile).requires_user_data else recipe.steps
    every = _checkpoints_text(recipe.checkpoint_every or 0, total or 0)
    source, arguments = setup.script_source, setup.profile.trainer.arguments
    if not (total or epochs or held.other_form_text) and source and (known := likely_steps(source, arguments)):
        return OverviewLine("Steps", visible(known.values[-1]), _argument_origin_text(known))
    if not total:
        return OverviewLine(
            "Epochs" if epochs else "Steps",
            epochs or visible(held.other_form_text) or _trainer_default_text(setup.effective_profile),
            every,
        )
    steps = f"{epochs} ≈ {grouped_digits(total)} steps" if epochs else quantity(total, "step")
    if pace is None:
        return OverviewLine("Steps", steps if epochs else f"{total}", every)
    note = ", ".join(filter(None, (steps, f"as fast as {visible(pace.run_name)}", every)))
    return OverviewLine("Time", pace.whole_time_text(total), note)


def _checkpoints_text(every: int, steps: int) -> str:
    """Return how often a checkpoint is saved, or that none is before the end (`steps`, 0: unknown); empty for never."""
    if not every:
        return ""
    return f"no checkpoint before the end: one every {every}" if 0 < steps <= every else f"a checkpoint every {every}"


def _epochs_text(epochs: float | None) -> str:
    """Return passes through the data in words, such as `3 epochs`; empty for none."""
    return f"{epochs:g} {'epoch' if epochs == 1 else 'epochs'}" if epochs else ""


def _files_text(paths: tuple[str, ...]) -> str:
    first, *others = paths
    more = f" and {len(others)} more" if others else ""
    return visible(f"{_file_name(first)}{more}")


def _file_name(path: str) -> str:
    return PurePath(path).name or path


def short_count_text(number: int) -> str:
    """Return a count, a large one in three digits with k, M or B."""
    for unit, size in (("B", _COUNT_UNIT_FACTOR**3), ("M", _COUNT_UNIT_FACTOR**2), ("k", _COUNT_UNIT_FACTOR)):
        if number >= max(size, _SMALLEST_SHORTENED_COUNT):
            return f"{number / size:.3g} {unit}"
    return grouped_digits(number)

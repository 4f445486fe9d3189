"""One attempt of a plan: its command, its folder, what its checkpoints are."""

from collections.abc import Iterable, Mapping

from tui_train.base.command import CHECKPOINT_VARIABLE, Command, CommandPart, CommandWord, join_pieces, word_in_run_dir
from tui_train.launchers import LAUNCHERS
from tui_train.launchers.launcher import LauncherJob
from tui_train.memory.ladder.attempt_order import AttemptPlan, titles_per_rung
from tui_train.plan.description import batch_arithmetic_text
from tui_train.plan.environment import attempt_variables
from tui_train.plan.types import Attempt, CheckpointLayout
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN, PresetArgument
from tui_train.setup.recipe import config_file
from tui_train.setup.recipe.effective_values import working_folder
from tui_train.setup.recipe.placeholder_values import (
    PlaceholderValue,
    fill_placeholders,
    placeholder_values,
    placeholder_words,
    recipe_keys_to_pass,
    save_on_stop_arguments,
)
from tui_train.setup.setup import Setup


def values_passed_to_trainer(attempt_plan: AttemptPlan, setup: Setup, config_path: str) -> dict[str, PlaceholderValue]:
    """Return the values passed to the trainer in an attempt, by placeholder; its config file is at `config_path`."""
    chosen, user_output, output = setup.profile, setup.user_output_folder, attempt_output_folder(setup)
    keys = recipe_keys_to_pass(chosen, (key for _, change in attempt_plan.rungs_and_changes for key, _ in change.edits))
    keeps_output = bool(user_output) and not chosen.trainer.output and output == user_output
    config_word = config_file.config_placeholder_word(chosen, setup.preset, config_path)
    return placeholder_values(setup, output, config_word, keys, user_output=keeps_output)


def build_attempt(
    attempt_plan: AttemptPlan,
    setup: Setup,
    job: LauncherJob,
    passed_values: Mapping[str, PlaceholderValue],
    config_path: str,
) -> Attempt:
    """Return an attempt, whose `setup` is at its rung; `config_path` is empty for no config file."""
    chosen, preset, output = setup.profile, setup.preset, attempt_output_folder(setup)
    rule = preset.checkpoints
    save_arguments = save_on_stop_arguments(setup, passed_values)
    resume = tuple(_fill_checkpoint_placeholder(word) for word in rule.resume) if rule else ()
    parts = (
        *LAUNCHERS[setup.launcher](job).command_parts(),
        *setup.trainer.program_parts(),
        *([CommandPart(save_arguments, "saves when the run is stopped")] if save_arguments else []),
        *_preset_and_user_arguments(setup, passed_values, config_path),
        *([CommandPart(resume, "only if there is a complete checkpoint", resumes=True)] if resume else []),
    )
    return Attempt(
        rung=attempt_plan.rungs_and_changes[-1][0] if attempt_plan.rungs_and_changes else "",
        title=attempt_plan.title,
        changes=tuple(titles_per_rung(attempt_plan.rungs_and_changes)),
        edits={key: value for _, change in attempt_plan.rungs_and_changes for key, value in change.edits},
        then={phase: index + 1 for phase, index in attempt_plan.next_index_by_phase.items()},
        batch=batch_arithmetic_text(setup, job),
        command=Command(
            parts, attempt_variables(setup, job, passed_values), working_folder(chosen, preset) or word_in_run_dir("")
        ),
        checkpoints=CheckpointLayout(output, rule.prefix, rule.complete, rule.suffix, rule.file) if rule else None,
        fills=((config_path, config_file.resume_checkpoint_value_in_user_file(chosen, preset, setup.facts)),)
        if config_path and config_file.does_file_hold_run_paths(preset)
        else (),
    )


def attempt_output_folder(setup: Setup) -> CommandWord:
    """Return the output folder: attempts that cannot resume from the others' checkpoints get a separate one."""
    first, effective = setup.effective_profile_of_first_attempt, setup.effective_profile
    suffix = "" if effective.recipe.layers == first.recipe.layers else f"-{effective.recipe.layers}-layers"
    suffix += "" if effective.trainer.strategy == first.trainer.strategy else f"-{effective.trainer.strategy}"
    suffix += "-8bit" if effective.recipe.optimizer_8bit and not first.recipe.optimizer_8bit else ""
    suffix += "-lora" if effective.recipe.lora and not first.recipe.lora else ""
    output = effective.trainer.output or setup.user_output_folder
    return f"{output}{suffix}" if output else word_in_run_dir(f"output{suffix}")


def _fill_checkpoint_placeholder(word: str) -> CommandWord:
    before, placeholder, after = word.partition("{checkpoint}")
    return join_pieces((before, CHECKPOINT_VARIABLE, after)) if placeholder else word


def _preset_and_user_arguments(
    setup: Setup, passed_values: Mapping[str, PlaceholderValue], config_path: str
) -> tuple[CommandPart, ...]:
    """Return the arguments of the preset and the user's, each of which may stand first."""
    passed_words, all_words = placeholder_words(passed_values), _words_for_user_placeholders(setup, config_path)

    def filled(arguments: Iterable[PresetArgument]) -> list[CommandPart]:
        return [CommandPart(group) for argument in arguments for group in fill_placeholders(argument, passed_words)]

    preset = filled(argument for argument in setup.preset.arguments if not argument.after)
    after = {argument.after for argument in setup.preset.arguments if argument.after}
    user_first = setup.preset.user_arguments_first
    why = "your arguments" if user_first or after else "your arguments, from here on"
    user_parts: list[CommandPart] = []
    for word in setup.profile.trainer.arguments:
        for group in fill_placeholders(PresetArgument((word,)), all_words):
            user_parts.append(CommandPart(group, why))
            why = ""
        if word in after:
            after.discard(word)
            user_parts += filled(argument for argument in setup.preset.arguments if argument.after == word)
    return (*user_parts, *preset) if user_first else (*preset, *user_parts)


def _words_for_user_placeholders(setup: Setup, config_path: str) -> dict[str, tuple[CommandWord, ...]]:
    """Return what placeholders in the user's arguments get: all values, passed or not."""
    if not any(PLACEHOLDER_PATTERN.search(word) for word in setup.profile.trainer.arguments):
        return {}
    config_word = config_file.config_placeholder_word(setup.profile, setup.preset, config_path)
    keys = frozenset(KEY_BY_PLACEHOLDER.values())
    return placeholder_words(
        placeholder_values(setup, attempt_output_folder(setup), config_word, keys, user_output=False)
    )

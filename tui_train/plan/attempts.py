"""One attempt of a plan: its command, its folder, what its checkpoints are."""

from collections.abc import Iterable, Mapping

from tui_train.base.command import CHECKPOINT, Command, ConfigFile, Part, Word, in_run_dir, joined
from tui_train.ladder.climb import AttemptPlan, titles
from tui_train.launchers import LAUNCHERS
from tui_train.launchers.job import Job
from tui_train.plan.environment import settings
from tui_train.plan.types import Attempt, CheckpointRule
from tui_train.plan.words import batch_words
from tui_train.presets import PLACEHOLDERS, PresetArgument
from tui_train.resolve import config_file
from tui_train.resolve.arguments import fill
from tui_train.resolve.in_force import folder_of
from tui_train.resolve.setup import Setup
from tui_train.resolve.values import Value, keys_to_pass, saving, values, words
from tui_train.trainers import trainer_of


def attempt(step: AttemptPlan, setup: Setup, job: Job, path: str) -> tuple[Attempt, ConfigFile | None]:
    """Return an attempt, whose `setup` is at its rung, and the trainer's config file at `path` if it takes one."""
    chosen, preset, user_output, output = setup.profile, setup.preset, setup.user_output, output_of(setup)
    passed_keys = keys_to_pass(chosen, (key for _, change in step.changes for key, _ in change.edits))
    config_word = config_file.word_of(chosen, preset, path)
    keeps_output = bool(user_output) and not chosen.trainer.output and output == user_output
    passed_values = values(setup, output, config_word, passed_keys, user_output=keeps_output)
    # Placeholders in the user's arguments get all values, passed or not.
    every = frozenset(PLACEHOLDERS.values())
    all_values = values(setup, output, config_word, every, user_output=False)
    config = config_file.config_file(setup, passed_values, path)
    launcher = LAUNCHERS[setup.launcher]
    rule = preset.checkpoints
    saves = saving(setup, passed_values)
    resume = tuple(_from_checkpoint(word) for word in rule.resume) if rule else ()
    parts = (
        *launcher.parts(job),
        *trainer_of(chosen).program(chosen, preset, setup.nemo),
        *([Part(saves, "saves when the run is stopped")] if saves else []),
        *_arguments(setup, passed_values, all_values),
        *([Part(resume, "only if there is a complete checkpoint", resumes=True)] if resume else []),
    )
    made = Attempt(
        rung=step.changes[-1][0] if step.changes else "",
        title=step.title,
        changes=tuple(titles(step.changes)),
        edits={key: value for _, change in step.changes for key, value in change.edits},
        then={phase: place + 1 for phase, place in step.then.items()},
        batch=batch_words(setup, job),
        command=Command(
            parts,
            settings(setup, job, passed_values),
            folder_of(chosen, preset) or in_run_dir(""),
        ),
        checkpoints=CheckpointRule(output, rule.prefix, rule.complete, rule.suffix, rule.file) if rule else None,
        fills=((path, config_file.without_checkpoint(chosen, preset, setup.facts)),)
        if config and config_file.holds_paths(preset)
        else (),
    )
    return made, config


def output_of(setup: Setup) -> Word:
    """Return the output folder: attempts that cannot resume from the others' checkpoints get a separate one."""
    first, rung = setup.settled, setup.rung
    suffix = "" if rung.recipe.layers == first.recipe.layers else f"-{rung.recipe.layers}-layers"
    suffix += "" if rung.trainer.strategy == first.trainer.strategy else f"-{rung.trainer.strategy}"
    suffix += "-8bit" if rung.recipe.optimizer_8bit and not first.recipe.optimizer_8bit else ""
    suffix += "-lora" if rung.recipe.lora and not first.recipe.lora else ""
    output = rung.trainer.output or setup.user_output
    return f"{output}{suffix}" if output else in_run_dir(f"output{suffix}")


def _from_checkpoint(word: str) -> Word:
    before, placeholder, after = word.partition("{checkpoint}")
    return joined((before, CHECKPOINT, after)) if placeholder else word


def _arguments(setup: Setup, passed_values: Mapping[str, Value], all_values: Mapping[str, Value]) -> tuple[Part, ...]:
    passed_words, all_words = words(passed_values), words(all_values)

    def filled(arguments: Iterable[PresetArgument]) -> list[Part]:
        return [Part(group) for argument in arguments for group in fill(argument, passed_words)]

    preset = filled(argument for argument in setup.preset.arguments if not argument.after)
    after = {argument.after for argument in setup.preset.arguments if argument.after}
    first = setup.preset.user_arguments_first
    why = "your arguments" if first or after else "your arguments, from here on"
    user_parts: list[Part] = []
    for word in setup.profile.trainer.arguments:
        for group in fill(PresetArgument((word,)), all_words):
            user_parts.append(Part(group, why))
            why = ""
        if word in after:
            after.discard(word)
            user_parts += filled(argument for argument in setup.preset.arguments if argument.after == word)
    return (*user_parts, *preset) if first else (*preset, *user_parts)

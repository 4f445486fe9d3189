"""Checks of disks: whether checkpoints and temporary files have room."""

import math
from collections.abc import Iterator

from tui_train.base.text import display_path, quantity, size_text
from tui_train.checks.finding import Finding, error, warning
from tui_train.memory.disk import CHECKPOINT_LIMIT_OPTION, CheckpointDiskUse, checkpoint_disk_use
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.data_questions import total_training_steps
from tui_train.setup.recipe.options import given_options
from tui_train.setup.setup import Setup

# Compilers and data loaders fail in less.
_MIN_FREE_TEMPORARY_BYTES = 16 << 20


def checkpoint_disk_shortage(setup: Setup) -> Iterator[Finding]:
    """Checkpoints for which the disk of the output has no room: not for one, or not for all that are kept."""
    key, output = "trainer.output", setup.profile.trainer.output or setup.user_output_folder
    free = setup.facts.free.get(output)
    required = checkpoint_disk_use(setup) if free is not None and not no_effect.why_no_effect(key, setup) else None
    if free is None or required is None:
        return
    free_text = f"{display_path(output) if output else 'the disk of the runs'} has {size_text(free)} free"
    remedy = "Free some space, or name a folder on another disk (trainer.output)"
    if free < required.checkpoint_bytes * (1 - required.relative_error):
        yield error(
            key,
            f"a checkpoint takes {size_text(required.checkpoint_bytes)} (weights {size_text(required.weight_bytes)},"
            f" optimizer {size_text(required.state_bytes)}), and {free_text}",
            f"{remedy}.",
            start=True,
        )
    # What is there already of a run that goes on is removed as it goes.
    elif free < required.peak_bytes() and setup.facts.paths.get(output) != "folder":
        change = _keep_or_save_fewer_checkpoints_change(setup, required, free)
        at_once = f"{quantity(required.max_count_at_once or 1, 'checkpoint')} of {size_text(required.checkpoint_bytes)}"
        yield warning(
            key,
            f"{at_once} at a time take up to {size_text(required.peak_bytes())}, and {free_text}",
            f"{remedy}{f'; or: {change.title}' if change else ''}.",
            change=change,
        )


def unusable_temporary_folder(setup: Setup) -> Iterator[Finding]:
    """A folder for temporary files in which none can be made."""
    facts, folder = setup.facts, setup.facts.temporary_folder
    if not folder or facts.scheduler or setup.profile.container.engine != "none":
        return
    why, free = facts.unwritable.get(folder, ""), facts.free.get(folder)
    if facts.paths.get(folder) == "missing":
        why = "it does not exist"
    if not why and free is not None and free < _MIN_FREE_TEMPORARY_BYTES:
        why = f"{size_text(free)} are free"
    if why:
        message = f"temporary files cannot be made in {display_path(folder)}: {why}"
        change = None
        if "TMPDIR" in setup.profile.trainer.environment:
            change = remove_variables_change(setup.profile, ("TMPDIR",), "the machine's own folder is used")
        remedy = "Make room there, or set TMPDIR to another folder (trainer.environment)."
        yield warning("trainer.environment", message, remedy, change=change)


def _keep_or_save_fewer_checkpoints_change(setup: Setup, required: CheckpointDiskUse, free: int) -> Change | None:
    """Return the change with which the most checkpoints stay for which there is room, None if there is none."""
    max_kept = free // required.checkpoint_bytes - 1
    if required.can_be_limited and max_kept >= required.min_kept:
        words = setup.profile.trainer.arguments
        for argument in reversed(given_options(words, accept_without_dashes=False)):
            if argument.option == CHECKPOINT_LIMIT_OPTION:
                words = argument.arguments_without_it(words)
        edits = (("trainer.arguments", (*words, f"--{CHECKPOINT_LIMIT_OPTION}={max_kept}")),)
        return Change(
            f"keep {quantity(max_kept, 'checkpoint')}",
            f"{size_text((max_kept + 1) * required.checkpoint_bytes)} at a time",
            edits,
        )
    fitting_count = (free - required.weight_bytes) // required.checkpoint_bytes
    steps = total_training_steps(setup)
    if fitting_count < 1 or not steps:
        return None
    every = math.ceil(steps / fitting_count)
    return Change(
        f"a checkpoint every {quantity(every, 'step')}",
        f"{quantity(fitting_count, 'checkpoint')} in all, for which there is room",
        (("recipe.checkpoint_every", every),),
    )

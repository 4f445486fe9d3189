"""The check that compares the disk which checkpoints need with the disk that is there."""

import math
from collections.abc import Iterator

from tui_train.base.text import counted, display_path, size
from tui_train.checks.finding import Finding
from tui_train.memory.disk import LIMIT, Disk, disk
from tui_train.profile.changes import Change
from tui_train.resolve import reach
from tui_train.resolve.data import steps_of
from tui_train.resolve.options import arguments
from tui_train.resolve.setup import Setup


def checkpoints(setup: Setup) -> Iterator[Finding]:
    """Checkpoints for which the disk of the output has no room: not for one, or not for all that are kept."""
    profile, facts = setup.profile, setup.facts
    key, output = "trainer.output", profile.trainer.output or setup.user_output
    free = facts.free.get(output)
    needs = disk(setup) if free is not None and not reach.why_not(key, setup) else None
    if free is None or needs is None:
        return
    room = f"{display_path(output) if output else 'the disk of the runs'} has {size(free)} free"
    other = "Free some, or name a folder on another disk (trainer.output)"
    if free < needs.one * (1 - needs.error):
        yield Finding(
            level="error",
            key=key,
            message=f"a checkpoint takes {size(needs.one)} ({_parts(needs)}), and {room}",
            remedy=f"{other}.",
            start=True,
        )
    # What is there already of a run that goes on is removed as it goes.
    elif free < needs.needed() and facts.paths.get(output) != "folder":
        change = _fewer(setup, needs, free)
        at_once = f"{counted(needs.at_once or 1, 'checkpoint')} of {size(needs.one)}"
        yield Finding(
            level="warning",
            key=key,
            message=f"{at_once} at a time take up to {size(needs.needed())}, and {room}",
            remedy=f"{other}{f'; or: {change.title}' if change else ''}.",
            change=change,
        )


def _parts(needs: Disk) -> str:
    return f"weights {size(needs.weights)}, optimizer {size(needs.states)}"


def _fewer(setup: Setup, needs: Disk, free: int) -> Change | None:
    """Return the change with which the most checkpoints stay for which there is room, None if there is none."""
    profile = setup.profile
    most = free // needs.one - 1
    if needs.limited and most >= needs.least:
        words, set_already = profile.trainer.arguments, arguments(profile.trainer.arguments, bare=False)
        for argument in reversed([each for each in set_already if each.option == LIMIT]):
            words = argument.left_out(words)
        edits = (("trainer.arguments", (*words, f"--{LIMIT}={most}")),)
        return Change(f"keep {counted(most, 'checkpoint')}", f"{size((most + 1) * needs.one)} at a time", edits)
    fit = (free - needs.weights) // needs.one
    steps = steps_of(setup)
    if fit < 1 or not steps:
        return None
    every = math.ceil(steps / fit)
    return Change(
        f"a checkpoint every {counted(every, 'step')}",
        f"{counted(fit, 'checkpoint')} in all, for which there is room",
        (("recipe.checkpoint_every", every),),
    )

"""Checks of what other live runs use: cards, an output folder, a port."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from tui_train.base.text import display_path
from tui_train.checks.finding import Finding, error, warning
from tui_train.checks.machine.hardware import finding_with_ways_past_busy_gpus
from tui_train.facts.machine.exclusive_resources import normalized_path_as_tuple, resource_conflict_text
from tui_train.facts.types import Facts, ResourcesInUse
from tui_train.profile.changes import Change
from tui_train.profile.fields import absolute_path
from tui_train.setup.recipe import given_arguments
from tui_train.setup.recipe.effective_values import working_folder
from tui_train.setup.setup import Setup

_FIRST_UNPRIVILEGED_PORT, _LAST_PORT = 1024, 65535
_STOP_OTHER_RUN_REMEDY_TEMPLATE = "Wait for that run, or end it (tui-train stop {})"


def cards_used_by_other_run(setup: Setup) -> Iterator[Finding]:
    """Cards on which a live run trains: two on one card run out of its memory, or halve each other's speed."""
    facts = setup.facts
    for words, other in _conflict_texts_and_other_runs(
        ResourcesInUse(gpus=tuple(gpu.uuid for gpu in setup.gpus)), facts
    ):
        found = error("hardware.gpus", words, "", machine=True, start=True)
        yield finding_with_ways_past_busy_gpus(found, setup, f"end it (tui-train stop {other.run}), ")


def output_used_by_other_run(setup: Setup) -> Iterator[Finding]:
    """The output folder of a live run: their checkpoints would replace each other."""
    for words, other in _conflict_texts_and_other_runs(
        ResourcesInUse(outputs=normalized_path_as_tuple(setup.profile.trainer.output or setup.user_output_folder)),
        setup.facts,
    ):
        stop_text = _STOP_OTHER_RUN_REMEDY_TEMPLATE.format(other.run)
        remedy = f"{stop_text}, or name another output folder (trainer.output)."
        yield error("trainer.output", words, remedy, machine=True, start=True)


def script_output_used_by_other_run(setup: Setup) -> Iterator[Finding]:
    """An argument of the script that names what a live run writes: only by its name is it known to be an output."""
    source = setup.script_source
    words, folder = setup.profile.trainer.arguments, Path(working_folder(setup.profile, setup.preset) or "/")
    for path in given_arguments.likely_output_paths(source, words) if source else ():
        wanted = ResourcesInUse(outputs=normalized_path_as_tuple(absolute_path(path, folder)))
        for message, other in _conflict_texts_and_other_runs(wanted, setup.facts):
            remedy = (
                f"{_STOP_OTHER_RUN_REMEDY_TEMPLATE.format(other.run)}, or give the script another path "
                "(trainer.arguments)."
            )
            yield warning("trainer.arguments", message, remedy, machine=True)


def script_output_saved_by_earlier_run(setup: Setup) -> Iterator[Finding]:
    """A file that an ended run of the same script left, and that this one writes over.

    That is known where an argument names it, or the arguments are the same.
    """
    source, profile = setup.script_source, setup.profile
    words, folder = profile.trainer.arguments, Path(working_folder(profile, setup.preset) or "/")
    if source is None:
        return
    named = {absolute_path(path, folder) for path in given_arguments.likely_output_paths(source, words)}
    for other in setup.facts.resources_in_use:
        if other.command[:1] != (profile.trainer.script,):
            continue
        is_same = other.command == (profile.trainer.script, *words)
        lost = [path for path in other.saved if is_same or not named.isdisjoint({path, path.rpartition("/")[0]})]
        if lost:
            more = f" and {len(lost) - 1} more" if lost[1:] else ""
            yield warning(
                "trainer.arguments",
                f"{display_path(lost[0])}{more}, saved by the run {other.run}, would be written over",
                "Copy it first, or give the script another path (trainer.arguments).",
                machine=True,
            )
            return


def port_used_by_other_run(setup: Setup) -> Iterator[Finding]:
    """The port, at which several machines meet, of a live run or another program."""
    profile, facts = setup.profile, setup.facts
    if profile.nodes.machine_count == 1 or facts.scheduler:
        return
    free = _next_unused_port(profile.nodes.port, {used.port for used in facts.resources_in_use})
    for words, _ in _conflict_texts_and_other_runs(ResourcesInUse(port=profile.nodes.port), facts):
        remedy = "Choose another port, the same for all machines (nodes.port)."
        change = Change(f"port {free}", "no run of yours uses it", (("nodes.port", free),))
        yield error("nodes.port", words, remedy, machine=True, start=True, change=change)


def _next_unused_port(port: int, used_ports: set[int]) -> int:
    """Return the next port that is not among those in use, from 1024 on where there is none above."""
    later, earlier = range(port + 1, _LAST_PORT + 1), range(_FIRST_UNPRIVILEGED_PORT, port)
    ports: Iterator[int] = itertools.chain(later, earlier)
    return next(each for each in ports if each not in used_ports)


def _conflict_texts_and_other_runs(resources: ResourcesInUse, facts: Facts) -> Iterator[tuple[str, ResourcesInUse]]:
    conflicts = ((resource_conflict_text(resources, other), other) for other in facts.resources_in_use)
    yield from ((words, other) for words, other in conflicts if words)

"""CHECKS: what is wrong with a profile on this machine, and the Change that mends it; pure, one a question."""

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.checks import (
    bridge,
    communication,
    container,
    hardware,
    idle,
    launch,
    nemo,
    nemo_told,
    preset,
    recipe,
    script,
    taken,
    trainer,
    unused,
    wandb,
)
from tui_train.checks.finding import Check, Finding
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import resolve

__all__ = ["CHECKS", "Finding", "check"]

CHECKS: tuple[Check, ...] = (
    nemo.abilities,
    trainer.python,
    container.engine,
    container.image,
    container.shared_memory,
    container.mounted,
    container.arguments,
    hardware.devices,
    idle.all_cards,
    idle.some_cards,
    idle.all_but_one,
    taken.cards,
    taken.output,
    taken.port,
    hardware.unreadable,
    hardware.processes,
    launch.sharding,
    launch.machines,
    unused.unused,
    recipe.batches,
    recipe.scaling,
    recipe.model,
    hardware.precision,
    trainer.paths,
    communication.backend,
    communication.without,
    communication.interface,
    trainer.environment,
    communication.dead,
    trainer.arguments,
    trainer.own_words,
    trainer.lowered_batch,
    trainer.secret_arguments,
    preset.module,
    preset.config,
    preset.data,
    preset.own,
    preset.listed,
    script.resumes,
    script.local_rank,
    wandb.key,
    recipe.fallbacks,
    recipe.memory,
    nemo.recipe,
    nemo.data,
    nemo.parallel,
    nemo_told.lora,
    nemo_told.weights,
    nemo_told.splits,
    nemo_told.settings,
    nemo.automodel,
    bridge.bridge,
    hardware.logout,
    unused.older,
)


def check(profile: Profile, facts: Facts) -> tuple[Finding, ...]:
    """Return all findings, errors first."""
    try:
        resolved = resolve(profile, facts)
    except BadInput as error:
        name = Profile().trainer.preset
        change = Change(f"preset {name}", "the one that is chosen cannot be used", (("trainer.preset", name),))
        return (
            _safe(
                Finding(level="error", key="trainer.preset", message=error.message, remedy=error.remedy, change=change)
            ),
        )
    found = [_safe(finding) for question in CHECKS for finding in question(profile, facts, resolved)]
    return tuple(sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.level)))


def _safe(finding: Finding) -> Finding:
    """Return the finding with words that are safe to show, wherever they came from."""
    change = finding.change
    if change:
        change = Change(visible(change.title), visible(change.why), change.edits)
    message, remedy = visible(finding.message), visible(finding.remedy)
    return msgspec.structs.replace(finding, message=message, remedy=remedy, change=change)

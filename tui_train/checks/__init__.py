"""CHECKS: what is wrong with a profile on this machine, and the Change that fixes it; pure functions."""

from collections.abc import Iterator

import msgspec

from tui_train.base.text import visible
from tui_train.checks import (
    accelerate,
    beyond,
    bridge,
    cluster,
    communication,
    conflicts,
    container,
    disk,
    finetune,
    finetune_options,
    hardware,
    hosts,
    hub,
    idle,
    launch,
    nemo,
    nemo_options,
    preset,
    recipe,
    script,
    script_arguments,
    slurm,
    tracking,
    trainer,
    unused,
    wandb,
)
from tui_train.checks.finding import Check, Finding
from tui_train.memory.length import set_up
from tui_train.profile.changes import Change, apply
from tui_train.profile.fields import Value, field, get, put
from tui_train.profile.types import Profile
from tui_train.resolve.in_force import is_default
from tui_train.resolve.setup import Setup
from tui_train.trainers import takes_field

__all__ = ["CHECKS", "Finding", "check"]


def _for(key: str, inner: Check) -> Check:
    """Return a check that runs only for trainers that take this key or section."""

    def guarded(setup: Setup) -> Iterator[Finding]:
        if takes_field(setup.profile, key):
            yield from inner(setup)

    return guarded


CHECKS: tuple[Check, ...] = (
    # Before what a Python lacks for it.
    _for("finetune", finetune.weights),
    _for("nemo", nemo.abilities),
    trainer.python,
    container.engine,
    container.image,
    container.shared_memory,
    container.mounted,
    container.hub_cache,
    container.arguments,
    hardware.devices,
    idle.all_cards,
    idle.some_cards,
    idle.all_but_one,
    conflicts.cards,
    conflicts.output,
    conflicts.port,
    hardware.unreadable,
    hardware.processes,
    accelerate.readable,
    accelerate.unsupported,
    accelerate.dropped,
    accelerate.precision,
    accelerate.affinity,
    accelerate.sharding,
    accelerate.devices,
    accelerate.unread,
    launch.sharding,
    launch.machines,
    launch.uneven,
    hosts.differences,
    slurm.job,
    cluster.partition,
    cluster.account,
    cluster.time,
    cluster.nodes,
    unused.unused,
    recipe.batches,
    recipe.whole_numbers,
    recipe.scaling,
    recipe.model,
    recipe.evaluations,
    hardware.precision,
    trainer.paths,
    trainer.weights,
    hub.folders_only,
    hub.revision,
    hub.tokenizer,
    hub.kind,
    hub.download,
    communication.backend,
    communication.without,
    communication.interface,
    trainer.environment,
    communication.overridden,
    communication.ineffective,
    trainer.arguments,
    trainer.options_set_twice,
    trainer.lowered_batch,
    trainer.secrets_by_value,
    trainer.webhook_elsewhere,
    _for("trainer.preset", preset.module),
    _for("trainer.preset", preset.config),
    _for("trainer.preset", preset.data),
    _for("trainer.preset", preset.own),
    _for("trainer.preset", preset.listed),
    _for("trainer.script", script.python),
    _for("trainer.script", script.ranks),
    _for("trainer.script", script.resumes),
    _for("trainer.script", script.local_rank),
    _for("trainer.progress", script.progress),
    _for("trainer.script", script_arguments.command),
    _for("trainer.script", script_arguments.required),
    _for("trainer.script", script_arguments.unknown),
    _for("trainer.script", script_arguments.readable),
    _for("trainer.script", script_arguments.likely),
    _for("finetune", finetune.needed),
    _for("finetune", finetune.targets),
    _for("finetune", finetune.mixture),
    _for("finetune", finetune.unread_answers),
    _for("finetune", finetune.read),
    _for("finetune", finetune.whole_chats),
    _for("trainer.allow", beyond.length),
    _for("trainer.allow", beyond.learning_rate),
    _for("finetune", finetune.fallback),
    _for("finetune", finetune.ends),
    _for("finetune", finetune.micro_batch),
    _for("finetune", finetune.arguments),
    _for("finetune", finetune_options.known),
    _for("finetune", finetune_options.ignored),
    _for("finetune", finetune.evaluations),
    tracking.packages,
    wandb.key,
    recipe.fallbacks,
    recipe.checkpoints,
    recipe.memory,
    disk.checkpoints,
    _for("nemo", nemo.recipe),
    _for("nemo", nemo.data),
    _for("nemo", nemo.parallel),
    _for("nemo", nemo.warmup),
    _for("nemo", nemo.tokenizer),
    _for("nemo", nemo_options.lora),
    _for("nemo", nemo_options.weights),
    _for("nemo", nemo_options.splits),
    _for("nemo", nemo_options.settings),
    _for("nemo", nemo.automodel),
    _for("nemo", bridge.bridge),
    hardware.logout,
    unused.older,
)


def check(setup: Setup) -> tuple[Finding, ...]:
    """Return all findings: first the errors that forbid a plan, then those that forbid only a start here."""
    if problem := setup.problem:
        name = Profile().trainer.preset
        change = Change(f"preset {name}", "the chosen one cannot be used", (("trainer.preset", name),))
        key = "trainer.preset"
        return (_safe(Finding(level="error", key=key, message=problem.message, remedy=problem.remedy, change=change)),)
    findings = [_safe(_undoing(finding, setup)) for question in CHECKS for finding in question(setup)]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[bool, int]:
    """Return how far to the end a finding stands: the worst are first."""
    return not finding.forbids, ("error", "warning", "note").index(finding.level)


def _undoing(finding: Finding, setup: Setup) -> Finding:
    """Return the finding with a change that unsets what holds by default, so that it follows what is chosen later."""
    change = finding.change
    if change is None:
        return finding
    edits = tuple((key, None if _holds_anyway(key, value, change, setup) else value) for key, value in change.edits)
    return msgspec.structs.replace(finding, change=msgspec.structs.replace(change, edits=edits))


def _holds_anyway(key: str, value: Value, change: Change, setup: Setup) -> bool:
    """Return whether a value that a change would set in the recipe is the default in force after that change."""
    section, _, name = key.partition(".")
    if section != "recipe" or value is None or not field(key).optional or get(setup.profile, key) is None:
        return False
    changed = set_up(put(apply(change, setup.profile), key, None), setup.facts)
    held = None if changed.problem else changed.values.get(name)
    return held is not None and held.value == value and is_default(held)


def _safe(finding: Finding) -> Finding:
    """Return the finding with words that are safe to show, wherever they came from."""
    change = finding.change
    if change:
        change = Change(visible(change.title), visible(change.why), change.edits)
    words = {name: visible(getattr(finding, name)) for name in ("message", "remedy", "keys")}
    return msgspec.structs.replace(finding, change=change, **words)

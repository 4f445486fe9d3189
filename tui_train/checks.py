"""CHECKS: what is wrong with a profile on this machine, and the Change that mends it; pure, one a question."""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from tui_train.changes import Change
from tui_train.errors import BadInput
from tui_train.facts.gpus import supports_bf16
from tui_train.facts.types import Facts, PathState
from tui_train.memory import ladder
from tui_train.plan import batch
from tui_train.plan.launchers import LAUNCHERS
from tui_train.plan.resolve import Resolved, lacks, resolve
from tui_train.presets import PLACEHOLDER, PLACEHOLDERS
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.text import counted, visible

_OURS = {
    "CUDA_VISIBLE_DEVICES": "choose the cards on the Hardware screen (hardware.gpus)",
    "CUDA_DEVICE_ORDER": "it stands beside the cards' UUIDs already",
    "ACCELERATE_USE_CPU": "choose the device on the Hardware screen (hardware.device)",
    "TUI_TRAIN_RUN_ID": "by it a run's processes are found again",
}


_MOST_FOR_NCCL = 32


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong (an error stops the run), its key, what to do, and a Change where one helps."""

    level: Literal["error", "warning", "note"]
    key: str
    message: str
    remedy: str
    change: Change | None = None
    machine: bool = False


Check = Callable[[Profile, Facts, Resolved], Iterator[Finding]]


def check(profile: Profile, facts: Facts) -> tuple[Finding, ...]:
    """Return all findings, errors first."""
    try:
        resolved = resolve(profile, facts)
    except BadInput as error:
        name = Profile().trainer.preset
        change = Change(f"preset {name}", "the one that is there is not known", (("trainer.preset", name),))
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


def _python(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    install = "Install it there (`pip install torch accelerate transformers`), or choose another (trainer.python)."
    named = visible(profile.trainer.python)
    if resolved.toolchain is None and named:
        message, remedy = f"{named} was not found", "Choose one that is listed, or leave it empty (trainer.python)."
        yield Finding(level="error", key="trainer.python", message=message, remedy=remedy, machine=True)
    elif resolved.toolchain is None:
        seen = [f"{tool.label or tool.python} {lacks(profile, tool)}" for tool in facts.toolchains]
        message = f"no Python here can train this: {visible('; '.join(seen)) or 'none was found'}"
        yield Finding(level="error", key="trainer.python", message=message, remedy=install, machine=True)
    elif problem := lacks(profile, resolved.toolchain):
        message = f"{visible(resolved.toolchain.python)} {visible(problem)}"
        remedy = "Choose another Python (trainer.python)." if resolved.toolchain.problem else install
        yield Finding(level="error", key="trainer.python", message=message, remedy=remedy, machine=True)


def _devices(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    cards = dict(zip((gpu.uuid for gpu in facts.machine.gpus), resolved.verdicts, strict=True))
    labels = [visible(f"GPU {gpu.index} {gpu.name}") for gpu in facts.machine.gpus]
    names = dict(zip((gpu.uuid for gpu in facts.machine.gpus), labels, strict=True))
    cpu = Change("train on the CPU", "there is no GPU to use", (("hardware.device", "cpu"), ("hardware.gpus", ())))
    if profile.hardware.device == "cpu":
        return
    for uuid in profile.hardware.gpus:
        verdict = cards.get(uuid)
        reasons = "; ".join(verdict.reasons) if verdict else ""
        if verdict is None:
            message, remedy = f"the card {visible(uuid)} is not in this machine", "Choose the cards again."
            yield Finding(level="error", key="hardware.gpus", message=message, remedy=remedy, machine=True)
        elif verdict.kind == "blocked":
            message, remedy = f"{names[uuid]} cannot train: {visible(reasons)}", "Leave it out."
            yield Finding(level="error", key="hardware.gpus", message=message, remedy=remedy, machine=True)
        elif verdict.kind == "spare" and len(profile.hardware.gpus) > 1:
            message = f"{names[uuid]} slows or limits the others: {visible(reasons)}"
            yield Finding(level="warning", key="hardware.gpus", message=message, remedy="Leave it out.")
    for gpu in resolved.gpus:
        if who := cards[gpu.uuid].busy:
            message = f"{names[gpu.uuid]} is busy: {visible(who)}"
            remedy = "Wait until it is free, or choose another card."
            yield Finding(level="warning", key="hardware.gpus", message=message, remedy=remedy)
    if profile.hardware.device == "cuda" and not resolved.gpus and not profile.hardware.gpus:
        pairs = zip(labels, resolved.verdicts, strict=True)
        blocked = [f"{label}: {'; '.join(verdict.reasons)}" for label, verdict in pairs]
        why = visible("; ".join(blocked)) or "; ".join(gap.why for gap in facts.machine.gaps) or "none was found"
        message, remedy = f"no GPU here can train ({why})", "Choose the device auto or cpu."
        yield Finding(level="error", key="hardware.device", message=message, remedy=remedy, change=cpu, machine=True)


def _communication(_profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    if resolved.device != "cuda" or resolved.world_size < 2:
        return
    # NCCL opens every card that NVML lists, whatever CUDA_VISIBLE_DEVICES says: `ncclNvmlEnsureInitialized`.
    boards = {gpu.index: gpu for gpu in facts.machine.gpus}
    ways = "or show a container the chosen cards alone."
    for gpu in boards.values():
        if gpu.problem:
            message = f"NCCL opens every card of this machine, and GPU {gpu.index} cannot be opened: {gpu.problem}"
            remedy = f"Mend or remove that card, {ways}"
            yield Finding(level="warning", key="hardware.gpus", message=message, remedy=remedy)
    if len(boards) > _MOST_FOR_NCCL:
        message = f"NCCL fails on a machine of more than {_MOST_FOR_NCCL} cards, and this one has {len(boards)}"
        yield Finding(level="warning", key="hardware.gpus", message=message, remedy=f"Train on one card, {ways}")


def _processes(_profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    wanted, cards = resolved.world_size, len(resolved.gpus)
    devices = cards if resolved.device == "cuda" else wanted
    if not LAUNCHERS[resolved.launcher].SEVERAL and max(wanted, devices) > 1:
        change = Change("use torchrun", "it starts one process per device", (("trainer.launcher", "torchrun"),))
        message = f"plain python starts one process, and {max(wanted, devices)} are wanted"
        yield Finding(
            level="error",
            key="trainer.launcher",
            message=message,
            remedy="Choose torchrun or accelerate, or one device and one process.",
            change=change,
        )
    elif resolved.device == "cuda" and cards and wanted != cards:
        change = Change(
            "one process per GPU", "more would share a card, fewer leave one idle", (("hardware.processes", 0),)
        )
        message = f"{counted(wanted, 'process', 'processes')} on {counted(cards, 'GPU')} do not fit"
        remedy = "Set the processes to 0: one per GPU."
        yield Finding(level="error", key="hardware.processes", message=message, remedy=remedy, change=change)


def _batch(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    recipe, world = profile.recipe, resolved.world_size
    told = batch.TAKEN & resolved.room.takes
    if not told or batch.accumulation(recipe.global_batch, recipe.micro_batch, world):
        return
    nearest = batch.nearest_global(recipe.global_batch, recipe.micro_batch, world)
    micro = batch.nearest_micro(recipe.global_batch, recipe.micro_batch, world)
    remedy = f"Nearest global batches: {_or(nearest)}."
    if micro:
        remedy += f" Or, for {recipe.global_batch}, a micro batch of {_or(micro)}."
    best = min(nearest, key=lambda value: abs(value - recipe.global_batch))
    change = Change(f"global batch {best}", "the nearest that divides", (("recipe.global_batch", best),))
    yield Finding(
        level="error",
        key="recipe.global_batch",
        message=f"the global batch {recipe.global_batch} is not a multiple of micro batch {recipe.micro_batch} x"
        f" {counted(world, 'process', 'processes')}",
        remedy=remedy,
        change=change,
    )


def _model(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    recipe = profile.recipe
    if "heads" not in resolved.room.takes or "hidden_size" not in resolved.room.takes:
        return
    unit = recipe.heads * 2
    if recipe.hidden_size % unit:
        below = recipe.hidden_size // unit * unit
        sizes = tuple(size for size in (below, below + unit) if size)
        best = min(sizes, key=lambda value: abs(value - recipe.hidden_size))
        change = Change(f"hidden size {best}", "the nearest that the heads divide", (("recipe.hidden_size", best),))
        yield Finding(
            level="error",
            key="recipe.hidden_size",
            message=f"the hidden size {recipe.hidden_size} is not a multiple of 2 x {recipe.heads} heads",
            remedy=f"Nearest hidden sizes: {_or(sizes)}.",
            change=change,
        )


def _precision(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    precision, cuda = profile.recipe.precision, resolved.device == "cuda"
    fp32 = Change("precision fp32", "works everywhere", (("recipe.precision", "fp32"),))
    fp16 = Change("precision fp16", "works on older cards", (("recipe.precision", "fp16"),))
    if "precision" not in resolved.room.takes:
        return
    if precision == "fp16" and not cuda:
        message, remedy = "fp16 does not train on the CPU", "Choose fp32 or bf16."
        yield Finding(level="error", key="recipe.precision", message=message, remedy=remedy, change=fp32)
    elif precision == "bf16" and cuda and not supports_bf16(resolved.gpus):
        message = "not every chosen card has bf16 (it begins with compute capability 8.0)"
        yield Finding(
            level="error", key="recipe.precision", message=message, remedy="Choose fp16 or fp32.", change=fp16
        )


def _paths(profile: Profile, facts: Facts, _resolved: Resolved) -> Iterator[Finding]:
    trainer = profile.trainer
    script = trainer.kind == "script"
    if script and not trainer.script:
        yield Finding(
            level="error", key="trainer.script", message="no script is named", remedy="Name the file that trains."
        )
    wanted: list[tuple[str, str, PathState]] = [("trainer.working_directory", trainer.working_directory, "folder")]
    if script:
        wanted.append(("trainer.script", trainer.script, "file"))
    else:
        wanted.append(("trainer.model", trainer.model, "folder"))
    wanted.extend(("trainer.data", path, "file") for path in trainer.data)
    for key, path, kind in wanted:
        state = facts.paths.get(path, kind)
        if path and state != kind:
            what = {"missing": "does not exist", "unreadable": "cannot be read"}.get(state, f"is no {kind}")
            message = f"{fields.field(key).label.lower()}: {visible(path)} {what}"
            yield Finding(level="error", key=key, message=message, remedy=f"Name a {kind} that you may read.")
    if trainer.output and facts.paths.get(trainer.output) == "folder":
        message = f"the output folder {visible(trainer.output)} is there already"
        remedy = "The run resumes from the newest complete checkpoint in it. Name another one to start fresh."
        yield Finding(level="warning", key="trainer.output", message=message, remedy=remedy)
    elif trainer.output and facts.paths.get(trainer.output) == "file":
        message = f"the output folder {visible(trainer.output)} is a file"
        yield Finding(level="error", key="trainer.output", message=message, remedy="Name another one.")


def _environment(profile: Profile, _facts: Facts, _resolved: Resolved) -> Iterator[Finding]:
    trainer = profile.trainer
    for name in trainer.environment:
        if name in _OURS:
            message, remedy = f"{name} is set by the plan", f"Remove it from the environment: {_OURS[name]}."
            yield Finding(level="error", key="trainer.environment", message=message, remedy=remedy)
        elif fields.looks_secret(name):
            rest = {key: value for key, value in trainer.environment.items() if key != name}
            edits: tuple[tuple[str, fields.Value], ...] = (
                ("trainer.environment", rest),
                ("trainer.secrets", tuple(dict.fromkeys((*trainer.secrets, name)))),
            )
            change = Change(f"name {name} as a secret", "its value is taken where the run starts, never written", edits)
            yield Finding(
                level="error",
                key="trainer.environment",
                message=f"{name} looks like a secret, and this environment is written to files",
                remedy="Name it under secrets, and export it where you start the run.",
                change=change,
            )
    for name in trainer.secrets:
        if not (name.isidentifier() and name.isascii()):
            message, remedy = f"{visible(name)!r} is no variable name", "Write only the name, such as HF_TOKEN."
            yield Finding(level="error", key="trainer.secrets", message=message, remedy=remedy)
    for name in trainer.environment:
        if not (name.isidentifier() and name.isascii()):
            message, remedy = f"{visible(name)!r} is no variable name", "Use letters, digits and _."
            yield Finding(level="error", key="trainer.environment", message=message, remedy=remedy)


def _arguments(profile: Profile, _facts: Facts, _resolved: Resolved) -> Iterator[Finding]:
    for name in dict.fromkeys(PLACEHOLDER.findall("\n".join(profile.trainer.arguments))):
        if name not in PLACEHOLDERS and name != "checkpoint":
            yield Finding(
                level="warning",
                key="trainer.arguments",
                message=f"there is no {{{name}}} to fill in: it is passed as it stands",
                remedy=fields.nearest(name, tuple(PLACEHOLDERS)),
            )


def _ladder(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    rungs = profile.ladder.rungs
    for name in dict.fromkeys((*rungs, *profile.ladder.consent)):
        try:
            found = ladder.rung(name)
        except BadInput as error:
            yield Finding(level="error", key="ladder.rungs", message=error.message, remedy=error.remedy)
            continue
        if found.changes_training and name in rungs and name not in profile.ladder.consent:
            change = Change(
                f"allow {found.label.lower()}", found.cost, (("ladder.consent", (*profile.ladder.consent, name)),)
            )
            message = f"“{found.label}” changes the training and has no consent: it is left out"
            remedy = "Allow it, or take it off the ladder."
            yield Finding(level="warning", key="ladder.consent", message=message, remedy=remedy, change=change)
    if len(set(rungs)) != len(rungs):
        once = Change(
            "each rung once", "a second time has nothing to add", (("ladder.rungs", tuple(dict.fromkeys(rungs))),)
        )
        message, remedy = "a fallback stands twice on the ladder", "Name each once."
        yield Finding(level="error", key="ladder.rungs", message=message, remedy=remedy, change=once)
    if rungs and resolved.preset.checkpoints and profile.recipe.checkpoint_every > profile.recipe.steps:
        message = "there is no checkpoint before the end: after a failure the training starts from step 0"
        remedy = "Lower “Checkpoint every”."
        yield Finding(level="note", key="recipe.checkpoint_every", message=message, remedy=remedy)


def _or(values: tuple[int, ...]) -> str:
    return " or ".join(str(value) for value in values)


CHECKS: tuple[Check, ...] = (
    _python,
    _devices,
    _communication,
    _processes,
    _batch,
    _model,
    _precision,
    _paths,
    _environment,
    _arguments,
    _ladder,
)

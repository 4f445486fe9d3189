"""What a field can be set to here, and what it cannot, with the reason; the screens show these words."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.checks.communication import refused
from tui_train.facts import recipes
from tui_train.facts.gpus import supports_bf16
from tui_train.facts.images import ENGINES
from tui_train.facts.types import Facts
from tui_train.plan import nemo, strategies
from tui_train.plan.idle import all_idle
from tui_train.plan.launchers import LAUNCHERS
from tui_train.plan.resolve import MODEL_SIZE, Resolved, lacks
from tui_train.presets import PLACEHOLDERS, presets
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.text import home, visible

_SCRIPT_ONLY = frozenset({"trainer.script", "trainer.preset", "trainer.config"})
# A script has them only where its preset, or an argument of the user's, passes them on.
_PASSED_ON = {
    "trainer.model": "model",
    "trainer.data": "data",
    "trainer.validation_data": "validation_data",
    "trainer.test_data": "test_data",
    "trainer.config": "config",
}
_SEVERAL_MACHINES = frozenset({"nodes.address", "nodes.port"})
_CONTAINER_ONLY = frozenset({"container.image", "container.mounts", "container.shared_memory"})
_BARE_ONLY = frozenset({"trainer.python"})
_NOT_NEMO = _SCRIPT_ONLY | {"trainer.arguments", "trainer.working_directory"}


# They are worked into other values, or into the environment.
_OURS = frozenset({"recipe.lr_scaling", "recipe.lr_base_batch", "recipe.expandable_segments"})


class Option(Struct, frozen=True):
    """One value of a field: its words, what it is, and why it cannot be chosen here (empty: it can)."""

    value: str
    label: str
    note: str = ""
    reason: str = ""


def options(key: str, profile: Profile, facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    """Return the values that a field offers."""
    if key in _OPTIONS:
        return _OPTIONS[key](profile, facts, resolved)
    row = fields.field(key)
    return tuple(Option(value, value) for value in (("no", "yes") if row.kind == "switch" else row.options))


def applies(key: str, profile: Profile, resolved: Resolved | None = None) -> bool:
    """Tell whether a field has a meaning for what trains; without `resolved` as for a preset that takes the usual."""
    outside = _CONTAINER_ONLY if profile.container.engine == "none" else _BARE_ONLY
    asked = {
        "trainer.offload": profile.trainer.strategy != "ddp",
        **dict.fromkeys(_SEVERAL_MACHINES, profile.nodes.count > 1),
        **dict.fromkeys(outside, False),
    }
    return asked[key] if key in asked else _of_trainer(key, profile, resolved)


def _of_trainer(key: str, profile: Profile, resolved: Resolved | None) -> bool:
    if key.startswith("nemo."):
        wanted = {"nemo.peft": "finetune", "nemo.own_size": "pretrain"}.get(key, profile.nemo.task)
        return profile.trainer.kind == "nemo" and profile.nemo.task == wanted
    if profile.trainer.kind != "script":
        return key not in (_SCRIPT_ONLY if profile.trainer.kind == "builtin" else _NOT_NEMO)
    if key in _PASSED_ON:
        return resolved is not None and _PASSED_ON[key] in resolved.room.takes
    return key != "trainer.script" or resolved is None or resolved.preset.wants_script


def why_not(key: str, resolved: Resolved) -> str:
    """Return why a value does not reach the trainer, empty when it does."""
    if key.startswith("communication."):
        return _why_not_said(key, resolved.backend)
    return _why_not_passed(key, resolved) if key.startswith("recipe.") and key not in _OURS else ""


def _why_not_said(key: str, talks: str) -> str:
    if not talks:
        return "one process has nobody to talk to"
    return f"these processes talk by {talks}" if key == "communication.debug" and talks != "nccl" else ""


def _why_not_passed(key: str, resolved: Resolved) -> str:
    names = {name for name, needed in PLACEHOLDERS.items() if needed == key}
    if resolved.room.loads_model and MODEL_SIZE & names:
        return "the model folder decides"
    if not resolved.room.takes.isdisjoint(names):
        return ""
    if resolved.nemo and MODEL_SIZE & names:
        return "the recipe's own (“Recipe's own size” on the Backend screen changes that)"
    return "the script decides: its preset cannot pass it"


def _device(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    usable = any(verdict.kind != "blocked" for verdict in resolved.verdicts)
    reasons = {reason for verdict in resolved.verdicts for reason in verdict.reasons}
    why = "" if usable else ("no card here can train" if facts.machine.gpus else "no GPU was found")
    if why and len(reasons) == 1:
        why = visible(reasons.pop())
    found = "the GPUs" if usable else "the CPU: " + why
    if all_idle(profile, facts, resolved):
        found = f"the GPUs, but {why}"
    return (Option("auto", "auto", found), Option("cuda", "GPU", "", why), Option("cpu", "CPU", "slow, always works"))


def _kind(_profile: Profile, _facts: Facts, _resolved: Resolved) -> tuple[Option, ...]:
    return (
        Option("builtin", "Built-in trainer", presets()["builtin"].about),
        Option("script", "My own script", "a preset passes it the recipe"),
        Option("nemo", "NeMo", "a recipe of NVIDIA NeMo by its name; GPUs only"),
    )


def _recipe(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    """The recipes of the chosen Python, those that it was asked for or else the known ones, that do the task."""
    python = resolved.toolchain.python if resolved.toolchain else ""
    found, asked = recipes.of(facts, python, resolved.nemo)
    note = "this Python has it" if asked else ""
    wanted = nemo.task(profile.nemo, resolved.nemo)
    names = [name for name, tasks in found.items() if wanted in tasks]
    return tuple(Option(name, name, note) for name in names)


def _preset(_profile: Profile, facts: Facts, _resolved: Resolved) -> tuple[Option, ...]:
    shipped = [Option(name, found.label, found.about) for name, found in presets().items() if name != "builtin"]
    own = []
    for name, mine in facts.presets.items():
        if mine.preset:
            own.append(Option(name, visible(mine.preset.label), visible(mine.preset.about)))
        elif name not in presets():
            own.append(Option(name, visible(name), "", visible(mine.problem)))
    return (*shipped, *own)


def _launcher(profile: Profile, _facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    found = [Option("auto", "auto", f"now {resolved.launcher}")]
    tool = resolved.toolchain
    devices = max(len(profile.hardware.gpus), profile.hardware.processes, 1) * profile.nodes.count
    for name, launcher in LAUNCHERS.items():
        reason = ""
        if not launcher.SEVERAL and devices > 1:
            reason = f"starts one process, and {devices} are chosen"
        elif name == "accelerate" and profile.trainer.kind == "nemo":
            reason = "NeMo runs under python and torchrun"
        elif name == "accelerate" and tool and not tool.accelerate:
            reason = "the chosen Python has no accelerate"
        elif name != "accelerate" and profile.trainer.strategy != "ddp":
            reason = f"does not start {profile.trainer.strategy}"
        found.append(Option(name, launcher.LABEL, launcher.ABOUT, reason))
    return tuple(found)


def _strategy(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    return tuple(
        Option(name, name, about, visible(strategies.why_not(name, profile, facts, resolved)))
        for name, about in strategies.STRATEGIES.items()
    )


def _python(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    best = f"now {home(resolved.toolchain.python)}" if resolved.toolchain and not profile.trainer.python else ""
    found = [Option("", "the best one", best)]
    for tool in facts.toolchains:
        versions = (f"torch {tool.torch}" if tool.torch else "", f"Python {tool.version}" if tool.version else "")
        note = "  ".join(visible(part) for part in (*versions, home(tool.python)) if part)
        found.append(Option(tool.python, visible(tool.label) or "named", note, visible(lacks(profile, tool))))
    return tuple(found)


def _backend(profile: Profile, _facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    cuda = resolved.device == "cuda"
    nccl = "" if cuda else "only for GPUs"
    gloo = refused(profile, resolved) if cuda else ""
    return (
        Option("auto", "auto", f"now {resolved.backend}" if resolved.backend else ""),
        Option("nccl", "NCCL", "", nccl),
        Option("gloo", "Gloo", "a last resort on GPUs" if cuda else "", gloo),
    )


def _engine(_profile: Profile, facts: Facts, _resolved: Resolved) -> tuple[Option, ...]:
    found = [Option("none", "none")]
    for name in ENGINES:
        known = next((engine for engine in facts.engines if engine.name == name), None)
        found.append(
            Option(
                name,
                name,
                visible(known.version) if known else "",
                visible(known.problem) if known else "not installed",
            )
        )
    return tuple(found)


def _precision(_profile: Profile, _facts: Facts, resolved: Resolved) -> tuple[Option, ...]:
    cuda = resolved.device == "cuda"
    bf16 = "a chosen card is older than compute capability 8.0" if cuda and not supports_bf16(resolved.gpus) else ""
    fp16 = "" if cuda else "not on the CPU"
    return (Option("fp32", "fp32"), Option("bf16", "bf16", "", bf16), Option("fp16", "fp16", "", fp16))


_OPTIONS: dict[str, Callable[[Profile, Facts, Resolved], tuple[Option, ...]]] = {
    "hardware.device": _device,
    "trainer.kind": _kind,
    "trainer.preset": _preset,
    "trainer.launcher": _launcher,
    "trainer.strategy": _strategy,
    "trainer.python": _python,
    "communication.backend": _backend,
    "container.engine": _engine,
    "nemo.recipe": _recipe,
    "recipe.precision": _precision,
}

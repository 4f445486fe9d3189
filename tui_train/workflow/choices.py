"""What a field can be set to here, and what it cannot, with the reason; the screens show these words."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.base.text import home, visible
from tui_train.checks.communication import refused
from tui_train.facts import recipes
from tui_train.facts.gpus import supports_bf16
from tui_train.facts.images import ENGINES
from tui_train.facts.types import Facts
from tui_train.launchers import LAUNCHERS
from tui_train.presets import presets
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.resolve import reach, strategies
from tui_train.resolve.idle import all_idle
from tui_train.resolve.resolve import Resolved, lacks
from tui_train.trainers import TRAINERS, nemo, takes_field


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
    found = tuple(Option(value, value) for value in (("no", "yes") if row.kind == "switch" else row.options))
    return (_unset(key, resolved), *found) if row.optional else found


def _unset(key: str, resolved: Resolved) -> Option:
    """Return the choice of what holds where nothing is chosen."""
    held = resolved.values.get(key.removeprefix("recipe."))
    return Option("", "not set", (held.words or fields.show(held.value)) if held and held.source else "")


def applies(key: str, profile: Profile, resolved: Resolved | None = None) -> bool:
    """Tell whether a field is shown: those of the recipe always, others where they have an effect or are chosen."""
    section = key.partition(".")[0]
    if section in {"recipe", "communication"} or key in fields.chosen(profile):
        return True
    return not reach.why_not(key, profile, resolved)


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
    return tuple(Option(name, trainer.name, trainer.about) for name, trainer in TRAINERS.items())


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
        elif not launcher.STARTS_RECIPES and takes_field(profile, "nemo"):
            reason = "NeMo runs under python or torchrun"
        elif "accelerate" in launcher.NEEDS and tool and not tool.accelerate:
            reason = "the chosen Python has no accelerate"
        elif profile.trainer.strategy not in {"ddp", *launcher.SHARDS}:
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
    return (
        _unset("recipe.precision", resolved),
        Option("fp32", "fp32"),
        Option("bf16", "bf16", "", bf16),
        Option("fp16", "fp16", "", fp16),
    )


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

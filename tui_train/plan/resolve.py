"""From what the user chose and what is, to what holds: which Python, which devices, how many processes."""

from typing import Literal

from msgspec import Struct

from tui_train.facts.gpus import judge, recommended
from tui_train.facts.types import Facts, Gpu, Toolchain, Verdict
from tui_train.memory.ladder import Room
from tui_train.plan import nemo
from tui_train.plan.nemo import Flavour
from tui_train.presets import Preset, preset, takes
from tui_train.profile.types import Profile

MODEL_SIZE = frozenset({"layers", "hidden_size", "heads"})


class Resolved(Struct, frozen=True, kw_only=True):
    """What a profile means on this machine; `toolchain` is None when no Python here can train it.

    `copies` of the model take samples of their own: one a process, unless NeMo splits it. `nemo` is what is told to it.
    """

    toolchain: Toolchain | None
    device: Literal["cpu", "cuda"]
    gpus: tuple[Gpu, ...]
    verdicts: tuple[Verdict, ...]
    world_size: int
    copies: int
    launcher: str
    preset: Preset
    nemo: Flavour | None = None
    room: Room


def resolve(profile: Profile, facts: Facts) -> Resolved:
    """Return what the profile means on this machine; BadInput for an unknown preset."""
    toolchain = pick_toolchain(profile, facts)
    cards = facts.machine.gpus
    verdicts = judge(cards, toolchain, facts.machine.driver_cuda)
    gpus = _gpus(profile, cards, verdicts)
    device: Literal["cpu", "cuda"] = "cuda" if gpus or profile.hardware.device == "cuda" else "cpu"
    launcher = _launcher(profile, gpus)
    default = len(gpus) if device == "cuda" and launcher != "python" else 1
    world_size = profile.hardware.processes or max(default, 1)
    if device == "cuda" and launcher == "python" and not profile.hardware.gpus:
        gpus = gpus[:1]
    flavour = nemo.flavour(toolchain) if profile.trainer.kind == "nemo" else None
    chosen, taken = _told(profile, flavour)
    loads_model = bool(profile.trainer.model) and "model" in taken
    copies = nemo.copies(profile, world_size)
    room = Room(copies, device == "cuda", taken - MODEL_SIZE if loads_model else taken, loads_model)
    return Resolved(
        toolchain=toolchain,
        device=device,
        gpus=gpus,
        verdicts=verdicts,
        world_size=world_size,
        copies=copies,
        launcher=launcher,
        preset=chosen,
        nemo=flavour,
        room=room,
    )


def _told(profile: Profile, flavour: Flavour | None) -> tuple[Preset, frozenset[str]]:
    """Return how the recipe reaches the trainer, and which of its values do."""
    if profile.trainer.kind == "nemo":
        return nemo.preset(profile, flavour), nemo.takes(profile, flavour)
    chosen = preset("builtin" if profile.trainer.kind == "builtin" else profile.trainer.preset)
    return chosen, takes(chosen, profile.trainer.arguments)


def lacks(profile: Profile, toolchain: Toolchain) -> str:
    """Return what a Python lacks to train this profile, in words; empty when it can."""
    if toolchain.problem:
        return toolchain.problem
    wanted = {"torch": toolchain.torch}
    if profile.trainer.kind == "builtin" or profile.trainer.launcher == "accelerate":
        wanted["accelerate"] = toolchain.accelerate
    if profile.trainer.kind == "builtin":
        wanted["transformers"] = toolchain.transformers
    missing = [name for name, version in wanted.items() if version is None]
    if not missing and profile.trainer.kind == "nemo":
        found = nemo.lacks(toolchain.packages)
        return f"has {found}" if found else ""
    return f"has no {', '.join(missing)}" if missing else ""


def pick_toolchain(profile: Profile, facts: Facts) -> Toolchain | None:
    """Return the Python that the profile names, or else the first that can train it, rather one that can use a card."""
    if profile.trainer.python:
        return next((found for found in facts.toolchains if found.python == profile.trainer.python), None)
    able = [found for found in facts.toolchains if not lacks(profile, found)]
    if profile.trainer.kind == "nemo":
        able.sort(key=lambda found: nemo.flavour(found) != "recipes")
    cards, driver = facts.machine.gpus, facts.machine.driver_cuda
    if profile.hardware.device != "cpu":
        for found in able:
            if any(verdict.kind != "blocked" for verdict in judge(cards, found, driver)):
                return found
    return next(iter(able), None)


def _launcher(profile: Profile, gpus: tuple[Gpu, ...]) -> str:
    if profile.trainer.launcher != "auto":
        return profile.trainer.launcher
    return "torchrun" if max(len(gpus), profile.hardware.processes) > 1 else "python"


def _gpus(profile: Profile, cards: tuple[Gpu, ...], verdicts: tuple[Verdict, ...]) -> tuple[Gpu, ...]:
    if profile.hardware.device == "cpu":
        return ()
    wanted = profile.hardware.gpus or recommended(cards, verdicts)
    return tuple(card for card in cards if card.uuid and card.uuid in wanted)

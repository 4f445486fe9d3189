"""From what the user chose and what is, to what holds: which Python, which devices, how many processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui_train.base.versions import at_least
from tui_train.facts.gpus import called, judge, recommended
from tui_train.facts.types import ContainerImage, Facts, Gpu, Toolchain, Verdict
from tui_train.launchers import LAUNCHERS, automatic, that_shard
from tui_train.presets import Preset
from tui_train.profile.fields import absolute
from tui_train.profile.types import Launcher, Profile
from tui_train.resolve import communication, fallbacks
from tui_train.resolve.context import LadderContext
from tui_train.resolve.in_force import InForce, in_force, own_output, settle
from tui_train.trainers import takes_field, trainer_of
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.script import started

# What accelerate shards by FSDP2 with, and since when: `FSDP2_PYTORCH_VERSION` in its constants.
FSDP2 = (("torch", "2.6"), ("accelerate", "1.6"))
MODEL_SIZE = frozenset({"layers", "hidden_size", "heads"})


class Resolved(Struct, frozen=True, kw_only=True):
    """What a profile means on this machine; `toolchain` is None when no Python here can train it.

    `processes` are those of one machine, `world_size` those of all of them. `backend` is by what they talk, empty where
    there is only one. `copies` of the model take samples of their own: one a process, unless NeMo splits it. `nemo` is
    which of its flavours trains. `values` are those in force by their name in the recipe, `settled` is the profile with
    them; what is not known is None there. `own_output` is the output folder that the user's arguments or file name.
    """

    toolchain: Toolchain | None
    device: Literal["cpu", "cuda"]
    gpus: tuple[Gpu, ...]
    verdicts: tuple[Verdict, ...]
    processes: int
    world_size: int
    copies: int
    launcher: Launcher
    backend: str
    preset: Preset
    nemo: Flavour | None = None
    context: LadderContext
    values: Mapping[str, InForce]
    settled: Profile
    own_output: str = ""


def resolve(profile: Profile, facts: Facts) -> Resolved:
    """Return what the profile means on this machine; BadInput for an unknown preset."""
    toolchain = pick_toolchain(profile, facts)
    cards = facts.machine.gpus
    verdicts = judge(cards, toolchain, facts.machine.driver_cuda)
    gpus = _gpus(profile, cards, verdicts)
    device: Literal["cpu", "cuda"] = "cuda" if gpus or profile.hardware.device == "cuda" else "cpu"
    launcher = _launcher(profile, gpus)
    starts = LAUNCHERS[launcher]
    default = len(gpus) if device == "cuda" and starts.SEVERAL else 1
    processes = profile.hardware.processes or max(default, 1)
    world_size = processes * profile.nodes.count
    if device == "cuda" and not starts.SEVERAL and not profile.hardware.gpus:
        gpus = gpus[:1]
    trainer = trainer_of(profile)
    chosen = trainer.preset(profile, toolchain, facts.presets)
    taken = trainer.takes(profile, toolchain, chosen)
    if takes_field(profile, "trainer.script") and starts.SETS_PRECISION:
        taken |= {"precision"}
    loads_model = bool(profile.trainer.model) and "model" in taken
    copies = trainer.copies(profile, world_size)
    talks = communication.backend(profile.communication, cuda=device == "cuda", world_size=world_size)
    unsharded = _unsharded(launcher, device, chosen, toolchain, talks)
    offload = unsharded or fallbacks.too_little_host_memory(gpus, facts.machine.memory_total)
    document = facts.documents.get(profile.trainer.config)
    values = in_force(profile, chosen, document, copies)
    settled = settle(profile, values)
    refused = fallbacks.refused(settled, chosen, toolchain, document, gpus)
    # What is set in another form, such as "offload", is the user's own, and another value would be a lesser one.
    words = {name: held.words for name, held in values.items() if held.words and held.value is None}
    refused |= {name: f"your own {text} stands" for name, text in words.items()}
    if "micro_batch" not in refused and _guessed(profile, chosen, values):
        refused["micro_batch"] = "set micro and global batch first: your script may have other defaults"
    context = LadderContext(
        world_size=copies,
        cuda=device == "cuda",
        takes=taken - MODEL_SIZE if loads_model else taken,
        loads_model=loads_model,
        refused={"sharding": unsharded, "offload": offload, **refused},
        refuses_all=fallbacks.refuses_all(profile),
        eval_batch=fallbacks.eval_batch(chosen, document),
        evaluates=trainer.evaluates,
    )
    return Resolved(
        toolchain=toolchain,
        device=device,
        gpus=gpus,
        verdicts=verdicts,
        processes=processes,
        world_size=world_size,
        copies=copies,
        launcher=launcher,
        backend=talks,
        preset=chosen,
        nemo=trainer.flavour(toolchain),
        context=context,
        values=values,
        settled=settled,
        own_output=own_output(profile, chosen, document),
    )


def _guessed(profile: Profile, chosen: Preset, values: Mapping[str, InForce]) -> bool:
    """Tell whether the batch of a script of the user's is taken from the defaults of the library that it may use."""
    sources = {values[name].source for name in ("micro_batch", "global_batch")}
    own_script = takes_field(profile, "trainer.script") and started(profile, chosen) != chosen.module
    return own_script and any(source.endswith("default") for source in sources)


def lacks(profile: Profile, toolchain: Toolchain) -> str:
    """Return what a Python lacks to train this profile, in words; empty when it can."""
    if toolchain.problem:
        return toolchain.problem
    wanted = {"torch": toolchain.torch}
    known = {**toolchain.packages, "accelerate": toolchain.accelerate, "transformers": toolchain.transformers}
    needs = (*LAUNCHERS[_launcher(profile, ())].NEEDS, *trainer_of(profile).needs)
    wanted |= {name: known.get(name) for name in needs}
    if profile.trainer.strategy.startswith("zero"):
        wanted["deepspeed"] = toolchain.packages.get("deepspeed")
    missing = [name for name, version in wanted.items() if version is None]
    if missing:
        return f"has no {', '.join(missing)}"
    if found := trainer_of(profile).lacks(toolchain):
        return f"has {found}"
    return _too_old_to_shard(toolchain) if profile.trainer.strategy == "fsdp2" else ""


def image_of(profile: Profile, facts: Facts) -> ContainerImage | None:
    """Return what is known of the image that the profile names, None where it was not looked at."""
    chosen = profile.container
    known = (image for image in facts.images if (image.engine, image.name) == (chosen.engine, chosen.image))
    return next(known, None)


def pick_toolchain(profile: Profile, facts: Facts) -> Toolchain | None:
    """Return the Python that the profile names, or else the first that can train it, rather one that can use a card.

    In a container it is the image's own.
    """
    if profile.container.engine != "none":
        image = image_of(profile, facts)
        return image.toolchain if image else None
    if profile.trainer.python:
        named = profile.trainer.python
        return next((found for found in facts.toolchains if named in {found.python, _whole(found.python)}), None)
    able = [found for found in facts.toolchains if not lacks(profile, found)]
    able.sort(key=trainer_of(profile).order)
    cards, driver = facts.machine.gpus, facts.machine.driver_cuda
    if profile.hardware.device != "cpu":
        for found in able:
            if any(verdict.kind != "blocked" for verdict in judge(cards, found, driver)):
                return found
    return next(iter(able), None)


def _whole(python: str) -> str:
    """Return a Python of a saved machine, whose home is masked, as a profile names it."""
    return absolute(python, Path("/"))


def _launcher(profile: Profile, gpus: tuple[Gpu, ...]) -> Launcher:
    if profile.trainer.launcher != "auto":
        return profile.trainer.launcher
    return automatic(max(len(gpus), profile.hardware.processes, profile.nodes.count, 1), profile.trainer.strategy)


def _too_old_to_shard(toolchain: Toolchain) -> str:
    found = {"torch": toolchain.torch, "accelerate": toolchain.accelerate}
    old = [
        f"{name} {found[name]}, and fsdp2 needs {since}" for name, since in FSDP2 if not at_least(found[name], since)
    ]
    return f"has {old[0]}" if old else ""


def _unsharded(launcher: Launcher, device: str, preset: Preset, toolchain: Toolchain | None, talks: str) -> str:
    if device != "cuda":
        return "only for GPUs"
    if "fsdp2" not in preset.strategies:
        return "only for trainers known to go through accelerate"
    if launcher not in (able := that_shard("fsdp2")):
        return f"only under {' or '.join(able)}"
    torch = toolchain.torch if toolchain else None
    if talks == "gloo" and (why := communication.why_no_gloo(sharded=True, torch=torch)):
        return why
    return f"the chosen Python {old}" if toolchain and (old := _too_old_to_shard(toolchain)) else ""


def _gpus(profile: Profile, cards: tuple[Gpu, ...], verdicts: tuple[Verdict, ...]) -> tuple[Gpu, ...]:
    if profile.hardware.device == "cpu":
        return ()
    if not profile.hardware.gpus:
        wanted = recommended(cards, verdicts)
        return tuple(card for card in cards if card.uuid and card.uuid in wanted)
    meant = [found[0] for name in profile.hardware.gpus if len(found := called(cards, name)) == 1]
    return tuple(card for card in cards if card.uuid and card in meant)

"""From choices and facts to what is in force: which Python, which devices, how many processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_train.base.versions import at_least
from tui_train.facts.gpus import called, judge, recommended
from tui_train.facts.types import ContainerImage, Facts, Gpu, Toolchain, Verdict
from tui_train.launchers import LAUNCHERS, automatic, that_shard
from tui_train.presets import Preset
from tui_train.profile import fields
from tui_train.profile.fields import absolute
from tui_train.profile.types import Launcher, Profile
from tui_train.resolve import communication, fallbacks, launcher_config
from tui_train.resolve.context import LadderContext
from tui_train.resolve.in_force import InForce, in_force, is_default, settle, user_output
from tui_train.trainers import suited, takes_field, trainer_of
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.script import started

# What accelerate shards by FSDP2 with, and since when: `FSDP2_PYTORCH_VERSION` in its constants.
FSDP2 = (("torch", "2.6"), ("accelerate", "1.6"))
MODEL_SIZE = frozenset({"layers", "hidden_size", "ffn_hidden_size", "heads"})


class Resolved(Struct, frozen=True, kw_only=True):
    """What a profile means on this machine; `toolchain` is None when no Python here can train it.

    `processes` are those of the first machine, `world_size` those of all of them. `backend` is how they communicate,
    empty for a single one. `copies` of the model take samples of their own: one a process, unless NeMo splits it.
    `nemo` is which of its flavours trains. `values` are those in force by their name in the recipe, `settled` is the
    profile with them; what is not known is None there. `by_data` are values by their key that follow from the data.
    `user_output` is the output folder that the user's arguments or file name, `launcher_config` what the user's own
    config of the launcher says. `scheduled`: Slurm chooses machines and cards when it starts.
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
    by_data: Mapping[str, InForce] = {}
    settled: Profile
    launcher_config: Mapping[str, Any] = {}
    user_output: str = ""
    scheduled: bool = False


def resolve(profile: Profile, facts: Facts, ours: Mapping[str, InForce] | None = None) -> Resolved:
    """Return what the profile means on this machine; BadInput for an unknown preset.

    `ours` are defaults that replace those of the trainer, by their name in the recipe, each with its source; those
    beyond the recipe by their key.
    """
    by_data = {name: held for name, held in (ours or {}).items() if "." in name}
    ours = {name: held for name, held in (ours or {}).items() if name not in by_data}
    for name, held in by_data.items():
        profile = fields.put(profile, name, held.value)
    toolchain = pick_toolchain(profile, facts)
    cards = facts.machine.gpus
    verdicts = judge(cards, toolchain, facts.machine.driver_cuda)
    gpus = _gpus(profile, cards, verdicts)
    device: Literal["cpu", "cuda"] = "cuda" if gpus or profile.hardware.device == "cuda" else "cpu"
    launcher = _launcher(profile, gpus)
    starts = LAUNCHERS[launcher]
    processes = profile.hardware.processes or _processes(profile, len(gpus) if starts.SEVERAL else 1, device)
    world_size = profile.nodes.world_size(processes)
    if device == "cuda" and not starts.SEVERAL and not profile.hardware.gpus:
        gpus = gpus[:1]
    trainer = trainer_of(profile)
    chosen = trainer.preset(profile, toolchain, facts)
    if defaults := trainer.defaults(profile, gpus if device == "cuda" else ()):
        chosen = msgspec.structs.replace(chosen, defaults={**chosen.defaults, **defaults})
    if ours:
        chosen = msgspec.structs.replace(
            chosen, defaults={**chosen.defaults, **{name: held.value for name, held in ours.items()}}
        )
    accepted = trainer.takes(profile, toolchain, chosen)
    if takes_field(profile, "trainer.script") and starts.SETS_PRECISION:
        accepted |= {"precision"}
    loads_model = bool(profile.trainer.model) and "model" in accepted
    copies = trainer.copies(profile, world_size, toolchain)
    backend = communication.backend(profile.communication, cuda=device == "cuda", world_size=world_size)
    unsharded = _unsharded(launcher, device, chosen, toolchain, backend)
    offload = unsharded or fallbacks.too_little_host_memory(gpus, facts.machine.memory_total)
    document = facts.documents.get(profile.trainer.config)
    config = launcher_config.usable(profile, facts, launcher, device)
    values = in_force(profile, chosen, document, copies, launcher_config.held(profile, chosen, config))
    values |= {name: held for name, held in ours.items() if is_default(values[name])}
    settled = suited.named(settle(profile, values), facts.sources)
    refused = fallbacks.refused(settled, chosen, toolchain, document, gpus)
    # A value set in another form, such as "offload", is the user's own choice.
    words = {name: value.words for name, value in values.items() if value.words and value.value is None}
    refused |= {name: fallbacks.set_by_user((text,)) for name, text in words.items()}
    batch_not_set = "micro_batch" not in refused and _batch_not_set(profile, settled, chosen, values)
    if batch_not_set:
        refused["micro_batch"] = fallbacks.BATCH_NOT_SET
    context = LadderContext(
        world_size=copies,
        cuda=device == "cuda",
        takes=accepted - MODEL_SIZE if loads_model else accepted,
        loads_model=loads_model,
        refused={"sharding": unsharded, "offload": offload, **refused},
        refuses_all=fallbacks.refuses_all(profile, facts),
        eval_batch=fallbacks.eval_batch(chosen, document),
        evaluates=trainer.evaluates(profile),
        batch_not_set=batch_not_set,
        least_micro=trainer.least_micro(profile),
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
        backend=backend,
        preset=chosen,
        nemo=trainer.flavour(toolchain),
        context=context,
        values=values,
        by_data=by_data,
        settled=settled,
        launcher_config=config,
        user_output=user_output(profile, chosen, document),
        scheduled=facts.scheduler == "slurm",
    )


def _processes(profile: Profile, cards: int, device: str) -> int:
    """Return the processes of the first machine where their number is left open: one a card, on the CPU as named."""
    if device == "cuda":
        return max(cards, 1)
    return profile.nodes.processes[0] if profile.nodes.processes and profile.nodes.machines > 1 else 1


def _batch_not_set(profile: Profile, settled: Profile, chosen: Preset, values: Mapping[str, InForce]) -> bool:
    """Return whether the batch is unknown, or only assumed from the defaults of a library that the script may use."""
    if settled.recipe.micro_batch is None or settled.recipe.global_batch is None:
        return True
    sources = {values[name].source for name in ("micro_batch", "global_batch")}
    own_script = takes_field(profile, "trainer.script") and started(profile, chosen) != chosen.module
    return own_script and any(source.endswith("default") for source in sources)


def lacks(profile: Profile, toolchain: Toolchain) -> str:
    """Return what a Python lacks to train this profile, in words; empty when it can."""
    if toolchain.problem:
        return toolchain.problem
    versions = {"torch": toolchain.torch}
    packages = {**toolchain.packages, "accelerate": toolchain.accelerate, "transformers": toolchain.transformers}
    needs = (*LAUNCHERS[_launcher(profile, ())].NEEDS, *trainer_of(profile).needs(profile))
    versions |= {name: packages.get(name) for name in needs}
    if profile.trainer.strategy.startswith("zero"):
        versions["deepspeed"] = toolchain.packages.get("deepspeed")
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return f"has no {', '.join(missing)}"
    if problem := trainer_of(profile).lacks(toolchain):
        return f"has {problem}"
    return _too_old_to_shard(toolchain) if profile.trainer.strategy == "fsdp2" else ""


def image_of(profile: Profile, facts: Facts) -> ContainerImage | None:
    """Return the facts on the image that the profile names, None where it was not inspected."""
    chosen = profile.container
    matching = (image for image in facts.images if (image.engine, image.name) == (chosen.engine, chosen.image))
    return next(matching, None)


def pick_toolchain(profile: Profile, facts: Facts) -> Toolchain | None:
    """Return the Python that the profile names, or else the first that can train it, preferably with a card.

    None for one that is not started before the user chooses it. In a container it is the image's own.
    """
    if profile.container.engine != "none":
        image = image_of(profile, facts)
        return image.toolchain if image else None
    if profile.trainer.python:
        chosen = profile.trainer.python
        named = next((tool for tool in facts.toolchains if chosen in {tool.python, _whole(tool.python)}), None)
        return None if named and named.unchosen else named
    usable = [tool for tool in facts.toolchains if not lacks(profile, tool)]
    usable.sort(key=trainer_of(profile).order)
    cards, driver = facts.machine.gpus, facts.machine.driver_cuda
    if profile.hardware.device != "cpu":
        for tool in usable:
            if any(verdict.kind != "blocked" for verdict in judge(cards, tool, driver)):
                return tool
    return next(iter(usable), None)


def _whole(python: str) -> str:
    """Return a Python of a saved machine, whose home is masked, as a profile names it."""
    return absolute(python, Path("/"))


def _launcher(profile: Profile, gpus: tuple[Gpu, ...]) -> Launcher:
    if profile.trainer.launcher != "auto":
        return profile.trainer.launcher
    if profile.trainer.accelerate_config and not takes_field(profile, "nemo"):
        return next(name for name, launcher in LAUNCHERS.items() if launcher.READS_CONFIG)
    processes = max(len(gpus), profile.hardware.processes, 1)
    return automatic(processes, profile.trainer.strategy, profile.nodes.machines)


def _too_old_to_shard(toolchain: Toolchain) -> str:
    versions = {"torch": toolchain.torch, "accelerate": toolchain.accelerate}
    old = [
        f"{name} {versions[name]}, and fsdp2 needs {since}"
        for name, since in FSDP2
        if not at_least(versions[name], since)
    ]
    return f"has {old[0]}" if old else ""


def _unsharded(launcher: Launcher, device: str, preset: Preset, toolchain: Toolchain | None, backend: str) -> str:
    if device != "cuda":
        return "only for GPUs"
    if "fsdp2" not in preset.strategies:
        return "only for trainers known to go through accelerate"
    if launcher not in (launchers := that_shard("fsdp2")):
        return f"only under {' or '.join(launchers)}"
    torch = toolchain.torch if toolchain else None
    if backend == "gloo" and (why := communication.why_no_gloo(sharded=True, torch=torch)):
        return why
    return f"the chosen Python {old}" if toolchain and (old := _too_old_to_shard(toolchain)) else ""


def _gpus(profile: Profile, cards: tuple[Gpu, ...], verdicts: tuple[Verdict, ...]) -> tuple[Gpu, ...]:
    if profile.hardware.device == "cpu":
        return ()
    if not profile.hardware.gpus:
        usable = recommended(cards, verdicts)
        return tuple(card for card in cards if card.uuid and card.uuid in usable)
    named = [matching[0] for name in profile.hardware.gpus if len(matching := called(cards, name)) == 1]
    return tuple(card for card in cards if card.uuid and card in named)

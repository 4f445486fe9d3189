"""The Python that trains a profile, why another one cannot, and the launcher."""

from pathlib import Path

from tui_train.base.versions import is_at_least_or_unknown
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.types import ContainerImage, Facts, Gpu, Toolchain
from tui_train.launchers import LAUNCHERS, choose_launcher
from tui_train.profile.fields import absolute_path
from tui_train.profile.types import LauncherName, Profile
from tui_train.trainers import trainer_has_own_field, trainer_of

# What accelerate shards by FSDP2 with, and since when: `FSDP2_PYTORCH_VERSION` in its constants.
FSDP2_MIN_VERSIONS = (("torch", "2.6"), ("accelerate", "1.6"))


def why_python_unusable(profile: Profile, toolchain: Toolchain) -> str:
    """Return why a Python cannot train this profile, as words that follow its name; empty when it can."""
    if toolchain.problem:
        return toolchain.problem
    versions = {"torch": toolchain.torch}
    packages = {**toolchain.packages, "accelerate": toolchain.accelerate, "transformers": toolchain.transformers}
    trainer = trainer_of(profile, toolchain)
    needs = (*LAUNCHERS[choose_profile_launcher(profile, ())].needs, *trainer.needed_packages())
    versions |= {name: packages.get(name) for name in needs}
    if profile.trainer.strategy.startswith("zero"):
        versions["deepspeed"] = toolchain.packages.get("deepspeed")
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return f"has no {', '.join(missing)}"
    if problem := trainer.why_unusable():
        return f"has {problem}"
    return why_too_old_for_fsdp2(toolchain) if profile.trainer.strategy == "fsdp2" else ""


def find_image(profile: Profile, facts: Facts) -> ContainerImage | None:
    """Return the facts on the image that the profile names, None where it was not inspected."""
    chosen = profile.container
    matching = (image for image in facts.images if (image.engine, image.name) == (chosen.engine, chosen.image))
    return next(matching, None)


def pick_toolchain(profile: Profile, facts: Facts) -> Toolchain | None:
    """Return the Python that the profile names, or else the first that can train it, preferably with a card.

    None for one that is not started before the user chooses it. In a container it is the image's own.
    """
    if profile.container.engine != "none":
        image = find_image(profile, facts)
        return image.toolchain if image else None
    if profile.trainer.python:
        chosen = profile.trainer.python
        named = next(
            (tool for tool in facts.toolchains if chosen in {tool.python, _expand_masked_home(tool.python)}), None
        )
        return None if named and named.unchosen else named
    usable = [tool for tool in facts.toolchains if not why_python_unusable(profile, tool)]
    usable.sort(key=lambda tool: trainer_of(profile, tool).toolchain_preference_rank())
    cards, driver = facts.machine.gpus, facts.machine.driver_cuda
    if profile.hardware.device != "cpu":
        for tool in usable:
            if any(verdict.kind != "blocked" for verdict in gpu_verdicts(cards, tool, driver)):
                return tool
    return next(iter(usable), None)


def toolchain_to_judge_cards(facts: Facts) -> Toolchain | None:
    """Return the Python for which the cards of a machine are judged, whatever trains; None where none has torch."""
    # Whether a card can train depends on torch alone; the rest can be installed beside it.
    torch = next((tool for tool in facts.toolchains if tool.torch and not tool.problem), None)
    return pick_toolchain(Profile(), facts) or torch


def _expand_masked_home(python: str) -> str:
    """Return a Python of a saved machine, whose home is masked, as a profile names it."""
    return absolute_path(python, Path("/"))


def choose_profile_launcher(profile: Profile, gpus: tuple[Gpu, ...], *, reads_ranks: bool = False) -> LauncherName:
    """Return the launcher that a profile names, or else the one for its config, or for so many GPUs and the script."""
    if profile.trainer.launcher != "auto":
        return profile.trainer.launcher
    if profile.trainer.accelerate_config and not trainer_has_own_field(profile, "nemo"):
        return next(name for name, launcher in LAUNCHERS.items() if launcher.reads_config)
    processes = max(len(gpus), profile.hardware.processes, 1)
    return choose_launcher(processes, profile.trainer.strategy, profile.nodes.machine_count, reads_ranks=reads_ranks)


def why_too_old_for_fsdp2(toolchain: Toolchain) -> str:
    """Return what of a Python is too old for FSDP2, as words that follow its name; empty if nothing."""
    versions = {"torch": toolchain.torch, "accelerate": toolchain.accelerate}
    for name, since in FSDP2_MIN_VERSIONS:
        if not is_at_least_or_unknown(versions[name], since):
            return f"has {name} {versions[name]}, and fsdp2 needs {since}"
    return ""

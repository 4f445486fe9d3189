"""Checks that the CPU, or fewer or lesser cards than there are, train only where the user chose that."""

import shlex
from collections.abc import Iterator, Sequence

from tui_train.base.text import display_path
from tui_train.checks.finding import EnvironmentInstall, Finding, error, note
from tui_train.facts.gpus.gpu_sets import recommended_uuids
from tui_train.facts.types import Facts, Gpu
from tui_train.launchers import LAUNCHERS, capable_launchers_text
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.machine.idle_cards import (
    LeftOutCards,
    card_counts_text,
    card_numbers_and_names_text,
    cards_idle_beside_cpu,
    cards_usable_by_another_torch,
)
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_of

_TRAIN_ON_CPU_REMEDY = "train on the CPU: --set hardware.device=cpu"


def all_cards_idle_while_cpu_trains(setup: Setup) -> Iterator[Finding]:
    """Cards that stay idle while the CPU trains."""
    profile, facts = setup.profile, setup.facts
    chosen = profile.hardware
    if chosen.device == "cpu" or chosen.gpus or setup.gpus:
        return
    idle = cards_idle_beside_cpu(setup)
    cuda_chosen = chosen.device == "cuda"
    if idle is None and not cuda_chosen:
        return
    change: Change | None
    change = Change("train on the CPU", "no GPU can be used", (("hardware.device", "cpu"), ("hardware.gpus", ())))
    hiding = [gap for gap in facts.machine.gaps if gap.hides]
    if facts.other_machine and not facts.machine.hostname and hiding:
        # Nothing is known of a host that did not answer: its CPU would be no remedy.
        yield error("hardware.host", f"{hiding[0].what}: {hiding[0].why}", hiding[0].remedy, machine=True)
        return
    install, keys = None, ""
    if idle is None:
        why = "; ".join(reason for verdict in setup.gpu_verdicts for reason in verdict.reasons)
        why = why or "; ".join(gap.why for gap in facts.machine.gaps) or "none was found"
        message, remedy = f"no GPU here can train ({why})", "Choose the device auto or cpu (hardware.device)."
    else:
        why = f"{_possessive_of_python_or_image(profile)} {idle.torch_problem}" if idle.torch_problem else idle.why
        subject = _idle_cards_clause(idle.cards) if idle.cards else "no GPU can be used yet"
        message = f"no GPU here can train: {why}" if cuda_chosen else f"{subject}: {why}"
        remedy = f"{_idle_cards_remedy(profile, idle)} Or {_TRAIN_ON_CPU_REMEDY}."
        change, install = _use_python_change(idle) or change, _environment_install_for_idle_cards(profile, facts, idle)
        keys = f"{_idle_cards_screen_remedy(profile, idle, install)} Or choose the device CPU."
    yield error("hardware.device", message, remedy, change=change, install=install, keys=keys, machine=True)


def cards_idle_without_torch_code(setup: Setup) -> Iterator[Finding]:
    """Cards that stay idle because this PyTorch has no code for them, while fewer or lesser ones train."""
    profile, facts = setup.profile, setup.facts
    if profile.hardware.device == "cpu" or profile.hardware.gpus or not setup.gpus:
        return
    if idle := cards_usable_by_another_torch(setup):
        usable = recommended_uuids(facts.machine.gpus, setup.gpu_verdicts)
        cards = [gpu for gpu in facts.machine.gpus if gpu.uuid in usable]
        use_these = Change(
            f"train on {card_numbers_and_names_text(cards)} only",
            "this PyTorch supports no more",
            (("hardware.gpus", usable),),
        )
        why = f"{_possessive_of_python_or_image(profile)} {idle.torch_problem}" if idle.torch_problem else idle.why
        message = f"only {card_numbers_and_names_text(cards)} would train; {_idle_cards_clause(idle.cards)}: {why}"
        remedy = f"{_idle_cards_remedy(profile, idle)} Or name the GPUs: --set hardware.gpus={','.join(usable)}."
        change = _use_python_change(idle) or use_these
        install = _environment_install_for_idle_cards(profile, facts, idle)
        keys = f"{_idle_cards_screen_remedy(profile, idle, install)} Or choose the GPUs above."
        yield error("hardware.gpus", message, remedy, change=change, install=install, keys=keys, machine=True)


def cards_idle_under_single_process_launcher(setup: Setup) -> Iterator[Finding]:
    """Cards that stay idle because the launcher starts one process, or the script knows of no others."""
    chosen = setup.profile.hardware
    if (
        LAUNCHERS[setup.launcher].starts_several_processes
        or chosen.device == "cpu"
        or chosen.gpus
        or chosen.processes > 1
    ):
        return
    usable = recommended_uuids(setup.facts.machine.gpus, setup.gpu_verdicts)
    if len(usable) < 2:
        return
    if setup.starts_one_process_by_default:
        idle = [gpu for gpu in setup.facts.machine.gpus if gpu.uuid in usable and gpu not in setup.gpus]
        message = f"the script uses one GPU only, so {_idle_cards_clause(idle)}"
        remedy = "To train on all GPUs, let the script use accelerate or torch.nn.parallel.DistributedDataParallel."
        yield note("trainer.script", message, remedy)
    else:
        change = Change("use torchrun", "it starts one process per GPU", (("trainer.launcher", "torchrun"),))
        message = f"{LAUNCHERS[setup.launcher].label} uses one GPU only, and {len(usable)} can train"
        several = capable_launchers_text(lambda other: other.starts_several_processes)
        remedy = f"Choose {several}; or name the one GPU, such as hardware.gpus={usable[0]}."
        yield error("trainer.launcher", message, remedy, change=change)


def _idle_cards_remedy(profile: Profile, idle: LeftOutCards) -> str:
    if profile.container.engine != "none" and idle.torch_build:
        return "Choose an image whose PyTorch supports them (container.image)."
    remedies = []
    if idle.python:
        remedies.append(f"Use another Python, which can use them: --set trainer.python={shlex.quote(idle.python)}.")
    elif idle.torch_build:
        name = trainer_of(profile).package_set
        remedies.append(f"Install a PyTorch that can use them: tui-train env create {name} ({idle.torch_build.text}).")
    return " ".join([*remedies, idle.remedy]).strip() or "Fix what `tui-train facts` says of them."


def _possessive_of_python_or_image(profile: Profile) -> str:
    return "this Python's" if profile.container.engine == "none" else "this image's"


def _idle_cards_clause(cards: Sequence[Gpu]) -> str:
    return f"{card_counts_text(cards)} {'is' if len(cards) == 1 else 'are'} idle"


def _environment_install_for_idle_cards(
    profile: Profile, facts: Facts, idle: LeftOutCards
) -> EnvironmentInstall | None:
    """Return the environment that lets idle cards train, where one can be made and none is there."""
    in_container = profile.container.engine != "none"
    if idle.python or idle.torch_build is None or in_container or not facts.can_create_environment:
        return None
    return EnvironmentInstall(trainer_of(profile).package_set, f"install {idle.torch_build.text}", with_cuda=True)


def _idle_cards_screen_remedy(profile: Profile, idle: LeftOutCards, install: EnvironmentInstall | None) -> str:
    """Return the remedy for idle cards in the keys of the screens."""
    if idle.python:
        return f"F2 chooses {display_path(idle.python)}, which can use them."
    if install and idle.torch_build:
        return f"F2 installs {idle.torch_build.text} into a new environment."
    return _idle_cards_remedy(profile, idle)


def _use_python_change(idle: LeftOutCards) -> Change | None:
    if not idle.python:
        return None
    return Change(
        f"use {display_path(idle.python)}", "its PyTorch can use the GPUs", (("trainer.python", idle.python),)
    )

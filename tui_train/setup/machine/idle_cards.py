"""Cards that would stay idle: which, why, and what would train on them; pure."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import Unavailable
from tui_train.base.text import capitalised
from tui_train.facts.gpus.gpu_sets import rank_card_sets, recommended_uuids
from tui_train.facts.gpus.verdicts import (
    gpu_verdicts,
    recommended_torch_build,
    why_gpu_unsupported_and_remedy,
    why_torch_unusable,
)
from tui_train.facts.machine.torch_builds import TorchBuild, any_torch_supports
from tui_train.facts.types import CardSet, Facts, Gpu, Toolchain
from tui_train.setup.setup import Setup

_MAX_NAMES_SHOWN = 3


class LeftOutCards(Struct, frozen=True, kw_only=True):
    """GPUs that could train and do not: the reason, and what would let them."""

    cards: tuple[Gpu, ...]
    why: str
    torch_problem: str = ""
    """The same in a few words where it is torch, otherwise empty."""
    python: str = ""
    """Another Python of this machine that can use them."""
    torch_build: TorchBuild | None = None
    """The build of torch that has code for them."""
    remedy: str = ""
    """The remedy if neither helps."""


def cards_idle_beside_cpu(setup: Setup) -> LeftOutCards | None:
    """Return why the CPU would train beside cards that could, None where there are none, or some of them train.

    A card for which no PyTorch was ever made could not.
    """
    facts = setup.facts
    machine = facts.machine
    hidden = [gap for gap in machine.gaps if gap.hides]
    usable = [gpu for gpu in machine.gpus if any_torch_supports(gpu)]
    if setup.gpus or not (usable or hidden):
        return None
    free = recommended_uuids(machine.gpus, gpu_verdicts(machine.gpus))
    idle = tuple(gpu for gpu in machine.gpus if gpu.uuid in free) if free else machine.gpus
    why = "; ".join(
        [*_cards_and_why_idle_texts(idle, setup, is_brief=bool(free)), *(f"{gap.what}: {gap.why}" for gap in hidden)]
    )
    remedy = " ".join(gap.remedy for gap in hidden)
    found = LeftOutCards(cards=idle, why=why, remedy=remedy)
    if not free:
        return found
    lack = "" if hidden else _why_torch_uses_no_card(idle, setup)
    python = next((tool.python for tool in _other_usable_pythons(setup) if _recommended_card_set(facts, tool)), "")
    found = replace(found, torch_problem=lack, python=python)
    try:
        return replace(found, torch_build=recommended_torch_build(machine))
    except Unavailable as error:
        reason = f"{capitalised(error.message)}. " if error.message not in why else ""
        return replace(found, remedy=f"{reason}{error.remedy}")


def cards_usable_by_another_torch(setup: Setup) -> LeftOutCards | None:
    """Return why lesser or fewer cards would train than another PyTorch could use, None where that is not so."""
    facts = setup.facts
    machine = facts.machine
    current = _recommended_card_set(facts, setup.toolchain)
    if current is None:
        return None
    options: list[tuple[Toolchain, str, TorchBuild | None]]
    options = [(tool, tool.python, None) for tool in _other_usable_pythons(setup)]
    with contextlib.suppress(Unavailable):
        build = recommended_torch_build(machine)
        options.append((build.as_toolchain, "", build))
    for tool, python, wheel in options:
        candidate = _recommended_card_set(facts, tool)
        if candidate and _is_better_card_set(candidate, current):
            idle = tuple(gpu for gpu in machine.gpus if gpu.uuid in set(candidate.uuids) - set(current.uuids))
            if idle:
                why = "; ".join(_cards_and_why_idle_texts(idle, setup, is_brief=True))
                lack = _why_torch_uses_no_card(idle, setup)
                return LeftOutCards(cards=idle, why=why, torch_problem=lack, python=python, torch_build=wheel)
    return None


def left_out_cards_sentences(setup: Setup) -> tuple[str, ...]:
    """Return a sentence for the cards that do not train though the user named none, empty where there are none."""
    hardware = setup.profile.hardware
    if hardware.device == "cpu" or hardware.gpus:
        return ()
    cards = setup.facts.machine.gpus
    chosen = recommended_uuids(cards, setup.gpu_verdicts)
    out = [gpu for gpu in cards if gpu.uuid not in chosen]
    return (f"Left out: {'; '.join(_cards_and_why_idle_texts(out, setup))}.",) if out else ()


def card_numbers_and_names_text(gpus: Sequence[Gpu]) -> str:
    """Return cards in words: their numbers and names, those of one name together."""
    numbers: dict[str, list[str]] = {}
    for gpu in gpus:
        numbers.setdefault(gpu.name, []).append(str(gpu.index))
    return ", ".join(f"GPU {' and '.join(indexes)} {name}".rstrip() for name, indexes in numbers.items())


def card_counts_text(gpus: Sequence[Gpu]) -> str:
    """Return cards in words: how many of each name."""
    count_by_name = Counter(gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ") or "GPU" for gpu in gpus)
    if len(count_by_name) > _MAX_NAMES_SHOWN:
        return f"{len(gpus)} GPUs"
    return " and ".join(f"{count} {name}" for name, count in count_by_name.items())


def _why_torch_uses_no_card(cards: Sequence[Gpu], setup: Setup) -> str:
    tool = setup.toolchain
    return why_torch_unusable(cards, tool, setup.facts.machine.driver_cuda) if tool and tool.torch else ""


def _other_usable_pythons(setup: Setup) -> Iterator[Toolchain]:
    """Yield the other Pythons that could train; in a container it is the image that does."""
    if setup.profile.container.engine != "none":
        return
    for tool, problem in setup.pythons_and_why_unusable:
        if tool != setup.toolchain and not problem:
            yield tool


def _recommended_card_set(facts: Facts, tool: Toolchain | None) -> CardSet | None:
    cards = facts.machine.gpus
    return next(iter(rank_card_sets(cards, gpu_verdicts(cards, tool, facts.machine.driver_cuda))), None)


def _is_better_card_set(candidate: CardSet, current: CardSet) -> bool:
    if candidate.speed and current.speed:
        return candidate.speed > current.speed
    return set(candidate.uuids) > set(current.uuids)


def _cards_and_why_idle_texts(cards: Sequence[Gpu], setup: Setup, *, is_brief: bool = False) -> list[str]:
    """Return the cards with the reasons why they do not train, those with the same reasons together.

    `is_brief` leaves out which PyTorch could use them.
    """
    facts = setup.facts
    tool, driver = setup.toolchain, facts.machine.driver_cuda
    reasons: dict[str, list[Gpu]] = {}
    for gpu, verdict in zip(facts.machine.gpus, setup.gpu_verdicts, strict=True):
        if gpu not in cards:
            continue
        missing_code = why_gpu_unsupported_and_remedy(gpu, tool, driver)[0] if is_brief and tool and tool.torch else ""
        reason = missing_code or "; ".join(filter(None, (*verdict.reasons, verdict.busy and f"busy: {verdict.busy}")))
        reasons.setdefault(reason or "the others do more without it", []).append(gpu)
    return [f"{card_numbers_and_names_text(group)}: {why}" for why, group in reasons.items()]

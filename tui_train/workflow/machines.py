"""What `tui-train facts` reports: of this machine, of a machine file or of another host, judged for any toolchain."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tui_train.facts import probe, saved
from tui_train.facts.gpus import all_blocked, judge, recommended, sets
from tui_train.facts.types import Facts, Toolchain
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import pick_toolchain
from tui_train.targets import Target, target_of


class Source(NamedTuple):
    """Where the facts come from, if not from this machine: a machine file or a host; and a toolchain to judge for."""

    machine: Path | None = None
    toolchain: Path | None = None
    host: str = ""

    @property
    def target(self) -> Target:
        """Where that is."""
        return target_of(self.machine, self.host)


def facts_from(source: Source) -> tuple[Facts, Toolchain | None]:
    """Return the facts that were asked for, and the toolchain for which to judge the cards."""
    own = saved.load_toolchain(source.toolchain) if source.toolchain else None
    # Where another PyTorch is judged for, the Pythons of this machine are not asked.
    found = Facts(machine=probe.machine()) if own and not source.target.name else source.target.survey()
    if own:
        return msgspec.structs.replace(found, toolchains=(own,)), own
    # Whether a card can train is a question to torch alone; the rest can be installed beside it.
    torch = next((tool for tool in found.toolchains if tool.torch and not tool.problem), None)
    return found, pick_toolchain(Profile(), found) or torch


def facts_for(profile: Profile, source: Source) -> Facts:
    """Return the facts that a plan of a profile needs, of this machine or of the one that is named."""
    return source.target.look(profile)


def as_data(found: Facts, toolchain: Toolchain | None) -> dict[str, Any]:
    """Return the facts for JSON: the cards beside their machine with their verdicts, and the sets that they make."""
    cards = found.machine.gpus
    verdicts = judge(cards, toolchain, found.machine.driver_cuda)
    chosen = recommended(cards, verdicts)
    machine = msgspec.to_builtins(found.machine)
    gpus = [
        {**card, **msgspec.to_builtins(verdict), "verdict": verdict.kind, "chosen": card["uuid"] in chosen}
        for card, verdict in zip(machine.pop("gpus"), verdicts, strict=True)
    ]
    for gpu in gpus:
        del gpu["kind"]
    return {
        "machine": machine,
        "gpus": gpus,
        "sets": msgspec.to_builtins(sets(cards, verdicts)),
        "all_blocked": all_blocked(cards, verdicts, toolchain),
        "judged_for": msgspec.to_builtins(toolchain),
        "toolchains": msgspec.to_builtins(found.toolchains),
    }

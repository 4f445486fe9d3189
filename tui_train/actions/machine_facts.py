"""Report of `tui-train facts` on this machine, a machine file or another host, judged for any toolchain."""

from pathlib import Path
from typing import Any

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.gpus.gpu_sets import rank_card_sets, recommended_uuids
from tui_train.facts.gpus.verdicts import all_gpus_blocked_by_torch_sentence, gpu_verdicts
from tui_train.facts.machine import probe
from tui_train.facts.other_machines import machine_files
from tui_train.facts.types import Facts, Toolchain
from tui_train.places import place_of
from tui_train.places.place import Place
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.setup.machine.toolchain import toolchain_to_judge_cards

_THIS_MACHINE = Place()


def place_for_profile(profile: Profile, named_place: Place = _THIS_MACHINE) -> Place:
    """Return where a profile trains: the place that a command names, else its own host or scheduler.

    Another host than its own trains by itself, unless a command asks for Slurm.
    """
    hardware = profile.hardware
    own_place = not named_place.host or named_place.address == hosts.host_address(hardware.host)
    slurm = named_place.slurm or (hardware.scheduler == "slurm" and own_place)
    host = named_place.host or ("" if named_place.machine_file and not slurm else hardware.host)
    if (host, slurm) == (named_place.host, named_place.slurm):
        return named_place
    return place_of(named_place.machine_file, host, slurm=slurm)


def require_training_on_this_machine(profile: Profile, action: str) -> Profile:
    """Return a profile that trains on this machine; BadInput where another host or Slurm is chosen."""
    hardware = profile.hardware
    if host := hardware.host:
        name = visible(host)
        remedy = f"Give the same command on {name} (ssh {name}), with tui-train there. Or: --set hardware.host="
        raise BadInput(f"{action} runs on this machine, and the profile is for {name}", remedy)
    if hardware.scheduler != "none":
        remedy = "Choose this machine: --set hardware.scheduler=none"
        raise BadInput(f"{action} runs on this machine, and the profile is for Slurm", remedy)
    return profile


def probe_facts_and_toolchain(place: Place, toolchain_file: Path | None) -> tuple[Facts, Toolchain | None]:
    """Return the facts of a place, and the toolchain for which to judge the cards: that of a file, if named."""
    own = machine_files.load_toolchain_file(toolchain_file) if toolchain_file else None
    # Judged for another PyTorch, the Pythons of this machine do not matter.
    facts = Facts(machine=probe.probe_machine()) if own and not place.name else place.probe_machine_facts()
    if own:
        return msgspec.structs.replace(facts, toolchains=(own,)), own
    return facts, toolchain_to_judge_cards(facts)


def facts_as_json_data(facts: Facts, toolchain: Toolchain | None) -> dict[str, Any]:
    """Return the facts for JSON: machine, cards with verdicts, sets of cards, toolchains."""
    cards = facts.machine.gpus
    verdicts = gpu_verdicts(cards, toolchain, facts.machine.driver_cuda)
    chosen = recommended_uuids(cards, verdicts)
    machine = msgspec.to_builtins(facts.machine)
    gpus = [
        {**card, **msgspec.to_builtins(verdict), "verdict": verdict.kind, "chosen": card["uuid"] in chosen}
        for card, verdict in zip(machine.pop("gpus"), verdicts, strict=True)
    ]
    for gpu in gpus:
        del gpu["kind"]
        gpu["queue"] = facts.card_in_queue(gpu["uuid"])._asdict()
        del gpu["queue"]["uuid"]
    return {
        "machine": machine,
        **({"cluster": msgspec.to_builtins(facts.cluster)} if facts.cluster else {}),
        "gpus": gpus,
        "sets": msgspec.to_builtins(rank_card_sets(cards, verdicts)),
        "all_blocked": all_gpus_blocked_by_torch_sentence(cards, verdicts, toolchain, facts.machine.driver_cuda),
        "judged_for": msgspec.to_builtins(toolchain),
        "toolchains": msgspec.to_builtins(facts.toolchains),
    }

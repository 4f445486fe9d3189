"""How the processes communicate: the backend, and what to disable in NCCL; each a variable with why, cost and versions.

Sources: NCCL's documentation of its variables, torch's `distributed` pages. What has no effect in the versions that
will run is not exported.
"""

from msgspec import Struct

from tui_train.base.command import Setting
from tui_train.base.versions import older
from tui_train.facts.types import Toolchain
from tui_train.profile.types import Communication

_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


class Cure(Struct, frozen=True, kw_only=True):
    """Something that NCCL can disable: its variable, what that cures, what it costs, and since which versions.

    `nccl` and `torch` are the first versions that read it.
    """

    label: str
    name: str
    value: str
    cures: str
    cost: str
    nccl: str = ""
    torch: str = ""


CURES: dict[str, Cure] = {
    "cumem_host": Cure(
        label="cuMem in host memory",
        name="NCCL_CUMEM_HOST_ENABLE",
        value="0",
        cures="a garbled /dev/shm/nccl-… name, or “size 0”, as NCCL starts",
        cost="costs nothing",
        nccl="2.23",
    ),
    "p2p": Cure(
        label="direct copies between GPUs",
        name="NCCL_P2P_DISABLE",
        value="1",
        cures="a hang as NCCL starts, on RTX 40 GPUs with a driver before 550 or with an IOMMU",
        cost="slower: copies go through the host, NVLink is not used",
    ),
    "shm": Cure(
        label="shared memory",
        name="NCCL_SHM_DISABLE",
        value="1",
        cures="a /dev/shm that is broken or too small and cannot be made larger",
        cost="much slower: copies go through sockets",
    ),
    "ib": Cure(
        label="InfiniBand and RoCE",
        name="NCCL_IB_DISABLE",
        value="1",
        cures="a fast network that is there and does not work",
        cost="slower between machines: plain sockets",
    ),
    "nvls": Cure(
        label="NVLink SHARP",
        name="NCCL_NVLS_ENABLE",
        value="0",
        cures="too little memory, or a failing multicast, on machines with NVSwitch",
        cost="a slower all-reduce there, nothing elsewhere",
        nccl="2.17",
    ),
    "nccl2": Cure(
        label="torch's new NCCL backend",
        name="TORCH_DIST_USE_NCCL2",
        value="0",
        cures="failures that began with torch 2.15",
        cost="costs nothing",
        torch="2.15",
    ),
}


def backend(chosen: Communication, *, cuda: bool, world_size: int) -> str:
    """Return the backend over which the processes communicate, empty for a single process."""
    if world_size < 2:
        return ""
    if chosen.backend != "auto":
        return chosen.backend
    return "nccl" if cuda else "gloo"


def without_effect(cure: Cure, toolchain: Toolchain | None) -> str:
    """Return why a cure's variable is not read by the libraries that will run, empty when it is or that is unknown."""
    if toolchain is None:
        return ""
    nccl = next((toolchain.packages[name] for name in _NCCL if name in toolchain.packages), None)
    for library, required, installed in (("torch", cure.torch, toolchain.torch), ("NCCL", cure.nccl, nccl)):
        if required and older(installed, required):
            return f"begins with {library} {required}, this is {installed}"
    return ""


def why_no_gloo(*, sharded: bool, torch: str | None) -> str:
    """Return why Gloo would train wrongly on GPUs, empty where it would not; `sharded` is by FSDP2."""
    # It averaged wrongly: gradients came out as many times too large as there are processes.
    if sharded and older(torch, "2.9"):
        return "Gloo silently gives FSDP2 wrong gradients before torch 2.9"
    return ""


def settings(  # noqa: PLR0913 - each is a question of its own
    chosen: Communication, talks: str, toolchain: Toolchain | None, *, cuda: bool, nodes: int, script: bool
) -> tuple[Setting, ...]:
    """Return the variables for a backend: only those that it, its version and the script read."""
    variables: list[Setting] = []
    if talks == "nccl":
        cures = [CURES[name] for name in chosen.without if name in CURES]
        variables += [
            Setting(cure.name, cure.value, f"NCCL without {cure.label}: {cure.cost}", "profile")
            for cure in cures
            if not without_effect(cure, toolchain)
        ]
        if chosen.debug != "none":
            variables.append(Setting("NCCL_DEBUG", chosen.debug.upper(), "how much NCCL logs", "profile"))
        if chosen.interface:
            why = "exactly this interface: without the = it would match every name with this prefix"
            variables.append(Setting("NCCL_SOCKET_IFNAME", f"={chosen.interface}", why, "profile"))
    if talks == "gloo" and (cuda or chosen.backend == "gloo"):
        why = "makes any script communicate over Gloo, whatever it asks for"
        variables += [Setting("TUI_TRAIN_BACKEND", "gloo", why, "profile")] if script else []
    if talks == "gloo" and nodes == 1 and not chosen.interface:
        why = "one host: Gloo needs no other interface, and some host names resolve to none that works"
        variables.append(Setting("GLOO_SOCKET_IFNAME", "lo", why, "launcher"))
    if talks and chosen.interface:
        variables.append(Setting("GLOO_SOCKET_IFNAME", chosen.interface, "the interface that you named", "profile"))
    return tuple(variables)

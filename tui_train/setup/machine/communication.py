"""Communication of the processes: the backend, and NCCL's workarounds with reason, cost and versions.

Sources: NCCL's documentation of its variables, torch's `distributed` pages.
"""

from msgspec import Struct

from tui_train.base.versions import is_known_older
from tui_train.facts.types import Toolchain
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile

_NCCL_PACKAGE_NAMES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


class NcclWorkaround(Struct, frozen=True, kw_only=True):
    """Something that NCCL can disable: its variable, what that cures, what it costs, and since which versions.

    `nccl` and `torch` are the first versions that read it.
    """

    label: str
    name: str
    value: str
    symptom: str
    cost: str
    nccl: str = ""
    torch: str = ""


NCCL_WORKAROUNDS: dict[str, NcclWorkaround] = {
    "cumem_host": NcclWorkaround(
        label="cuMem in host memory",
        name="NCCL_CUMEM_HOST_ENABLE",
        value="0",
        symptom="a garbled /dev/shm/nccl-… name, or “size 0”, as NCCL starts",
        cost="costs nothing",
        nccl="2.23",
    ),
    "p2p": NcclWorkaround(
        label="direct copies between GPUs",
        name="NCCL_P2P_DISABLE",
        value="1",
        symptom="a hang as NCCL starts, on RTX 40 GPUs with a driver before 550 or with an IOMMU",
        cost="slower: copies go through the host, NVLink is not used",
    ),
    "shm": NcclWorkaround(
        label="shared memory",
        name="NCCL_SHM_DISABLE",
        value="1",
        symptom="a /dev/shm that is broken or too small and cannot be made larger",
        cost="much slower: copies go through sockets",
    ),
    "ib": NcclWorkaround(
        label="InfiniBand and RoCE",
        name="NCCL_IB_DISABLE",
        value="1",
        symptom="a fast network that is there and does not work",
        cost="slower between machines: plain sockets",
    ),
    "nvls": NcclWorkaround(
        label="NVLink SHARP",
        name="NCCL_NVLS_ENABLE",
        value="0",
        symptom="too little memory, or a failing multicast, on machines with NVSwitch",
        cost="a slower all-reduce there, nothing elsewhere",
        nccl="2.17",
    ),
    "nccl2": NcclWorkaround(
        label="torch's new NCCL backend",
        name="TORCH_DIST_USE_NCCL2",
        value="0",
        symptom="failures that began with torch 2.15",
        cost="costs nothing",
        torch="2.15",
    ),
}


def disable_in_nccl_change(profile: Profile, workaround_name: str) -> Change:
    """Return the change that disables something more in NCCL."""
    workaround = NCCL_WORKAROUNDS[workaround_name]
    names = tuple(dict.fromkeys((*profile.communication.without, workaround_name)))
    return Change(f"NCCL without {workaround.label}", workaround.cost, (("communication.without", names),))


def is_disabled_in_nccl(profile: Profile, workaround_name: str) -> bool:
    """Return whether something of NCCL is disabled, by its key or by its variable."""
    workaround = NCCL_WORKAROUNDS[workaround_name]
    by_variable = profile.trainer.environment.get(workaround.name) == workaround.value
    return by_variable or workaround_name in profile.communication.without


def why_workaround_ignored(workaround: NcclWorkaround, toolchain: Toolchain | None) -> str:
    """Return why a cure's variable is not read by the libraries that will run, empty when it is or that is unknown."""
    if toolchain is None:
        return ""
    versions = (
        ("torch", workaround.torch, toolchain.torch),
        ("NCCL", workaround.nccl, nccl_version(toolchain)),
    )
    for library, required, installed in versions:
        if required and is_known_older(installed, required):
            return f"begins with {library} {required}, this is {installed}"
    return ""


def nccl_version(toolchain: Toolchain | None) -> str | None:
    """Return the version of NCCL that a Python has as a package, None if unknown."""
    packages = toolchain.packages if toolchain else {}
    return next((packages[name] for name in _NCCL_PACKAGE_NAMES if name in packages), None)


def why_gloo_trains_wrongly(*, sharded: bool, torch: str | None) -> str:
    """Return why Gloo would train wrongly on GPUs, empty where it would not; `sharded` is by FSDP2."""
    # It averaged wrongly: gradients came out as many times too large as there are processes.
    if sharded and is_known_older(torch, "2.9"):
        return "Gloo silently gives FSDP2 wrong gradients before torch 2.9"
    return ""

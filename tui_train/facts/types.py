"""What is: the machine, its GPUs, and the Pythons that could train on it; frozen snapshots, sizes in bytes."""

from typing import Literal

from msgspec import Struct

ComputeMode = Literal["default", "exclusive", "prohibited"]
PathState = Literal["file", "folder", "missing", "unreadable"]


class Gap(Struct, frozen=True):
    """Something that could not be found out: what, why, and what the user can do about it."""

    what: str
    why: str
    remedy: str


class GpuProcess(Struct, frozen=True):
    """A process that holds memory on a GPU; `memory` is None where the driver does not tell."""

    pid: int
    name: str
    user: str
    memory: int | None
    graphics: bool = False


class Gpu(Struct, frozen=True, kw_only=True):
    """One card as NVML describes it; None is "the driver does not tell", never zero.

    `problem` says why it cannot be opened. Each MIG instance of a divided card is one Gpu, with the card's `index`.
    """

    index: int
    uuid: str = ""
    name: str = ""
    pci_bus: str | None = None
    compute_capability: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    sm_count: int | None = None
    display_active: bool | None = None
    compute_mode: ComputeMode | None = None
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""


class Machine(Struct, frozen=True, kw_only=True):
    """This host: processor, memory, shared memory, driver, and what could not be found out about them."""

    hostname: str
    kernel: str = ""
    cpu_name: str = ""
    cpu_count: int = 1
    memory_total: int | None = None
    memory_available: int | None = None
    shm_total: int | None = None
    shm_free: int | None = None
    driver_version: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Toolchain(Struct, frozen=True, kw_only=True):
    """A Python that could train and the versions it has; None is "not installed", `arch_list` is as torch prints it."""

    python: str
    label: str = ""
    version: str = ""
    torch: str | None = None
    cuda: str | None = None
    arch_list: tuple[str, ...] = ()
    accelerate: str | None = None
    transformers: str | None = None
    problem: str = ""


class Facts(Struct, frozen=True, kw_only=True):
    """All that plan and checks may know of the world; `paths` holds the state of each path that the profile names."""

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}


class Verdict(Struct, frozen=True):
    """Whether a card should train: `blocked` cannot, `spare` would slow or limit the others, `use` is the rest."""

    kind: Literal["use", "spare", "blocked"]
    reasons: tuple[str, ...] = ()

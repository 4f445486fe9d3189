"""What is: the machine, its GPUs, and the Pythons that could train on it; frozen snapshots, sizes in bytes."""

from typing import Any, Literal

from msgspec import Struct

from tui_train.facts.models import ModelFolder
from tui_train.presets import UserPreset

ComputeMode = Literal["default", "exclusive", "prohibited"]
PathState = Literal["file", "folder", "missing", "unreadable"]


class Gap(Struct, frozen=True):
    """Something that could not be found out: what, why, and what the user can do about it.

    `hides`: there are cards that could train, and this keeps them from it.
    """

    what: str
    why: str
    remedy: str
    hides: bool = False


class GpuProcess(Struct, frozen=True):
    """A process that holds memory on a GPU; `memory` is None where the driver does not tell."""

    pid: int
    name: str
    user: str
    memory: int | None
    graphics: bool = False


class Pcie(Struct, frozen=True):
    """A card's PCIe link: generation and width now and at most; idle cards go down to a lower generation."""

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """One card as NVML describes it; None is "the driver does not tell", never zero.

    `problem` says why it cannot be opened. Each MIG instance of a divided card is one Gpu, with the card's `index`.
    `sm_clock_max` is in MHz, `throttled_by` what slows its clock now, `nvlinks` the number of active links, `peers` the
    indices of the cards that exchange memory with it directly, `numa_node` the node of processors nearest to it. One
    that `shares_memory` has none of its own: its amounts are the host's.
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
    sm_clock_max: int | None = None
    ecc: bool | None = None
    throttled_by: tuple[str, ...] = ()
    pcie: Pcie | None = None
    nvlinks: int | None = None
    peers: tuple[int, ...] | None = None
    numa_node: int | None = None
    shares_memory: bool = False
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""


class Logout(Struct, frozen=True, kw_only=True):
    """What a logout does: `kills` all processes of the user, and `removes_shared_memory` of theirs.

    `unknown` says why logind did not answer; then both are False.
    """

    kills: bool = False
    removes_shared_memory: bool = False
    unknown: str = ""


class Taken(Struct, frozen=True, kw_only=True):
    """What a live run has: its cards' UUIDs, its output folder in each spelling, its port (0: none).

    `run` is empty where it is no run of ours.
    """

    run: str = ""
    gpus: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    port: int = 0


class Machine(Struct, frozen=True, kw_only=True):
    """This host: processor, memory, shared memory, driver, and what could not be found out about them.

    `logout` is None where systemd does not run.
    """

    hostname: str
    kernel: str = ""
    cpu_name: str = ""
    cpu_count: int = 1
    memory_total: int | None = None
    memory_available: int | None = None
    shm_total: int | None = None
    shm_free: int | None = None
    interfaces: tuple[str, ...] = ()
    logout: Logout | None = None
    driver_version: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Toolchain(Struct, frozen=True, kw_only=True):
    """A Python that could train and the versions it has; None is "not installed", `arch_list` is as torch prints it.

    `packages` has the versions of other libraries that matter, by the name under which they are installed; `torchrun`
    the flags that its torchrun takes, empty where that is not known.
    """

    python: str
    label: str = ""
    version: str = ""
    torch: str | None = None
    cuda: str | None = None
    arch_list: tuple[str, ...] = ()
    accelerate: str | None = None
    transformers: str | None = None
    packages: dict[str, str] = {}
    torchrun: tuple[str, ...] = ()
    problem: str = ""


class Inherited(Struct, frozen=True):
    """A variable that a training inherits: its name, and where it is set."""

    name: str
    source: str


class Document(Struct, frozen=True, kw_only=True):
    """What a YAML file of the user's holds; `problem` says why it cannot be used."""

    values: dict[str, Any] = {}
    problem: str = ""


class Flag(Struct, frozen=True):
    """An argument that a script's --help lists; `valued`: it takes a value."""

    name: str
    help: str = ""
    valued: bool = True


class ScriptHelp(Struct, frozen=True, kw_only=True):
    """What a script's --help lists; `problem` says why it lists nothing."""

    flags: tuple[Flag, ...] = ()
    problem: str = ""


class Source(Struct, frozen=True, kw_only=True):
    """What a training script's text tells, lines from 1 and 0 for none; `problem` says why it tells nothing.

    `bare_train` is the line of a trainer's train() that is passed no checkpoint, where none of them is, and
    `train_words` how it should read. `accelerates`: it makes an Accelerator. `names_checkpoint`: it speaks of
    resume_from_checkpoint. `local_rank` is the line of an argument --local_rank, `reads_local_rank`: it speaks of the
    variable LOCAL_RANK.
    """

    bare_train: int = 0
    train_words: str = ""
    accelerates: bool = False
    names_checkpoint: bool = False
    local_rank: int = 0
    reads_local_rank: bool = False
    problem: str = ""


class ContainerEngine(Struct, frozen=True, kw_only=True):
    """A container engine that is installed; `gpus` is whether it can show cards, `problem` why it cannot be used.

    `images` are the names of those that are on this machine.
    """

    name: str
    version: str = ""
    rootless: bool = False
    gpus: bool = False
    images: tuple[str, ...] = ()
    problem: str = ""


class ContainerImage(Struct, frozen=True, kw_only=True):
    """An image as an engine knows it, and the Python inside; None where `problem` says why, or it is `missing` here."""

    engine: str
    name: str
    id: str = ""
    toolchain: Toolchain | None = None
    missing: bool = False
    problem: str = ""


class NemoRecipes(Struct, frozen=True):
    """What the NeMo of a Python has: the tasks of each recipe, or the problem that kept it from telling."""

    tasks: dict[str, tuple[str, ...]] = {}
    problem: str = ""


class NemoCheckpoint(Struct, frozen=True, kw_only=True):
    """The class of a NeMo model and its sizes, by their names in NeMo; `problem` says why a checkpoint has none."""

    model: str = ""
    numbers: dict[str, int] = {}
    problem: str = ""


class Facts(Struct, frozen=True, kw_only=True):
    """All that plan and checks may know of the world.

    `paths` holds the state of each path that the profile names, `documents` what its YAML files hold, `models` the
    shapes of the models in its folders, `checkpoints` those of NeMo's, `presets` the user's own by name, `help` what
    scripts list, by script or module, and `recipes` those of NeMo, by Python: only of those that the user has asked.
    `variables` are those of the environment, and of NCCL's files, that tell libraries how to communicate. `taken` is
    what live runs have. `sources` are what the texts of scripts say, by path. `wandb_key`: this user has a key for W&B.
    `elsewhere` says of which other machine all this is; empty: of this one.
    """

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}
    variables: tuple[Inherited, ...] = ()
    documents: dict[str, Document] = {}
    presets: dict[str, UserPreset] = {}
    help: dict[str, ScriptHelp] = {}
    engines: tuple[ContainerEngine, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    recipes: dict[str, NemoRecipes] = {}
    taken: tuple[Taken, ...] = ()
    models: dict[str, ModelFolder] = {}
    sources: dict[str, Source] = {}
    wandb_key: bool = True
    checkpoints: dict[str, NemoCheckpoint] = {}
    elsewhere: str = ""


class Verdict(Struct, frozen=True):
    """Whether a card should train: `blocked` cannot, `spare` would slow or limit the others, `use` is the rest.

    `busy` says who computes on it now and with how much memory, empty where nobody does; it is a state, no verdict.
    """

    kind: Literal["use", "spare", "blocked"]
    reasons: tuple[str, ...] = ()
    busy: str = ""


class CardSet(Struct, frozen=True):
    """Cards that make sense together: about how many TFLOPS they do, None if unknown, and what the set gains, in words.

    `memory` is what the smallest of them has, in bytes.
    """

    uuids: tuple[str, ...]
    title: str
    speed: float | None
    memory: int | None
    gain: str

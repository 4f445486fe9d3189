"""Facts: the machine, its GPUs, Pythons and files, as frozen snapshots; sizes in bytes."""

from typing import Any, Literal

from msgspec import Struct

from tui_train.facts.data.data_report import DataReport
from tui_train.facts.models.hub import HubCache, HubModel
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.profile.presets import UserPreset

ComputeMode = Literal["default", "exclusive", "prohibited"]
PathState = Literal["file", "folder", "missing", "unreadable"]


class Gap(Struct, frozen=True):
    """Something that is unknown or unavailable: what, why, and the remedy.

    `hides`: it makes usable cards unavailable.
    """

    what: str
    why: str
    remedy: str
    hides: bool = False


class GpuProcess(Struct, frozen=True):
    """A process that holds memory on a GPU; `memory` is None if the driver does not report it."""

    pid: int
    name: str
    user: str
    memory: int | None
    graphics: bool = False


class Pcie(Struct, frozen=True):
    """The PCIe link of a card, current and maximum; idle cards use a lower generation."""

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """One card as NVML describes it; None is "not reported by the driver", never zero.

    `problem` is why it cannot be used. Each MIG instance is one Gpu, with the `index` of its card. `sm_clock_max` is in
    MHz, `throttled_by` what limits its clock now, `nvlinks` the number of active links, `peers` the indices of cards
    with direct memory access. A card that `shares_memory` has only host memory.
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
    """Effect of a logout: it `kills` the user's processes, it `removes_shared_memory`.

    `unknown` is why logind could not be read; then both are False.
    """

    kills: bool = False
    removes_shared_memory: bool = False
    unknown: str = ""


class ResourcesInUse(Struct, frozen=True, kw_only=True):
    """The resources of a live run: UUIDs of its cards, its output folder in each spelling, its port (0: none).

    `run` is empty for other programs.
    """

    run: str = ""
    gpus: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    port: int = 0


class Machine(Struct, frozen=True, kw_only=True):
    """This host: CPU, memory, shared memory, driver, and gaps in these facts.

    `logout` is None if systemd does not run.
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
    """A Python and the versions of its libraries; None is "not installed", `arch_list` is that of torch.

    `packages` are the versions of other relevant libraries by distribution name; `torchrun` are the flags that its
    torchrun accepts, empty if unknown. `trl_options` are the options of TRL's programs: under "" those of all, and by
    method those that only its program has; empty if unknown. `unchosen`: it lies in the current folder and was not
    started, for the user has not chosen it.
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
    trl_options: dict[str, tuple[str, ...]] = {}
    problem: str = ""
    unchosen: bool = False


class InheritedVariable(Struct, frozen=True):
    """A variable that a training inherits: its name, and where it is set."""

    name: str
    source: str


class YamlDocument(Struct, frozen=True, kw_only=True):
    """The content of a YAML file, or the `problem` why it cannot be used."""

    values: dict[str, Any] = {}
    problem: str = ""


class Flag(Struct, frozen=True):
    """An argument that a script's --help lists; `valued`: it takes a value."""

    name: str
    help: str = ""
    valued: bool = True


class ScriptHelp(Struct, frozen=True, kw_only=True):
    """The arguments that a script's --help lists, or the `problem` why there are none."""

    flags: tuple[Flag, ...] = ()
    problem: str = ""


ScriptKind = Literal[
    "",
    "none",
    "hf-trainer",
    "trl",
    "lightning",
    "nanogpt",
    "hydra",
    "argparse",
    "dataclass",
    "click",
    "typer",
    "fire",
    "absl",
    "help",
]
# How a value is written after the name: --name=VALUE, name=VALUE, the value alone, --name alone, one of two names.
ParameterForm = Literal["option", "key", "positional", "switch", "pair"]


class Parameter(Struct, frozen=True, kw_only=True):
    """An argument that a script takes, as its source says; texts are as written there, empty where they are not plain.

    `name` is its longest spelling, with its dashes; `flags` are all of them, and `off` those that turn a pair off.
    `type` is int, float, str, bool or another name. `takes_several`: it takes any number of values; `repeats`: with its
    name before each. `command` is the subcommand that takes it, empty for none. `file` is the name of an imported file
    that declares it, empty for the script itself.
    """

    name: str
    flags: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    form: ParameterForm = "option"
    type: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    required: bool = False
    takes_several: bool = False
    repeats: bool = False
    command: str = ""
    line: int = 0
    file: str = ""


class Source(Struct, frozen=True, kw_only=True):
    """Facts in the text of a training script; lines count from 1, 0 is none. `problem`: why it could not be parsed.

    `kind` is how it reads its command line ("none": not at all; empty: that is not known), decided by `line` of `file`
    (empty: the script itself), and `why_unread` why its arguments are not known. `parameters` are its arguments,
    `subcommands` its subcommands, one of which it `needs_command`; `unnamed_line` is the line that adds arguments which
    the source does not name. `base` is the class of a library whose fields are arguments too, such as
    TrainingArguments.

    `asks`: what reads its command line may say more, asked for --help. `helped`: its --help was read, which says which
    options there are.

    `bare_train_line` is the line of a train() without a checkpoint, if no train() has one, and `corrected_train` the
    corrected call. `creates_accelerator`: it creates an Accelerator, `sets_precision`: with a precision of its own.
    `mentions_checkpoint`: it mentions resume_from_checkpoint. `local_rank_line` is the line of an argument
    --local_rank, `reads_local_rank`: it mentions the variable LOCAL_RANK. `rank_line` is the line that fails without
    the variable, or the function, `rank` of a launcher. `not_python` is what it is if not Python. `ignores_unknown`: it
    goes on with arguments that it does not know.
    """

    kind: ScriptKind = ""
    line: int = 0
    file: str = ""
    base: str = ""
    why_unread: str = ""
    parameters: tuple[Parameter, ...] = ()
    subcommands: tuple[str, ...] = ()
    needs_command: bool = False
    unnamed_line: int = 0
    asks: bool = False
    helped: bool = False
    bare_train_line: int = 0
    corrected_train: str = ""
    creates_accelerator: bool = False
    sets_precision: bool = False
    mentions_checkpoint: bool = False
    local_rank_line: int = 0
    reads_local_rank: bool = False
    ignores_unknown: bool = False
    rank_line: int = 0
    rank: str = ""
    not_python: str = ""
    problem: str = ""


class ContainerEngine(Struct, frozen=True, kw_only=True):
    """An installed container engine; `gpus`: it supports GPUs; `problem` is why it cannot be used.

    `images` are the names of local images.
    """

    name: str
    version: str = ""
    rootless: bool = False
    gpus: bool = False
    images: tuple[str, ...] = ()
    problem: str = ""


class ContainerImage(Struct, frozen=True, kw_only=True):
    """An image and the Python in it; None if there is a `problem` or the image is `missing`."""

    engine: str
    name: str
    id: str = ""
    toolchain: Toolchain | None = None
    missing: bool = False
    problem: str = ""


class NemoRecipes(Struct, frozen=True):
    """The tasks of each recipe that the NeMo of a Python has, or the problem."""

    tasks: dict[str, tuple[str, ...]] = {}
    problem: str = ""


class NemoCheckpoint(Struct, frozen=True, kw_only=True):
    """The class and sizes of a NeMo model, by their names in NeMo, or the `problem` of a checkpoint."""

    model: str = ""
    numbers: dict[str, int] = {}
    problem: str = ""


class NemoTokenizer(Struct, frozen=True, kw_only=True):
    """The class of a tokenizer and the rows that its tokens need in a model; empty and 0 if unknown."""

    kind: str = ""
    vocabulary: int = 0


class TrainingHost(Struct, frozen=True, kw_only=True):
    """A host of a training: the Python that trains, if it is there; `machine` has its GPUs (None: not known).

    `problem` is why nothing is known of it; `is_first`: it is the very machine on which the training starts.
    `clock_offset` is its clock against that of the first one, in seconds.
    """

    problem: str = ""
    is_first: bool = False
    machine: Machine | None = None
    toolchain: Toolchain | None = None
    paths: dict[str, PathState] = {}
    clock_offset: float = 0.0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Its cards, as far as they are known."""
        return self.machine.gpus if self.machine else ()


class Facts(Struct, frozen=True, kw_only=True):
    """All facts that plan and checks may use.

    `paths` are the states of the paths in the profile, `unwritable` says by path why no folder can be made or written
    to there (empty: it can), `free` how many bytes are free there (the empty path: for run folders; None: not known),
    `documents` are the contents of its YAML files, `models`, `checkpoints` and `tokenizers` the shapes of what is in
    its folders, `presets` the user's presets, `sources` facts of scripts by path, `data` what was read in training
    data, by the question (data_use.key). `recipes` (by Python) are read only at the user's request, `help` (by script
    or module) also where a source asks. `variables` are environment variables that configure communication or
    allocation. `taken` are the resources of live runs. `hub` is the cache of Hugging Face (None: not read),
    `hub_models` what the Hub says of models that are not in it. `wandb_key`: this user has a W&B key.
    `accelerate_config` is the path of the file that `accelerate config` wrote, empty for none; it is among the
    documents. `other_machine` names the other machine of these facts, empty for this one. `scheduler` is what gives a
    training its machines and cards when it starts, empty for nothing: then which cards, and the first machine's
    address, are known only there. `cluster` is what it has (None: not asked). `has_sbatch`: sbatch is on that other
    machine. `training_hosts` are the hosts of a training that is started over ssh, by name, as far as they were asked.
    """

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}
    unwritable: dict[str, str] = {}
    free: dict[str, int | None] = {}
    variables: tuple[InheritedVariable, ...] = ()
    documents: dict[str, YamlDocument] = {}
    presets: dict[str, UserPreset] = {}
    help: dict[str, ScriptHelp] = {}
    engines: tuple[ContainerEngine, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    recipes: dict[str, NemoRecipes] = {}
    resources_in_use: tuple[ResourcesInUse, ...] = ()
    models: dict[str, ModelFolder] = {}
    sources: dict[str, Source] = {}
    wandb_key: bool = True
    accelerate_config: str = ""
    checkpoints: dict[str, NemoCheckpoint] = {}
    tokenizers: dict[str, NemoTokenizer] = {}
    data: dict[str, DataReport] = {}
    hub: HubCache | None = None
    hub_models: dict[str, HubModel] = {}
    other_machine: str = ""
    scheduler: Literal["", "slurm"] = ""
    cluster: Cluster | None = None
    training_hosts: dict[str, TrainingHost] = {}
    has_sbatch: bool = False


class Verdict(Struct, frozen=True):
    """Verdict on a GPU: `blocked` cannot train, `skip` would slow or limit the others, `use` should.

    `busy` lists the processes that compute on it now, empty if none do; it does not affect the kind.
    """

    kind: Literal["use", "skip", "blocked"]
    reasons: tuple[str, ...] = ()
    busy: str = ""


class CardSet(Struct, frozen=True):
    """A set of cards to train on: its approximate TFLOPS (None: unknown), and its advantage as text.

    `memory` is that of the smallest card, in bytes.
    """

    uuids: tuple[str, ...]
    title: str
    speed: float | None
    memory: int | None
    gain: str

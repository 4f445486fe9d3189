"""Facts: the machine, its GPUs, Pythons and files, as frozen snapshots; sizes in bytes."""

from typing import Any, Literal

from msgspec import Struct

from tui_train.facts.answer_cache import FileState
from tui_train.facts.data.data_report import DataReport
from tui_train.facts.machine.communication_tests import Examination
from tui_train.facts.models.hub import HubCache, HubModel
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.profile.presets import UserPreset
from tui_train.runner.queue.listing import CardInQueue

ComputeMode = Literal["default", "exclusive", "prohibited"]
# Of a card's memory: "pending" until it is reset, "failed" where there is none left.
MemoryRepair = Literal["none", "pending", "failed"]
PathState = Literal["file", "folder", "missing", "unreadable"]


class FactGap(Struct, frozen=True):
    """Something that is unknown or unavailable: what, why, and the remedy.

    `hides`: it makes usable cards unavailable.
    """

    what: str
    why: str
    remedy: str
    hides: bool = False


class GpuProcess(Struct, frozen=True):
    """A process that holds memory on a GPU; `memory` is None if the driver does not report it.

    `command` is the beginning of its command line, `seconds` how long it had run; empty and None where they are hidden.
    """

    pid: int
    name: str
    user: str
    memory: int | None
    graphics: bool = False
    command: str = ""
    seconds: int | None = None


class PcieLink(Struct, frozen=True):
    """The PCIe link of a card, current and maximum; idle cards use a lower generation.

    `slot_width_max` is that of the port which the card is connected to.
    """

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None
    slot_width_max: int | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """One card as NVML describes it, or one MIG instance; None is "not reported by the driver", never zero."""

    index: int
    """The index of the card, also for its MIG instances."""
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
    """In MHz."""
    ecc: bool | None = None
    uncorrected_errors: int | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""
    repair: MemoryRepair | None = None
    power_limit: int | None = None
    """In W, as the default."""
    power_limit_default: int | None = None
    throttled_by: tuple[str, ...] = ()
    """The limits on its clock now."""
    pcie: PcieLink | None = None
    nvlinks: int | None = None
    """The number of active links."""
    peers: tuple[int, ...] | None = None
    """The indices of cards with direct memory access."""
    numa_node: int | None = None
    shares_memory: bool = False
    """It has only host memory."""
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""
    """Why it cannot be used."""


class LogoutEffect(Struct, frozen=True, kw_only=True):
    """Effect of a logout: it `kills` the user's processes, it `removes_shared_memory`.

    `unknown` is why logind could not be read; then both are False.
    """

    kills: bool = False
    removes_shared_memory: bool = False
    unknown: str = ""


class ResourcesInUse(Struct, frozen=True, kw_only=True):
    """The resources of a live run: UUIDs of its cards, its output folder in each spelling, its port (0: none).

    `run` is empty for other programs. Of an ended run they are only the files that it `saved` outside of its folder,
    which lie there as it left them, and its script with the arguments (`command`).
    """

    run: str = ""
    gpus: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    port: int = 0
    saved: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class NumaNode(Struct, frozen=True, kw_only=True):
    """A part of a machine with memory or CPUs of its own, or neither; this process may use `usable_cpus` of `cpus`."""

    number: int
    has_memory: bool
    cpus: int
    usable_cpus: int


class Machine(Struct, frozen=True, kw_only=True):
    """This host: CPU, memory, shared memory, limits, driver, and gaps in these facts.

    `logout` is None if systemd does not run.
    """

    hostname: str
    kernel: str = ""
    architecture: str = ""
    """As `uname -m` names it; empty if unknown."""
    cpu_name: str = ""
    cpu_count: int = 1
    memory_total: int | None = None
    memory_available: int | None = None
    shm_total: int | None = None
    shm_free: int | None = None
    shm_problem: str = ""
    """Why /dev/shm cannot be used, after its name; empty: it can."""
    shm_file_system: str = ""
    """Its type, such as tmpfs; empty if unknown."""
    max_open_files: int | None = None
    """The limits of a process; None: none, or unknown."""
    max_locked_bytes: int | None = None
    free_tasks: int | None = None
    """The processes and threads that may still be started; None: far more than a training has, or unknown."""
    numa_nodes: tuple[NumaNode, ...] = ()
    """Empty if there is only one, or they are unknown."""
    rdma_devices: tuple[str, ...] = ()
    """Its InfiniBand and RoCE devices with an active port."""
    clock_behind: float = 0.0
    """Seconds by which its clock is at least behind."""
    interfaces: tuple[str, ...] = ()
    logout: LogoutEffect | None = None
    driver_version: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[FactGap, ...] = ()


class Toolchain(Struct, frozen=True, kw_only=True):
    """A Python and the versions of its libraries; None is "not installed"."""

    python: str
    label: str = ""
    version: str = ""
    torch: str | None = None
    cuda: str | None = None
    arch_list: tuple[str, ...] = ()
    """The architectures that its torch has code for."""
    accelerate: str | None = None
    transformers: str | None = None
    packages: dict[str, str] = {}
    """The versions of other relevant libraries, by distribution name."""
    modules: tuple[str, ...] = ()
    """The top-level modules that it can import, empty if unknown."""
    torchrun: tuple[str, ...] = ()
    """The flags that its torchrun accepts, empty if unknown."""
    trl_options: dict[str, tuple[str, ...]] = {}
    """Options of TRL's programs: under "" those of all, by method those of one alone; empty if unknown."""
    problem: str = ""
    unchosen: bool = False
    """It lies in the current folder and was not started, for the user has not chosen it."""


class InheritedVariable(Struct, frozen=True):
    """A variable that a training inherits: its name, where it is set, and the `problem` why it is not read as meant.

    `value` is only that of CUDA_VISIBLE_DEVICES.
    """

    name: str
    source: str
    problem: str = ""
    value: str = ""


class YamlDocument(Struct, frozen=True, kw_only=True):
    """The content of a YAML file, or the `problem` why it cannot be used."""

    values: dict[str, Any] = {}
    problem: str = ""


class HelpFlag(Struct, frozen=True):
    """An argument that a script's --help lists; `valued`: it takes a value."""

    name: str
    help: str = ""
    valued: bool = True


class ScriptHelp(Struct, frozen=True, kw_only=True):
    """The arguments that a script's --help lists, or the `problem` why there are none."""

    flags: tuple[HelpFlag, ...] = ()
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


class ScriptParameter(Struct, frozen=True, kw_only=True):
    """An argument of a script as its source says; texts are as written there, empty where they are not plain."""

    name: str
    """Its longest spelling, with its dashes."""
    flags: tuple[str, ...] = ()
    """All its spellings."""
    off_flags: tuple[str, ...] = ()
    """The flags that turn off what the others turn on."""
    form: ParameterForm = "option"
    type: str = ""
    """int, float, str, bool or another name."""
    default: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    is_required: bool = False
    takes_several: bool = False
    """More than one value may follow its name."""
    value_count: int = 0
    """The number of values that follow together; 0: one, or any number."""
    repeats_name_per_value: bool = False
    """It takes any number of values, with its name before each."""
    subcommand: str = ""
    """The subcommand that takes it, empty for none."""
    line: int = 0
    file: str = ""
    """The imported file that declares it, empty for the script itself."""


class ScriptImport(Struct, frozen=True):
    """A module that a script needs, by its top-level name: where it is imported (file: empty for the script itself)."""

    module: str
    line: int
    file: str = ""


class ScriptSource(Struct, frozen=True, kw_only=True):
    """Facts in the text of a training script; lines count from 1, and 0 is none."""

    kind: ScriptKind = ""
    """The library or way by which it reads its command line ("none": it does not; empty: unknown)."""
    line: int = 0
    """The line that decides `kind`."""
    file: str = ""
    """The file of that line, empty for the script itself."""
    base_class: str = ""
    """The library's class whose fields are arguments too, such as TrainingArguments."""
    why_unread: str = ""
    """Why its arguments are not known."""
    parameters: tuple[ScriptParameter, ...] = ()
    subcommands: tuple[str, ...] = ()
    """Their names, each that may be given."""
    subcommand_by_alias: dict[str, str] = {}
    """The name in `parameters` of those subcommands that have another one."""
    requires_subcommand: bool = False
    """One of its subcommands must be given."""
    unreadable_argument_line: int = 0
    """The line that adds arguments of which the source does not say the names, or the subcommand."""
    takes_single_argument_file: bool = False
    """It reads a single argument that names a file as the values of all."""
    help_may_say_more: bool = False
    """Its --help may list more arguments than its source."""
    was_help_read: bool = False
    """Its --help was read, which says which options there are."""
    train_without_checkpoint_line: int = 0
    """The line of a train() without a checkpoint, if no train() has one."""
    corrected_train_call: str = ""
    """The call of that line, corrected."""
    creates_accelerator: bool = False
    """It creates an Accelerator."""
    sets_precision: bool = False
    """Its Accelerator has a precision of its own."""
    mentions_checkpoint: bool = False
    """It mentions resume_from_checkpoint."""
    upcasts_unquantized_weights: bool = False
    """It calls PEFT's prepare_model_for_kbit_training, which makes fp32 of all that is not quantized."""
    local_rank_line: int = 0
    """The line of an argument --local_rank."""
    reads_local_rank: bool = False
    """It mentions the variable LOCAL_RANK."""
    ignores_unknown_arguments: bool = False
    """It goes on with arguments that it does not know."""
    rank_line: int = 0
    """The line that fails without `rank_name`."""
    rank_name: str = ""
    """The variable or the function of a launcher that it needs."""
    no_process_group: bool = False
    """Several processes of it would surely train each for itself."""
    train_switch_line: int = 0
    """The line that trains only where the argument --do_train is given."""
    imports: tuple[ScriptImport, ...] = ()
    """Modules that it surely imports and that do not lie beside it; empty if unknown."""
    minor_version: int = 0
    """The oldest Python 3 that can read it, as the number after the dot; 0 for any that is in use."""
    minor_version_line: int = 0
    """The line that needs that version."""
    parent_packages: dict[str, str] = {}
    """The folders above its own that hold what it imports, by the name; Python does not look there by itself."""
    non_python_label: str = ""
    """The kind of file, if not Python."""
    problem: str = ""
    """Why it could not be parsed."""


class ContainerEngine(Struct, frozen=True, kw_only=True):
    """An installed container engine; `gpus`: it supports GPUs; `problem` is why it cannot be used.

    `images` are the names of local images.
    """

    name: str
    version: str = ""
    gpus: bool = False
    images: tuple[str, ...] = ()
    problem: str = ""


class ContainerImage(Struct, frozen=True, kw_only=True):
    """An image and the Python in it; None if there is a `problem` or the image is `missing`.

    `architecture` is as engines name it (amd64, arm64; empty if unknown), `size` in bytes.
    """

    engine: str
    name: str
    id: str = ""
    architecture: str = ""
    size: int | None = None
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

    `problem` is why nothing is known of it; `is_first`: it is the very machine on which the training starts (None: not
    known). `same_as` is the host named before it that is the same machine. `clock_offset` is its clock against that of
    the first one, in seconds. `engine` and `image` are those of a training in a container, of the image only what
    tells it from others.
    """

    problem: str = ""
    is_first: bool | None = None
    same_as: str = ""
    machine: Machine | None = None
    toolchain: Toolchain | None = None
    paths: dict[str, PathState] = {}
    clock_offset: float = 0.0
    engine: ContainerEngine | None = None
    image: ContainerImage | None = None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Its cards, as far as they are known."""
        return self.machine.gpus if self.machine else ()


class Facts(Struct, frozen=True, kw_only=True):
    """All facts that plan and checks may use."""

    machine: Machine
    toolchains: tuple[Toolchain, ...] = ()
    paths: dict[str, PathState] = {}
    """The states of the paths in the profile."""
    file_states: dict[str, tuple[FileState, ...]] = {}
    """By path of a file that the profile names, what it and the files that go with it were when they were read."""
    similar_paths: dict[str, str] = {}
    """By a path that is missing here, what exists near it, folders with a slash; not read on other machines."""
    unwritable: dict[str, str] = {}
    """By path, why no folder can be made or written to there; empty: it can."""
    free: dict[str, int | None] = {}
    """By path, the bytes that are free there (the empty path: for run folders); None: not known."""
    temporary_folder: str = ""
    """The folder for the training's temporary files, a path among the others; empty if unknown."""
    variables: tuple[InheritedVariable, ...] = ()
    """Environment variables that configure communication or allocation."""
    documents: dict[str, YamlDocument] = {}
    """The contents of the profile's YAML files, by path."""
    presets: dict[str, UserPreset] = {}
    """The user's presets."""
    help: dict[str, ScriptHelp] = {}
    """By script or module; read at the user's request, or where a source asks for it."""
    engines: tuple[ContainerEngine, ...] | None = ()
    """The container engines; None: those of another machine, which were not read."""
    images: tuple[ContainerImage, ...] = ()
    recipes: dict[str, NemoRecipes] = {}
    """By Python; read only at the user's request."""
    resources_in_use: tuple[ResourcesInUse, ...] = ()
    """The resources that live runs hold."""
    cards_in_queue: tuple[CardInQueue, ...] = ()
    """The cards that starts of all users have, or wait for in the machine's queue."""
    models: dict[str, ModelFolder] = {}
    """The shapes of the models in the profile's folders."""
    sources: dict[str, ScriptSource] = {}
    """Facts of scripts, by path."""
    wandb_key: bool = True
    """This user has a W&B key."""
    accelerate_config: str = ""
    """The file that `accelerate config` wrote, which is among the documents; empty for none."""
    checkpoints: dict[str, NemoCheckpoint] = {}
    """The NeMo checkpoints in the profile's folders."""
    tokenizers: dict[str, NemoTokenizer] = {}
    """The tokenizers in the profile's folders."""
    data: dict[str, DataReport] = {}
    """Reports on training data, by the question (data_use.facts_key_of_question)."""
    hub: HubCache | None = None
    """The cache of Hugging Face; None: not read."""
    hub_models: dict[str, HubModel] = {}
    """The Hub's facts on models that are not in the cache."""
    other_machine: str = ""
    """The other machine of these facts, empty for this one."""
    scheduler: Literal["", "slurm"] = ""
    """The scheduler that chooses machines, cards and address when a training starts; empty for none."""
    cluster: Cluster | None = None
    """The scheduler's partitions and nodes; None: not read."""
    training_hosts: dict[str, TrainingHost] = {}
    """The hosts of a training that is started over ssh, by name, as far as they were asked."""
    has_sbatch: bool = False
    """sbatch is on the other machine."""
    communication: dict[str, Examination] = {}
    """Tests of the communication, by Setup.communication_test_key."""

    @property
    def host(self) -> str:
        """The host over ssh that these facts are of; empty for this machine, and for one that a file describes."""
        asked_over_ssh = self.scheduler == "slurm" or self.other_machine == self.machine.hostname
        return self.other_machine if asked_over_ssh else ""

    @property
    def can_create_environment(self) -> bool:
        """True on this machine and on a host over ssh."""
        return bool(self.host) or not self.other_machine

    def card_in_queue(self, uuid: str) -> CardInQueue:
        """Return what the queue knows of a card."""
        return next((card for card in self.cards_in_queue if card.uuid == uuid), CardInQueue(uuid))


class GpuVerdict(Struct, frozen=True):
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

"""The user's choices: one frozen value, saved as TOML; paths are absolute or empty, None is not chosen."""

from typing import Literal

from msgspec import Struct

# Since 2 a value that is not in the file was not chosen; in 1 it was this program's default.
SCHEMA_VERSION = 2

# The preset that goes by what the script is.
AUTO_PRESET = "auto"

Device = Literal["auto", "cuda", "cpu"]
TrainerKind = Literal["finetune", "builtin", "script", "nemo", "communication"]
FinetuneMethod = Literal["sft", "dpo", "kto", "reward", "grpo", "rloo"]
FinetuneTuning = Literal["lora", "qlora", "full"]
LauncherName = Literal["python", "torchrun", "accelerate"]
Strategy = Literal["ddp", "fsdp2", "zero1", "zero2", "zero3"]
ContainerEngine = Literal["none", "docker", "podman", "apptainer"]
CommunicationBackend = Literal["auto", "nccl", "gloo"]
Precision = Literal["fp32", "bf16", "fp16"]
LearningRateScaling = Literal["none", "linear", "sqrt"]
LearningRateSchedule = Literal["linear", "cosine", "constant", "constant_with_warmup"]


class Hardware(Struct, frozen=True, kw_only=True):
    """Machine and devices of the training.

    `host` is one over ssh (empty: this machine), `scheduler` starts it as a job, submitted from here, `gpus` name the
    cards (empty: the recommended ones), `processes` is 0 for one per GPU.
    """

    host: str = ""
    scheduler: Literal["none", "slurm"] = "none"
    device: Device = "auto"
    gpus: tuple[str, ...] = ()
    processes: int = 0


class TrainerSettings(Struct, frozen=True, kw_only=True):
    """Trainer, launcher, inputs and output; an empty path means the default in its help.

    `model` is the path of a folder, or the id of a model of the Hugging Face Hub, which has no slash at its beginning;
    `revision` a branch, tag or commit of that (empty: main).
    """

    kind: TrainerKind = "builtin"
    launcher: Literal["auto", LauncherName] = "auto"
    strategy: Strategy = "ddp"
    offload: bool = False
    accelerate_config: str = ""
    python: str = ""
    script: str = ""
    preset: str = AUTO_PRESET
    arguments: tuple[str, ...] = ()
    working_directory: str = ""
    config: str = ""
    model: str = ""
    revision: str = ""
    data: tuple[str, ...] = ()
    validation_data: tuple[str, ...] = ()
    test_data: tuple[str, ...] = ()
    output: str = ""
    allow: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    progress: str = ""


class FinetuneSettings(Struct, frozen=True, kw_only=True):
    """Settings of a fine-tuning: method, trained weights, adapter.

    Empty `targets` are all linear layers. None: answers alone of prompt + completion, and of chats whose
    template marks them; TRL's `beta` for the method. `rewards` score the answers that the model writes, `generations`
    for each prompt, each of `completion_length` tokens at most; None: TRL's for the method. `completions` of the newest
    are printed in the log. `freeze_vision` gives a model that sees an adapter in its language part alone.
    """

    method: FinetuneMethod = "sft"
    tuning: FinetuneTuning = "lora"
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    targets: tuple[str, ...] = ()
    packing: bool = False
    answers_only: bool | None = None
    beta: float | None = None
    rewards: tuple[str, ...] = ()
    generations: int | None = None
    completion_length: int | None = None
    completions: int | None = None
    freeze_vision: bool = False


class Data(Struct, frozen=True, kw_only=True):
    """Use of the training data.

    None: a share where there are many rows. `cut` is the share of them that may be longer than the sequence length.
    `weights` are numbers, one for each of the training data's files: what they have of an epoch. Empty: all rows once.
    Images of more than `max_pixels` are made smaller. None: they stay as they are.
    """

    evaluation: float | None = None
    cut: float = 0.1
    weights: tuple[float, ...] = ()
    max_pixels: int | None = None


class Nemo(Struct, frozen=True, kw_only=True):
    """A NeMo recipe by name, what it begins with, and over how many GPUs each dimension of the model is split.

    None leaves a split to the recipe. `set` has settings of the recipe by dotted name, each a value as in Python.
    """

    recipe: str = ""
    task: Literal["pretrain", "finetune"] = "pretrain"
    peft: Literal["lora", "none"] = "lora"
    tokenizer: str = ""
    mock_data: bool = False
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    context_parallel: int | None = None
    set: dict[str, str] = {}


class Container(Struct, frozen=True, kw_only=True):
    """The image in which the training runs; `shared_memory` is "host" or a size such as "16g"."""

    engine: ContainerEngine = "none"
    image: str = ""
    mounts: tuple[str, ...] = ()
    shared_memory: str = "host"


class Communication(Struct, frozen=True, kw_only=True):
    """Communication of the processes: backend, disabled NCCL features, network interface, log level."""

    backend: CommunicationBackend = "auto"
    without: tuple[str, ...] = ()
    interface: str = ""
    debug: Literal["none", "warn", "info"] = "none"


class Nodes(Struct, frozen=True, kw_only=True):
    """Machines that train together, and the address of the first.

    `hosts` are all of them by their names for ssh, the first being the one that starts the others; where it is empty,
    each of `count` machines is started by hand, or by Slurm. `processes` are those of each machine, in this order,
    where they differ.
    """

    count: int = 1
    hosts: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()
    address: str = ""
    port: int = 29500

    @property
    def machine_count(self) -> int:
        """The number of machines, which follows from the hosts where they are named."""
        return len(self.hosts) or self.count

    @property
    def uneven_processes(self) -> tuple[int, ...]:
        """The processes of each machine, empty where all have as many."""
        return self.processes if self.machine_count > 1 and len({*self.processes}) > 1 else ()

    def world_size(self, processes: int) -> int:
        """Return the processes of all machines, where the first has so many."""
        return sum(self.uneven_processes) or processes * self.machine_count


class Slurm(Struct, frozen=True, kw_only=True):
    """Resources of a Slurm job besides machines and GPUs; empty leaves them to the cluster.

    `time` is a limit as sbatch takes it, `cpus` are those of each machine (0: one for each process), `options` further
    ones of sbatch.
    """

    partition: str = ""
    account: str = ""
    time: str = ""
    cpus: int = 0
    options: tuple[str, ...] = ()


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """What a manifest asks of Kubernetes or SkyPilot for each machine besides GPUs; empty leaves it to the cluster.

    `cpus`, `memory` and `disk` are both requested and the limit. `memory` and `disk` are quantities of Kubernetes.
    """

    cpus: int = 0
    memory: str = ""
    disk: str = ""
    resources: tuple[str, ...] = ()
    """Extended resources, NAME=COUNT."""
    node_labels: tuple[str, ...] = ()
    """KEY=VALUE."""
    tolerations: tuple[str, ...] = ()
    """KEY[=VALUE][:EFFECT]."""
    pull_secrets: tuple[str, ...] = ()
    queue: str = ""
    """The local queue of Kueue."""
    user: str = ""
    """UID or UID:GID; empty for that of the image."""
    ipc_lock: bool = False
    host_paths: bool = False
    """Takes what lies on no claim from the disk of the node."""
    restarts: int = 0
    ttl: int = 0
    """Seconds after its end until the job is removed; 0: it stays."""
    spot: bool = False
    autostop: int = 0
    """Idle minutes after which machines are stopped; 0: never."""


class Recipe(Struct, frozen=True, kw_only=True):
    """The model's size and the optimisation; None leaves a value to the trainer, its script or its file."""

    layers: int | None = None
    hidden_size: int | None = None
    ffn_hidden_size: int | None = None
    heads: int | None = None
    sequence_length: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    learning_rate: float | None = None
    lr_scaling: LearningRateScaling = "none"
    lr_base_batch: int = 0
    """The batch that the learning rate suits; 0: this global batch."""
    precision: Precision | None = None
    epochs: float | None = None
    """Passes through the data, unless `steps` end it."""
    steps: int | None = None
    warmup: float | None = None
    """In steps; below 1, a share of them."""
    schedule: LearningRateSchedule | None = None
    weight_decay: float | None = None
    eval_batch: int = 0
    """The samples of an evaluation batch; 0: the trainer's own."""
    evaluate_every: int | None = None
    activation_checkpointing: bool | None = None
    expandable_segments: bool = False
    fused_optimizer: bool = False
    fused_cross_entropy: bool = False
    optimizer_8bit: bool = False
    lora: bool = False
    checkpoint_every: int | None = None
    seed: int | None = None


class Notify(Struct, frozen=True, kw_only=True):
    """Notification at the end of a run."""

    command: tuple[str, ...] = ()
    webhook: str = ""


class Tracking(Struct, frozen=True, kw_only=True):
    """Trackers that the training reports to; `project` is that of W&B and Trackio."""

    tensorboard: bool = False
    wandb: bool = False
    trackio: bool = False
    project: str = ""

    @property
    def chosen_trackers(self) -> tuple[str, ...]:
        """Names of the chosen trackers."""
        return tuple(name for name in TRACKER_NAMES if getattr(self, name))


# Those that have a switch, by the names that report_to has for them, which are also their packages'.
TRACKER_NAMES = ("tensorboard", "wandb", "trackio")
# The values of WANDB_MODE with which it keeps all on the machine that trains.
WANDB_OFFLINE_MODES = frozenset({"offline", "dryrun"})


class Ladder(Struct, frozen=True, kw_only=True):
    """Fallbacks after out of memory, in order; `consent` names those that may change the result."""

    rungs: tuple[str, ...] = (
        "expandable_segments", "fused_optimizer", "eval_batch", "micro_batch", "activation_checkpointing",
    )  # fmt: skip
    consent: tuple[str, ...] = ()


class Profile(Struct, frozen=True, kw_only=True):
    """Everything that the user chose."""

    schema: int = SCHEMA_VERSION
    name: str = "quickstart"
    hardware: Hardware = Hardware()
    trainer: TrainerSettings = TrainerSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    data: Data = Data()
    nemo: Nemo = Nemo()
    container: Container = Container()
    communication: Communication = Communication()
    nodes: Nodes = Nodes()
    slurm: Slurm = Slurm()
    cluster: ClusterOptions = ClusterOptions()
    recipe: Recipe = Recipe()
    tracking: Tracking = Tracking()
    ladder: Ladder = Ladder()
    notify: Notify = Notify()

"""Rows of where it trains: devices, container, communication, machines, Slurm."""

from tui_train.profile.rows.field import Field

HARDWARE_ROWS = (
    Field(
        key="hardware.host",
        label="Host",
        kind="text",
        help="Train on this host over ssh: one of `tui-train hosts`, or any name that ssh knows.",
        empty="this machine",
    ),
    Field(
        key="hardware.scheduler",
        label="Scheduler",
        kind="choice",
        options=("none", "slurm"),
        help="slurm: submit a job to the Slurm cluster of this machine or host. none: start at once.",
    ),
    Field(
        key="hardware.device",
        label="Device",
        kind="choice",
        options=("auto", "cuda", "cpu"),
        help="auto: GPUs if any is usable, otherwise the CPU.",
    ),
    Field(
        key="hardware.gpus",
        label="GPUs",
        kind="names",
        help="GPUs to train on: number, PCI address or UUID (its beginning is enough), as in `tui-train facts`.",
        empty="the recommended GPUs",
    ),
    Field(
        key="hardware.processes",
        label="Processes",
        kind="integer",
        minimum=0,
        maximum=64,
        help="Training processes on this machine. 0: automatic, one per GPU (one if the script cannot use several).",
    ),
)

CONTAINER_ROWS = (
    Field(
        key="container.engine",
        label="Container",
        kind="choice",
        options=("none", "docker", "podman", "apptainer"),
        help="Container engine that runs the training; none: directly on this machine.",
    ),
    Field(
        key="container.image",
        label="Image",
        kind="text",
        help="Image name such as nvcr.io/nvidia/nemo:25.04, or a .sif file.",
    ),
    Field(
        key="container.mounts",
        label="Extra mounts",
        kind="words",
        help="HOST:CONTAINER or HOST:CONTAINER:ro. Script, data, model, output and run folder are always mounted.",
        empty="none",
    ),
    Field(
        key="container.shared_memory",
        label="Shared memory",
        kind="text",
        help="host: share /dev/shm with this machine. A size such as 16g: a separate one for the container.",
    ),
)

COMMUNICATION_ROWS = (
    Field(
        key="communication.backend",
        label="Communication",
        kind="choice",
        options=("auto", "nccl", "gloo"),
        help="Library that exchanges gradients. auto: NCCL on GPUs, Gloo on the CPU. Gloo on GPUs is very slow.",
    ),
    Field(
        key="communication.without",
        label="Disabled in NCCL",
        kind="names",
        help="Features of NCCL to disable: each is a workaround for certain errors, and costs speed.",
        empty="nothing",
    ),
    Field(
        key="communication.interface",
        label="Network interface",
        kind="text",
        help="Network interface towards the other machines, such as eth0.",
        empty="chosen by NCCL and Gloo",
    ),
    Field(
        key="communication.debug",
        label="NCCL log level",
        kind="choice",
        options=("none", "warn", "info"),
        help="NCCL_DEBUG: warn logs only problems, info logs a lot.",
    ),
)

NODES_ROWS = (
    Field(
        key="nodes.count",
        label="Machines",
        kind="integer",
        minimum=1,
        maximum=1024,
        help="Number of machines that train together; without hosts or Slurm you start the script on each.",
    ),
    Field(
        key="nodes.hosts",
        label="Hosts over ssh",
        kind="names",
        help="ssh names of the machines that train together (gpu-a,gpu-b); the first one starts the others.",
        empty="none",
    ),
    Field(
        key="nodes.processes",
        label="Processes on each",
        kind="integers",
        minimum=1,
        maximum=1024,
        help="Processes of each machine in order, where they differ: 4,2 is four on the first, two on the other.",
        empty="as many on each",
    ),
    Field(
        key="nodes.address",
        label="Master address",
        kind="text",
        help="Address of the first machine as the others reach it; an IP address is the safest.",
    ),
    Field(
        key="nodes.port",
        label="Master port",
        kind="integer",
        minimum=1,
        maximum=65535,
        help="A free TCP port on the first machine.",
    ),
)

SLURM_ROWS = (
    Field(
        key="slurm.partition",
        label="Partition",
        kind="text",
        help="Slurm partition, as `sinfo -s` lists them.",
        empty="the cluster's default",
    ),
    Field(
        key="slurm.account",
        label="Account",
        kind="text",
        help="Account that a Slurm job is charged to.",
        empty="your default account",
    ),
    Field(
        key="slurm.time",
        label="Time limit",
        kind="text",
        help="Time limit of a Slurm job: minutes, HH:MM:SS or DAYS-HH. It saves before, is queued again and resumes.",
        empty="the partition's default",
    ),
    Field(
        key="slurm.cpus",
        label="CPU cores",
        kind="integer",
        minimum=0,
        maximum=4096,
        help="CPU cores of a Slurm job on each machine, for all its processes and data loader workers. 0: one each.",
    ),
    Field(
        key="slurm.options",
        label="sbatch options",
        kind="words",
        help="Further options of sbatch, each --NAME=VALUE, such as --qos=long --mem=64G --gres=gpu:a100:4.",
        empty="none",
    ),
)

NOTIFY_ROWS = (
    Field(
        key="notify.command",
        label="Command at the end",
        kind="words",
        help="Command to run when a run ends, with TUI_TRAIN_RUN (its folder) and TUI_TRAIN_STATE; ended after 30 s.",
        empty="none",
    ),
    Field(
        key="notify.webhook",
        label="Webhook at the end",
        kind="webhook",
        help="Address that gets a JSON POST when a run ends, kept in a file only you can read; or $NAME, or a file.",
        empty="none",
    ),
)

"""Rows of where it trains: devices, container, communication, machines, Slurm."""

from tui_train.profile.rows.field import make_field

HARDWARE_ROWS = (
    make_field(
        "hardware.host",
        "Host",
        "Train on this host over ssh: one of `tui-train hosts`, or any name that ssh knows.",
        empty="this machine",
    ),
    make_field(
        "hardware.scheduler",
        "Scheduler",
        "slurm: submit a job to the Slurm cluster of this machine or host. none: start at once.",
    ),
    make_field("hardware.device", "Device", "auto: the GPUs; the CPU only where there is none."),
    make_field(
        "hardware.gpus",
        "GPUs",
        "GPUs to train on: number, PCI address or UUID (its beginning is enough), as in `tui-train facts`.",
        kind="names",
        empty="the recommended GPUs",
    ),
    make_field(
        "hardware.processes",
        "Processes",
        "Training processes on this machine. 0: automatic, one per GPU (one if the script cannot use several).",
        limits=(0, 64),
    ),
)

CONTAINER_ROWS = (
    make_field(
        "container.engine", "Container", "Container engine that runs the training; none: directly on this machine."
    ),
    make_field("container.image", "Image", "Image name such as nvcr.io/nvidia/nemo:25.04, or a .sif file."),
    make_field(
        "container.mounts",
        "Extra mounts",
        "HOST:CONTAINER or HOST:CONTAINER:ro. Script, data, model, output and run folder are always mounted.",
        empty="none",
    ),
    make_field(
        "container.shared_memory",
        "Shared memory",
        "host: share /dev/shm with this machine. A size such as 16g: a separate one for the container.",
    ),
)

COMMUNICATION_ROWS = (
    make_field(
        "communication.backend",
        "Communication",
        "Library that exchanges gradients. auto: NCCL on GPUs, Gloo on the CPU. Gloo on GPUs is very slow.",
    ),
    make_field(
        "communication.without",
        "Disabled in NCCL",
        "Features of NCCL to disable: each is a workaround for certain errors, and costs speed.",
        kind="names",
        empty="nothing",
    ),
    make_field(
        "communication.interface",
        "Network interface",
        "Network interface towards the other machines, such as eth0.",
        empty="chosen by NCCL and Gloo",
    ),
    make_field("communication.debug", "NCCL log level", "NCCL_DEBUG: warn logs only problems, info logs a lot."),
)

NODES_ROWS = (
    make_field(
        "nodes.count",
        "Machines",
        "Number of machines that train together; without hosts or Slurm you start the script on each.",
        limits=(1, 1024),
    ),
    make_field(
        "nodes.hosts",
        "Hosts over ssh",
        "ssh names of the machines that train together (gpu-a,gpu-b); the first one starts the others.",
        kind="names",
        empty="none",
    ),
    make_field(
        "nodes.processes",
        "Processes on each",
        "Processes of each machine in order, where they differ: 4,2 is four on the first, two on the other.",
        limits=(1, 1024),
        empty="as many on each",
    ),
    make_field(
        "nodes.address",
        "Master address",
        "Address of the first machine as the others reach it; an IP address is the safest.",
    ),
    make_field("nodes.port", "Master port", "A free TCP port on the first machine.", limits=(1, 65535)),
)

SLURM_ROWS = (
    make_field(
        "slurm.partition", "Partition", "Slurm partition, as `sinfo -s` lists them.", empty="the cluster's default"
    ),
    make_field("slurm.account", "Account", "Account that a Slurm job is charged to.", empty="your default account"),
    make_field(
        "slurm.time",
        "Time limit",
        "Time limit of a Slurm job: minutes, HH:MM:SS or DAYS-HH. It saves before, is queued again and resumes.",
        empty="the partition's default",
    ),
    make_field(
        "slurm.cpus",
        "CPU cores",
        "CPU cores of a Slurm job on each machine, for all its processes and data loader workers. 0: one each.",
        limits=(0, 4096),
    ),
    make_field(
        "slurm.options",
        "sbatch options",
        "Further options of sbatch, each --NAME=VALUE, such as --qos=long --mem=64G --gres=gpu:a100:4.",
        empty="none",
    ),
)

NOTIFY_ROWS = (
    make_field(
        "notify.command",
        "Command at the end",
        "Command to run when a run ends, with TUI_TRAIN_RUN (its folder) and TUI_TRAIN_STATE; ended after 30 s.",
        empty="none",
    ),
    make_field(
        "notify.webhook",
        "Webhook at the end",
        "Address that gets a JSON POST when a run ends, kept in a file only you can read; or $NAME, or a file.",
        kind="webhook",
        empty="none",
    ),
)

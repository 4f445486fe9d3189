"""accelerate launch on one host, always with a configuration of its own.

Without `--config_file` the user's default_config.yaml would leak in; without a multi-process `distributed_type`
accelerate starts unconnected single processes and exits with 0.
"""

from tui_train.plan.launchers.job import Job
from tui_train.plan.launchers.torchrun import loopback
from tui_train.plan.types import ConfigFile, Part, Plain, Setting, in_run_dir

LABEL: str = "accelerate"
ABOUT: str = "one process per device; configuration generated"
SEVERAL: bool = True

_CONFIG = "accelerate.yaml"


def parts(job: Job) -> tuple[Part, ...]:
    """Return accelerate launch with its configuration file."""
    return (
        Part((job.python, "-m", "accelerate.commands.launch"), "accelerate launch, of this very Python"),
        Part((in_run_dir(_CONFIG, "--config_file="),), "else your default_config.yaml would leak in"),
    )


def settings(job: Job) -> tuple[Setting, ...]:
    """Return the variable that makes accelerate take the CPU; its configuration has no key that does with several."""
    if job.gpus:
        return ()
    why = "without it accelerate starts unconnected single processes on a machine without GPUs"
    return (Setting("ACCELERATE_USE_CPU", "true", why, "launcher"), *loopback(job))


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return the configuration; keys as in accelerate 1.6 to 1.15."""
    several = job.world_size > 1
    mixed = {"fp32": "no"}.get(job.precision, job.precision)
    values: dict[str, Plain] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if several else "NO",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": job.world_size,
        "mixed_precision": mixed,
        "main_training_function": "main",
        "use_cpu": not job.gpus and not several,
        "debug": False,
    }
    if several:
        values["main_process_port"] = 0
    if job.gpus:
        values["gpu_ids"] = ",".join(job.gpus)
    return (ConfigFile(_CONFIG, "How accelerate launch starts the processes; port 0 is any free one.", values),)

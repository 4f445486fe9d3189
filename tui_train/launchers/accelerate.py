"""accelerate launch, always with a config file of the plan, which keeps what the user's own config says.

Without `--config_file` it would read the user's default_config.yaml, with that file's processes and GPUs; without a
multi-process `distributed_type` accelerate starts unconnected single processes and exits with 0.
"""

from tui_train.base.command import ADDRESS, NODE_RANK, PORT, ConfigFile, Part, PlainData, Setting, in_run_dir, joined
from tui_train.launchers import accelerate_config
from tui_train.launchers.job import Job
from tui_train.profile.types import Strategy

LABEL: str = "accelerate"
ABOUT: str = "one process per device; can shard models"
STARTS_SEVERAL: bool = True
SPANS_MACHINES: bool = True
ALLOWS_UNEVEN: bool = False
SHARDS: frozenset[Strategy] = frozenset({"fsdp2", "zero1", "zero2", "zero3"})
NEEDS: tuple[str, ...] = ("accelerate",)
READS_CONFIG: bool = True
SETS_PRECISION: bool = True
ADDRESS_IN_WORDS: bool = True
SETS_RANKS: bool = False
STARTS_RECIPES: bool = False

CONFIG_FILE = "accelerate.yaml"
_WHY_CONFIG_FILE = "otherwise your default_config.yaml would be used"


def parts(job: Job) -> tuple[Part, ...]:
    """Return accelerate launch with its config file and the options that it does not read from there."""
    why = "with the values kept from your accelerate config" if job.user_config else _WHY_CONFIG_FILE
    command = (
        Part((job.python, "-m", "accelerate.commands.launch"), "accelerate launch of this Python"),
        Part((in_run_dir(job.config_file or CONFIG_FILE, "--config_file="),), why),
    )
    if job.nodes == 1:
        return command
    return (
        *command,
        Part((joined(("--machine_rank=", NODE_RANK)),), "0 is the first machine"),
        Part((joined(("--main_process_ip=", ADDRESS)),), "address of the first machine"),
        *((Part((joined(("--main_process_port=", PORT)),), "a port there"),) if job.scheduled else ()),
        Part(
            ("--rdzv_backend=static", "--same_network"),
            "not read from the config file; the first machine waits at its port",
        ),
    )


def settings(job: Job) -> tuple[Setting, ...]:
    """Return the variable that makes accelerate use the CPU; no config key does for several processes."""
    if job.gpus:
        return ()
    why = "without it accelerate starts unconnected processes on a machine without GPUs"
    return (Setting("ACCELERATE_USE_CPU", "true", why, "launcher"),)


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return the configuration; keys as in accelerate 1.6 to 1.15."""
    several = job.world_size > 1
    types: dict[str, str] = {"ddp": "MULTI_GPU" if several else "NO", "fsdp2": "FSDP"}
    values: dict[str, PlainData] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": types.get(job.strategy, "DEEPSPEED"),
        "num_machines": job.nodes,
        "machine_rank": 0,
        "num_processes": job.world_size,
        "mixed_precision": {"fp32": "no"}.get(job.precision, job.precision),
        "main_training_function": "main",
        "use_cpu": not job.gpus and not several,
        "debug": False,
    }
    why = "How accelerate launch starts the processes; port 0: any free port."
    if job.nodes > 1:
        if not job.scheduled:
            values["main_process_port"] = job.port
        why = "How accelerate launch starts the processes: num_processes counts all machines."
    elif several or job.strategy != "ddp":
        values["main_process_port"] = 0
    if job.gpus and job.nodes == 1 and not job.scheduled:
        values["gpu_ids"] = ",".join(job.gpus)
    kept = accelerate_config.kept_settings(job.user_config, job.strategy, fp8=job.precision == "fp8")
    if job.strategy == "fsdp2":
        values["fsdp_config"] = {**_fsdp_config(job), **_as_table(kept.pop("fsdp_config", {}))}
    elif job.strategy != "ddp":
        values["deepspeed_config"] = {**_deepspeed_config(job), **_as_table(kept.pop("deepspeed_config", {}))}
    return (ConfigFile(CONFIG_FILE, why, {**values, **kept}),)


def _as_table(value: PlainData) -> dict[str, PlainData]:
    return value if isinstance(value, dict) else {}


def _fsdp_config(job: Job) -> dict[str, PlainData]:
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        # Only the first process of a machine reads the weights; the others receive their shard from it.
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_reshard_after_forward": True,
        "fsdp_offload_params": job.offload,
    }


def _deepspeed_config(job: Job) -> dict[str, PlainData]:
    stage = int(job.strategy[-1])
    values: dict[str, PlainData] = {
        "zero_stage": stage,
        "gradient_accumulation_steps": job.accumulation,
        "gradient_clipping": job.clipping,
        "offload_optimizer_device": "cpu" if job.offload else "none",
        # Only stage 3 shards the weights, and only sharded weights can be offloaded.
        "offload_param_device": "cpu" if job.offload and stage == 3 else "none",
        "zero3_init_flag": stage == 3,
        "zero3_save_16bit_model": stage == 3,
    }
    # The default, pdsh, would start processes on the other machines; here each machine starts its own.
    return values | ({"deepspeed_multinode_launcher": "standard"} if job.nodes > 1 else {})

"""accelerate launch, always with a config file of the plan, which keeps what the user's own config says.

Without `--config_file` it would read the user's default_config.yaml, with that file's processes and GPUs; without a
multi-process `distributed_type` accelerate starts unconnected single processes and exits with 0.
"""

from typing import ClassVar

from tui_train.base.command import (
    ADDRESS_VARIABLE,
    NODE_RANK_VARIABLE,
    PORT_VARIABLE,
    CommandPart,
    ConfigFile,
    EnvSetting,
    PlainData,
    join_pieces,
    word_in_run_dir,
)
from tui_train.launchers import accelerate_config
from tui_train.launchers.launcher import Launcher
from tui_train.profile.types import Strategy

_CONFIG_FILE_NAME = "accelerate.yaml"
_CONFIG_FILE_REASON_TEXT = "otherwise your default_config.yaml would be used"


def _table_or_empty(value: PlainData) -> dict[str, PlainData]:
    return value if isinstance(value, dict) else {}


class Accelerate(Launcher):
    """Starts one process per device by accelerate launch."""

    label = "accelerate"
    description = "one process per device; can shard models"
    starts_several_processes = True
    starts_on_several_machines = True
    sharding_strategies: ClassVar[frozenset[Strategy]] = frozenset({"fsdp2", "zero1", "zero2", "zero3"})
    needs = ("accelerate",)
    reads_config = True
    sets_precision = True
    takes_address_as_arguments = True

    def command_parts(self) -> tuple[CommandPart, ...]:
        """Return accelerate launch with its config file and the options that it does not read from there."""
        why = "with the values kept from your accelerate config" if self.job.user_config else _CONFIG_FILE_REASON_TEXT
        command = (
            CommandPart((self.job.python, "-m", "accelerate.commands.launch"), "accelerate launch of this Python"),
            CommandPart((word_in_run_dir(self.job.config_file or _CONFIG_FILE_NAME, "--config_file="),), why),
        )
        if self.job.nodes == 1:
            return command
        return (
            *command,
            CommandPart((join_pieces(("--machine_rank=", NODE_RANK_VARIABLE)),), "0 is the first machine"),
            CommandPart((join_pieces(("--main_process_ip=", ADDRESS_VARIABLE)),), "address of the first machine"),
            *(
                (CommandPart((join_pieces(("--main_process_port=", PORT_VARIABLE)),), "a port there"),)
                if self.job.is_slurm_job
                else ()
            ),
            CommandPart(
                ("--rdzv_backend=static", "--same_network"),
                "not read from the config file; the first machine waits at its port",
            ),
        )

    def environment_settings(self) -> tuple[EnvSetting, ...]:
        """Return the variable that makes accelerate use the CPU; no config key does for several processes."""
        if self.job.gpus:
            return ()
        why = "without it accelerate starts unconnected processes on a machine without GPUs"
        return (EnvSetting("ACCELERATE_USE_CPU", "true", why, "launcher"),)

    def config_files(self) -> tuple[ConfigFile, ...]:
        """Return the configuration; keys as in accelerate 1.6 to 1.15."""
        several = self.job.world_size > 1
        types: dict[str, str] = {"ddp": "MULTI_GPU" if several else "NO", "fsdp2": "FSDP"}
        values: dict[str, PlainData] = {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": types.get(self.job.strategy, "DEEPSPEED"),
            "num_machines": self.job.nodes,
            "machine_rank": 0,
            "num_processes": self.job.world_size,
            "mixed_precision": {"fp32": "no"}.get(self.job.precision, self.job.precision),
            "main_training_function": "main",
            "use_cpu": not self.job.gpus and not several,
            "debug": False,
        }
        why = "How accelerate launch starts the processes; port 0: any free port."
        if self.job.nodes > 1:
            if not self.job.is_slurm_job:
                values["main_process_port"] = self.job.port
            why = "How accelerate launch starts the processes: num_processes counts all machines."
        elif several or self.job.strategy != "ddp":
            values["main_process_port"] = 0
        if self.job.gpus and self.job.nodes == 1 and not self.job.is_slurm_job:
            values["gpu_ids"] = ",".join(self.job.gpus)
        kept = accelerate_config.settings_kept_from_config(
            self.job.user_config, self.job.strategy, fp8=self.job.precision == "fp8"
        )
        if self.job.strategy == "fsdp2":
            values["fsdp_config"] = {**self._fsdp_config(), **_table_or_empty(kept.pop("fsdp_config", {}))}
        elif self.job.strategy != "ddp":
            values["deepspeed_config"] = {
                **self._deepspeed_config(),
                **_table_or_empty(kept.pop("deepspeed_config", {})),
            }
        return (ConfigFile(_CONFIG_FILE_NAME, why, {**values, **kept}),)

    def _fsdp_config(self) -> dict[str, PlainData]:
        return {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            # Only the first process of a machine reads the weights; the others receive their shard from it.
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_reshard_after_forward": True,
            "fsdp_offload_params": self.job.offload,
        }

    def _deepspeed_config(self) -> dict[str, PlainData]:
        stage = int(self.job.strategy[-1])
        values: dict[str, PlainData] = {
            "zero_stage": stage,
            "gradient_accumulation_steps": self.job.accumulation,
            "gradient_clipping": self.job.clipping_norm,
            "offload_optimizer_device": "cpu" if self.job.offload else "none",
            # Only stage 3 shards the weights, and only sharded weights can be offloaded.
            "offload_param_device": "cpu" if self.job.offload and stage == 3 else "none",
            "zero3_init_flag": stage == 3,
            "zero3_save_16bit_model": stage == 3,
        }
        # The default, pdsh, would start processes on the other machines; here each machine starts its own.
        return values | ({"deepspeed_multinode_launcher": "standard"} if self.job.nodes > 1 else {})

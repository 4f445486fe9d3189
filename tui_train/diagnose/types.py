"""Parts of a diagnosis, and its sentences."""

from msgspec import Struct

from tui_train.facts.types import ScriptSource
from tui_train.profile.changes import Change
from tui_train.profile.presets import Preset

# Lines of the end of a log have numbers from here on while it is not known how many come before them.
FIRST_UNKNOWN_LINE_NUMBER = 1 << 40


class LogLine(Struct, frozen=True):
    """A line of a log: its number from 1, and its text without colours and prefix; `rank` where it says one."""

    number: int
    text: str
    rank: int | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """Evidence of an attempt: lines of its log, and what lies outside of it; None where that is unknown."""

    lines: tuple[LogLine, ...]
    exit_code: int | None = None
    """The shell's: 128 + the signal where one ended it."""
    host: str = ""
    oom_kills: int | None = None
    """The kernel's kills in the control group."""
    memory_limit: int | None = None
    """The bytes that the control group may use."""
    free_disk: int | None = None
    """In bytes."""
    free_shm: int | None = None
    """In bytes."""
    gpu_error: str = ""
    """The kernel's line about an error of a GPU while it ran."""
    ended_unobserved: bool = False
    """It ended without a supervisor that saw how."""
    newest_checkpoint: str = ""
    """The newest whole one."""
    world_size: int = 1
    accepted_recipe_names: frozenset[str] = frozenset()
    """Names of what the trainer can be passed."""
    on_gpus: bool = False
    """It was to train on GPUs."""
    gpus: tuple[str, ...] = ()
    """The UUIDs of those of the first machine."""
    phase: str = ""
    """The phase in which GPU memory ran out, as launch.sh read it."""
    eval_batch: int = 0
    """The trainer's own evaluation batch; 0: the micro batch."""
    resumed_step: int = 0
    """The step of the checkpoint that it was given; 0: unknown."""
    first_logged_step: int = 0
    """The first step that it logged; 0: unknown."""
    script_source: ScriptSource | None = None
    """That of the script that was started."""
    preset: Preset | None = None
    """That of the script that was started."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Cause of a failure: its class, the line that shows it (0: none), where, why, what to do, and a Change."""

    failure: str
    line: str
    line_number: int
    rank: int | None
    host: str
    cause: str
    remedy: str
    change: Change | None = None
    evidence: tuple[str, ...] = ()
    source_file: str = ""
    """The user's own file in which an error of the script was raised; empty for none."""
    source_line: int = 0
    source: tuple[tuple[int, str], ...] = ()
    """The lines around that one, each with its number, where the file is on this machine."""

    @property
    def position_text(self) -> str:
        """Where the line is, in words; empty for none."""
        if self.line_number >= FIRST_UNKNOWN_LINE_NUMBER:
            return "near its end"
        return f"line {self.line_number}" if self.line_number else ""


class Signature(Struct, frozen=True, kw_only=True):
    """The traces of a failure in a log; signatures.toml explains the fields."""

    failure: str
    strength: int
    cause: str
    remedy: str
    when: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    warning: bool = False
    done: bool = False
    change: str = ""


# That of a failure which is known to no more than its traceback begins so.
TRACEBACK_REMEDY_PREFIX = "Look at the traceback"

# Those whose class, with blanks for underscores, is no phrase that a user would know.
HEADING_BY_FAILURE = {
    "abort": "crashed in native code",
    "api_mismatch": "script for another library version",
    "bad_data": "malformed data",
    "batch_config": "batch sizes do not fit",
    "chat_roles": "chat refused by the template",
    "checkpoint_weights_only": "checkpoint with more than weights",
    "collate_shape": "examples that form no batch",
    "collective_timeout": "a process did not answer",
    "config_invalid": "invalid setting",
    "connection_refused": "no answer from a service",
    "container_name_taken": "container name in use",
    "cublas_alloc": "out of GPU memory",
    "cuda_error": "CUDA error",
    "cuda_fork": "GPU used before a fork",
    "cuda_illegal_access": "illegal memory access on the GPU",
    "cuda_not_initialized_fabric": "NVSwitch not running",
    "cuda_oom": "out of GPU memory",
    "cuda_oom_other_process": "GPU memory used by others",
    "cudnn_alloc": "out of GPU memory",
    "ddp_model_mismatch": "processes with different models",
    "ddp_ready_twice": "parameter used twice (DDP)",
    "ddp_unused_parameters": "unused parameters (DDP)",
    "device_side_assert": "index out of range on the GPU",
    "extension_abi_mismatch": "library built for another torch",
    "file_lock_timeout": "waited for a lock",
    "file_race": "folder written by several processes",
    "fp16_unscale": "fp16 weights",
    "gpu_permission": "no permission for the GPU",
    "gpu_hardware": "GPU hardware error",
    "host_alloc_failed": "out of main memory",
    "host_oom": "out of main memory",
    "hub_auth": "no access on the Hub",
    "hub_network": "download failed",
    "hub_not_found": "not found on the Hub",
    "import_mismatch": "incompatible libraries",
    "invalid_device_ordinal": "no such GPU",
    "launcher_arg_mismatch": "needs torchrun",
    "lora_target_modules": "LoRA targets not in the model",
    "master_unreachable": "first machine unreachable",
    "mpi_launch": "mpirun started nothing",
    "name_resolution": "host name not found",
    "nan_loss": "NaN loss",
    "nfs_stale": "network disk lost",
    "no_kernel_image": "torch without code for the GPU",
    "no_trainable_grad": "nothing to train",
    "no_utf8_locale": "no UTF-8 locale",
    "not_distributed_silent": "processes trained separately",
    "oci_runtime_failed": "container not started",
    "peer_lost": "another process ended first",
    "ray_resources": "too few GPUs in Ray",
    "ray_unreachable": "Ray's first machine unreachable",
    "ray_version_mismatch": "different versions of Ray",
    "ray_worker_died": "a worker of Ray died",
    "rendezvous_timeout": "processes did not all join",
    "resume_ignored": "checkpoint not loaded",
    "segfault": "crashed in native code",
    "shm_too_small": "shared memory full",
    "shm_unwritable": "unwritable shared memory",
    "sighup": "terminal closed",
    "sigkill": "killed by signal 9",
    "sigterm": "ended by SIGTERM",
    "slurm_chdir": "folder not on the node",
    "slurm_oom": "more memory than the job requested",
    "slurm_time_limit": "time limit of the job",
    "torch_cpu_build": "torch without CUDA",
    "user_args": "wrong arguments",
    "user_exception": "error in the script",
    "wrong_architecture": "built for another processor",
    "wrong_clock": "wrong clock",
}


def failure_heading(failure: str) -> str:
    """Return a class of failures in words."""
    return HEADING_BY_FAILURE.get(failure, failure.replace("_", " "))

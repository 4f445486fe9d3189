"""Variables that users set and that do nothing, or harm, in the versions that will run; with what to do instead."""

from collections.abc import Callable
from typing import NamedTuple

from tui_train.base.versions import is_known_at_least, is_known_older
from tui_train.facts.types import Toolchain
from tui_train.launchers import LAUNCHERS
from tui_train.profile.types import LauncherName
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_workaround_ignored


class VariableReaders(NamedTuple):
    """Libraries, launcher and backend, which decide whether a variable is read."""

    toolchain: Toolchain | None
    launcher: LauncherName
    backend: str
    nemo: bool = False

    @property
    def torch(self) -> str | None:
        """The version of torch, None where it is unknown."""
        return self.toolchain.torch if self.toolchain else None


IneffectivenessReasonFinder = Callable[[VariableReaders], str]


def _why_accelerate_gloo_ignored(_run: VariableReaders) -> str:
    return "no version of accelerate reads it: choose the communication instead (communication.backend)"


def _why_master_address_ignored(run: VariableReaders) -> str:
    launcher = LAUNCHERS[run.launcher]
    words = f"{launcher.label} takes it from its arguments only (nodes.address, nodes.port)"
    return words if launcher.address_in_words else ""


def _why_transformer_engine_ignored(_run: VariableReaders) -> str:
    return "Transformer Engine ignores it since 1.6"


def _why_record_streams_ignored(run: VariableReaders) -> str:
    return "it is the default since torch 2.8" if is_known_at_least(run.torch, "2.8") else ""


def _reason_finder_for_new_name(name: str) -> IneffectivenessReasonFinder:
    return lambda _run: f"deprecated name: use TORCH_{name}"


def _why_wandb_disabled_ignored(run: VariableReaders) -> str:
    transformers = run.toolchain.transformers if run.toolchain else None
    return "transformers 5 does not read it: WANDB_MODE=disabled does" if is_known_at_least(transformers, "5") else ""


def _why_allocator_setting_ignored(run: VariableReaders) -> str:
    if not is_known_older(run.torch, "2.10"):
        return ""
    return f"torch {run.torch} ignores it: PYTORCH_CUDA_ALLOC_CONF is read by every version"


def _why_blocking_wait_ignored(_run: VariableReaders) -> str:
    return "it is for finding hangs, and slows every step"


def _why_mixed_precision_ignored(run: VariableReaders) -> str:
    launcher = LAUNCHERS[run.launcher]
    return f"{launcher.label} sets it by itself: choose recipe.precision" if launcher.reads_config else ""


def _why_max_connections_ignored(run: VariableReaders) -> str:
    return "" if run.nemo else "it is for tensor parallel training, and slows any other"


REASON_FINDER_BY_VARIABLE: dict[str, IneffectivenessReasonFinder] = {
    "ACCELERATE_USE_GLOO": _why_accelerate_gloo_ignored,
    "ACCELERATE_BACKEND": _why_accelerate_gloo_ignored,
    "ACCELERATE_DDP_BACKEND": _why_accelerate_gloo_ignored,
    "ACCELERATE_MIXED_PRECISION": _why_mixed_precision_ignored,
    "MASTER_ADDR": _why_master_address_ignored,
    "MASTER_PORT": _why_master_address_ignored,
    "NVTE_DP_AMAX_REDUCE_INTERVAL": _why_transformer_engine_ignored,
    "NVTE_ASYNC_AMAX_REDUCTION": _why_transformer_engine_ignored,
    "TORCH_NCCL_AVOID_RECORD_STREAMS": _why_record_streams_ignored,
    "NCCL_ASYNC_ERROR_HANDLING": _reason_finder_for_new_name("NCCL_ASYNC_ERROR_HANDLING"),
    "NCCL_BLOCKING_WAIT": _reason_finder_for_new_name("NCCL_BLOCKING_WAIT"),
    "TORCH_NCCL_BLOCKING_WAIT": _why_blocking_wait_ignored,
    "WANDB_DISABLED": _why_wandb_disabled_ignored,
    "PYTORCH_ALLOC_CONF": _why_allocator_setting_ignored,
    "CUDA_DEVICE_MAX_CONNECTIONS": _why_max_connections_ignored,
}


def why_ineffective(name: str, run: VariableReaders) -> str:
    """Return why a variable has no effect, or not the intended one; empty when it works."""
    if name in REASON_FINDER_BY_VARIABLE:
        return REASON_FINDER_BY_VARIABLE[name](run)
    if name.startswith(("NCCL_", "TORCH_NCCL_")) and run.backend != "nccl":
        reason = f"these processes communicate over {run.backend}" if run.backend else "not needed for one process"
        return f"only NCCL reads it, and {reason}"
    workaround = next((workaround for workaround in NCCL_WORKAROUNDS.values() if workaround.name == name), None)
    return (
        f"it {why}"
        if workaround and run.backend == "nccl" and (why := why_workaround_ignored(workaround, run.toolchain))
        else ""
    )

"""Variables that users set and that do nothing, or harm, in the versions that will run; with what to do instead."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tui_train.base.versions import is_known_at_least, is_known_older
from tui_train.facts.types import Toolchain
from tui_train.launchers import LAUNCHERS
from tui_train.profile.types import LauncherName
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_workaround_ignored

_TENSOR_PARALLEL_ARGUMENT_PATTERN = re.compile(r"tensor.(model.)?parallel|(?<![a-z])tp.size", re.IGNORECASE)


class VariableReaders(NamedTuple):
    """Libraries, launcher and backend, which decide whether a variable is read."""

    toolchain: Toolchain | None
    launcher: LauncherName
    backend: str
    may_be_tensor_parallel: bool = False

    @property
    def torch(self) -> str | None:
        """The version of torch, None where it is unknown."""
        return self.toolchain.torch if self.toolchain else None


def _why_master_address_and_port_ignored(readers: VariableReaders) -> str:
    launcher = LAUNCHERS[readers.launcher]
    words = f"{launcher.label} does not read it: use nodes.address and nodes.port instead"
    return words if launcher.takes_address_as_arguments else ""


def _why_record_streams_ignored(readers: VariableReaders) -> str:
    return "it has no effect: since torch 2.8 this is the default" if is_known_at_least(readers.torch, "2.8") else ""


def _why_wandb_disabled_ignored(readers: VariableReaders) -> str:
    transformers = readers.toolchain.transformers if readers.toolchain else None
    return (
        "transformers 5 does not read it: WANDB_MODE=disabled does what it did"
        if is_known_at_least(transformers, "5")
        else ""
    )


def _why_allocator_setting_ignored(readers: VariableReaders) -> str:
    if not is_known_older(readers.torch, "2.10"):
        return ""
    return f"torch {readers.torch} ignores it: name it PYTORCH_CUDA_ALLOC_CONF"


def _why_mixed_precision_ignored(readers: VariableReaders) -> str:
    launcher = LAUNCHERS[readers.launcher]
    return f"{launcher.label} sets it itself: use recipe.precision instead" if launcher.reads_config else ""


def _why_max_connections_ignored(readers: VariableReaders) -> str:
    return "" if readers.may_be_tensor_parallel else "it is for tensor parallel training, and slows any other"


def mentions_tensor_parallelism(arguments: Iterable[str]) -> bool:
    """Return whether a script's arguments name tensor parallelism, whatever size they set."""
    return any(_TENSOR_PARALLEL_ARGUMENT_PATTERN.search(word) for word in arguments)


_NEVER_READ_TEXT = "no version of accelerate reads it: use communication.backend instead"
# Why a variable has not the intended effect, or a function that returns that; empty where it works.
REASON_OR_FINDER_BY_VARIABLE: dict[str, str | Callable[[VariableReaders], str]] = {
    "ACCELERATE_USE_GLOO": _NEVER_READ_TEXT,
    "ACCELERATE_BACKEND": _NEVER_READ_TEXT,
    "ACCELERATE_DDP_BACKEND": _NEVER_READ_TEXT,
    "ACCELERATE_MIXED_PRECISION": _why_mixed_precision_ignored,
    "MASTER_ADDR": _why_master_address_and_port_ignored,
    "MASTER_PORT": _why_master_address_and_port_ignored,
    "NVTE_DP_AMAX_REDUCE_INTERVAL": "Transformer Engine ignores it since 1.6",
    "NVTE_ASYNC_AMAX_REDUCTION": "Transformer Engine ignores it since 1.6",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": _why_record_streams_ignored,
    "NCCL_ASYNC_ERROR_HANDLING": "deprecated name: use TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "deprecated name: use TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_BLOCKING_WAIT": "it is for finding hangs, and slows every step",
    "WANDB_DISABLED": _why_wandb_disabled_ignored,
    "PYTORCH_ALLOC_CONF": _why_allocator_setting_ignored,
    "CUDA_DEVICE_MAX_CONNECTIONS": _why_max_connections_ignored,
}


def why_ineffective(name: str, readers: VariableReaders) -> str:
    """Return why a variable has no effect, or not the intended one; empty when it works."""
    reason_or_finder = REASON_OR_FINDER_BY_VARIABLE.get(name)
    if reason_or_finder is not None:
        return reason_or_finder if isinstance(reason_or_finder, str) else reason_or_finder(readers)
    if name.startswith(("NCCL_", "TORCH_NCCL_")) and readers.backend != "nccl":
        used = f"these processes communicate over {readers.backend}"
        return f"only NCCL reads it, and {used if readers.backend else 'not needed for one process'}"
    workaround = next((each for each in NCCL_WORKAROUNDS.values() if each.name == name), None)
    why = why_workaround_ignored(workaround, readers.toolchain) if workaround and readers.backend == "nccl" else ""
    return f"it {why}" if why else ""

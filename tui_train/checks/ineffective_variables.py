"""Variables that users set and that do nothing, or harm, in the versions that will run; with what to do instead."""

from collections.abc import Callable
from typing import NamedTuple

from tui_train.base.versions import known_since, older
from tui_train.facts.types import Toolchain
from tui_train.launchers import LAUNCHERS
from tui_train.profile.types import Launcher
from tui_train.resolve.communication import CURES, without_effect


class Run(NamedTuple):
    """What decides whether a variable is read: the libraries, the launcher, and the backend of the processes."""

    toolchain: Toolchain | None
    launcher: Launcher
    backend: str
    nemo: bool = False

    @property
    def torch(self) -> str | None:
        """The version of torch, None where it is unknown."""
        return self.toolchain.torch if self.toolchain else None


Why = Callable[[Run], str]


def _gloo(_run: Run) -> str:
    return "no version of accelerate reads it: choose the communication instead (communication.backend)"


def _master(run: Run) -> str:
    launcher = LAUNCHERS[run.launcher]
    words = f"{launcher.LABEL} takes it from its arguments only (nodes.address, nodes.port)"
    return words if launcher.ADDRESS_IN_WORDS else ""


def _transformer_engine(_run: Run) -> str:
    return "Transformer Engine ignores it since 1.6"


def _record_streams(run: Run) -> str:
    return "it is the default since torch 2.8" if known_since(run.torch, "2.8") else ""


def _renamed(name: str) -> Why:
    return lambda _run: f"deprecated name: use TORCH_{name}"


def _wandb(run: Run) -> str:
    transformers = run.toolchain.transformers if run.toolchain else None
    return "transformers 5 does not read it: WANDB_MODE=disabled does" if known_since(transformers, "5") else ""


def _allocator(run: Run) -> str:
    if not older(run.torch, "2.10"):
        return ""
    return f"torch {run.torch} ignores it: PYTORCH_CUDA_ALLOC_CONF is read by every version"


def _blocking(_run: Run) -> str:
    return "it is for finding hangs, and slows every step"


def _mixed_precision(run: Run) -> str:
    launcher = LAUNCHERS[run.launcher]
    return f"{launcher.LABEL} sets it by itself: choose recipe.precision" if launcher.READS_CONFIG else ""


def _connections(run: Run) -> str:
    return "" if run.nemo else "it is for tensor parallel training, and slows any other"


INEFFECTIVE: dict[str, Why] = {
    "ACCELERATE_USE_GLOO": _gloo,
    "ACCELERATE_BACKEND": _gloo,
    "ACCELERATE_DDP_BACKEND": _gloo,
    "ACCELERATE_MIXED_PRECISION": _mixed_precision,
    "MASTER_ADDR": _master,
    "MASTER_PORT": _master,
    "NVTE_DP_AMAX_REDUCE_INTERVAL": _transformer_engine,
    "NVTE_ASYNC_AMAX_REDUCTION": _transformer_engine,
    "TORCH_NCCL_AVOID_RECORD_STREAMS": _record_streams,
    "NCCL_ASYNC_ERROR_HANDLING": _renamed("NCCL_ASYNC_ERROR_HANDLING"),
    "NCCL_BLOCKING_WAIT": _renamed("NCCL_BLOCKING_WAIT"),
    "TORCH_NCCL_BLOCKING_WAIT": _blocking,
    "WANDB_DISABLED": _wandb,
    "PYTORCH_ALLOC_CONF": _allocator,
    "CUDA_DEVICE_MAX_CONNECTIONS": _connections,
}


def why_ineffective(name: str, run: Run) -> str:
    """Return why a variable has no effect, or not the intended one; empty when it works."""
    if name in INEFFECTIVE:
        return INEFFECTIVE[name](run)
    if name.startswith(("NCCL_", "TORCH_NCCL_")) and run.backend != "nccl":
        reason = f"these processes communicate over {run.backend}" if run.backend else "not needed for one process"
        return f"only NCCL reads it, and {reason}"
    cure = next((cure for cure in CURES.values() if cure.name == name), None)
    return f"it {why}" if cure and run.backend == "nccl" and (why := without_effect(cure, run.toolchain)) else ""

"""Job: the training that a launcher starts."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tui_train.profile.types import Strategy


class LauncherJob(Struct, frozen=True, kw_only=True):
    """One attempt on one of `nodes` machines: its Python, processes, devices and sharding."""

    python: str
    processes: int
    gpus: tuple[str, ...]
    """UUIDs on the first machine, empty on the CPU."""
    precision: str
    torchrun_flags: tuple[str, ...] = ()
    """The flags that the torchrun of this Python accepts, empty if not known."""
    nodes: int = 1
    port: int = 0
    strategy: Strategy = "ddp"
    offload: bool = False
    accumulation: int = 1
    clipping: float = 1.0
    """The gradient norm at which DeepSpeed clips."""
    config_file: str = ""
    """The launcher's file in the run folder."""
    scheduled: bool = False
    """Slurm chooses the machines and their GPUs when it starts."""
    uneven_processes: tuple[int, ...] = ()
    """The processes of each machine, empty where all have as many."""
    user_config: Mapping[str, Any] = {}
    """The user's own config of the launcher."""

    @property
    def world_size(self) -> int:
        """The number of processes on all machines."""
        return sum(self.uneven_processes) or self.processes * self.nodes

"""Launcher: the interface of all launchers, and LauncherJob, the training that one starts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from tui_train.base.command import CommandPart, ConfigFile, EnvSetting
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
    clipping_norm: float = 1.0
    """The gradient norm at which DeepSpeed clips."""
    config_file: str = ""
    """The launcher's file in the run folder."""
    is_slurm_job: bool = False
    """Slurm chooses the machines and their GPUs when it starts."""
    uneven_processes: tuple[int, ...] = ()
    """The processes of each machine, empty where all have as many."""
    user_config: Mapping[str, Any] = {}
    """The user's own config of the launcher."""

    @property
    def world_size(self) -> int:
        """The number of processes on all machines."""
        return sum(self.uneven_processes) or self.processes * self.nodes


class Launcher:
    """A program that starts the training processes of one machine, bound to a job.

    Several processes find RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE in their environment.

    `starts_several_processes`, `starts_on_several_machines`: it can; `allows_uneven_processes`:
    another number of them on each. `sharding_strategies` are those that it supports, `needs` the packages that the
    training Python must have.
    `reads_config`: it reads the user's accelerate config. `sets_precision`: it passes the precision to scripts.
    `takes_address_as_arguments`: it ignores MASTER_ADDR and MASTER_PORT. `sets_ranks`: a single process finds them too.
    `starts_nemo_recipes`: it can start NeMo's recipes.
    """

    label: ClassVar[str]
    description: ClassVar[str]
    starts_several_processes: ClassVar[bool] = False
    starts_on_several_machines: ClassVar[bool] = False
    allows_uneven_processes: ClassVar[bool] = False
    sharding_strategies: ClassVar[frozenset[Strategy]] = frozenset()
    needs: ClassVar[tuple[str, ...]] = ()
    reads_config: ClassVar[bool] = False
    sets_precision: ClassVar[bool] = False
    takes_address_as_arguments: ClassVar[bool] = False
    sets_ranks: ClassVar[bool] = False
    starts_nemo_recipes: ClassVar[bool] = False

    def __init__(self, job: LauncherJob) -> None:
        """Bind it to a job."""
        self.job = job

    def command_parts(self) -> tuple[CommandPart, ...]:
        """Return the arguments before the training script."""
        raise NotImplementedError

    def environment_settings(self) -> tuple[EnvSetting, ...]:
        """Return the variables that this launcher needs."""
        return ()

    def config_files(self) -> tuple[ConfigFile, ...]:
        """Return the files that this launcher reads."""
        return ()

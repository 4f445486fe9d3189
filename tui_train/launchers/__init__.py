"""LAUNCHERS: the programs that start the training processes, one module each, and the automatic choice."""

from collections.abc import Callable
from typing import Protocol

from tui_train.base.command import ConfigFile, Part, Setting
from tui_train.launchers import accelerate, python, torchrun
from tui_train.launchers.job import Job
from tui_train.profile.types import Launcher as Name
from tui_train.profile.types import Strategy


class Launcher(Protocol):
    """A program that starts the training processes of one machine.

    Several processes find RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE in their environment.

    SEVERAL: it can start more than one process, SPANS: also on several machines, UNEVEN: another number of them on
    each. SHARDS are the sharding strategies that it supports, NEEDS the packages that the training Python must have.
    READS_CONFIG: it reads the user's accelerate config. SETS_PRECISION: it passes the precision to scripts.
    ADDRESS_IN_WORDS: it ignores MASTER_ADDR and MASTER_PORT. SETS_RANKS: a single process finds them too.
    STARTS_RECIPES: it can start NeMo's recipes.
    """

    LABEL: str
    ABOUT: str
    STARTS_SEVERAL: bool
    SPANS_MACHINES: bool
    ALLOWS_UNEVEN: bool
    SHARDS: frozenset[Strategy]
    NEEDS: tuple[str, ...]
    READS_CONFIG: bool
    SETS_PRECISION: bool
    ADDRESS_IN_WORDS: bool
    SETS_RANKS: bool
    STARTS_RECIPES: bool

    def parts(self, job: Job) -> tuple[Part, ...]:
        """Return the arguments before the training script."""
        ...

    def settings(self, job: Job) -> tuple[Setting, ...]:
        """Return the variables that this launcher needs."""
        ...

    def configs(self, job: Job) -> tuple[ConfigFile, ...]:
        """Return the files that this launcher reads."""
        ...


# In order of preference for the automatic choice.
LAUNCHERS: dict[Name, Launcher] = {"python": python, "torchrun": torchrun, "accelerate": accelerate}


def choose_launcher(processes: int, strategy: Strategy, machines: int = 1, *, reads_ranks: bool = False) -> Name:
    """Return the launcher for that many processes on each machine and this strategy.

    reads_ranks: the script needs RANK and its like for a single process too.
    """
    able: list[Name] = [
        name
        for name, launcher in LAUNCHERS.items()
        if (strategy == "ddp" or strategy in launcher.SHARDS)
        and (processes == 1 or launcher.STARTS_SEVERAL)
        and (machines == 1 or launcher.SPANS_MACHINES)
    ]
    if reads_ranks and processes == machines == 1:
        able = [name for name in able if LAUNCHERS[name].SETS_RANKS] or able
    return able[0]


def launcher_labels(is_able: Callable[[Launcher], bool]) -> str:
    """Return the launchers that can do something, in words."""
    return " or ".join(launcher.LABEL for launcher in LAUNCHERS.values() if is_able(launcher))


def launchers_supporting(strategy: Strategy) -> tuple[Name, ...]:
    """Return the launchers that shard a model by a strategy."""
    return tuple(name for name, launcher in LAUNCHERS.items() if strategy in launcher.SHARDS)

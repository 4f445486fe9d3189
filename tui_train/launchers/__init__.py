"""LAUNCHERS: what can start the training processes, one module each, and which one is chosen automatically."""

from typing import Protocol

from tui_train.base.command import ConfigFile, Part, Setting
from tui_train.launchers import accelerate, python, torchrun
from tui_train.launchers.job import Job
from tui_train.profile.types import Launcher as Name
from tui_train.profile.types import Strategy


class Launcher(Protocol):
    """A way to start the training processes of one machine, and what it can do.

    It starts SEVERAL processes or one, and shards the model by the strategies in SHARDS. NEEDS names the packages that
    the training Python must have. SETS_PRECISION: a script gets the precision from it. ADDRESS_IN_WORDS: it ignores
    MASTER_ADDR and MASTER_PORT. STARTS_RECIPES: NeMo's recipes run under it.
    """

    LABEL: str
    ABOUT: str
    SEVERAL: bool
    SHARDS: frozenset[Strategy]
    NEEDS: tuple[str, ...]
    SETS_PRECISION: bool
    ADDRESS_IN_WORDS: bool
    STARTS_RECIPES: bool

    def parts(self, job: Job) -> tuple[Part, ...]:
        """Return the words before the training script."""
        ...

    def settings(self, job: Job) -> tuple[Setting, ...]:
        """Return the variables that this launcher needs."""
        ...

    def configs(self, job: Job) -> tuple[ConfigFile, ...]:
        """Return the files that this launcher reads."""
        ...


# Of those that can do what is wanted, the first is chosen automatically.
LAUNCHERS: dict[Name, Launcher] = {"python": python, "torchrun": torchrun, "accelerate": accelerate}


def automatic(processes: int, strategy: Strategy) -> Name:
    """Return the launcher for that many processes, on all machines together, with the model held so."""
    return next(
        name
        for name, launcher in LAUNCHERS.items()
        if (strategy == "ddp" or strategy in launcher.SHARDS) and (processes == 1 or launcher.SEVERAL)
    )


def that_shard(strategy: Strategy) -> tuple[Name, ...]:
    """Return the launchers that shard a model by a strategy."""
    return tuple(name for name, launcher in LAUNCHERS.items() if strategy in launcher.SHARDS)

"""LAUNCHERS: the programs that start the training processes, one module each, and the automatic choice."""

from collections.abc import Callable

from tui_train.launchers.accelerate import Accelerate
from tui_train.launchers.launcher import Launcher
from tui_train.launchers.python import Python
from tui_train.launchers.torchrun import Torchrun
from tui_train.profile.types import LauncherName, Strategy

# In order of preference for the automatic choice.
LAUNCHERS: dict[LauncherName, type[Launcher]] = {"python": Python, "torchrun": Torchrun, "accelerate": Accelerate}


def choose_launcher(
    processes: int, strategy: Strategy, machines: int = 1, *, reads_ranks: bool = False
) -> LauncherName:
    """Return the launcher for that many processes on each machine and this strategy.

    reads_ranks: the script needs RANK and its like for a single process too.
    """
    able: list[LauncherName] = [
        name
        for name, launcher in LAUNCHERS.items()
        if (strategy == "ddp" or strategy in launcher.sharding_strategies)
        and (processes == 1 or launcher.starts_several_processes)
        and (machines == 1 or launcher.starts_on_several_machines)
    ]
    if reads_ranks and processes == machines == 1:
        able = [name for name in able if LAUNCHERS[name].sets_ranks] or able
    return able[0]


def capable_launchers_text(is_able: Callable[[type[Launcher]], bool]) -> str:
    """Return the launchers that can do something, in words."""
    return " or ".join(launcher.label for launcher in LAUNCHERS.values() if is_able(launcher))


def launchers_supporting(strategy: Strategy) -> tuple[LauncherName, ...]:
    """Return the launchers that shard a model by a strategy."""
    return tuple(name for name, launcher in LAUNCHERS.items() if strategy in launcher.sharding_strategies)

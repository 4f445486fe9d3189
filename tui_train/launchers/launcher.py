"""Launcher: the interface of all launchers, with what most have in common."""

from typing import ClassVar

from tui_train.base.command import CommandPart, ConfigFile, EnvSetting
from tui_train.launchers.job import LauncherJob
from tui_train.profile.types import Strategy


class Launcher:
    """A program that starts the training processes of one machine, bound to a job.

    Several processes find RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE in their environment.

    `starts_several`: it can start more than one process, `spans_machines`: also on several machines, `allows_uneven`:
    another number of them on each. `shards` are the sharding strategies that it supports, `needs` the packages that the
    training Python must have.
    `reads_config`: it reads the user's accelerate config. `sets_precision`: it passes the precision to scripts.
    `address_in_words`: it ignores MASTER_ADDR and MASTER_PORT. `sets_ranks`: a single process finds them too.
    `starts_recipes`: it can start NeMo's recipes.
    """

    label: ClassVar[str]
    about: ClassVar[str]
    starts_several: ClassVar[bool] = False
    spans_machines: ClassVar[bool] = False
    allows_uneven: ClassVar[bool] = False
    shards: ClassVar[frozenset[Strategy]] = frozenset()
    needs: ClassVar[tuple[str, ...]] = ()
    reads_config: ClassVar[bool] = False
    sets_precision: ClassVar[bool] = False
    address_in_words: ClassVar[bool] = False
    sets_ranks: ClassVar[bool] = False
    starts_recipes: ClassVar[bool] = False

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

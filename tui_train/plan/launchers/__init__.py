"""LAUNCHERS: what can start the training processes, one module each."""

from typing import Protocol

from tui_train.plan.launchers import accelerate, python, torchrun
from tui_train.plan.launchers.job import Job
from tui_train.plan.types import ConfigFile, Part, Setting


class Launcher(Protocol):
    """A way to start the training processes of one machine."""

    LABEL: str
    ABOUT: str
    SEVERAL: bool

    def parts(self, job: Job) -> tuple[Part, ...]:
        """Return the words before the training script."""
        ...

    def settings(self, job: Job) -> tuple[Setting, ...]:
        """Return the variables that this launcher needs."""
        ...

    def configs(self, job: Job) -> tuple[ConfigFile, ...]:
        """Return the files that this launcher reads."""
        ...


LAUNCHERS: dict[str, Launcher] = {"python": python, "torchrun": torchrun, "accelerate": accelerate}

"""Plain python: one process, one device."""

from tui_train.base.command import ConfigFile, Part, Setting
from tui_train.launchers.job import Job
from tui_train.profile.types import Strategy

LABEL: str = "python"
ABOUT: str = "one process on one device"
STARTS_SEVERAL: bool = False
SPANS_MACHINES: bool = False
ALLOWS_UNEVEN: bool = False
SHARDS: frozenset[Strategy] = frozenset()
NEEDS: tuple[str, ...] = ()
READS_CONFIG: bool = False
SETS_PRECISION: bool = False
ADDRESS_IN_WORDS: bool = False
SETS_RANKS: bool = False
STARTS_RECIPES: bool = True


def parts(job: Job) -> tuple[Part, ...]:
    """Return the interpreter alone."""
    return (Part((job.python,)),)


def settings(job: Job) -> tuple[Setting, ...]:
    """Return nothing: plain python needs no variables."""
    del job
    return ()


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return nothing: plain python reads no file."""
    del job
    return ()

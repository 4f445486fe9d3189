"""torchrun, started as a module so that the chosen interpreter runs it."""

from tui_train.base.command import (
    ADDRESS,
    NODE_RANK,
    PORT,
    PROCESSES,
    ConfigFile,
    Part,
    Setting,
    Variable,
    Word,
    joined,
)
from tui_train.launchers.job import Job
from tui_train.profile.types import Strategy

LABEL: str = "torchrun"
ABOUT: str = "one process per device; part of PyTorch"
STARTS_SEVERAL: bool = True
SPANS_MACHINES: bool = True
ALLOWS_UNEVEN: bool = True
SHARDS: frozenset[Strategy] = frozenset()
NEEDS: tuple[str, ...] = ()
READS_CONFIG: bool = False
SETS_PRECISION: bool = False
ADDRESS_IN_WORDS: bool = True
SETS_RANKS: bool = True
STARTS_RECIPES: bool = True


def parts(job: Job) -> tuple[Part, ...]:
    """Return the torchrun command for one of the machines."""
    command = [Part((job.python, "-m", "torch.distributed.run"), "torchrun of this Python")]
    if job.nodes == 1:
        command += _flag_parts(job, "--standalone", None, "one machine: picks a free port")
        command += _flag_parts(job, "--local-addr", "127.0.0.1", "works where the host name does not resolve")
    else:
        command += _flag_parts(
            job, "--nnodes", str(job.nodes), "number of machines; each runs this command with its own rank"
        )
        command += _flag_parts(job, "--node-rank", NODE_RANK, "0 is the first machine, at the address below")
        command += _flag_parts(job, "--master-addr", ADDRESS, "address of the first machine")
        command += _flag_parts(
            job, "--master-port", PORT if job.scheduled else str(job.port), "a free port on the first machine"
        )
    processes = PROCESSES if job.uneven_processes else str(job.processes)
    command += _flag_parts(job, "--nproc-per-node", processes, "not auto: that counts all visible GPUs")
    why = "a restart would fail again; the next attempt changes something"
    return (*command, *_flag_parts(job, "--max-restarts", "0", why))


def settings(job: Job) -> tuple[Setting, ...]:
    """Return the variables for several processes on the CPU; none for GPUs."""
    if job.gpus or job.world_size == 1:
        return ()
    why = "otherwise scripts with accelerate become unconnected processes on a machine without GPUs"
    return (Setting("ACCELERATE_USE_CPU", "true", why, "launcher"),)


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return nothing: torchrun reads no file."""
    del job
    return ()


def _flag_parts(job: Job, flag: str, value: str | Variable | None, why: str) -> list[Part]:
    """Return a flag as this torchrun spells it, nothing if it does not know the flag (it would reject it)."""
    underscored = "--" + flag[2:].replace("-", "_")
    accepted_flag = next(
        (spelling for spelling in (flag, underscored) if spelling in (job.torchrun_flags or (flag,))), None
    )
    if accepted_flag is None:
        return []
    word: Word = accepted_flag
    if value is not None:
        word = f"{accepted_flag}={value}" if isinstance(value, str) else joined((f"{accepted_flag}=", value))
    return [Part((word,), why)]

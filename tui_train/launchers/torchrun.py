"""torchrun, started as a module so that it is the chosen interpreter's own."""

from tui_train.base.command import NODE_RANK, ConfigFile, Part, Setting, Variable, Word, joined
from tui_train.launchers.job import Job
from tui_train.profile.types import Strategy

LABEL: str = "torchrun"
ABOUT: str = "one process per device; PyTorch's own"
SEVERAL: bool = True
SHARDS: frozenset[Strategy] = frozenset()
NEEDS: tuple[str, ...] = ()
SETS_PRECISION: bool = False
ADDRESS_IN_WORDS: bool = True
STARTS_RECIPES: bool = True


def parts(job: Job) -> tuple[Part, ...]:
    """Return torchrun's words for one of the machines."""
    found = [Part((job.python, "-m", "torch.distributed.run"), "torchrun, of this very Python")]
    if job.nodes == 1:
        found += _flag(job, "--standalone", None, "one host: picks a free port itself")
        found += _flag(job, "--local-addr", "127.0.0.1", "works where the host name does not resolve")
    else:
        found += _flag(job, "--nnodes", str(job.nodes), "machines, each with the same command but for its rank")
        found += _flag(job, "--node-rank", NODE_RANK, "0 is the first one, at the address below")
        found += _flag(job, "--master-addr", job.address, "where the others reach the first one")
        found += _flag(job, "--master-port", str(job.port), "a free port of the first one")
    found += _flag(job, "--nproc-per-node", str(job.processes), "never auto: that counts every visible card")
    why = "a restart would repeat the failure: the next attempt changes something"
    return (*found, *_flag(job, "--max-restarts", "0", why))


def settings(job: Job) -> tuple[Setting, ...]:
    """Return the variables that several processes on the CPU need; GPUs need none."""
    if job.gpus or job.world_size == 1:
        return ()
    why = "a script that uses accelerate would become unconnected single processes on a machine without GPUs"
    return (Setting("ACCELERATE_USE_CPU", "true", why, "launcher"),)


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return nothing: torchrun reads no file."""
    del job
    return ()


def _flag(job: Job, flag: str, value: str | Variable | None, why: str) -> list[Part]:
    """Return a flag as the Python's torchrun spells it, nothing where it has none: it refuses what it does not know."""
    older = "--" + flag[2:].replace("-", "_")
    spelled = next((spelling for spelling in (flag, older) if spelling in (job.torchrun or (flag,))), None)
    if spelled is None:
        return []
    word: Word = spelled
    if value is not None:
        word = f"{spelled}={value}" if isinstance(value, str) else joined((f"{spelled}=", value))
    return [Part((word,), why)]

"""torchrun, started as a module so that it is the chosen interpreter's own."""

from tui_train.facts.versions import at_least
from tui_train.plan.launchers.job import Job
from tui_train.plan.types import NODE_RANK, ConfigFile, Part, Setting, Variable, Word, joined

LABEL: str = "torchrun"
ABOUT: str = "one process per device; PyTorch's own"
SEVERAL: bool = True

# The PyTorch from which torchrun has each flag in this spelling: it refuses to start with one that it does not know.
# Later ones, as --shutdown-timeout (2.12) and --signals-to-handle (2.10), give nothing that launch.sh does not do.
SINCE = {
    "--standalone": "1.9",
    "--nnodes": "1.9",
    "--nproc-per-node": "2.0",
    "--node-rank": "2.0",
    "--master-addr": "2.0",
    "--master-port": "2.0",
    "--max-restarts": "2.0",
    "--local-addr": "2.0",
}


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
    why = "a restart would repeat the failure; what follows a failure stands below"
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
    if not at_least(job.torch, SINCE[flag]):
        return []
    word: Word = joined((f"{flag}=", value)) if isinstance(value, Variable) else f"{flag}={value}" if value else flag
    return [Part((word,), why)]

"""torchrun on one host, started as a module so that it is the chosen interpreter's own."""

from tui_train.plan.launchers.job import Job
from tui_train.plan.types import ConfigFile, Part, Setting

LABEL: str = "torchrun"
ABOUT: str = "one process per device; PyTorch's own"
SEVERAL: bool = True


def parts(job: Job) -> tuple[Part, ...]:
    """Return torchrun's words for one host."""
    return (
        Part((job.python, "-m", "torch.distributed.run"), "torchrun, of this very Python"),
        Part(("--standalone",), "one host: picks a free port itself"),
        Part(("--local-addr=127.0.0.1",), "works where the host name does not resolve"),
        Part((f"--nproc-per-node={job.world_size}",), "never auto: that counts every visible card"),
        Part(("--max-restarts=0",), "a restart would repeat the failure; what follows a failure stands below"),
    )


def settings(job: Job) -> tuple[Setting, ...]:
    """Return the variables of the CPU's communication; GPUs need none."""
    return loopback(job)


def configs(job: Job) -> tuple[ConfigFile, ...]:
    """Return nothing: torchrun reads no file."""
    del job
    return ()


def loopback(job: Job) -> tuple[Setting, ...]:
    """Return the variable that keeps Gloo on the loopback interface when several CPU processes share one host."""
    if job.gpus or job.world_size == 1:
        return ()
    why = "one host: Gloo needs no other interface, and some host names resolve to none that works"
    return (Setting("GLOO_SOCKET_IFNAME", "lo", why, "launcher"),)

"""Slurm's own commands: what each is asked, in which environment, and what it answers."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible

_PATIENCE = 30.0
# They take the place of options in slurm.sh, or have sbatch wait for the end of the job.
_OVERRIDES = frozenset({
    "SBATCH_ARRAY_INX", "SBATCH_ERROR", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK", "SBATCH_GRES",
    "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_SIGNAL", "SBATCH_WAIT",
})  # fmt: skip


class NoAnswer(Unavailable):
    """A command of Slurm that may have done its work, but has not said so."""


def at(cluster: str) -> tuple[str, ...]:
    """Return the option that asks a cluster by its name; none for the default one."""
    return (f"--clusters={cluster}",) if cluster else ()


def answer(words: Sequence[str], *, given: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return what a command of Slurm answers; Unavailable where it is missing or takes too long."""
    try:
        return subprocess.run(
            words, input=given, cwd=folder, env=_environment(words[0]), capture_output=True, text=True,
            errors="replace", timeout=_PATIENCE, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{words[0]} gave no answer in {_PATIENCE:.0f} s", "Check `scontrol ping`.") from None
    except OSError as error:
        remedy = "Run this where jobs are submitted: on a login node of the cluster."
        raise Unavailable(f"{words[0]} cannot be started: {error.strerror}", remedy) from None


def _environment(command: str) -> dict[str, str]:
    """Return the environment of a command of Slurm, without what would change its question or the plan's options."""
    if command == "sbatch":
        return {name: value for name, value in os.environ.items() if name not in _OVERRIDES}
    asks = ("SQUEUE_", "SCANCEL_", "SLURM_CLUSTERS")
    return {name: value for name, value in os.environ.items() if not name.startswith(asks)}


def last_line(said: str) -> str:
    """Return the last line that a command said, safe to show."""
    return visible((said.strip().splitlines() or ["it does not say why"])[-1][:300])

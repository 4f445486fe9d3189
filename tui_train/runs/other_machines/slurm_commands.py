"""Slurm's own commands, here or on a host: what each is asked, in which environment, and what it answers."""

import os
import re
import subprocess
from collections.abc import Sequence

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.text import visible
from tui_train.facts.other_machines.submit_host import (
    COMMAND_TIMEOUT_SECONDS,
    PROGRAM_NOT_FOUND_CODE,
    run_on_submit_host,
)

# The variables that change a question; those of sbatch take the place of options in slurm.sh, or have it wait for the
# end of the job.
_QUERY_VARIABLES_PATTERN = r"(SQUEUE_|SCANCEL_|SLURM_CLUSTERS).*"
_SBATCH_VARIABLES_PATTERN = (
    "SBATCH_(ARRAY_INX|ERROR|GPUS|GPUS_PER_NODE|GPUS_PER_TASK|GRES|NO_REQUEUE|OPEN_MODE|OUTPUT|REQUEUE|SIGNAL|WAIT)"
)


def cluster_option(cluster: str) -> tuple[str, ...]:
    """Return the option that asks a cluster by its name; none for the default one."""
    return (f"--clusters={cluster}",) if cluster else ()


def run_slurm_command(
    command: Sequence[str], *, host: str = "", folder: str = "", stdin_data: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return what a command of Slurm answers in a folder, here or on a host.

    Unavailable where it is missing, NoAnswer where it takes too long or the connection is lost.
    """
    removed_pattern = _SBATCH_VARIABLES_PATTERN if command[0] == "sbatch" else _QUERY_VARIABLES_PATTERN
    if host:
        return _run_on_host(host, command, removed_pattern, folder, stdin_data)
    environment = {name: value for name, value in os.environ.items() if not re.fullmatch(removed_pattern, name)}
    try:
        return subprocess.run(
            command, input=stdin_data, cwd=folder or None, env=environment, capture_output=True, text=True,
            errors="replace", timeout=COMMAND_TIMEOUT_SECONDS, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NoAnswer(
            f"{command[0]} gave no answer in {COMMAND_TIMEOUT_SECONDS:.0f} s", "Check `scontrol ping`."
        ) from None
    except OSError as error:
        remedy = "Run this where jobs are submitted: on a login node of the cluster."
        raise Unavailable(f"{command[0]} cannot be started: {error.strerror}", remedy) from None


def _run_on_host(
    host: str, command: Sequence[str], removed_pattern: str, folder: str, stdin_data: str
) -> subprocess.CompletedProcess[str]:
    # Not given up with the program, which may have it submit or cancel a job.
    (result,) = run_on_submit_host(
        host, (command,), without_variables=removed_pattern, folder=folder, stdin_data=stdin_data
    )
    if result.failure or result.code is None:
        why = f"{command[0]} on {host} gave no answer: {result.failure}"
        raise NoAnswer(visible(why), f"Check `ssh {host} scontrol ping`.")
    error = result.error.decode("utf-8", "replace")
    if result.code == PROGRAM_NOT_FOUND_CODE:
        remedy = f"Name a login node of the cluster, one on which `ssh {host} {command[0]} --version` works."
        raise Unavailable(f"{command[0]} cannot be started on {visible(host)}: {last_output_line(error)}", remedy)
    return subprocess.CompletedProcess(command, result.code, result.out.decode("utf-8", "replace"), error)


def last_output_line(output: str) -> str:
    """Return the last line that a command said, safe to show."""
    return visible((output.strip().splitlines() or ["it does not say why"])[-1][:300])

"""Places where trainings run or are planned for: a machine, and what starts them there."""

from pathlib import Path

from tui_train.places.place import Place
from tui_train.runs.remote_run import read_run_location, read_unconfirmed_start
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import read_known_job


def place_of(machine_file: Path | None = None, host: str = "", *, slurm: bool = False) -> Place:
    """Return the place of a machine file or a host, which may be saved by its name: this machine without both.

    With `slurm` it is the cluster of this machine or the host, whose nodes are like the machine in the file.
    """
    return Place(host, slurm, machine_file)


def place_of_run(run: RunFolder) -> Place:
    """Return the place of a run."""
    asked = read_unconfirmed_start(run.path)
    return Place(read_run_location(run.path).host, slurm=bool(read_known_job(run.path) or (asked and asked.slurm)))

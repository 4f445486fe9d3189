"""Where a run's result is used: on its host unless it can be here, and in which folders it may be there."""

from pathlib import Path

from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import inode_and_size
from tui_train.base.text import visible
from tui_train.places import place_of_run
from tui_train.profile.hosts import host_address
from tui_train.runs.remote_run import read_host_report, read_remote_location
from tui_train.runs.results.result import CHECKPOINT_WEIGHTS_FOLDERS, FINAL_WEIGHTS_FOLDERS
from tui_train.runs.results.resuming import are_results_here
from tui_train.runs.run_folders import RunFolder


def host_of_result(run: RunFolder, named_host: str = "", python: str = "") -> str:
    """Return the host on which a run's result is used; empty: this machine.

    It is this one where it was fetched, and the Python that trained is here or another `python` is named. BadInput
    where another host than the run's is named, Unavailable where it is a job's.
    """
    place, name = read_remote_location(run.path), visible(run.name)
    if named_host and (place is None or host_address(named_host) != host_address(place.host)):
        where = f"on {visible(place.host)}" if place else "on this machine"
        raise BadInput(
            f"{name} is {where}, not on {visible(named_host)}",
            "Leave out --on: it is used on the machine that has it.",
        )
    if place is None:
        return ""
    slurm = place_of_run(run).slurm
    if not named_host and are_results_here(run) and (slurm or python or _is_training_python_here(run)):
        return ""
    if slurm:
        message = f"{name} was a job of Slurm: no model is loaded on the login node {visible(place.host)}"
        raise Unavailable(message, f"Copy its result here first: tui-train fetch {name}. Then repeat the command.")
    return place.host


def _is_training_python_here(run: RunFolder) -> bool:
    named = run.plan().get("python")
    return isinstance(named, str) and bool(inode_and_size(Path(named))[0])


def result_folder_candidates(run: RunFolder) -> list[list[str]]:
    """Return the folders on the host where a run's final weights may be, and those of its newest checkpoint."""
    place, report = read_remote_location(run.path), read_host_report(run.path)
    output = str(run.plan().get("output") or "output")
    if not output.startswith(("/", "~")) and place:
        output = f"{place.folder}/{output}"
    if run.checkpoint:
        chosen = f"{output}/checkpoint-{run.checkpoint}"
        return [[f"{chosen}/{name}".rstrip("/") for name in CHECKPOINT_WEIGHTS_FOLDERS], []]
    checkpoint = report.checkpoint if report else ""
    saved = [f"{checkpoint}/{name}".rstrip("/") for name in CHECKPOINT_WEIGHTS_FOLDERS] if checkpoint else []
    return [[f"{output}/{name}".rstrip("/") for name in FINAL_WEIGHTS_FOLDERS], saved]


def require_path_on_host(path: str, host: str) -> str:
    """Return a path of the host that has a result; BadInput for a relative one, for nobody knows to what."""
    if not path.startswith(("/", "~/")):
        raise BadInput(
            f"{visible(path)} is not an absolute path", f"The result is on {visible(host)}: name a path there."
        )
    return path

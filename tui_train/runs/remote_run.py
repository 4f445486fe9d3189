"""Local state of a run on another machine: its place, its host's last report, and an unconfirmed start.

A run on another host has a folder here, a copy that grows with the one there, or that very one.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from tui_train.base.files import raising_cannot_write, write_atomically
from tui_train.base.parse import Unparsable, parse_json_as, read_file_to_parse
from tui_train.runner.run_folder import events, state
from tui_train.runner.run_folder.state import RunStatus, is_valid_status
from tui_train.runner.system.processes import lasting_machine_identity

PLACE_FILE_NAME, HOST_REPORT_FILE_NAME, UNCONFIRMED_START_FILE_NAME = "place.json", "heard.json", "asked-start.json"
_MAX_FILE_BYTES = 1 << 20
_StructType = TypeVar("_StructType")


class RunLocation(Struct, frozen=True):
    """The place of a run: the host's name for ssh, and the folder there."""

    host: str
    folder: str
    shared: bool = False
    """The folder here is that one, on a disk that both have."""
    node: str = ""
    """Identifies the host among machines, also after a reboot."""

    def is_on_same_machine(self, other: "RunLocation") -> bool:
        """Return whether both are on one machine, which may have several names, or one of the nodes of a name."""
        return self.host == other.host or self.node == other.node != ""


class HostReport(Struct, frozen=True, kw_only=True):
    """Last report of a host about a run: when, how it stood, its newest checkpoint, and its number of starts.

    `limit`: its last start was ended near a time limit, so that its job may be queued again.
    """

    at: float
    status: RunStatus
    checkpoint: str = ""
    starts: int = 0
    limit: bool = False

    def __post_init__(self) -> None:
        """Refuse what no calendar and no system takes."""
        if not (0 <= self.at < events.MAX_UNIX_TIME and 0 <= self.starts < 2**31 and is_valid_status(self.status)):
            raise ValueError("a date or number in it is impossible")


class UnconfirmedStart(Struct, frozen=True):
    """A start that was asked for, by an id made here, and whose answer has not come; `slurm`: as a job."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{0,32}$")]
    slurm: bool = False


def read_remote_location(run_folder: Path) -> RunLocation | None:
    """Return where the run of a folder is, None for this machine."""
    place = read_struct_file(run_folder / PLACE_FILE_NAME, RunLocation)
    if place is None or not place.shared:
        return place
    if place.node == lasting_machine_identity():
        return None
    # It may have been renamed, here or there.
    return structs.replace(place, folder=str(PurePosixPath(place.folder).with_name(run_folder.name)))


def write_run_location(run_folder: Path, place: RunLocation) -> None:
    """Write the place of a run."""
    write_struct_file(run_folder / PLACE_FILE_NAME, place)


def read_run_location(run_folder: Path) -> RunLocation:
    """Return where the run of a folder is: on the host with an empty name where it is on this machine."""
    return read_remote_location(run_folder) or RunLocation("", str(run_folder))


def read_host_report(run_folder: Path) -> HostReport | None:
    """Return the last report about a run on another machine, None before the first."""
    return read_struct_file(run_folder / HOST_REPORT_FILE_NAME, HostReport)


def write_host_report(run_folder: Path, report: HostReport) -> None:
    """Write the last report about a run."""
    write_struct_file(run_folder / HOST_REPORT_FILE_NAME, report)


def read_unconfirmed_start(run_folder: Path) -> UnconfirmedStart | None:
    """Return the start of a run that is not confirmed, None where there is none."""
    asked = read_struct_file(run_folder / UNCONFIRMED_START_FILE_NAME, UnconfirmedStart)
    # A machine that shares the folder with who asked it knows what it has started.
    own = asked and not asked.slurm and read_remote_location(run_folder) is None
    return None if own else asked


def write_unconfirmed_start(run_folder: Path, asked: UnconfirmedStart | None) -> None:
    """Write that a start is about to be requested; None: its outcome is known."""
    if asked:
        write_struct_file(run_folder / UNCONFIRMED_START_FILE_NAME, asked)
    else:
        with raising_cannot_write(run_folder / UNCONFIRMED_START_FILE_NAME):
            (run_folder / UNCONFIRMED_START_FILE_NAME).unlink(missing_ok=True)


def read_struct_file(path: Path, struct_type: type[_StructType]) -> _StructType | None:
    """Return what a file of JSON holds, None where it is missing or holds something else."""
    try:
        return parse_json_as(read_file_to_parse(path, _MAX_FILE_BYTES), struct_type)
    except Unparsable:
        return None


def write_struct_file(path: Path, value: Struct) -> None:
    """Write a file of JSON; CannotWrite where that fails."""
    with raising_cannot_write(path):
        write_atomically(path, msgspec.json.encode(value))


def last_known_remote_status(run_folder: Path) -> RunStatus | None:
    """Return the last reported state of a run on another machine, None for a run on this one."""
    place = read_remote_location(run_folder)
    if place is None:
        return None
    if place.shared and (found := state.read_status(str(run_folder))).state != "new":
        return found._replace(host=place.host)
    report = read_host_report(run_folder)
    return (report.status if report else RunStatus("new"))._replace(host=place.host)


def is_output_in_shared_run_folder(place: RunLocation, output: str) -> bool:
    """Return whether a run's output is in its folder, which both machines have."""
    return place.shared and not output.startswith(("/", "~"))


def local_output_folder(run_folder: Path, output: str) -> Path:
    """Return where a run's output folder is on this machine: one of a host is in the run folder once it is fetched."""
    folder, place = output or "output", read_remote_location(run_folder)
    return run_folder / (Path(folder).name if place and not is_output_in_shared_run_folder(place, folder) else folder)

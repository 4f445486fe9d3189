"""Where a run is: a run on another host has a folder here, a copy that grows with the one there, or that very one."""

from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec import Struct, structs

from tui_train.base.parse import Unparsable, json_as, read_bytes
from tui_train.runner import events, state
from tui_train.runner.processes import lasting_identity
from tui_train.runner.state import Status, is_valid_status

PLACE_FILE, REPORT_FILE = "place.json", "heard.json"
_MAX_FILE_BYTES = 1 << 20
_StructType = TypeVar("_StructType")


class RunPlace(Struct, frozen=True):
    """Where a run is: the host's name for ssh, and the folder there."""

    host: str
    folder: str
    shared: bool = False
    """The folder here is that one, on a disk that both have."""
    node: str = ""
    """What tells the host from other machines, also after it was booted again."""


class HostReport(Struct, frozen=True, kw_only=True):
    """Last report of a host about a run: when, how it stood, its newest checkpoint, and its number of starts.

    `limit`: its last start was ended near a time limit, so that its job may be queued again.
    """

    at: float
    status: Status
    checkpoint: str = ""
    starts: int = 0
    limit: bool = False

    def __post_init__(self) -> None:
        """Refuse what no calendar and no system takes."""
        if not (0 <= self.at < events.MAX_UNIX_TIME and 0 <= self.starts < 2**31 and is_valid_status(self.status)):
            raise ValueError("a date or number in it is impossible")


def read_place(run_folder: Path) -> RunPlace | None:
    """Return where the run of a folder is, None for this machine."""
    place = _read_struct(run_folder / PLACE_FILE, RunPlace)
    if place is None or not place.shared:
        return place
    if place.node == lasting_identity():
        return None
    # It may have been renamed, here or there.
    return structs.replace(place, folder=str(PurePosixPath(place.folder).with_name(run_folder.name)))


def read_host_report(run_folder: Path) -> HostReport | None:
    """Return what was heard last of a run elsewhere, None for nothing yet."""
    return _read_struct(run_folder / REPORT_FILE, HostReport)


def _read_struct(path: Path, struct_type: type[_StructType]) -> _StructType | None:
    try:
        return json_as(read_bytes(path, _MAX_FILE_BYTES), struct_type)
    except Unparsable:
        return None


def remote_status(run_folder: Path) -> Status | None:
    """Return the state of a run elsewhere as it was heard last, None for a run on this machine."""
    place = read_place(run_folder)
    if place is None:
        return None
    report = read_host_report(run_folder)
    unclear = report is not None and report.status.state == state.UNCONFIRMED_STATE
    if place.shared and not unclear and (found := state.read(str(run_folder))).state != "new":
        return found._replace(host=place.host)
    return (report.status if report else Status("new"))._replace(host=place.host)

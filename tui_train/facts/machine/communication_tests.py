"""Tests of the communication: what each process did, what came of it, and the newest results, which are kept."""

import time
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct, structs

from tui_train.base.app_paths import communication_tests_file
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.base.parse import Unparsable, json_as, read_file_to_parse
from tui_train.profile.changes import Change
from tui_train.runner.system.processes import machine_boot_id

_MAX_FILE_BYTES = 1 << 20
_MAX_EXAMINATIONS_KEPT = 200


Stage = Literal["device", "process group", "first exchange", "all_reduce", "broadcast", "all_gather", "barrier", "end"]
# Of several processes; one alone only uses its device.
STAGES: tuple[Stage, ...] = get_args(Stage)[:-1]
_Seconds = Annotated[float, Meta(ge=0, le=1e6)]
_Text = Annotated[str, Meta(max_length=1000)]


class Exchange(Struct, frozen=True, kw_only=True):
    """One stage of one process: the seconds it took, or the problem in it; `hangs` where it waited too long."""

    rank: Annotated[int, Meta(ge=0, le=1_000_000)]
    stage: Stage
    seconds: _Seconds = 0.0
    problem: _Text = ""
    hangs: bool = False
    device: _Text = ""
    uuid: _Text = ""
    backend: _Text = ""
    bytes_per_second: Annotated[float, Meta(ge=0, le=1e15)] = 0.0


class CommunicationResult(Struct, frozen=True, kw_only=True):
    """What came of a test: the exchanges of each process; where it failed the cause and what to do."""

    processes: int
    works: bool
    exchanges: tuple[Exchange, ...] = ()
    bytes_per_second: float = 0.0
    """What the slowest process exchanged; 0 where none came so far."""
    cause: str = ""
    """Without a full stop."""
    remedy: str = ""
    change: Change | None = None
    """What the log asks for."""

    @property
    def is_known(self) -> bool:
        """Whether it says something of the communication: it works, or an exchange of it failed."""
        return self.works or any(each.problem and each.stage != "device" for each in self.exchanges)


class TriedCure(Struct, frozen=True, kw_only=True):
    """A change, and what came of the test with it; None where there was no time for it."""

    change: Change
    result: CommunicationResult | None


class Examination(Struct, frozen=True, kw_only=True):
    """The test of a profile as it is, and where that failed each change that was to be tried, in order."""

    result: CommunicationResult
    cures: tuple[TriedCure, ...] = ()
    at: float = 0.0
    """When it ended."""
    works_at_times: bool = False
    """It failed, and worked when it was tried again."""

    @property
    def proved_change(self) -> Change | None:
        """The first change with which it works, where it fails each time without."""
        return (
            None
            if self.works_at_times
            else next((cure.change for cure in self.cures if cure.result and cure.result.works), None)
        )


class _KeptExaminations(Struct, frozen=True):
    boot: str
    by_key: dict[str, Examination]


def load_examinations() -> dict[str, Examination]:
    """Return the newest examination of each setup since the machine was booted, without the exchanges."""
    try:
        kept = json_as(read_file_to_parse(communication_tests_file(), _MAX_FILE_BYTES), _KeptExaminations)
    except Unparsable:
        return {}
    return kept.by_key if kept.boot == machine_boot_id() else {}


def keep_examination(key: str, examination: Examination) -> None:
    """Keep an examination in place of the one before with its key; CannotWrite where the disk refuses it.

    One of which nothing is known of the communication only takes the place of the one before.
    """
    brief = structs.replace(
        examination,
        at=time.time(),
        result=structs.replace(examination.result, exchanges=()),
        cures=tuple(
            structs.replace(cure, result=cure.result and structs.replace(cure.result, exchanges=()))
            for cure in examination.cures
        ),
    )
    others = {other: kept for other, kept in load_examinations().items() if other != key}
    own = [(key, brief)] if examination.result.is_known else []
    newest = dict([*others.items(), *own][-_MAX_EXAMINATIONS_KEPT:])
    content = msgspec.json.encode(_KeptExaminations(machine_boot_id(), newest))
    write_atomically(communication_tests_file(), content, PRIVATE_FILE_MODE)

"""Tests of the communication: what each process did, what came of it, and the newest results, which are kept."""

import time

import msgspec
from msgspec import Struct, structs

from tui_train.base.app_paths import communication_tests_file
from tui_train.base.files import PRIVATE_FILE_MODE, write_atomically
from tui_train.base.parse import Unparsable, json_as, read_file_to_parse
from tui_train.profile.changes import Change
from tui_train.runner.system.processes import machine_boot_id

_MAX_FILE_BYTES = 1 << 20
_MAX_EXAMINATIONS_KEPT = 200


class Exchange(Struct, frozen=True, kw_only=True):
    """One stage of one process: the seconds it took, or the problem in it; `hangs` where it waited too long."""

    rank: int
    stage: str
    seconds: float = 0.0
    problem: str = ""
    hangs: bool = False
    device: str = ""
    uuid: str = ""
    backend: str = ""
    bytes_per_second: float = 0.0


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

    @property
    def proved_change(self) -> Change | None:
        """The first change with which it works."""
        return next((cure.change for cure in self.cures if cure.result and cure.result.works), None)


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
    """Keep an examination in place of the one before with its key; CannotWrite where the disk refuses it."""
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
    newest = dict([*others.items(), (key, brief)][-_MAX_EXAMINATIONS_KEPT:])
    content = msgspec.json.encode(_KeptExaminations(machine_boot_id(), newest))
    write_atomically(communication_tests_file(), content, PRIVATE_FILE_MODE)

"""Tests of the communication: what each process did, what came of it, and the newest results, which are kept."""

import time
from contextlib import suppress
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct, structs

from tui_train.base.app_paths import communication_tests_folder
from tui_train.base.files import PRIVATE_FILE_MODE, raising_cannot_write, write_atomically
from tui_train.base.parse import Unparsable, parse_json_as, read_file_to_parse
from tui_train.facts.answer_cache import remove_oldest_answers
from tui_train.profile.changes import Change
from tui_train.runner.system.processes import machine_boot_id

_MAX_FILE_BYTES = 1 << 20
_MAX_SAVED_EXAMINATIONS = 200
Stage = Literal["device", "process group", "first exchange", "all_reduce", "broadcast", "all_gather", "barrier", "end"]
# Of several processes; one alone only uses its device.
STAGES: tuple[Stage, ...] = get_args(Stage)[:-1]
_Seconds = Annotated[float, Meta(ge=0, le=1e6)]
_Text = Annotated[str, Meta(max_length=1000)]


class RankStage(Struct, frozen=True, kw_only=True):
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


class CommunicationTestResult(Struct, frozen=True, kw_only=True):
    """Result of a test: the stages of each process; for a failure its cause and remedy."""

    processes: int
    works: bool
    stages: tuple[RankStage, ...] = ()
    bytes_per_second: float = 0.0
    """The rate of the slowest process; 0: none exchanged data."""
    cause: str = ""
    """Without a full stop."""
    remedy: str = ""
    change: Change | None = None
    """The change that fixes the failure, by its log."""
    kept_at: str = ""
    """The host and the folder of a failed run whose files stay there."""

    @property
    def is_conclusive(self) -> bool:
        """Return whether the communication was tested: it works, or an exchange failed."""
        return self.works or any(each.problem and each.stage != "device" for each in self.stages)


class TriedFix(Struct, frozen=True, kw_only=True):
    """A change, and what came of the test with it; None where there was no time for it."""

    change: Change
    result: CommunicationTestResult | None


class Examination(Struct, frozen=True, kw_only=True):
    """The test of a profile as it is, and where that failed each change that was to be tried, in order."""

    result: CommunicationTestResult
    cures: tuple[TriedFix, ...] = ()
    at: float = 0.0
    """When it ended."""
    works_at_times: bool = False
    """It failed, and worked when it was tried again."""

    @property
    def proven_fix(self) -> Change | None:
        """The first change with which it works, where it fails each time without."""
        return (
            None
            if self.works_at_times
            else next((cure.change for cure in self.cures if cure.result and cure.result.works), None)
        )


def load_communication_examinations() -> dict[str, Examination]:
    """Return the newest examination of each setup since the machine was booted, without the exchanges."""
    begin, found = f"{machine_boot_id()}-", dict[str, Examination]()
    for file in communication_tests_folder().glob(f"{begin}*.json"):
        with suppress(Unparsable):
            found[file.stem.removeprefix(begin)] = parse_json_as(read_file_to_parse(file, _MAX_FILE_BYTES), Examination)
    return found


def save_communication_examination(key: str, examination: Examination) -> None:
    """Keep an examination in place of the one before with its key; CannotWrite where the disk refuses it.

    One of which nothing is known of the communication only takes the place of the one before. Each has a file of its
    own: another test may end at the same moment, also on a machine that shares the folder.
    """
    brief = structs.replace(
        examination,
        at=time.time(),
        result=structs.replace(examination.result, stages=(), kept_at=""),
        cures=tuple(
            structs.replace(cure, result=cure.result and structs.replace(cure.result, stages=()))
            for cure in examination.cures
        ),
    )
    file = communication_tests_folder() / f"{machine_boot_id()}-{key}.json"
    if examination.result.is_conclusive:
        write_atomically(file, msgspec.json.encode(brief), PRIVATE_FILE_MODE)
        remove_oldest_answers(file.parent, _MAX_SAVED_EXAMINATIONS)
    else:
        with raising_cannot_write(file):
            file.unlink(missing_ok=True)

"""Parts of a diagnosis, and its sentences."""

from msgspec import Struct

from tui_train.facts.types import Source
from tui_train.profile.changes import Change
from tui_train.profile.presets import Preset

# Lines of the end of a log have numbers from here on while it is not known how many come before them.
UNKNOWN_NUMBER = 1 << 40


class LogLine(Struct, frozen=True):
    """A line of a log: its number from 1, and its text without colours and prefix; `rank` where it says one."""

    number: int
    text: str
    rank: int | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """Evidence of an attempt: lines of its log, and what lies outside of it; None where that is unknown.

    `exit_code` is the shell's (128 + the signal where one ended it). `oom_kills` counts the kernel's kills in the
    control group, which may use `memory_limit` bytes. `free_disk` and `free_shm` are bytes. `lost` is an attempt that
    ended without anybody to see how. `checkpoint` is the newest whole one. `takes` names what the trainer can be
    passed, `cuda` says whether it was to train on GPUs. `phase` is where the GPU's memory ran out, as launch.sh read
    it, and `eval_batch` what the trainer evaluates at a time by itself (0: as many as it trains on). `resumed` is the
    step of the checkpoint that it was given, and `first_step` the first one that it told; 0 where that is unknown.
    `source` and `preset` are those of the script that was started.
    """

    lines: tuple[LogLine, ...]
    exit_code: int | None = None
    host: str = ""
    oom_kills: int | None = None
    memory_limit: int | None = None
    free_disk: int | None = None
    free_shm: int | None = None
    lost: bool = False
    last_step: int | None = None
    checkpoint: str = ""
    world_size: int = 1
    takes: frozenset[str] = frozenset()
    cuda: bool = False
    phase: str = ""
    eval_batch: int = 0
    resumed: int = 0
    first_step: int = 0
    source: Source | None = None
    preset: Preset | None = None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Cause of a failure: its class, the line that shows it (0: none), where, why, what to do, and a Change."""

    failure: str
    line: str
    line_number: int
    rank: int | None
    host: str
    cause: str
    remedy: str
    change: Change | None = None
    evidence: tuple[str, ...] = ()

    @property
    def position_text(self) -> str:
        """Where the line is, in words; empty for none."""
        if self.line_number >= UNKNOWN_NUMBER:
            return "near its end"
        return f"line {self.line_number}" if self.line_number else ""


class Signature(Struct, frozen=True, kw_only=True):
    """How a failure shows in a log; the fields are explained at the top of signatures.toml."""

    failure: str
    strength: int
    cause: str
    remedy: str
    when: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    warning: bool = False
    done: bool = False
    change: str = ""

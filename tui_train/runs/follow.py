"""Follows a run: its lines and news until it ends."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tui_train.base.files import read_regular
from tui_train.runs import queue
from tui_train.runs.health import MANY_LINES, unread
from tui_train.runs.ranks import MOST, Planned, Rank, compare, joined, parse, planned
from tui_train.runs.rundir import MOST_PLAN, RunDir
from tui_train.runs.slurm_end import ended_by
from tui_train.runs.status import continues, status
from tui_train.runs.tail import Tail
from tui_train.supervisor.first_step import HEAD, first_step, sentence
from tui_train.supervisor.lines import rank
from tui_train.supervisor.progress import Progress, Reading, advance, next_attempt
from tui_train.supervisor.regular import open_regular
from tui_train.supervisor.state import AttemptStatus, Status

_PAUSE = 0.15
_SELDOM = 1.0
_SHOWN = 32 << 10
_REMEMBERED = 4 << 20
_HEAD = 64 << 10
_MOST_EARLIER = 8  # attempts


class RunNews(Struct, frozen=True, kw_only=True):
    """What a viewer is told of a run: its status and progress; the lines it reads for itself.

    `attempt` is the newest one's number, `quiet` the whole minutes since it wrote something. `ranks` are the processes
    that said where they compute, `mismatch` says where that is not what was planned, `gpus` are the UUIDs of the
    planned cards, `gpu_names` their names, `prefixes` the ranks that lines begin with, `not_resumed` says where a
    checkpoint was not loaded. `last_steps` are the steps at which earlier attempts ended, by their numbers. `waits` is
    why it waits in a queue, and when it may start, or why Slurm ended it. `unread`: no step is read of its log.
    """

    status: Status
    progress: Progress = Progress()
    title: str = ""
    attempt: int = 0
    quiet: int = 0
    seconds_left: float | None = None
    ranks: tuple[Rank, ...] = ()
    mismatch: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    prefixes: tuple[int, ...] = ()
    not_resumed: str = ""
    gpu_names: tuple[str, ...] = ()
    last_steps: tuple[tuple[int, int], ...] = ()
    waits: str = ""
    unread: str = ""


class Ranks:
    """The ranks named in the first lines of an attempt's log, and in any line that is read later anyway."""

    def __init__(self, path: Path, plan: Planned) -> None:
        """Start without ranks."""
        self.known: tuple[Rank, ...] = ()
        self.mismatch: tuple[str, ...] = ()
        self._path = path
        self._plan = plan
        self._head = b""
        self._most = min(plan.world_size, MOST) if plan.world_size > 0 else MOST

    def read(self, lines: Iterable[str] = ()) -> None:
        """Read on in the first 64 KiB, which viewers of a long log skip, until every planned rank is known."""
        if 0 < self._plan.world_size <= sum(rank.world_size == self._plan.world_size for rank in self.known):
            return
        piece = b""
        if len(self._head) < _HEAD:
            try:
                with open_regular(self._path) as file:
                    file.seek(len(self._head))
                    piece = file.read(_HEAD - len(self._head))
            except OSError:
                pass
        begun = self._head.rfind(b"\n") + 1
        self._head += piece
        complete_lines = self._head[begun : self._head.rfind(b"\n") + 1].decode(errors="replace").split("\n")
        ranks = joined(dict.fromkeys((*self.known, *parse([*complete_lines, *lines], MOST))))
        if ranks != self.known:
            self.known = tuple(sorted(ranks, key=lambda rank: rank.rank))[: self._most]
            self.mismatch = compare(self.known, self._plan)


def ranks(run: RunDir, number: int) -> Ranks:
    """Return the ranks in the first lines of one attempt."""
    reader = Ranks(run.attempt_log(number), _planned(run))
    reader.read()
    return reader


def follow(run: RunDir, *, on_attempt: Callable[[AttemptStatus], None] = lambda _: None) -> Iterator[str]:
    """Yield every line of the run's attempts, in order, until it has ended and everything is read."""
    printed = 0
    tail: Tail | None = None
    while True:
        now = status(run)
        if tail:
            yield from tail.lines()
        newer = [attempt for attempt in now.attempts if attempt.number > printed]
        if newer:
            if tail and tail.unfinished:
                yield tail.unfinished
            on_attempt(newer[0])
            printed = newer[0].number
            tail = Tail(run.attempt_log(printed))
            continue
        if not continues(now):
            if tail and tail.unfinished:
                yield tail.unfinished
            return
        time.sleep(_pause(now))


def wait(run: RunDir) -> Status:
    """Wait until the run has ended, and return its status."""
    while continues(now := status(run)):
        time.sleep(_pause(now))
    return now


def _pause(now: Status) -> float:
    # Searching for processes of a dead supervisor takes longer than checking whether it lives.
    return _SELDOM if now.trains_on else _PAUSE


def watch(run: RunDir, cancelled: Callable[[], bool]) -> Iterator[RunNews]:
    """Yield news of a run's newest attempt, at most about seven times a second, until the run has ended.

    If the log grows faster than it is read, only its end is read.
    """
    titles, reading = run.titles(), run.reading()
    plan = _planned(run)
    told: RunNews | None = None
    reader: _Reader | None = None
    last_steps: dict[int, int] = {}
    unread_before = False
    while not cancelled():
        now = status(run)
        newest = now.attempts[-1] if now.attempts else None
        if newest and (reader is None or newest.number != reader.number):
            progress = Progress()
            # What it has not read to its end is read again from the start, with all attempts before the newest.
            unread_before = len(now.attempts) > 1 and not (
                reader and reader.begun and reader.number == now.attempts[-2].number
            )
            if reader and not unread_before:
                reader.read(reading)
                last_steps[reader.number] = reader.progress.step
                progress = next_attempt(reader.progress)
            # First without the log: reading the end of a large one takes time.
            reader = _Reader(run.attempt_log(newest.number), newest, plan, progress)
        elif reader:
            if unread_before:
                earlier, last_steps = _earlier(run, now.attempts[:-1], reading)
                reader.progress, unread_before = next_attempt(earlier), False
            reader.read(reading)
        found = reader.found if reader else None
        news = RunNews(
            status=now,
            progress=reader.progress if reader else Progress(),
            title=titles[newest.position - 1] if newest and 0 < newest.position <= len(titles) else "",
            attempt=reader.number if reader else 0,
            quiet=reader.silence.minutes() if reader and continues(now) else 0,
            seconds_left=reader.left() if reader else None,
            ranks=found.known if found else (),
            mismatch=found.mismatch if found else (),
            gpus=plan.gpus,
            prefixes=tuple(sorted(reader.prefixes)) if reader else (),
            not_resumed=reader.not_resumed if reader else "",
            gpu_names=plan.gpu_names,
            last_steps=tuple(last_steps.items()),
            waits=queue.queue_summary(run.path) if now.state == "queued" else "" if now.live else ended_by(run.path),
            unread=reader.unread(reading) if reader and now.state != "failed" else "",
        )
        ended = not continues(now) and not unread_before and not (reader and reader.tail.behind)
        if ended or news != told:
            yield news
        told = news
        if ended:
            return
        time.sleep(_pause(now))


def read_progress(run: RunDir, attempts: Sequence[AttemptStatus]) -> Progress:
    """Return how far some attempts of a run got, from the ends of their logs."""
    return _earlier(run, attempts, run.reading())[0]


def _earlier(run: RunDir, attempts: Sequence[AttemptStatus], reading: Reading) -> tuple[Progress, dict[int, int]]:
    """Return the progress of attempts, in their order, and the last step of each: of many, the newest are read."""
    progress, last_steps = Progress(), {}
    for attempt in attempts[-_MOST_EARLIER:]:
        tail = Tail(run.attempt_log(attempt.number), last=_REMEMBERED)
        progress = advance(next_attempt(progress), tail.lines(), reading)
        progress = advance(progress, [tail.bar] if tail.bar else [], reading)
        last_steps[attempt.number] = progress.step
    return progress, last_steps


class Silence:
    """The time since a log was written, at most since its attempt `started`.

    At first the date of the log is used, then a monotonic clock.
    """

    def __init__(self, log: Path, started: float) -> None:
        """Check the log for the first time."""
        self._log = log
        self._state = self._look()
        written = self._state[1] / 1e9 if self._state else started
        self._before = max(0.0, time.time() - max(written, started))
        self._since = time.monotonic()

    def minutes(self) -> int:
        """Return the full minutes until now."""
        state = self._look()
        if state != self._state:
            self._state, self._before, self._since = state, 0.0, time.monotonic()
        return int(self._before + time.monotonic() - self._since) // 60

    def _look(self) -> tuple[int, int] | None:
        try:
            stat = self._log.stat()
        except OSError:
            return None
        return stat.st_size, stat.st_mtime_ns


class _Reader:
    """Reads the log of one attempt: lines, progress, ranks."""

    def __init__(self, log: Path, attempt: AttemptStatus, plan: Planned, progress: Progress) -> None:
        self.number = attempt.number
        self.not_resumed = ""
        self._log = log
        # Compared once with the first step; 0 afterwards.
        self._resumed = attempt.resumed
        self.progress = progress
        self.tail = Tail(log, last=_REMEMBERED)
        self.found = Ranks(log, plan)
        self.silence = Silence(log, attempt.started)
        self.prefixes: set[int] = set()
        self._lines = self._losses = 0
        self.begun = False
        self._began = (0.0, 0)

    def read(self, reading: Reading) -> None:
        """Read the new part of the log, or its end."""
        if self.begun and self.tail.behind > _SHOWN:
            self.tail.skip(_SHOWN)
        self.begun = True
        lines = [*self.tail.lines()] if self.tail.behind or self.tail.problem else []
        self.found.read(lines)
        if not self.progress.curve.size:
            self._lines += len(lines)
            self._losses += sum("loss" in line.lower() for line in lines)
        if len(self.prefixes) < MOST:
            told = (rank(line) for line in lines if "]:" in line)
            self.prefixes.update(number for number in told if number is not None)
        bar = self.tail.bar
        if lines or bar:
            self.progress = advance(self.progress, [*lines, bar], reading)
            self._compare(reading)
        if self.progress.step and self._began[1] == 0:
            self._began = (time.monotonic(), self.progress.step)

    def _compare(self, reading: Reading) -> None:
        """Compare the first step with the given checkpoint, until a step is found or too much was written."""
        if not self._resumed:
            return
        first = first_step(str(self._log), reading)
        self.not_resumed = sentence(first, self._resumed)
        if first or self.tail.size() > HEAD:
            self._resumed = 0

    def unread(self, reading: Reading) -> str:
        """Return in words that no step is read, though there were lines that would have had one."""
        # Of a number that grows, only the first: else each line would be news.
        return unread(self.progress, min(self._lines, MANY_LINES), self._losses, reading)

    def left(self) -> float | None:
        """Return the seconds for the remaining steps, at the average speed since the first step seen."""
        clock, step = self._began
        done = self.progress.step - step
        if not step or done <= 0 or self.progress.steps < self.progress.step:
            return None
        return (time.monotonic() - clock) / done * (self.progress.steps - self.progress.step)


def _planned(run: RunDir) -> Planned:
    try:
        return planned(read_regular(run.plan_file, MOST_PLAN))
    except OSError:
        return Planned()

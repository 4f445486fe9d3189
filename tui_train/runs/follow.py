"""Follows a run until it ends: its lines, and snapshots of its state."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from tui_train.base.files import read_regular_file
from tui_train.runner.logs.lines import rank_in_line
from tui_train.runner.logs.log_head import LOG_HEAD_BYTES, first_logged_step, ignored_checkpoint_sentence
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress, progress_for_next_attempt
from tui_train.runner.queue.listing import list_waiting_starts
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runner.system.safe_open import open_regular_file
from tui_train.runs.health import MIN_LINES_WITHOUT_STEP, no_step_read_text
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.ranks import (
    MAX_RANKS,
    PlannedRanks,
    RankDevice,
    differences_from_plan,
    parse_planned_ranks,
    parse_rank_devices,
    process_group_ranks,
)
from tui_train.runs.run_folders import MAX_PLAN_BYTES, RunFolder
from tui_train.runs.slow_rank import SlowRankReader
from tui_train.runs.status import may_training_still_write, read_status, waiting_or_end_reason

_POLL_SECONDS = 0.15
_UNSUPERVISED_POLL_SECONDS = 1.0
_QUEUE_READ_SECONDS = 2.0
_MAX_UNREAD_BYTES = 32 << 10
_LOG_TAIL_BYTES = 4 << 20
_RANK_HEAD_BYTES = 64 << 10
_MAX_EARLIER_ATTEMPTS = 8  # attempts


class RunSnapshot(Struct, frozen=True, kw_only=True):
    """State of a run at a moment, for its viewer: status and progress, without the lines."""

    status: RunStatus
    progress: Progress = Progress()
    attempt_title: str = ""
    attempt_number: int = 0
    """The newest one's number."""
    has_output: bool = False
    """True if the newest attempt has written a line."""
    quiet_minutes: int = 0
    """Whole minutes since the newest attempt wrote something."""
    seconds_left: float | None = None
    steps_per_second: float | None = None
    """The average since the first step that was seen."""
    ranks: tuple[RankDevice, ...] = ()
    """The processes that said where they compute."""
    rank_differences: tuple[str, ...] = ()
    """Differences between these ranks and the plan, as sentences."""
    gpus: tuple[str, ...] = ()
    """The UUIDs of the planned cards."""
    line_prefix_ranks: tuple[int, ...] = ()
    """The ranks that lines begin with."""
    why_not_resumed: str = ""
    """The sentence that a checkpoint was not loaded, empty if it was."""
    gpu_names: tuple[str, ...] = ()
    """The names of the planned cards."""
    last_steps: tuple[tuple[int, int], ...] = ()
    """The steps at which earlier attempts ended, by their numbers."""
    queue_text: str = ""
    """The reason why it waits and its expected start, or why Slurm ended it."""
    starts_ahead: tuple[str, ...] | None = None
    """The runs and users that come before it in this machine's queue; None: it does not wait here."""
    why_no_step_read: str = ""
    """The reason why no step is read from its log, empty if one is."""
    slow_rank_sentence: str = ""
    """The sentence that names the process for which the others wait."""

    @property
    def was_folder_deleted(self) -> bool:
        """True if an attempt was seen whose events are gone: what deletes a folder takes its events first."""
        return self.status.state == "new" and self.attempt_number > 0


class RankReader:
    """The ranks named in the first lines of an attempt's log, and in any line that is read later anyway."""

    def __init__(self, path: Path, plan: PlannedRanks) -> None:
        """Start without ranks."""
        self.ranks: tuple[RankDevice, ...] = ()
        self.rank_differences: tuple[str, ...] = ()
        self._path = path
        self._plan = plan
        self._head = b""
        self._max_ranks = min(plan.world_size, MAX_RANKS) if plan.world_size > 0 else MAX_RANKS

    def read(self, lines: Iterable[str] = ()) -> None:
        """Read on in the first 64 KiB, which viewers of a long log skip, until every planned rank is known."""
        if 0 < self._plan.world_size <= sum(rank.world_size == self._plan.world_size for rank in self.ranks):
            return
        piece = b""
        if len(self._head) < _RANK_HEAD_BYTES:
            try:
                with open_regular_file(self._path) as file:
                    file.seek(len(self._head))
                    piece = file.read(_RANK_HEAD_BYTES - len(self._head))
            except OSError:
                pass
        begun = self._head.rfind(b"\n") + 1
        self._head += piece
        complete_lines = self._head[begun : self._head.rfind(b"\n") + 1].decode(errors="replace").split("\n")
        ranks = process_group_ranks(dict.fromkeys((*self.ranks, *parse_rank_devices([*complete_lines, *lines]))))
        if ranks != self.ranks:
            self.ranks = tuple(sorted(ranks, key=lambda rank: rank.rank))[: self._max_ranks]
            self.rank_differences = differences_from_plan(self.ranks, self._plan)


def rank_reader_of_attempt(run: RunFolder, attempt_number: int) -> RankReader:
    """Return a reader that has read the ranks in the first lines of one attempt."""
    planned = _with_assigned_gpus(_read_planned_ranks(run), read_status(run))
    reader = RankReader(run.attempt_log(attempt_number), planned)
    reader.read()
    return reader


def follow_lines(
    run: RunFolder,
    *,
    on_attempt: Callable[[AttemptStatus], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
    on_pause: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Yield every line of the run's attempts, in order, until it has ended and everything is read.

    `on_wait` gets what a start waits for, whenever that is something else.
    """
    waits_for = ""
    printed = 0
    tail: LogTail | None = None
    while True:
        status = read_status(run)
        if status.waits_for not in {"", waits_for}:
            waits_for = status.waits_for
            on_wait(waits_for)
        if tail:
            yield from tail.remaining_lines()
        newer = [attempt for attempt in status.attempts if attempt.number > printed]
        if newer:
            if tail and tail.unfinished_line:
                yield tail.unfinished_line
            on_attempt(newer[0])
            printed = newer[0].number
            tail = LogTail(run.attempt_log(printed))
            continue
        if not may_training_still_write(status):
            if tail and tail.unfinished_line:
                yield tail.unfinished_line
            return
        on_pause()
        time.sleep(_poll_pause_seconds(status))


def wait_for_end(run: RunFolder) -> RunStatus:
    """Wait until the run has ended, and return its status."""
    while may_training_still_write(status := read_status(run)):
        time.sleep(_poll_pause_seconds(status))
    return status


def _poll_pause_seconds(status: RunStatus) -> float:
    # Searching for processes of a dead supervisor takes longer than checking whether it lives.
    return _UNSUPERVISED_POLL_SECONDS if status.trains_unsupervised else _POLL_SECONDS


def follow_snapshots(run: RunFolder, is_cancelled: Callable[[], bool]) -> Iterator[RunSnapshot]:
    """Yield snapshots of a run's newest attempt, at most about seven times a second, until the run has ended.

    If the log grows faster than it is read, only its end is read.
    """
    follower = _RunFollower(run)
    last_snapshot: RunSnapshot | None = None
    while not is_cancelled():
        status = read_status(run)
        follower.read(status)
        snapshot, ended = follower.snapshot(status), not may_training_still_write(status) and follower.is_all_read
        if ended or snapshot != last_snapshot:
            yield snapshot
        last_snapshot = snapshot
        if ended:
            return
        time.sleep(_poll_pause_seconds(status))


class _RunFollower:
    """Reads the logs of a run: the newest attempt's, and the last steps of the earlier ones."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._titles, self._reading, self._plan = (
            run.attempt_titles(),
            run.log_reading_options(),
            _read_planned_ranks(run),
        )
        self._reader: _AttemptReader | None = None
        self._last_steps: dict[int, int] = {}
        self._starts_ahead: tuple[str, ...] | None = None
        self._queue_read_at = 0.0
        # Whether the ends of the earlier attempts are still to be read.
        self._unread_before = False

    @property
    def is_all_read(self) -> bool:
        """True if all that was written is read."""
        return not self._unread_before and not (self._reader and self._reader.tail.unread_bytes)

    def read(self, status: RunStatus) -> None:
        """Read on in the newest attempt's log; of a new attempt nothing yet: the end of a large log takes time."""
        newest = status.attempts[-1] if status.attempts else None
        if newest and (self._reader is None or newest.number != self._reader.number):
            progress = self._read_previous_attempt_to_end(status)
            plan = _with_assigned_gpus(self._plan, status)
            self._reader = _AttemptReader(self._run.attempt_log(newest.number), newest, plan, progress)
        elif self._reader:
            if self._unread_before:
                earlier, self._last_steps = _read_progress_and_last_steps(
                    self._run, status.attempts[:-1], self._reading
                )
                self._reader.progress, self._unread_before = progress_for_next_attempt(earlier), False
            self._reader.read(self._reading)

    def _read_previous_attempt_to_end(self, status: RunStatus) -> Progress:
        """Read the attempt before the newest to its end, and return the progress with which the newest begins.

        If it was not read from its start, all attempts before the newest are read again with the next reading.
        """
        reader = self._reader
        self._unread_before = len(status.attempts) > 1 and not (
            reader and reader.begun and reader.number == status.attempts[-2].number
        )
        if reader is None or self._unread_before:
            return Progress()
        reader.read(self._reading)
        self._last_steps[reader.number] = reader.progress.step
        return progress_for_next_attempt(reader.progress)

    def snapshot(self, status: RunStatus) -> RunSnapshot:
        """Return the snapshot for a viewer."""
        snapshot = RunSnapshot(
            status=status,
            attempt_title=self._attempt_title(status),
            gpus=status.gpus or self._plan.gpus,
            gpu_names=self._plan.gpu_names,
            last_steps=tuple(self._last_steps.items()),
            queue_text=waiting_or_end_reason(self._run, status),
            starts_ahead=self._starts_ahead_in_queue() if status.state == "waiting" and not status.host else None,
        )
        reader = self._reader
        if reader is None:
            return snapshot
        return structs.replace(
            snapshot,
            progress=reader.progress,
            attempt_number=reader.number,
            has_output=reader.has_output,
            # Of one that waits again, the log is that of its attempt before.
            quiet_minutes=reader.silence.minutes()
            if may_training_still_write(status) and not status.never_had_turn
            else 0,
            seconds_left=None if status.never_had_turn else reader.seconds_left(),
            steps_per_second=reader.steps_per_second(),
            ranks=reader.ranks.ranks,
            rank_differences=reader.ranks.rank_differences,
            line_prefix_ranks=tuple(sorted(reader.line_prefix_ranks)),
            why_not_resumed=reader.why_not_resumed,
            slow_rank_sentence=reader.slow_rank.sentence,
            why_no_step_read=reader.no_step_read_text(self._reading) if status.state != "failed" else "",
        )

    def _starts_ahead_in_queue(self) -> tuple[str, ...] | None:
        """Return the starts before this one, read now and then; None where it is not in the queue."""
        if time.monotonic() - self._queue_read_at >= _QUEUE_READ_SECONDS:
            self._queue_read_at, self._starts_ahead = time.monotonic(), None
            with suppress(OSError):
                starts = list_waiting_starts()
                own = next((index for index, start in enumerate(starts) if start.run == self._run.name), None)
                self._starts_ahead = (
                    None if own is None else tuple(f"{start.run} ({start.user})" for start in starts[:own])
                )
        return self._starts_ahead

    def _attempt_title(self, status: RunStatus) -> str:
        position = status.attempts[-1].position if status.attempts else 0
        return self._titles[position - 1] if 0 < position <= len(self._titles) else ""


def read_progress(
    run: RunFolder, attempts: Sequence[AttemptStatus], *, last_bytes: int | None = _LOG_TAIL_BYTES
) -> Progress:
    """Return how far some attempts of a run got, from the ends of their logs; None: from their whole logs."""
    return _read_progress_and_last_steps(run, attempts, run.log_reading_options(), last_bytes)[0]


def _read_progress_and_last_steps(
    run: RunFolder,
    attempts: Sequence[AttemptStatus],
    reading: LogReadingOptions,
    last_bytes: int | None = _LOG_TAIL_BYTES,
) -> tuple[Progress, dict[int, int]]:
    """Return the progress of attempts, in their order, and the last step of each: of many ends, the newest are read."""
    progress, last_steps = Progress(), {}
    for attempt in attempts if last_bytes is None else attempts[-_MAX_EARLIER_ATTEMPTS:]:
        tail = LogTail(run.attempt_log(attempt.number), last_bytes=last_bytes)
        progress = advance_progress(progress_for_next_attempt(progress), tail.remaining_lines(), reading)
        progress = advance_progress(progress, [tail.progress_bar] if tail.progress_bar else [], reading)
        last_steps[attempt.number] = progress.step
    return progress, last_steps


class LogSilence:
    """The time since a log was written, at most since its attempt `started`.

    At first the date of the log is used, then a monotonic clock.
    """

    def __init__(self, log: Path, started: float) -> None:
        """Check the log for the first time."""
        self._log = log
        self._state = self._size_and_write_time()
        written = self._state[1] / 1e9 if self._state else started
        self._seconds_before = max(0.0, time.time() - max(written, started))
        self._since = time.monotonic()

    def minutes(self) -> int:
        """Return the full minutes until now."""
        state = self._size_and_write_time()
        if state != self._state:
            self._state, self._seconds_before, self._since = state, 0.0, time.monotonic()
        return int(self._seconds_before + time.monotonic() - self._since) // 60

    def _size_and_write_time(self) -> tuple[int, int] | None:
        try:
            stat = self._log.stat()
        except OSError:
            return None
        return stat.st_size, stat.st_mtime_ns


class _AttemptReader:
    """Reads the log of one attempt: lines, progress, ranks."""

    def __init__(self, log: Path, attempt: AttemptStatus, plan: PlannedRanks, progress: Progress) -> None:
        self.number = attempt.number
        self.why_not_resumed = ""
        self._log = log
        # Compared once with the first step; 0 afterwards.
        self._resumed = attempt.resumed
        self.progress = progress
        self.tail = LogTail(log, last_bytes=_LOG_TAIL_BYTES)
        self.ranks = RankReader(log, plan)
        self.slow_rank = SlowRankReader()
        self.silence = LogSilence(log, attempt.started)
        self.line_prefix_ranks: set[int] = set()
        self._lines = self._losses = 0
        self.begun = False
        self._newest = self._timed_from = (0.0, 0)

    def read(self, reading: LogReadingOptions) -> None:
        """Read the new part of the log, or its end."""
        if self.begun and self.tail.unread_bytes > _MAX_UNREAD_BYTES:
            self.tail.skip_to_last(_MAX_UNREAD_BYTES)
        self.begun = True
        lines = [*self.tail.remaining_lines()] if self.tail.unread_bytes or self.tail.problem else []
        self.ranks.read(lines)
        self.slow_rank.read(lines)
        if not self.progress.curve.size:
            self._lines += len(lines)
            self._losses += sum("loss" in line.lower() for line in lines)
        if len(self.line_prefix_ranks) < MAX_RANKS:
            line_ranks = (rank_in_line(line) for line in lines if "]:" in line)
            self.line_prefix_ranks.update(number for number in line_ranks if number is not None)
        bar = self.tail.progress_bar
        if lines or bar:
            self.progress = advance_progress(self.progress, [*lines, bar], reading)
            self._check_checkpoint_was_loaded(reading)
        if self.progress.step != self._newest[1]:
            # When the first one seen was made is not known.
            if self._newest[1] and not self._timed_from[1]:
                self._timed_from = (time.monotonic(), self.progress.step)
            self._newest = (time.monotonic(), self.progress.step)

    def _check_checkpoint_was_loaded(self, reading: LogReadingOptions) -> None:
        """Compare the first step with the given checkpoint, until a step is found or too much was written."""
        if not self._resumed:
            return
        first = first_logged_step(str(self._log), reading)
        self.why_not_resumed = ignored_checkpoint_sentence(first, self._resumed)
        if first or self.tail.size() > LOG_HEAD_BYTES:
            self._resumed = 0

    @property
    def has_output(self) -> bool:
        """True if something was read from the log."""
        return bool(self._lines or self.tail.progress_bar or self.progress.curve.size)

    def no_step_read_text(self, reading: LogReadingOptions) -> str:
        """Return in words that no step is read, though there were lines that would have had one."""
        # Of a number that grows, only the first: else each line would be new.
        return no_step_read_text(self.progress, min(self._lines, MIN_LINES_WITHOUT_STEP), self._losses, reading)

    def steps_per_second(self) -> float | None:
        """Return the average speed from the first step seen to be made to the newest; None for less than a second."""
        (clock, step), (now, newest) = self._timed_from, self._newest
        return (newest - step) / (now - clock) if step and newest > step and now - clock >= 1 else None

    def seconds_left(self) -> float | None:
        """Return the seconds for the remaining steps, at the average speed since the first step seen to be made."""
        clock, step = self._timed_from
        done = self.progress.step - step
        if not step or done <= 0 or self.progress.steps < self.progress.step:
            return None
        return (time.monotonic() - clock) / done * (self.progress.steps - self.progress.step)


def _with_assigned_gpus(plan: PlannedRanks, status: RunStatus) -> PlannedRanks:
    """Return the plan with the GPUs of its kind that its last start got, where it had waited for any of them."""
    return structs.replace(plan, gpus=status.gpus) if status.gpus else plan


def _read_planned_ranks(run: RunFolder) -> PlannedRanks:
    try:
        return parse_planned_ranks(read_regular_file(run.plan_file, MAX_PLAN_BYTES))
    except OSError:
        return PlannedRanks()

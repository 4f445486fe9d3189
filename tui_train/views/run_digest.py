"""Runs as a list shows them: each is read once and kept until its files change; and the text of one in a row."""

import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from tui_train.base.errors import TuiTrainError
from tui_train.base.parse import MissingFile, Unparsable, parse_json_as, read_file_to_parse
from tui_train.base.text import broken_loss_text, loss_text, visible
from tui_train.plan.run_files import LogReadingRules
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress, progress_for_next_attempt
from tui_train.runner.logs.records import parse_number
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.follow import read_progress
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.results.resuming import why_not_resumable
from tui_train.runs.run_folders import MAX_PLAN_BYTES, RunFolder
from tui_train.runs.status import made_step_count, read_status
from tui_train.setup.profile_summary import TrainingSummary

from .metric_summaries import metric_value_text
from .profile_digests import read_summary_and_profile
from .setting_values import searchable_settings_text

ENDED_LOG_TAIL_BYTES = 16 << 10  # bytes of a log that has ended
_LIVE_LOG_TAIL_BYTES = 1 << 20  # of one that grows
_CURVE_POINT_COUNT = 48
_MIN_STEPS_OF_PACE = 20  # of an attempt, whose start took its time as well
_SCRIPT_FAILURE_CLASS = "user_exception"
_ERROR_NAME_PATTERN = re.compile(r"(?:Error|Exception)\b")
_CARD_VENDOR_PATTERN = re.compile(r"^(?:NVIDIA )?(?:GeForce )?")


class RunDigest(Struct, frozen=True, kw_only=True):
    """Run as a list shows it."""

    run: RunFolder
    status: RunStatus | None = None
    """None where it is not read yet, or cannot be."""
    damage: str = ""
    """The reason why its status cannot be read."""
    note: str = ""
    profile_name: str = ""
    summary: TrainingSummary = TrainingSummary()
    searchable_settings: str = ""
    """Settings that were chosen or planned, each as `key=value` in a line."""
    devices: str = ""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    eval_loss: float | None = None
    reward: float | None = None
    """The newest mean reward of a training on rewards, of which the loss says nothing."""
    losses: tuple[float, ...] = ()
    """The curve of a live run in some points."""
    seconds_left: float | None = None
    why_not_resumable: str = "was never started"
    """The reason why another start cannot resume from a checkpoint, empty if it can."""
    failure_heading: str = ""
    """Heading of a diagnosed failure."""
    failure_cause: str = ""
    """Cause of a diagnosed failure."""
    remedy: str = ""
    """Remedy of a diagnosed failure."""

    @property
    def is_live(self) -> bool:
        """True while it is at work."""
        return self.status is not None and (self.status.is_live or self.status.trains_unsupervised)

    @property
    def is_stoppable(self) -> bool:
        """True while it has processes that can be stopped."""
        return self.status is not None and (
            self.status.is_live or bool(self.status.leftover) or bool(self.status.container)
        )

    @property
    def state(self) -> str:
        """Its state in a word."""
        return self.status.state if self.status else "damaged" if self.damage else ""

    @property
    def broken_loss_text(self) -> str:
        """The words for a loss that is NaN or infinite at the end of a run, or by now; empty for none."""
        return broken_loss_text(self.loss)

    @property
    def is_resumable(self) -> bool:
        """True where another start goes on from a checkpoint."""
        return not self.why_not_resumable

    @property
    def short_cause(self) -> str:
        """Short cause of a failure: from its diagnosis, or else from its exit code."""
        attempt = self.status.attempts[-1] if self.status and self.status.attempts else None
        if not self.status or (attempt and attempt.out_of_memory):
            return "out of memory" if self.status else ""
        if self.failure_heading:
            return self.failure_heading
        code = self.status.exit_code
        return f"exit code {code}" if code is not None and code >= 0 else ""


class _PlanSummary(Struct, frozen=True):
    """Parts of plan.json that a list needs."""

    name: str = ""
    device: str = ""
    gpus: tuple[str, ...] = ()
    gpu_names: tuple[str, ...] = ()
    world_size: int = 1
    steps: int = 0
    launcher: str = ""
    # Of which a filter alone makes something, whatever they are.
    micro_batch: Any = None
    global_batch: Any = None
    learning_rate: Any = None
    log: LogReadingRules = LogReadingRules()
    resumes_itself: bool = False

    @property
    def log_reading_options(self) -> LogReadingOptions:
        return LogReadingOptions.from_texts(self.log.expressions, self.log.steps)


class _CachedDigest(NamedTuple):
    change_key: tuple[int, ...]
    digest: RunDigest


class _LogProgressReader:
    """The log of a run, read from near its end as it grows."""

    def __init__(self, log: Path, number: int, last_bytes: int = _LIVE_LOG_TAIL_BYTES) -> None:
        self.number = number
        self.tail = LogTail(log, last_bytes=last_bytes)
        self.progress = Progress()
        self.timed_from = (0.0, 0)
        """When the first step was seen to be made, in seconds since 1970, and its number."""

    def read(self, reading: LogReadingOptions) -> None:
        """Read what is new."""
        if self.tail.unread_bytes > _LIVE_LOG_TAIL_BYTES:
            self.tail.skip_to_last(_LIVE_LOG_TAIL_BYTES)
        before = self.progress.step
        self.progress = advance_progress(self.progress, [*self.tail.remaining_lines(), self.tail.progress_bar], reading)
        if 0 < before < self.progress.step and not self.timed_from[1]:
            self.timed_from = time.time(), self.progress.step


class DigestCache:
    """Reads runs, and keeps what does not change."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._runs: dict[Path, _CachedDigest] = {}
        self._live: dict[Path, _LogProgressReader] = {}
        self._explained_keys: dict[Path, tuple[int, ...]] = {}

    def read_digest(self, run: RunFolder) -> RunDigest:
        """Return what a list shows of a run; a live one is read again, another where its files have changed."""
        cached, key = self._runs.get(run.path), _run_change_key(run.path)
        if cached and cached.change_key == key and not cached.digest.is_stoppable:
            return cached.digest
        try:
            digest = self._read_digest(run)
        except Exception as error:  # noqa: BLE001 - whatever is in this folder, the others are shown
            digest = RunDigest(run=run, damage=visible(f"{type(error).__name__}: {error}")[:200])
        if cached and cached.digest.failure_cause and cached.digest.status == digest.status:
            known = cached.digest
            digest = msgspec.structs.replace(
                digest,
                failure_heading=known.failure_heading,
                failure_cause=known.failure_cause,
                remedy=known.remedy,
                why_not_resumable=known.why_not_resumable,
            )
        self._runs[run.path] = _CachedDigest(key, digest)
        return digest

    def cached_or_bare_digest(self, run: RunFolder) -> RunDigest:
        """Return what was read of a run before, or that it is there."""
        kept = self._runs.get(run.path)
        return kept.digest if kept else RunDigest(run=run)

    def read_progress_of_run(self, digest: RunDigest) -> Progress:
        """Return the progress of a run's attempts, as far as the ends of their logs report it; it takes time."""
        live, attempts = self._live.get(digest.run.path), digest.status.attempts if digest.status else ()
        return live.progress if live else read_progress(digest.run, attempts)

    def needs_explanation(self, digest: RunDigest) -> bool:
        """Return whether a run has failed, is lost or ended without a finite loss, and is not diagnosed yet."""
        is_broken = bool(digest.broken_loss_text) and not digest.is_stoppable
        has_failed = digest.state in {"failed", "lost"} or is_broken
        return has_failed and self._explained_keys.get(digest.run.path) != _run_change_key(digest.run.path)

    def explain_failure(self, digest: RunDigest) -> RunDigest:
        """Return a run that needs it with its cause; of a large log only its end is read."""
        from tui_train.diagnose import LargeLogStopper, diagnose_run
        from tui_train.diagnose.repeated_failure import why_not_restartable
        from tui_train.diagnose.types import failure_heading

        why_not = digest.why_not_resumable
        try:
            diagnosis = diagnose_run(digest.run, observer=LargeLogStopper())
            why_not = (
                why_not_restartable(digest.run, digest.status, diagnosis) if diagnosis and digest.status else why_not
            )
        except TuiTrainError:
            diagnosis = None
        failure = ""
        if diagnosis and (diagnosis.line_number or digest.state == "lost"):
            # An error of the script is told by its own line; the last line of a log may be anything.
            own = diagnosis.line if _ERROR_NAME_PATTERN.search(diagnosis.line) else ""
            failure = own if diagnosis.failure == _SCRIPT_FAILURE_CLASS else failure_heading(diagnosis.failure)
        why, remedy = (visible(words) for words in ((diagnosis.cause, diagnosis.remedy) if diagnosis else ("", "")))
        explained = msgspec.structs.replace(
            digest, failure_heading=visible(failure), failure_cause=why, remedy=remedy, why_not_resumable=why_not
        )
        key = _run_change_key(digest.run.path)
        self._runs[digest.run.path], self._explained_keys[digest.run.path] = _CachedDigest(key, explained), key
        return explained

    def _read_digest(self, run: RunFolder) -> RunDigest:
        events, damage = run.events_and_damage()
        status = read_status(run, events)
        plan, unread = _read_plan_summary(run)
        # Without one readable event nothing is known, not even that it was never started.
        known_status = status if events or not damage else None
        about, profile, _ = read_summary_and_profile(run.profile_file)
        common = RunDigest(
            run=run,
            status=known_status,
            damage=damage or unread,
            note=run.note(),
            profile_name=plan.name,
            summary=about,
            searchable_settings=searchable_settings_text(profile, msgspec.structs.asdict(plan)),
            devices=_devices_text(plan),
            steps=plan.steps,
        )
        if not status.attempts:
            return msgspec.structs.replace(common, why_not_resumable=why_not_resumable(run, status))
        return self._digest_with_progress(common, status, plan)

    def _digest_with_progress(self, digest: RunDigest, status: RunStatus, plan: _PlanSummary) -> RunDigest:
        attempt, run = status.attempts[-1], digest.run
        live = self._live.get(run.path)
        if not digest.is_stoppable:
            self._live.pop(run.path, None)
            live = _LogProgressReader(run.attempt_log(attempt.number), attempt.number, ENDED_LOG_TAIL_BYTES)
        elif live is None or live.number != attempt.number:
            live = self._live[run.path] = _LogProgressReader(run.attempt_log(attempt.number), attempt.number)
            live.progress = progress_for_next_attempt(read_progress(run, status.attempts[:-1]))
        live.read(plan.log_reading_options)
        progress = live.progress
        return msgspec.structs.replace(
            digest,
            step=made_step_count(progress.step, progress.steps or digest.steps, digest.state)
            or (attempt.resumed if digest.is_live else 0),
            steps=progress.steps or digest.steps,
            loss=progress.last.loss if progress.last else None,
            eval_loss=progress.evaluations.last.loss if progress.evaluations.last else None,
            reward=reward.last[1] if (reward := progress.metrics.series_named("reward")) else None,
            losses=tuple(point.loss for point in progress.curve.thinned_points(_CURVE_POINT_COUNT))
            if digest.is_stoppable
            else (),
            seconds_left=_seconds_left(progress, attempt.started, attempt.resumed, live.timed_from)
            if digest.is_live and not status.never_had_turn
            else None,
            why_not_resumable=why_not_resumable(run, status),
        )


def _run_change_key(folder: Path) -> tuple[int, ...]:
    """Return what changes with a run: its folder, in which files are made and renamed, and its events."""
    found: list[int] = []
    for path in (str(folder), f"{folder}/events.jsonl"):
        try:
            state = os.stat(path)  # noqa: PTH116 - of a thousand runs every two seconds
            found += [state.st_ino, state.st_mtime_ns, state.st_size]
        except OSError:
            found.append(0)
    return tuple(found)


def _read_plan_summary(run: RunFolder) -> tuple[_PlanSummary, str]:
    try:
        return parse_json_as(read_file_to_parse(run.plan_file, MAX_PLAN_BYTES), _PlanSummary), ""
    except MissingFile:
        return _PlanSummary(), ""
    except Unparsable as error:
        return _PlanSummary(), f"{run.plan_file.name}: {error}"


def _devices_text(plan: _PlanSummary) -> str:
    """Return on what a run trains: `2 × RTX 3090`, `CPU`."""
    if plan.device == "cpu":
        return "CPU"
    counted = Counter(_CARD_VENDOR_PATTERN.sub("", name) for name in plan.gpu_names)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counted.items())


def _seconds_left(progress: Progress, started: float, resumed: int, timed_from: tuple[float, int]) -> float | None:
    """Return the seconds that are left at the pace since a step was seen to be made, else of this attempt so far.

    Of an attempt with few steps most of the time went into its start, so that its pace says nothing.
    """
    began, done = timed_from[0], progress.step - timed_from[1]
    if not timed_from[1] or done <= 0:
        began, done = started, progress.step - resumed
        if done < _MIN_STEPS_OF_PACE:
            return None
    rest = progress.steps - progress.step
    return None if rest < 0 else max(0.0, time.time() - began) / done * rest


def matches_filter(filter_text: str, *row_texts: str, searchable_settings: str = "") -> bool:
    """Tell whether each word of a filter is somewhere in what is known of a row; capitals do not matter.

    A word such as `rate=2e-4` finds a setting of that value as well.
    """
    there = "\n".join(row_texts).casefold()
    return all(word in there or _matches_setting(word, searchable_settings) for word in filter_text.casefold().split())


def _matches_setting(word: str, settings: str) -> bool:
    """Tell whether one of some settings is that of a word, by a part of its key; numbers count as numbers."""
    name, _, wanted = word.partition("=")
    if not (name and wanted):
        return False
    pairs = (line.partition("=")[::2] for line in settings.casefold().split("\n"))
    number = parse_number(wanted)
    return any(
        name in key and (wanted in value if number is None else parse_number(value) == number) for key, value in pairs
    )


def searchable_run_texts(digest: RunDigest) -> tuple[str, ...]:
    """Return what a filter looks through of a run."""
    found = digest.summary
    live = "live" if digest.is_live else ""
    parts = (digest.run.name, digest.profile_name, found.method, found.model, found.data, digest.devices)
    return (*parts, digest.state, live, digest.note, digest.failure_cause, run_outcome_text(digest))


def run_outcome_text(digest: RunDigest) -> str:
    """Return what came of a run, or why it failed, in a few words."""
    status = digest.status
    if status is None:
        return digest.damage
    if status.leftover and not status.is_live:
        return f"{len(status.leftover)} of its processes still run"
    if status.never_had_turn and not status.is_live:
        return "while it waited"
    losses = (("eval loss", digest.eval_loss), ("loss", digest.loss))
    reward = f"reward {metric_value_text(digest.reward)}" if digest.reward is not None else ""
    result = (
        digest.broken_loss_text
        or digest.failure_heading
        or reward
        or next((f"{name} {loss_text(value)}" for name, value in losses if value is not None), "")
    )
    how = {
        "new": "was never started",
        "failed": digest.short_cause,
        "lost": digest.short_cause,
        "stopped": result or ("by you" if status.attempts else "before it started"),
    }.get(status.state, result)
    return ", ".join(filter(None, (how, "can resume" if digest.is_resumable else "", digest.damage)))


def relative_date_text(start_seconds: float | None, now_seconds: float) -> str:
    """Return a date as near ones are called: `today 13:40`, `yesterday`, `Mon 09:20`, `12 Oct`, `2025-10-12`."""
    if not start_seconds:
        return ""
    day, today = time.localtime(start_seconds), time.localtime(now_seconds)
    days = _day_number(today) - _day_number(day)
    if days == 0:
        return time.strftime("today %H:%M", day)
    if days == 1:
        return "yesterday"
    if 0 < days < 7:
        return time.strftime("%a %H:%M", day)
    return time.strftime("%d %b" if 0 < days < 300 else "%Y-%m-%d", day).lstrip("0")


def remaining_time_text(seconds: float) -> str:
    """Return how long something still takes, in whole minutes: it is drawn again once a minute at most."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "<1 min"
    hours, rest = divmod(minutes, 60)
    return f"{minutes} min" if not hours else f"{hours} h {rest:02d}" if hours < 48 else f"{hours // 24} days"


def _day_number(day: time.struct_time) -> int:
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 12, 0, 0, 0, 0, -1)) // 86400)

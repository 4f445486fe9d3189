"""The lines that say how a run stands: its state and time, how far it is, its numbers, its attempts, what is wrong."""

import math
import time
from collections.abc import Iterator
from itertools import islice
from statistics import fmean, variance

from textual.content import Content

from tui_train.base.text import (
    duration_text,
    grouped_digits,
    loss_text,
    percent,
    quantity,
    typeset_ascii,
    visible,
)
from tui_train.runner.logs.curve import LossCurve
from tui_train.runner.queue.reasons import since_text
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runs.follow import RunSnapshot
from tui_train.runs.ranks import ranks_summary
from tui_train.runs.status import made_step_count, may_training_still_write, training_seconds
from tui_train.views import plain_text
from tui_train.views.metric_summaries import metric_value_text

from ..widgets.text_layout import (
    DONE_MARK,
    FAILED_MARK,
    LIVE_MARK,
    MARK_BY_RUN_STATE,
    MUTED,
    OPEN_MARK,
    RULE_STYLE,
    WARNING_MARK,
    StyledPiece,
    columns,
    fit,
    share_bar,
    styled,
)

_CELLS_BETWEEN_PARTS = 3
_ATTEMPT_SEPARATOR = " ── "
_MAX_WARNING_LINES = 2
_TREND_POINTS, _MIN_TREND_POINTS = 40, 8
_MIN_TREND_STANDARD_ERRORS = 3.0  # standard errors of the difference; less is no trend


def state_mark(status: RunStatus) -> tuple[str, str]:
    """Return the mark of a state and its style."""
    return (
        LIVE_MARK
        if may_training_still_write(status) and status.state not in {"queued", "waiting", "unconfirmed"}
        else MARK_BY_RUN_STATE.get(status.state, OPEN_MARK)
    )


def run_state_lines(name: str, snapshot: RunSnapshot, problems: tuple[str, ...], width: int) -> list[Content]:
    """Return the lines; `problems` are sentences, each of which begins a line."""
    now = snapshot.status
    broken = plain_text.broken_end_loss_text(now, snapshot.progress)
    sign = FAILED_MARK if broken else state_mark(now)
    words = ", ".join(filter(None, (plain_text.run_state_text(now), broken)))
    head = styled(sign, " ", (words, f"b {sign[1]}"), "  ", visible(name))
    lasted = _elapsed_and_left_text(now, snapshot.seconds_left)
    # A name that is cut keeps apart from the time.
    lines = [columns(width, (head, 0), (lasted, -lasted.cell_length - 1)) if lasted.plain else fit(head, width)]
    waits_for = "Waits for " if now.state == "waiting" and snapshot.queue_text else ""
    waiting = f"{waits_for}{snapshot.queue_text}" or _before_first_step_text(snapshot)
    if waiting:
        wrapped = Content(waiting).wrap(max(1, width)) if now.state == "waiting" else ()
        lines += wrapped[:_MAX_WARNING_LINES] or [fit((waiting, MUTED), width)]
    lines += [*_progress_lines(snapshot, sign[1], width)]
    # Those of a run that has ended stand below, in its outcome.
    if may_training_still_write(now) and (numbers := metric_parts(snapshot)):
        lines.append(join_parts_that_fit(numbers, width))
    if attempts := _attempts_line(snapshot, sign, width):
        lines.append(attempts)
    first, *others = snapshot.rank_differences or ("",)
    rank_differences = (first + (f" (and {len(others)} more)" if others else ""),) if first else ()
    for sentence in (*rank_differences, *_leftover_sentences(now), *problems):
        lines += _warning_lines(visible(sentence), width)
    return lines


def learning_rate_text(rate: float) -> str:
    """Return a learning rate as `1.4e-4`."""
    return f"{rate:.2g}".replace("e-0", "e-") if rate < 1e-3 else f"{rate:g}"


def whole_minutes_text(seconds: float) -> str:
    """Return seconds in whole minutes, which do not change as one looks."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return "under 1 min"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _elapsed_and_left_text(status: RunStatus, seconds_left: float | None) -> Content:
    if status.seconds is None:
        return Content()
    if status.started and status.state in {"queued", "waiting"}:
        # The same words all day: whoever looks on over a slow line gets nothing while nothing changes.
        return styled((since_text(status.started), MUTED))
    if not may_training_still_write(status):
        tries = f", {quantity(len(status.attempts), 'attempt')}" if len(status.attempts) > 1 else ""
        return styled((f"after {duration_text(training_seconds(status) or status.seconds)}{tries}", MUTED))
    if seconds_left is None:
        return styled((f"{whole_minutes_text(status.seconds)} elapsed", MUTED))
    return styled(
        (f"{whole_minutes_text(status.seconds)} elapsed, ", MUTED), (f"{whole_minutes_text(seconds_left)} left", "b")
    )


def _before_first_step_text(snapshot: RunSnapshot) -> str:
    """Return what a run does before its first step, and since when; empty once a step or a loss is known."""
    status, progress = snapshot.status, snapshot.progress
    if status.state != "running" or progress.step or progress.last or snapshot.why_no_step_read:
        return ""
    newest = next(reversed(status.attempts), None)
    if newest is None or newest.ended is not None:
        return f"Started{_time_of_day_text(status.started)}; no process trains yet."
    awaited = "no step in the log yet" if snapshot.has_output else "nothing written yet"
    return f"Processes started{_time_of_day_text(newest.started)}; {awaited}."


def _time_of_day_text(date: float | None) -> str:
    return f" {time.strftime('%H:%M:%S', time.localtime(date))}" if date else ""


def _progress_lines(snapshot: RunSnapshot, style: str, width: int) -> Iterator[Content]:
    progress = snapshot.progress
    step = made_step_count(progress.step or _resumed_or_last_step(snapshot), progress.steps, snapshot.status.state)
    # A log that names no step says nothing of those of a finished run.
    if progress.steps and (step or snapshot.status.state != "finished"):
        # A log may name numbers whose quotient no float holds.
        part = 1.0 if step >= progress.steps else step / progress.steps
        counts = styled((grouped_digits(step), "b"), f" of {grouped_digits(progress.steps)}")
        share = percent(part)
        side = 2 + counts.cell_length + 4 + len(share)
        if side > width - 8:
            yield fit(styled(f"{progress.position_word} ", counts), width)
            return
        yield styled(share_bar(part, width - side, style), "  ", counts, " " * 4, share)
    elif step:
        yield styled(f"{progress.position_word} ", (grouped_digits(step), "b"))


def _resumed_or_last_step(snapshot: RunSnapshot) -> int:
    """Return where a training is of whose newest attempt no step is read: the checkpoint while it goes on."""
    if not may_training_still_write(snapshot.status):
        return snapshot.progress.last.step if snapshot.progress.last else 0
    return snapshot.status.attempts[-1].resumed if snapshot.status.attempts and not snapshot.why_not_resumed else 0


def metric_parts(snapshot: RunSnapshot) -> list[Content]:
    """Return the newest numbers of a run, each with its name; of one that has ended the loss and its first."""
    progress, goes_on = snapshot.progress, may_training_still_write(snapshot.status)
    found: list[Content] = []
    if progress.last and goes_on:
        trend = (f" {_trend_mark(progress.curve)}", MUTED)
        found.append(styled(("loss ", MUTED), (loss_text(progress.last.loss), "b"), trend))
    elif progress.last and progress.first:
        first = f" last, {loss_text(progress.first.loss)} first"
        found.append(styled((loss_text(progress.last.loss), "b"), (first, MUTED)))
    if reward := progress.metrics.series_named("reward"):
        spread = progress.metrics.series_named("reward_std")
        words = f" ± {metric_value_text(spread.last[1])}" if spread and goes_on else ""
        found.append(styled(("reward ", MUTED), (metric_value_text(reward.last[1]), "b"), (words, MUTED)))
    newest, best = progress.evaluations.last, progress.best_evaluation
    if newest and best:
        at = f"{progress.position_word} {grouped_digits(best.step)}"
        where = f" best, {at}" if best.step == newest.step else f" best {loss_text(best.loss)}, {at}"
        found.append(styled(("eval ", MUTED), (loss_text(newest.loss), "b"), (where, MUTED)))
    elif newest:
        found.append(styled(("eval ", MUTED), (loss_text(newest.loss), "b")))
    if progress.tokens_per_second:
        found.append(styled(("tokens/s ", MUTED), (grouped_digits(progress.tokens_per_second), "b")))
    elif snapshot.steps_per_second and goes_on:
        found.append(styled((speed_text(snapshot.steps_per_second, progress.position_word), MUTED)))
    if progress.learning_rate is not None and goes_on:
        found.append(styled(("rate ", MUTED), learning_rate_text(progress.learning_rate)))
    if progress.gradient_norm is not None and goes_on:
        found.append(styled(("norm ", MUTED), f"{progress.gradient_norm:.3g}"))
    return found


def _trend_mark(curve: LossCurve) -> str:
    """Return whether the newest losses lie below those before them; empty for too few, or ones that are no numbers."""
    losses = [point.loss for point in islice(curve.points_newest_first(), _TREND_POINTS)]
    half = len(losses) // 2
    if half < _MIN_TREND_POINTS // 2 or not all(map(math.isfinite, losses)):
        return ""
    newer, older = losses[:half], losses[half:]
    change = fmean(newer) - fmean(older)
    noise = math.sqrt(variance(newer) / len(newer) + variance(older) / len(older))
    return "→" if abs(change) <= _MIN_TREND_STANDARD_ERRORS * noise else "↓" if change < 0 else "↑"


def speed_text(per_second: float, position_word: str) -> str:
    """Return a speed as `4.2 steps/s`, or as `1.3 s/step` where a step takes longer than a second."""
    number = per_second if per_second >= 1 else 1 / per_second
    text = f"{number:.1f}" if number < 9.95 else f"{number:.0f}"
    return f"{text} {position_word}s/s" if per_second >= 1 else f"{text} s/{position_word}"


def join_parts_that_fit(parts: list[Content], width: int) -> Content:
    """Return as many parts as fit whole, side by side."""
    line = parts[0]
    for part in parts[1:]:
        if line.cell_length + _CELLS_BETWEEN_PARTS + part.cell_length <= width:
            line = styled(line, " " * _CELLS_BETWEEN_PARTS, part)
    return fit(line, width)


def _attempts_line(snapshot: RunSnapshot, state_sign: tuple[str, str], width: int) -> Content | None:
    """Return the attempts in a line: the newest whole, and before it as many as there is room for."""
    attempts = snapshot.status.attempts
    where = ranks_summary(snapshot.ranks)
    newest = next(reversed(attempts), None)
    if newest is None or not (len(attempts) > 1 or where or newest.resumed):
        return None
    line = _newest_attempt_text(snapshot, newest, state_sign)
    for count, attempt in enumerate(reversed(attempts[:-1])):
        before = _earlier_attempt_text(attempt, dict(snapshot.last_steps).get(attempt.number, 0))
        more = len(attempts) - 2 - count
        earlier = styled((f"{quantity(more, 'earlier attempt')}{_ATTEMPT_SEPARATOR}", MUTED)) if more else Content()
        if before.cell_length + len(_ATTEMPT_SEPARATOR) + line.cell_length + earlier.cell_length > width:
            hidden = styled((f"{quantity(more + 1, 'earlier attempt')}", MUTED), (_ATTEMPT_SEPARATOR, RULE_STYLE))
            line = styled(hidden, line)
            break
        line = styled(before, (_ATTEMPT_SEPARATOR, RULE_STYLE), line)
    if where and line.cell_length + _CELLS_BETWEEN_PARTS + len(where) <= width:
        line = styled(line, " " * _CELLS_BETWEEN_PARTS, (where, MUTED))
    return fit(line, width)


def _newest_attempt_text(snapshot: RunSnapshot, attempt: AttemptStatus, state_sign: tuple[str, str]) -> Content:
    pieces: list[StyledPiece] = []
    if attempt.resumed:
        pieces.append((f", resumed from step {grouped_digits(attempt.resumed)}", MUTED))
    if snapshot.attempt_title and attempt.position > 1:
        pieces.append((f"  {typeset_ascii(snapshot.attempt_title)}", MUTED))
    goes_on = may_training_still_write(snapshot.status) and attempt.ended is None
    if not goes_on and attempt.out_of_memory:
        pieces.insert(0, ", out of memory")
    # Of a finished run the loss may be no number.
    is_done = attempt.exit_code == 0 and snapshot.status.state != "finished"
    sign = LIVE_MARK if goes_on else DONE_MARK if is_done else state_sign
    return styled(sign, f" attempt {attempt.number}", *pieces)


def _earlier_attempt_text(attempt: AttemptStatus, step: int) -> Content:
    """Return an earlier attempt: why it ended, and at which step where that is known."""
    if attempt.stopped:
        at = f" at step {grouped_digits(step)}" if step else ""
        return styled(OPEN_MARK, (f" attempt {attempt.number}, stopped{at}", MUTED))
    why = "out of memory" if attempt.out_of_memory else "finished" if attempt.exit_code == 0 else "ended"
    if why == "ended" and attempt.exit_code is not None:
        why = f"exit code {attempt.exit_code}"
    at = f" at step {grouped_digits(step)}" if step else ""
    return styled(
        DONE_MARK if attempt.exit_code == 0 else FAILED_MARK, (f" attempt {attempt.number}, {why}{at}", MUTED)
    )


def _leftover_sentences(status: RunStatus) -> tuple[str, ...]:
    """Return what to do about processes that nobody keeps."""
    if not status.leftover:
        return ()
    many = quantity(len(status.leftover), "process runs", "processes run")
    why = "Its supervisor was killed" if status.state == "lost" else "The training has ended"
    return (f"{why}: {many} on without it. s ends them.",)


def _warning_lines(sentence: str, width: int) -> list[Content]:
    wrapped = Content(sentence).wrap(max(1, width - 2)) if sentence else []
    lines = [*wrapped[:_MAX_WARNING_LINES]]
    if len(wrapped) > _MAX_WARNING_LINES:
        lines[-1] = fit(styled(lines[-1], " ", wrapped[_MAX_WARNING_LINES]), width - 2)
    return [styled(*((WARNING_MARK, " ") if line is lines[0] else ("  ",)), line) for line in lines]

"""The rows of Home: live runs in two lines, ended ones in one, profiles, and options to start a training."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from tui_train.base.text import (
    duration_text,
    grouped_digits,
    loss_text,
    percent,
    quantity,
    sparkline,
    split_setting,
    truncated_text,
    visible,
)
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import training_seconds
from tui_train.views.metric_summaries import metric_value_text
from tui_train.views.profile_digests import ProfileDigest
from tui_train.views.run_digest import (
    RunDigest,
    matches_filter,
    relative_date_text,
    remaining_time_text,
    run_outcome_text,
    searchable_run_texts,
)
from tui_train.views.setting_values import changed_settings, changed_settings_text

from ..widgets.cursor_list import ListRow
from ..widgets.text_layout import (
    FAILED_MARK,
    MARK_BY_RUN_STATE,
    MUTED,
    OPEN_MARK,
    WARNING_MARK,
    columns,
    fit,
    share_bar,
    styled,
)
from .home_state import HomeState
from .start_options import blank_row, new_training_rows, start_page_rows, title_row

RUN_KEY_PREFIX, PROFILE_KEY_PREFIX = "run:", "profile:"
_GUARANTEED_NAME_WIDTH, _STEPS_WIDTH, _DATE_WIDTH, _CURVE_WIDTH = 22, 13, 13, 20
_MAX_NARROW_WIDTH = 70
_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 16, 42
_STATE_WIDTH, _ETA_WIDTH, _CHANGE_GAP = 10, 14, 2
# Of an outcome, and of what was changed, which stays whole: the name gives way to them.
_MAX_OUTCOME_WIDTH, _MAX_CHANGE_WIDTH = 17, 14
# What a run waits for: GPUs, or so many CPU cores; one GPU, and what is on it.
_RESOURCE_PATTERN = re.compile(r"GPU |\d+ (?:of|CPU) ")
_CARD_REASON_PATTERN = re.compile(r"(GPU \d+): ([^();]+)")
_MARKED_RUN_MARK = ("◆", "b $primary")


class ColumnWidths(NamedTuple):
    """The widest name, steps, result, outcome and change of all rows, in cells; what the others leave the name takes.

    `detail` is the widest outcome with its note; `outcome` the widest one of the rows that have a note or a change.
    """

    name: int = 0
    steps: int = 0
    detail: int = 0
    outcome: int = 0
    change: int = 0

    def _room(self, list_width: int) -> int:
        """Return the cells of a name, a state and what came of it."""
        return list_width - _DATE_WIDTH - (self.steps if list_width > _MAX_NARROW_WIDTH else 0) - 1

    @property
    def _change_room(self) -> int:
        """The cells without which a change is not shown."""
        return _STATE_WIDTH + min(self.outcome, _MAX_OUTCOME_WIDTH) + _CHANGE_GAP + self.change

    def shows_changes(self, list_width: int) -> bool:
        """Return whether all rows that have a change show it in a list of this width, or none."""
        return self.change > 0 and self._room(list_width) - self._change_room >= _MIN_NAME_WIDTH

    def name_width(self, list_width: int) -> int:
        """Return the cells of a name in a list of this width: for a change it is cut further."""
        room, needed = self._room(list_width), self.detail
        guaranteed = _GUARANTEED_NAME_WIDTH + max(0, (list_width - 78) // 4)
        if self.shows_changes(list_width):
            guaranteed = min(guaranteed, room - self._change_room)
            needed = max(needed, self._change_room)
        return min(self.name, max(guaranteed, room - needed))

    def outcome_width(self, room: int) -> int:
        """Return the cells of an outcome with a change beside it."""
        return min(self.outcome, max(_MAX_OUTCOME_WIDTH, room - _CHANGE_GAP - self.change))


def home_rows(state: HomeState) -> tuple[ListRow, ...]:
    """Return the rows of the list: live runs, the others, profiles, and what begins a training, which alone is a page.

    With a filter only the runs and profiles that match it.
    """
    draft_note = _draft_text(state.draft) if state.draft else None
    if not (state.filter_text or state.runs or state.profiles):
        return start_page_rows(draft_note)
    runs = [
        run
        for run in state.runs.values()
        if not state.filter_text
        or matches_filter(state.filter_text, *searchable_run_texts(run), searchable_settings=run.searchable_settings)
    ]
    profiles = [
        digest
        for digest in state.profiles.values()
        if matches_filter(state.filter_text, digest.name, digest.summary.text, digest.devices, "profile")
    ]
    live = sorted((run for run in runs if run.is_stoppable), key=_live_run_rank)
    ended = [run for run in runs if not run.is_stoppable]
    dates, widths = _date_text_by_run(ended), _column_widths(runs, profiles, state.settings_before)

    def run_row(
        run: RunDigest, draw: Callable[..., Sequence[Content]], *more: object, height: int = 1, section: str = "runs"
    ) -> ListRow:
        key = _run_key(run)
        data = (run, state.settings_before.get(key, ""), key in state.marked, widths, *more)
        return ListRow(key, data, draw, height, section)

    def live_run_row(run: RunDigest) -> ListRow:
        draw = _waiting_run_lines if run.state == "waiting" else _live_run_lines
        return run_row(run, draw, height=2, section="live")

    panels: list[list[ListRow]] = []
    if live:
        title = "Waiting" if all(_is_waiting(run) for run in live) else "Running"
        panels.append([title_row(title), *map(live_run_row, live)])
    for name, group in _run_groups(ended, is_grouped=state.grouped):
        panels.append([title_row(name), *(run_row(run, _ended_run_lines, dates[run.run]) for run in group)])
    if profiles:
        rows_of_profiles = (
            ListRow(f"{PROFILE_KEY_PREFIX}{digest.name}", (digest, widths), _profile_lines, section="profiles")
            for digest in profiles
        )
        panels.append([title_row("Profiles"), *rows_of_profiles])
    if not state.filter_text:
        panels.append([*new_training_rows(draft_note)])
    rows = [row for panel in panels for row in (blank_row(), *panel)]
    return tuple(rows[1:]) or (_no_match_row(),)


def _live_run_rank(digest: RunDigest) -> tuple[bool, float]:
    """Return what sorts training runs first, as they came, and below them those that wait, the first to ask first."""
    is_waiting = _is_waiting(digest)
    return is_waiting, digest.status.started or 0.0 if is_waiting and digest.status else 0.0


def _is_waiting(digest: RunDigest) -> bool:
    return digest.state in {"queued", "waiting"}


def waiting_sentence(reason: str) -> str:
    """Return why a run waits, as a sentence: `waits for GPU 1 (pid 812, ann)`."""
    if not _RESOURCE_PATTERN.match(reason):
        return f"waits: {reason}" if reason else ""
    card = _CARD_REASON_PATTERN.fullmatch(reason)
    return f"waits for {card[1]} ({card[2]})" if card else f"waits for {reason}"


def listed_counts_text(state: HomeState, listed_rows: Sequence[ListRow]) -> str:
    """Return in words how many runs and profiles there are, and how many of them are listed."""
    marked = f"{len(state.marked)} marked of " if state.marked and not state.filter_text else ""
    counts = []
    for prefix, count, noun in (
        (RUN_KEY_PREFIX, len(state.runs), "run"),
        (PROFILE_KEY_PREFIX, len(state.profiles), "saved profile"),
    ):
        matching = f"{sum(row.key.startswith(prefix) for row in listed_rows)} of " if state.filter_text else ""
        counts += [f"{matching}{quantity(count, noun)}"] if count else []
    return f"{marked}{', '.join(counts)}"


def run_mark(digest: RunDigest) -> tuple[str, str]:
    """Return the mark of a run and its style; a loss that is no number at the end is no success."""
    if digest.broken_loss_text and digest.state == "finished":
        return FAILED_MARK
    return MARK_BY_RUN_STATE.get(digest.state, OPEN_MARK) if digest.state else (" ", "")


def run_hint_text(digest: RunDigest, settings_before: str = "") -> str:
    """Return what is said of the run in which the cursor is: its id, when it was, the user's note, what was changed."""
    now = digest.status
    parts = [visible(digest.run.name)]
    if now and now.started:
        parts.append(start_and_duration_text(now, now.started))
    if now and len(now.attempts) > 1:
        parts.append(quantity(len(now.attempts), "attempt"))
    about = ", ".join(filter(None, (digest.summary.method, digest.summary.model, digest.summary.data)))
    parts += [visible(about)] if about else []
    parts += [visible(digest.failure_cause.rstrip("."))] if digest.failure_cause else []
    parts += [f"“{visible(digest.note)}”"] if digest.note else []
    changed = [each for each in _settings_changed_since(digest, settings_before) if each not in digest.note]
    parts += [f"changed: {', '.join(changed)}"] if changed else []
    doing = "waiting" if digest.state == "waiting" else "running"
    ends = f" It keeps {doing} when you leave." if digest.is_live else ""
    return f"{'  '.join(parts)}.{ends}"


def start_and_duration_text(status: RunStatus, started: float) -> str:
    """Return when a run began, and how long it trained once it has ended."""
    seconds = None if status.is_live else training_seconds(status)
    lasted = "" if seconds is None else f", {duration_text(seconds)}"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(started)) + lasted


def _run_groups(runs: Sequence[RunDigest], *, is_grouped: bool) -> Iterable[tuple[str, Sequence[RunDigest]]]:
    if not is_grouped:
        return [("Runs", runs)] if runs else []
    by_profile: dict[str, list[RunDigest]] = {}
    for run in runs:
        by_profile.setdefault(run.profile_name or run.run.label, []).append(run)
    return [(visible(name), group) for name, group in by_profile.items()]


def _date_text_by_run(runs: Sequence[RunDigest]) -> dict[RunFolder, str]:
    """Return when runs were; of those of one name and date to the minute, today's to the second."""
    now = time.time()
    started = {digest.run: digest.status.started if digest.status else None for digest in runs}
    texts = {run: relative_date_text(seconds, now) for run, seconds in started.items()}
    counts = Counter((run.label, text) for run, text in texts.items())
    for run, seconds in started.items():
        if seconds and counts[run.label, texts[run]] > 1:
            is_today = texts[run].startswith("today")
            texts[run] = time.strftime("%H:%M:%S" if is_today else "%d %b %H:%M", time.localtime(seconds))
    return texts


def _draft_text(digest: ProfileDigest) -> str:
    """Return what a draft would train, and its name where it was given one."""
    name = "" if digest.name == Profile().name and digest.summary.text else digest.name
    return ", ".join(filter(None, (name, digest.summary.text)))


def _column_widths(
    runs: Sequence[RunDigest], profiles: Sequence[ProfileDigest], settings_before: Mapping[str, str]
) -> ColumnWidths:
    # Of a thousand runs at every key of the filter: their labels are ASCII, a note may be cut.
    steps = max((len(_steps_text(run)) for run in runs if not run.is_stoppable), default=0)
    details, outcomes, changes = [0], [0], [0]
    for run in runs:
        if run.is_stoppable:
            continue
        outcome = len(run_outcome_text(run))
        details.append(_STATE_WIDTH + outcome + (len(run.note) + _CHANGE_GAP if run.note else 0))
        changed = () if run.note else _settings_changed_since(run, settings_before.get(_run_key(run), ""))
        outcomes += [outcome] if run.note or changed else []
        # Of several changes one is shown, and that there are more.
        changes += [min(len(changed[0]) + 2 * (len(changed) > 1), _MAX_CHANGE_WIDTH)] if changed else []
    own = max((cell_len(visible(digest.name)) for digest in profiles), default=0)
    name = max((len(run.run.label) for run in runs), default=0)
    name = max(name, own)
    name = min(_MAX_NAME_WIDTH, max(_MIN_NAME_WIDTH, name + 4))
    return ColumnWidths(name, steps + 2 if steps else 0, max(details), max(outcomes), max(changes))


def _no_match_row() -> ListRow:
    words = styled(("No run or profile has these words. Esc shows all.", MUTED))
    return ListRow("", (words,), lambda words, width: (columns(width, (words, 0)),))


def _run_key(digest: RunDigest) -> str:
    return f"{RUN_KEY_PREFIX}{digest.run.path}"


def _name_cell(digest: RunDigest, is_marked: bool, style: str, width: int) -> Content:
    # One sign a row: that of a marked run is its mark, its state stands beside in a word.
    sign, colour = _MARKED_RUN_MARK if is_marked else run_mark(digest)
    name = styled((sign, colour), " ", (visible(digest.run.label), "b $primary" if is_marked else style))
    return fit(name, width - 1)  # a gap before what stands beside it


def _devices_cell(digest: RunDigest) -> Content:
    return styled("  ", (visible(digest.devices), MUTED))


def _waiting_run_lines(
    digest: RunDigest, before: str, is_marked: bool, widths: ColumnWidths, width: int
) -> tuple[Content, ...]:
    name = widths.name_width(width)
    room = width - name - _ETA_WIDTH
    note = truncated_text(_note_or_changes_text(digest, before, room), room)
    why = waiting_sentence(visible(digest.status.waits_for)) if digest.status else ""
    return (
        columns(
            width,
            (_name_cell(digest, is_marked, "b", name), name),
            (styled((note, MUTED)), 0),
            (styled((digest.state, "$warning")), -_ETA_WIDTH),
        ),
        columns(width, (_devices_cell(digest), name), (why, 0)),
    )


def _live_run_lines(
    digest: RunDigest, before: str, is_marked: bool, widths: ColumnWidths, width: int
) -> tuple[Content, ...]:
    name = widths.name_width(width)
    part = digest.step / digest.steps if digest.steps else 0.0
    done, whole = grouped_digits(digest.step), grouped_digits(digest.steps)
    steps = f"{done}/{whole}" if digest.steps else f"step {done}" if digest.step else ""
    left = (
        f"ETA {remaining_time_text(digest.seconds_left)}"
        if digest.seconds_left is not None
        else _text_instead_of_eta(digest)
    )
    line = share_bar(part, max(0, width - name - 5 - _STEPS_WIDTH - _ETA_WIDTH - 2)) if digest.steps else Content()
    first = columns(
        width,
        (_name_cell(digest, is_marked, "b", name), name),
        (line, 0),
        (percent(min(1.0, part)) if digest.steps else "", -5),
        (styled((steps, MUTED)), -_STEPS_WIDTH),
        (left, -_ETA_WIDTH),
    )
    newest = styled("loss ", (loss_text(digest.loss), "b")) if digest.loss is not None else Content()
    if digest.reward is not None:
        newest = styled("reward ", (metric_value_text(digest.reward), "b"))
    newest = styled(WARNING_MARK, f" {broken}") if (broken := digest.broken_loss_text) else newest
    evaluation = styled("   eval ", (loss_text(digest.eval_loss), "b")) if digest.eval_loss is not None else Content()
    attempt = digest.status.attempts[-1].number if digest.status and digest.status.attempts else 1
    more = styled((f"   attempt {attempt}", MUTED)) if attempt > 1 else Content()
    if (newest + evaluation + more).cell_length > width - name - _CURVE_WIDTH - 2:
        more = Content()  # the losses are not cut for it
    losses = styled(newest, evaluation, more)
    note = _note_or_changes_text(digest, before, (width - name) // 2)
    room = width - name - losses.cell_length - _min_note_width(note, 3)
    curve = max(0, min(_CURVE_WIDTH, room - 2))
    second = columns(
        width,
        (_devices_cell(digest), name),
        (styled((sparkline(digest.losses, curve), "$live")), curve + 2),
        (_text_with_note(losses, note, 3, width - name - curve - 2), 0),
    )
    return first, second


def _settings_changed_since(digest: RunDigest, before: str) -> tuple[str, ...]:
    return changed_settings(before, digest.searchable_settings) if before else ()


def _note_or_changes_text(digest: RunDigest, before: str, width: int) -> str:
    """Return a run's note; else, in so many cells, what was changed since the run before."""
    if digest.note:
        return visible(digest.note)
    return changed_settings_text(_settings_changed_since(digest, before), width)


def _min_note_width(note: str, gap: int) -> int:
    """Return the cells that a note keeps where there is little room: of an array's run, those of its value."""
    setting = split_setting(note)
    return len(setting[1]) + 2 + gap if setting else 0


def _text_with_note(text: Content, note: str, gap: int, width: int) -> Content:
    """Return a text and after it a run's note; the value of an array's run stays also where the text is cut."""
    if not note:
        return text
    gap = gap if text.plain else 0
    kept = _min_note_width(note, gap)
    text = fit(text, width - kept) if kept else text
    shown = truncated_text(note, max(0, width - text.cell_length - gap))
    return styled(text, (f"{' ' * gap}{shown}", MUTED)) if shown else text


def _text_instead_of_eta(digest: RunDigest) -> str:
    if (
        digest.status
        and digest.status.host
        and not digest.step
        and digest.state not in {"queued", "waiting", "unconfirmed"}
    ):
        return f"on {visible(digest.status.host)}"
    return digest.state if digest.state != "running" else "" if digest.step else "starting"


def _steps_text(digest: RunDigest) -> str:
    return f"{grouped_digits(digest.step)}/{grouped_digits(digest.steps)}" if digest.step and digest.steps else ""


def _ended_run_lines(  # noqa: PLR0913, PLR0917 - what is known of a run
    digest: RunDigest, before: str, is_marked: bool, widths: ColumnWidths, date: str, width: int
) -> tuple[Content, ...]:
    colour = run_mark(digest)[1]
    name, steps = widths.name_width(width), widths.steps if width > _MAX_NARROW_WIDTH else 0
    room = width - name - _STATE_WIDTH - steps - _DATE_WIDTH - 1
    column, steps_text = widths.outcome_width(room), _steps_text(digest)
    if not steps_text:
        room, steps = room + steps, 0
    outcome, note = styled(visible(run_outcome_text(digest))), visible(digest.note)
    if not note and widths.shows_changes(width):
        note = changed_settings_text(_settings_changed_since(digest, before), room - column - _CHANGE_GAP)
        outcome = fit(outcome, column) if note else outcome
    if note and max(column, outcome.cell_length) + _CHANGE_GAP + cell_len(note) <= room:
        outcome = outcome.pad_right(max(0, column - outcome.cell_length))
    outcome = _text_with_note(outcome, note, _CHANGE_GAP, room)
    cells = [
        (_name_cell(digest, is_marked, "", name), name),
        (styled((f"{digest.state:<{_STATE_WIDTH}}", colour), outcome), 0),
        *([(styled((steps_text, MUTED)), -steps)] if steps else []),
        (styled((date, MUTED)), -_DATE_WIDTH),
    ]
    return (columns(width, *cells),)


def _profile_lines(digest: ProfileDigest, widths: ColumnWidths, width: int) -> tuple[Content, ...]:
    what = (
        styled(("! ", "$warning"), visible(digest.damage))
        if digest.damage
        else styled((visible(digest.summary.text), MUTED))
    )
    cells = (
        (styled("  ", visible(digest.name)), widths.name_width(width)),
        (what, 0),
        (styled((digest.devices, MUTED)), -_DATE_WIDTH),
    )
    return (columns(width, *cells),)

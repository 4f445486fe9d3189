"""How Home draws its rows: live runs in two lines, ended ones in one, profiles, and what starts a new training."""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content

from tui_train.base.text import counted, duration, loss, percent, sparkline, thousands, visible
from tui_train.runs.status import took
from tui_train.workflow.cards import Card
from tui_train.workflow.digest import Digest
from tui_train.workflow.digest_words import detail, matches, remaining, when, words_of

from .home_start import beginning
from .widgets.ink import DONE, FAILED, LIVE, MUTED, OPEN, WARNING, bar, columns, heading, ink
from .widgets.row_list import Row

RUN, PROFILE = "run:", "profile:"
_NAME, _STEPS, _WHEN, _SPARK = 22, 13, 12, 20
_NARROW = 70
_LEAST_NAME, _MOST_NAME = 16, 42
_STATE = 10
_MARK = ("◆", "b $primary")
_MARKS = {
    "running": LIVE,
    "stopping": LIVE,
    "finished": DONE,
    "failed": FAILED,
    "lost": FAILED,
    "stopped": WARNING,
    "damaged": WARNING,
    "queued": OPEN,
    "unconfirmed": OPEN,
    "new": OPEN,
}


class Shown(Struct, frozen=True):
    """What Home shows: all that there is, the filter, the runs that are marked, and whether they are grouped.

    `draft` is what was edited last, None where nothing was.
    """

    runs: tuple[Digest, ...] = ()
    profiles: tuple[Card, ...] = ()
    text: str = ""
    marked: frozenset[str] = frozenset()
    grouped: bool = False
    draft: Card | None = None


class Widths(NamedTuple):
    """The widest name, steps and result of all rows, in cells: what is left by the others goes to the name."""

    name: int = 0
    steps: int = 0
    detail: int = 0

    def of_name(self, width: int) -> int:
        """Return the cells of a name in a list of this width."""
        room = width - _WHEN - (self.steps if width > _NARROW else 0) - self.detail
        return min(self.name, max(_NAME + max(0, (width - 78) // 4), room))


def rows(shown: Shown, beginnings: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of the list: without a filter what begins a training, then live runs, the others, profiles."""
    runs = [run for run in shown.runs if matches(shown.text, *words_of(run))] if shown.text else shown.runs
    profiles = [card for card in shown.profiles if matches(shown.text, *_words(card))]
    live = [run for run in runs if run.going]
    ended = [run for run in runs if not run.going]
    today, widths = time.strftime("%Y-%m-%d"), _widths(runs, profiles)
    found: list[Row] = [] if shown.text else [_title("Start"), *_beginnings(shown.draft, beginnings)]
    if live:
        found += [_air(found), _title("Running"), *(_live_row(run, shown.marked, widths) for run in live)]
    for name, group in _groups(ended, grouped=shown.grouped):
        found += [_air(found), _title(name), *(_run_row(run, shown.marked, today, widths) for run in group)]
    if profiles:
        found += [_air(found), _title("Profiles")]
        found += [_profile_row(card, widths) for card in profiles]
    return tuple(row for row in found if row.height) or (_nothing(),)


def counts(shown: Shown, listed: Sequence[Row]) -> str:
    """Return in words how many runs and profiles there are, and how many of them are listed."""
    if not shown.text:
        runs, profiles = len(shown.runs), len(shown.profiles)
        marked = f"{len(shown.marked)} marked of " if shown.marked else ""
        return f"{marked}{counted(runs, 'run')}, {counted(profiles, 'profile')}" if runs or profiles else ""
    runs, profiles = (sum(row.key.startswith(kind) for row in listed) for kind in (RUN, PROFILE))
    return f"{runs} of {counted(len(shown.runs), 'run')}, {profiles} of {counted(len(shown.profiles), 'profile')}"


def hint(digest: Digest) -> str:
    """Return what is said of the run in which the cursor is: its id, when it was, and the user's note."""
    now = digest.now
    parts = [visible(digest.run.name)]
    if now and now.started:
        seconds = None if now.live else took(now)
        lasted = "" if seconds is None else f", {duration(seconds)}"
        parts.append(time.strftime("%Y-%m-%d %H:%M", time.localtime(now.started)) + lasted)
    if now and len(now.attempts) > 1:
        parts.append(counted(len(now.attempts), "attempt"))
    about = ", ".join(filter(None, (digest.about.method, digest.about.model, digest.about.data)))
    parts += [visible(about)] if about else []
    parts += [visible(digest.why.rstrip("."))] if digest.why else []
    parts += [f"“{visible(digest.note)}”"] if digest.note else []
    ends = " It keeps running when you leave." if digest.live else ""
    return f"{'  '.join(parts)}.{ends}"


def _words(card: Card) -> tuple[str, ...]:
    return (card.name, card.about.words, card.devices, "profile")


def _groups(runs: Sequence[Digest], *, grouped: bool) -> Iterable[tuple[str, Sequence[Digest]]]:
    if not grouped:
        return [("Runs", runs)] if runs else []
    found: dict[str, list[Digest]] = {}
    for run in runs:
        found.setdefault(run.profile or run.run.label, []).append(run)
    return [(visible(name), group) for name, group in found.items()]


def _beginnings(draft: Card | None, rows: Sequence[Row]) -> Iterable[Row]:
    """Return what begins a training, the draft after the first of them."""
    return (*rows[:1], *([beginning("draft", "Continue the draft", _about(draft))] if draft else []), *rows[1:])


def _about(card: Card) -> str:
    return ", ".join(filter(None, (card.name, card.about.words)))


def _widths(runs: Sequence[Digest], profiles: Sequence[Card]) -> Widths:
    # Of a thousand runs at every key of the filter: their labels are ASCII, a note may be cut.
    steps = max((len(_steps(run)) for run in runs if not run.going), default=0)
    details = (_STATE + len(detail(run)) + len(run.note) + 2 for run in runs if not run.going)
    own = max((cell_len(visible(card.name)) for card in profiles), default=0)
    name = max((len(run.run.label) for run in runs), default=0)
    name = max(name, own)
    return Widths(min(_MOST_NAME, max(_LEAST_NAME, name + 4)), steps + 2 if steps else 0, max(details, default=0))


def _title(title: str) -> Row:
    return Row("", title, lambda width: (heading(title, "", width),))


def _air(before: Sequence[Row]) -> Row:
    """Return an empty line between panels; nothing at the top."""
    return Row("", "", lambda _width: (Content(),), height=1 if before else 0)


def _nothing() -> Row:
    return Row("", "none", lambda width: (columns(width, (ink(("Nothing matches. Esc shows all.", MUTED)), 0)),))


def _live_row(digest: Digest, marked: frozenset[str], widths: Widths) -> Row:
    mark = _key(digest) in marked
    draw = partial(_live, digest, mark, widths)
    return Row(_key(digest), (digest, mark, widths), draw, height=2, section="live")


def _run_row(digest: Digest, marked: frozenset[str], today: str, widths: Widths) -> Row:
    mark = _key(digest) in marked
    # Tomorrow its date is called otherwise.
    return Row(_key(digest), (digest, mark, today, widths), partial(_run, digest, mark, widths), section="runs")


def _profile_row(card: Card, widths: Widths) -> Row:
    return Row(f"{PROFILE}{card.name}", (card, widths), partial(_profile, card, widths), section="profiles")


def _key(digest: Digest) -> str:
    return f"{RUN}{digest.run.path}"


def _head(digest: Digest, mark: bool, style: str) -> Content:
    # One sign a row: that of a marked run is its mark, its state stands beside in a word.
    sign, colour = _MARK if mark else _MARKS.get(digest.state, (" ", ""))
    return ink((sign, colour), " ", (visible(digest.run.label), "b $primary" if mark else style))


def _live(digest: Digest, mark: bool, widths: Widths, width: int) -> tuple[Content, ...]:
    name = widths.of_name(width)
    part = digest.step / digest.steps if digest.steps else 0.0
    done, whole = thousands(digest.step), thousands(digest.steps)
    steps = f"{done}/{whole}" if digest.steps else f"step {done}" if digest.step else ""
    left = f"ETA {remaining(digest.left)}" if digest.left is not None else _waiting(digest)
    line = bar(part, max(0, width - name - 30)) if digest.steps else Content()
    first = columns(
        width,
        (_head(digest, mark, "b"), name),
        (line, 0),
        (percent(min(1.0, part)) if digest.steps else "", -5),
        (ink((steps, MUTED)), -_STEPS),
        (left, -14),
    )
    newest = ink("loss ", (loss(digest.loss), "b")) if digest.loss is not None else Content()
    evaluation = ink("   eval ", (loss(digest.evaluation), "b")) if digest.evaluation is not None else Content()
    attempt = digest.now.attempts[-1].number if digest.now and digest.now.attempts else 1
    more = ink((f"   attempt {attempt}", MUTED)) if attempt > 1 else Content()
    note = ink((f"   {visible(digest.note)}", MUTED)) if digest.note else Content()
    second = columns(
        width,
        (ink("  ", (visible(digest.devices), MUTED)), name),
        (ink((sparkline(digest.losses, _SPARK), "$live")), _SPARK + 2),
        (ink(newest, evaluation, more, note), 0),
    )
    return first, second


def _waiting(digest: Digest) -> str:
    if digest.now and digest.now.host and not digest.step and digest.state not in {"queued", "unconfirmed"}:
        return f"on {visible(digest.now.host)}"
    return digest.state if digest.state != "running" else "" if digest.step else "starting"


def _steps(digest: Digest) -> str:
    return f"{thousands(digest.step)}/{thousands(digest.steps)}" if digest.step and digest.steps else ""


def _run(digest: Digest, mark: bool, widths: Widths, width: int) -> tuple[Content, ...]:
    date = when(digest.now.started if digest.now else None, time.time())
    colour = _MARKS.get(digest.state, ("", ""))[1]
    outcome = detail(digest)
    note = ink((f"{'  ' if outcome else ''}{visible(digest.note)}", MUTED)) if digest.note else Content()
    cells = [
        (_head(digest, mark, ""), widths.of_name(width)),
        (ink((f"{digest.state:<{_STATE}}", colour), visible(outcome), note), 0),
        (ink((_steps(digest), MUTED)), -widths.steps),
        (ink((date, MUTED)), -_WHEN),
    ]
    return (columns(width, *(cells if width > _NARROW else [*cells[:2], cells[3]])),)


def _profile(card: Card, widths: Widths, width: int) -> tuple[Content, ...]:
    what = ink(("! ", "$warning"), visible(card.damage)) if card.damage else ink((visible(card.about.words), MUTED))
    cells = ((ink("  ", visible(card.name)), widths.of_name(width)), (what, 0), (ink((card.devices, MUTED)), -_WHEN))
    return (columns(width, *cells),)

"""Pane beside Home's list with details of the run or profile at the cursor."""

from collections.abc import Iterator
from typing import NamedTuple

from textual.containers import Vertical
from textual.content import Content

from tui_train.base.text import loss_text, visible
from tui_train.runner.logs.progress import Progress
from tui_train.setup.profile_summary import TrainingSummary
from tui_train.views.compare import ComparisonRow
from tui_train.views.profile_digests import ProfileDigest
from tui_train.views.run_digest import RunDigest
from tui_train.views.run_settings import shortened_setting_text

from ..screen_words import words_on_screen
from ..widgets.lines import Lines
from ..widgets.plot import Plot
from ..widgets.run_plot import PlotOptions, draw_or_hide_plot
from ..widgets.text_layout import KEY_STYLE, MUTED, fit, heading, styled
from .home_rows import run_mark, start_and_duration_text
from .start_options import StartOption

_MAX_CHANGES_SHOWN = 8
_LABEL_WIDTH = 9


class RunDetails(NamedTuple):
    """Details of a run that take time to read: its losses, and the settings that differ from the run before it."""

    progress: Progress = Progress()
    previous_run_name: str = ""
    changes: tuple[ComparisonRow, ...] = ()


class RunPane(Vertical, can_focus=False):
    """Details of the row at the cursor, and a plot of its losses."""

    def __init__(self) -> None:
        super().__init__(id="side")
        self._lines, self._plot = Lines(), Plot(id="loss")

    def compose(self) -> Iterator[Lines]:
        """Put the words above the plot."""
        self._plot.display = False
        yield self._lines
        yield self._plot

    def show_run(self, digest: RunDigest, details: RunDetails | None) -> None:
        """Show a run; its details where they have been read."""
        found = details or RunDetails()
        self._lines.show(lambda width: tuple(_run_lines(digest, found, width)))
        draw_or_hide_plot(self._plot, found.progress, PlotOptions())

    def show_profile(self, digest: ProfileDigest) -> None:
        """Show a saved profile."""
        self._lines.show(lambda width: tuple(_profile_lines(digest, width)))
        self._plot.display = False

    def show_start_option(self, beginning: StartOption) -> None:
        """Show what a way to begin needs and does."""
        self._lines.show(lambda width: tuple(_start_option_lines(beginning, width)))
        self._plot.display = False

    def show_nothing(self) -> None:
        """Show an empty pane, for a row that is neither a run nor a profile."""
        self._lines.show_lines_of_any_width()
        self._plot.display = False


def _run_lines(digest: RunDigest, details: RunDetails, width: int) -> Iterator[Content]:
    words = ", ".join(filter(None, (digest.state, digest.broken_loss_text)))
    yield heading(visible(digest.run.label), styled(run_mark(digest), f" {words}"), width)
    for label, words in _run_labels_and_texts(digest, details.progress):
        yield from _labelled_lines(label, words, width)
    if digest.failure_cause or digest.damage:
        yield Content()
        yield heading("Why", "", width)
        yield from Content(visible(digest.failure_cause or digest.damage)).wrap(width)
        yield from Content.styled(visible(words_on_screen(digest.remedy)), MUTED).wrap(width) if digest.remedy else ()
    if details.previous_run_name:
        yield Content()
        yield heading("Changed", styled((f"since {visible(details.previous_run_name)}", MUTED)), width)
        for row in details.changes[:_MAX_CHANGES_SHOWN]:
            yield from _change_lines(row, width)
        if len(details.changes) > _MAX_CHANGES_SHOWN:
            yield styled((f"and {len(details.changes) - _MAX_CHANGES_SHOWN} more: Space marks both, c compares", MUTED))
    yield Content()


def _run_labels_and_texts(digest: RunDigest, progress: Progress) -> Iterator[tuple[str, str]]:
    """Yield what is known of a run, each with its label."""
    now = digest.status
    if now and now.started:
        yield "Started", start_and_duration_text(now, now.started)
    if now and now.state == "waiting":
        yield "Waits", now.waits_for
    if now and len(now.attempts) > 1:
        yield "Attempts", str(len(now.attempts))
    yield from _summary_labels_and_texts(digest.summary)
    yield "With", ", ".join(filter(None, (digest.devices, f"on {now.host}" if now and now.host else "")))
    if progress.last:
        yield "Loss", f"{loss_text(progress.last.loss)}, {progress.position_word} {progress.last.step}"
    if progress.evaluations.last:
        yield "Eval", loss_text(progress.evaluations.last.loss)
    if digest.note:
        yield "Note", f"“{digest.note}”"


def _profile_lines(digest: ProfileDigest, width: int) -> Iterator[Content]:
    yield heading(visible(digest.name), styled(("saved profile", MUTED)), width)
    for label, words in (
        *_summary_labels_and_texts(digest.summary),
        ("With", digest.devices),
        ("Damaged", digest.damage),
    ):
        yield from _labelled_lines(label, words, width)
    yield Content()
    yield styled(("Enter", KEY_STYLE), " opens its steps   ", ("g", KEY_STYLE), " runs it now")


def _start_option_lines(beginning: StartOption, width: int) -> Iterator[Content]:
    yield heading(beginning.title, "", width)
    for label, words in beginning.details:
        yield from _labelled_lines(label, words_on_screen(words), width)


def _summary_labels_and_texts(about: TrainingSummary) -> tuple[tuple[str, str], ...]:
    return ("Script", about.script), ("Trains", about.method), ("Model", about.model), ("Data", about.data)


def _labelled_lines(label: str, words: str, width: int) -> Iterator[Content]:
    """Yield a label and its text in as many lines as it needs; nothing where there is no text."""
    lines = Content(visible(words)).wrap(max(4, width - _LABEL_WIDTH)) if words else []
    for number, line in enumerate(lines):
        yield styled((f"{label if number == 0 else '':<{_LABEL_WIDTH}}", MUTED), line)


def _change_lines(row: ComparisonRow, width: int) -> Iterator[Content]:
    """Yield a setting and its values before and now, below it where they have no room beside it."""
    before, now = (shortened_setting_text(cell, max(6, (width - 6) // 2)) for cell in row.cells)
    values = styled((before, MUTED), (" → ", MUTED), (now, "b"))
    label = f"{row.label}  "
    if len(label) + values.cell_length <= width:
        yield styled((label, MUTED), values)
    else:
        yield styled((row.label, MUTED))
        yield fit(styled("  ", values), width)

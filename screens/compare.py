"""Compare: runs side by side: their losses overlaid, what came of them, and the settings in which they differ."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content

from tui_train.base.text import duration_text, grouped_digits, split_setting, visible
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import waiting_or_end_reason
from tui_train.views.compare import (
    RUN_LETTERS,
    ComparedRun,
    ComparisonRow,
    XQuantity,
    common_x_quantities,
    compared_metric_names,
    curve_difference,
    differing_code_rows,
    differing_setting_rows,
    faster_run_sentence,
    read_compared_runs,
    result_rows,
)
from tui_train.views.run_settings import shortened_setting_text

from .base import WizardScreen
from .messages import OpenRun
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.lines import Lines
from .widgets.plot import SHARE_AND_LABEL_OF_ZOOM_STEPS, Plot, PlotAxisOptions, PlotSeries, drawable_points
from .widgets.run_plot import PlotOptions
from .widgets.step_bar import StepBar
from .widgets.text_layout import DONE_MARK, MUTED, RULE_STYLE, Styled, StyledPiece, columns, fit, heading, styled

_RUN_STYLES = ("$live", "$warning", "$primary", "$success", "$error", "$foreground")
_REFRESH_SECONDS = 5.0  # seconds between two looks at runs that go on
_MAX_LABEL_WIDTH = 32
_MIN_CELL_WIDTH = 8
_NOTE_WIDTH = 16
_MAX_CURVE_POINTS = 4000
_LOSS_ANSWER = " "  # no name of a metric


class CompareScreen(WizardScreen):
    """Two runs or more."""

    HELP = """Compare

The losses of all runs in one plot, a letter on each curve; below it what came of them, and the settings and the code in
which they differ. Of two runs a wide screen also plots the difference.

  m       another metric of their logs in place of the loss
  x       plot over steps, over tokens (the log's count, else batch × sequence length), or over time (as if all steps of
          an attempt took equally long)
  z       zoom to the last steps; again: closer, then all
  l       logarithmic scale on or off
  a       all rows, or only those in which they differ
  ← →     mark another run: [B]; Enter opens it"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_run", "Open", key_display="Enter"),
        Binding("left", "choose_next_run(-1)", "Other run", key_display="←→"),
        Binding("right", "choose_next_run(1)", show=False),
        Binding("m", "choose_metric", "Metric"),
        Binding("x", "next_x_quantity", "By tokens, time"),
        Binding("a", "toggle_all_rows", "All rows"),
        Binding("z", "change_plot_options('z')", "Zoom to the last part", show=False),
        Binding("l", "change_plot_options('l')", "Logarithmic scale", show=False),
        Binding("escape", "app.back", "Back", key_display="Esc"),
    ]

    def __init__(self, runs: Sequence[RunFolder], opened_from: str = "Home") -> None:
        """Compare runs, the first one called A; `opened_from` is the screen to which Esc goes back, in words."""
        super().__init__()
        self._opened_from = opened_from
        self.runs = tuple(runs)
        self._compared: tuple[ComparedRun, ...] = ()
        self._axis: XQuantity = "step"
        self._metric = ""  # empty: the loss of the training
        self._plot = PlotOptions()
        self._shows_all = False
        self._chosen = len(runs) - 1

    def compose(self) -> ComposeResult:
        """Put the plot over the tables, or beside the settings."""
        yield StepBar(title=f"{self._opened_from} › Compare")
        with Container(id="compare"):
            with Container(id="curves"):
                yield Plot(id="losses")
                yield Lines(id="results")
            with VerticalScroll(id="settings", can_focus=True):
                yield Lines(id="differing")
                yield Plot(id="difference")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Read the runs, and again while one goes on."""
        self.query_one("#results", Lines).show_lines_of_any_width(styled(("reading …", MUTED)))
        self._read_runs()
        self.set_interval(_REFRESH_SECONDS, self._read_again_if_any_live)

    def _read_again_if_any_live(self) -> None:
        if any(each.status.is_live for each in self._compared):
            self._read_runs()

    @work(thread=True, exclusive=True, group="compare")
    def _read_runs(self) -> None:
        self.call_unless_cancelled(self._show_comparison, read_compared_runs(self.runs))

    def _show_comparison(self, compared: tuple[ComparedRun, ...]) -> None:
        self._compared = compared
        self._draw()

    def _draw(self) -> None:
        if not self._compared:
            return
        compared, chosen, whole = self._compared, self._chosen, self._shows_all
        self._draw_plot()
        rows = result_rows(compared, [self._metric] if self._metric else [])
        came = [row for row in rows if whole or row.differs]
        differing, code = differing_setting_rows(compared), differing_code_rows(compared)
        table = partial(comparison_table, len(compared), chosen, widest_cells((*came, *differing, *code)))
        self.query_one("#results", Lines).show(
            lambda width: table(("Result", f"Enter opens {RUN_LETTERS[chosen]}"), came, width)
        )
        self.query_one("#differing", Lines).show(
            lambda width: [
                *(table(("Settings", ""), differing, width) if differing else _no_settings_lines(width)),
                *(table(("Code", ""), code, width) if code else ()),
            ]
        )
        self.query_one(StepBar).show_at_right(
            styled(
                (
                    "all rows are listed; a hides equal ones" if whole else "only differences are listed; a lists all",
                    MUTED,
                )
            )
        )
        self.query_one(Hint).show_text(Content(faster_run_sentence(compared) or _why_nothing_is_compared(compared)))

    def _draw_plot(self) -> None:
        series: list[PlotSeries] = []
        note: list[StyledPiece] = []
        names, missing = _distinct_run_names(self._compared), visible(self._metric) or "loss"
        for number, each in enumerate(self._compared):
            style, letter = _RUN_STYLES[number], RUN_LETTERS[number]
            points = each.metric_over(self._metric, self._axis) if self._metric else each.losses_over(self._axis)
            every = max(1, len(points) // _MAX_CURVE_POINTS)
            series.append(PlotSeries(points[::every], style, letter=letter))
            note += [(letter, f"b {style}"), f" {visible(names[number])}{'' if points else f' (no {missing})'}  "]
        words: list[StyledPiece] = [*note, f"by {self._axis}", ", log scale" if self._plot.is_log_scale else ""]
        label = {"step": grouped_digits, "tokens": _short_token_count_text, "time": duration_text}[self._axis]
        share, _ = SHARE_AND_LABEL_OF_ZOOM_STEPS[self._plot.zoom_step]
        axes = PlotAxisOptions(0, share, self._plot.is_log_scale, label)
        self.query_one("#losses", Plot).show_series(self._metric or "Loss", words, series, axes)
        self._draw_difference(series, axes._replace(is_log_scale=False))

    def _draw_difference(self, series: Sequence[PlotSeries], axes: PlotAxisOptions) -> None:
        """Draw of two runs by how much the second is above the first, over a line at 0."""
        points = curve_difference(*(drawable_points(each.points) for each in series)) if len(series) == 2 else []
        plot = self.query_one("#difference", Plot)
        plot.set_class(bool(points), "drawn")
        if points:
            zero = PlotSeries([(points[0][0], 0.0), (points[-1][0], 0.0)], RULE_STYLE)
            curve = PlotSeries(points, _RUN_STYLES[1])
            plot.show_series(f"{RUN_LETTERS[1]} - {RUN_LETTERS[0]}", f"by {self._axis}", [zero, curve], axes)

    def action_choose_next_run(self, step: int) -> None:
        """Choose another run."""
        self._chosen = (self._chosen + step) % len(self.runs)
        self._draw()

    def action_open_run(self) -> None:
        """Open the chosen run."""
        self.post_message(OpenRun(self.runs[self._chosen]))

    def action_next_x_quantity(self) -> None:
        """Draw over steps, tokens or time, as far as these are known of all runs."""
        known = common_x_quantities(self._compared)
        self._axis = known[(known.index(self._axis) + 1) % len(known)]
        self._draw_plot()

    def action_choose_metric(self) -> None:
        """Choose what the plot shows."""
        answers = [(_LOSS_ANSWER, "Loss"), *((name, name) for name in compared_metric_names(self._compared))]
        self.ask_choice("Which metric?", answers, self._show_metric)

    def _show_metric(self, name: str) -> None:
        self._metric = "" if name == _LOSS_ANSWER else name
        self._draw()

    def action_change_plot_options(self, key: str) -> None:
        """Zoom, or change the scale, as a key does."""
        self._plot = self._plot.after_key(key)
        self._draw_plot()

    def action_toggle_all_rows(self) -> None:
        """List all rows, or those that differ."""
        self._shows_all = not self._shows_all
        self._draw()


def _why_nothing_is_compared(compared: Sequence[ComparedRun]) -> str:
    """Return why there are no losses yet, where no run has begun to train; empty where one has."""
    if any(each.status.attempts for each in compared):
        return ""
    if not all(each.status.state in {"queued", "waiting"} for each in compared):
        return "None of these runs has started training."
    why = next(filter(None, (waiting_or_end_reason(each.run, each.status) for each in compared)), "")
    return f"All of these runs wait{f': {why}' if why else ''}. Their losses appear here once they train."


def widest_cells(rows: Sequence[ComparisonRow]) -> tuple[int, int]:
    """Return the cells of the widest label and of the widest value of all tables: their columns stand below each other.

    A value has room for the mark of the best one.
    """
    label = max((cell_len(row.label) for row in rows), default=0)
    return label, max((cell_len(text) + 2 for row in rows for text in row.cells), default=0)


def comparison_table(  # noqa: PLR0913, PLR0917 - each is a thing of its own
    run_count: int,
    chosen_index: int,
    widest: tuple[int, int],
    title_and_note: tuple[str, str],
    rows: Sequence[ComparisonRow],
    width: int,
) -> list[Content]:
    """Return rows under a title with its note and the letters of the runs, the best number marked.

    The columns of the values take the free width as far as `widest_cells` need it.
    """
    label_width = min(_MAX_LABEL_WIDTH, widest[0] + 2)
    room = (width - label_width - (_NOTE_WIDTH if run_count == 2 else 0)) // run_count - 2
    cell = max(_MIN_CELL_WIDTH, min(room, max(widest[1], 40 if width >= 140 else 30 if width >= 100 else 20)))
    letters: list[tuple[Styled, int]] = [("", label_width)]
    for number in range(run_count):
        name = f"[{RUN_LETTERS[number]}]" if number == chosen_index else RUN_LETTERS[number]
        letters += [("", 2), ((name, f"b {_RUN_STYLES[number]}"), -cell)]
    between = f"  {RUN_LETTERS[1]} - {RUN_LETTERS[0]}" if any(row.note for row in rows) else ""
    lines = [heading(*title_and_note, width), columns(width, *letters, ((between, MUTED), 0))]
    for row in rows:
        cells: list[tuple[Styled, int]] = [((row.label, MUTED), label_width)]
        for number, text in enumerate(row.cells):
            # Paths differ in their end, what came of a run is told by its beginning.
            words = shortened_setting_text(text, cell - 2 * (number == row.best_index)) if row.key else text
            shown = (
                styled(DONE_MARK, " ", (words, "b"))
                if number == row.best_index
                else styled((words, "b" if number == chosen_index else ""))
            )
            cells += [("", 2), (shown, -cell)]
        lines.append(columns(width, *cells, (f"  {row.note}" if row.note else "", 0)))
    return lines


def _no_settings_lines(width: int) -> list[Content]:
    return [heading("Settings", "", width), fit(styled(("the same in all", MUTED)), width)]


def _distinct_run_names(compared: Sequence[ComparedRun]) -> list[str]:
    """Return what tells the runs apart: values of an array, or else names, or else notes, or when they began."""
    without_dates = [_run_id_without_date(each.run.name) for each in compared]
    notes = [each.note for each in compared]
    # The note of a run of an array is its setting, whose name is shown once.
    settings = [setting for setting in map(split_setting, notes) if setting]
    if len(settings) == len(set(notes)) == len(notes) and len({name for name, _ in settings}) == 1:
        return [notes[0], *(value for _, value in settings[1:])]
    for names in (without_dates, notes):
        if all(names) and len(set(names)) == len(names):
            return names
    return [_run_id_with_date_last(each.run.name) for each in compared]


def _run_id_without_date(name: str) -> str:
    """Return a run's id without the date that it begins with."""
    date, _, rest = name.partition("-")
    time, _, own = rest.partition("-")
    return own if own and date.isdigit() and time.isdigit() else name


def _run_id_with_date_last(name: str) -> str:
    """Return a run's id with when it began after its name: `mine 11-24 10:05`."""
    own = _run_id_without_date(name)
    date, time = name[4:8], name[9:13]
    return name if own == name else f"{own} {date[:2]}-{date[2:]} {time[:2]}:{time[2:]}"


def _short_token_count_text(tokens: float) -> str:
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if tokens >= unit:
            return f"{tokens / unit:.3g}{letter}"
    return f"{tokens:.0f}"

"""Metrics: every number that the log of a run reports by its name, as a grid of plots, or one of them in full."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui_train.base.text import visible
from tui_train.runner.logs.metric_series import Metrics, joined_metrics
from tui_train.runs.results.metrics import read_trainer_metrics
from tui_train.views.metric_summaries import MetricPair, metric_pairs

from ..base import WizardScreen
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import MUTED, styled
from .metric_grid import (
    GridShape,
    MetricDrawer,
    MetricGridOptions,
    cursor_index,
    grid_shape,
    order_pinned_first,
    shown_metrics_range_text,
    with_cursor_moved,
)

if TYPE_CHECKING:
    from .run_view import RunView

_ROWS_OF_FRAME = 2  # rows of the rail and the keys
_MIN_TALL_ROWS = 34  # from here on a line of air is at the top


class MetricsScreen(WizardScreen):
    """The metrics of the run that the screen below shows, which says when there is something new."""

    HELP = """Metrics

Every metric of the log: losses and rewards first, speed and counts last. ◆ is a value of an evaluation, on the plot of
the same metric of the training. With very many steps a point is the mean of several; the large plot then shows their
lowest and highest values in grey.

  ← → ↑ ↓   another plot; PgUp PgDn another page
  Enter     this plot over the whole screen, and back
  p         keep this plot first on this page, or no longer
  l         logarithmic scale for this plot, on or off
  z         on the large plot: zoom to the last steps; again: closer, then all
  a         in a training by rewards: the newest answers
  Esc       back

On the command line: tui-train metrics, with --json and --csv."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "toggle_full", "Large plot", key_display="Enter"),
        Binding("a", "show_answers", "Answers"),
        Binding("left", "move(-1, 0)", "Other metric", key_display="←→"),
        Binding("right", "move(1, 0)", show=False),
        Binding("up", "move(0, -1)", show=False),
        Binding("down", "move(0, 1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
        Binding("p", "toggle_pin", "Put first"),
        Binding("l", "toggle_log_scale", "Log scale"),
        Binding("z", "zoom", "Last steps"),
        Binding("escape", "back", "Back", key_display="Esc"),
    ]

    def __init__(self, view: "RunView") -> None:
        super().__init__()
        self._view = view
        self._trainer_metrics = Metrics()
        self._pairs: list[MetricPair] = []
        self._drawing = MetricDrawer()

    def compose(self) -> ComposeResult:
        """Compose the plots and the keys."""
        yield StepBar(title="Run › Metrics")
        yield Lines(id="metrics")
        yield KeyBar()

    def on_mount(self) -> None:
        """Draw the metrics of the log, and read those that the trainer stored."""
        self._view.metrics = self._view.metrics._replace(is_full=False)
        self.draw()
        self._read_trainer_metrics()

    @work(thread=True, exclusive=True, group="kept")
    def _read_trainer_metrics(self) -> None:
        self.call_unless_cancelled(self._show_trainer_metrics, read_trainer_metrics(self._view.run))

    def _show_trainer_metrics(self, kept: Metrics) -> None:
        self._trainer_metrics = kept
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def _ordered_metric_pairs(self) -> list[MetricPair]:
        view = self._view
        logged = view.snapshot.progress.metrics if view.snapshot else Metrics()
        # A log that names no steps counts its own lines, which cannot go on where the trainer's record ends.
        if view.snapshot and (view.snapshot.progress.step or not view.is_still_training):
            logged = joined_metrics(self._trainer_metrics, logged)
        return order_pinned_first(metric_pairs(logged), view.metrics)

    @property
    def _plot_row_count(self) -> int:
        return self.size.height - _ROWS_OF_FRAME - (self.size.height >= _MIN_TALL_ROWS)

    @property
    def _grid_shape(self) -> GridShape:
        return grid_shape(len(self._pairs), self.size.width, self._plot_row_count)

    def draw(self) -> None:
        """Draw the page or the full plot."""
        had_metrics, pairs = bool(self._pairs), self._ordered_metric_pairs()
        self._pairs = pairs
        if pairs and not had_metrics:
            self.refresh_bindings()
        choices = self._view.metrics = with_cursor_moved(pairs, self._view.metrics, 0)
        steps, room = self._view.snapshot.progress.steps if self._view.snapshot else 0, self._plot_row_count
        lines = self.query_one("#metrics", Lines)
        if not pairs:
            lines.show_lines_of_any_width(styled(("No metrics in the log yet.", MUTED)))
        elif choices.is_full:
            shown = pairs[cursor_index(pairs, choices)]
            lines.show(lambda width: self._drawing.full_metric_lines(shown, choices, steps, (width, room)))
        else:
            lines.show(lambda width: self._drawing.grid_lines(pairs, choices, steps, (width, room)))
        words = shown_metrics_range_text(pairs, choices, self._grid_shape) if pairs else ""
        self.query_one(StepBar).show_at_right(styled((words, MUTED)), visible(self._view.run.name))

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Enter and p say what they do first."""
        choices = self._view.metrics
        size = "All plots" if choices.is_full else "Large plot"
        return {"enter": size, "p": "Not first" if choices.cursor in choices.pinned else "Put first"}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a plot in full shows its last part alone, and only what learns from rewards writes answers."""
        if action == "show_answers":
            return any(pair.name == "reward" for pair in self._pairs)
        return action != "zoom" or self._view.metrics.is_full

    def action_move(self, right: int, down: int) -> None:
        """Go to another metric, unless there is none; in full all are in one row."""
        step = right + down * (1 if self._view.metrics.is_full else self._grid_shape.columns)
        if 0 <= cursor_index(self._pairs, self._view.metrics) + step < len(self._pairs):
            self._apply_choices(with_cursor_moved(self._pairs, self._view.metrics, step))

    def action_move_page(self, pages: int) -> None:
        """Go to another page."""
        step = 1 if self._view.metrics.is_full else self._grid_shape.page_size
        self._apply_choices(with_cursor_moved(self._pairs, self._view.metrics, pages * step))

    def action_toggle_full(self) -> None:
        """Show one plot in full, or all again."""
        self._apply_choices(self._view.metrics._replace(is_full=not self._view.metrics.is_full))

    def action_toggle_pin(self) -> None:
        """Pin the metric at the cursor, or not."""
        self._apply_choices(self._view.metrics.with_pin_toggled())

    def action_toggle_log_scale(self) -> None:
        """Draw the metric at the cursor by its logarithm, or not."""
        self._apply_choices(self._view.metrics.with_log_scale_toggled())

    def action_zoom(self) -> None:
        """Show the last part only."""
        self._apply_choices(self._view.metrics.with_next_zoom_step())

    def action_show_answers(self) -> None:
        """Show the newest answers with their rewards."""
        from .answers_screen import AnswersScreen

        self.app.push_screen(AnswersScreen(self._view))

    def action_back(self) -> None:
        """Leave one plot, or the screen."""
        if self._view.metrics.is_full:
            self.action_toggle_full()
        else:
            self.app.pop_screen()

    def _apply_choices(self, choices: MetricGridOptions) -> None:
        self._view.metrics = choices
        self.draw()
        self.refresh_bindings()

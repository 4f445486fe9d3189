"""A log with its search, its filter and a line that says where one is."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from tui_train.base.text import quantity, size_text, visible
from tui_train.runner.logs.lines import RANK_PREFIX_PATTERN_TEMPLATE
from tui_train.runs.logs.logfile import LogFile
from tui_train.runs.logs.search import FilteredLog, LogSearch, SearchUpdate, start_nearest_search

from ..widgets.lines import Lines
from ..widgets.text_layout import KEY_STYLE, MUTED, fit, heading, styled
from .log_view import LogHit, LogView


class _ExpressionInput(Input):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Find", key_display="Enter")]


class LogPane(Vertical):
    """Shows a log, or those lines of it that match; looks for lines while nobody waits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # Before all other keys: over a slow line what is typed next comes along, and belongs to the expression.
        Binding("slash", "ask_expression('search')", "Search", key_display="/", priority=True),
        Binding("n", "find_next(False)", "Next"),
        Binding("N", "find_next(True)", "Before"),
        Binding("f", "ask_expression('filter')", "Show matching lines only", show=False, priority=True),
        Binding("escape", "end_search_or_filter", "Back", key_display="Esc"),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.log_file: LogFile | None = None
        self.rank: int | None = None
        self._expression = ""
        self._filter = ""
        self._filtered: FilteredLog | None = None
        self._search: LogSearch | None = None
        self._hit: SearchUpdate | None = None
        self._asking_for = ""
        self._status_text = self._hit_text = ""
        self._searched_text = ""
        self._caption = ""
        self.is_growing = False
        self._view = LogView(id="lines")

    def compose(self) -> ComposeResult:
        """Put a title over the log and a line under it, and in that one's place what is typed."""
        yield Lines(id="title")
        yield self._view
        with Horizontal(id="under"):
            yield Lines(id="place")
            yield _ExpressionInput(id="expression", compact=True)

    def on_mount(self) -> None:
        """Hide what is typed until it is."""
        self.query_one(Input).display = False
        self._show_title_and_position()

    def on_unmount(self) -> None:
        """Leave no child behind."""
        self._stop_search()
        self._end_filter()

    def open_log(self, path: Path, name: str) -> None:
        """Show a log, called so, at its end, by the filter that is set."""
        self.log_file, self._caption = LogFile(path), name
        self._stop_search()
        self._hit, self._status_text = None, ""
        self._apply_filter()

    def set_growing(self, *, is_growing: bool) -> None:
        """Set whether the log is still being written."""
        if is_growing != self.is_growing:
            self.is_growing = is_growing
            self._show_title_and_position()

    def filter_by_rank(self, rank: int | None) -> None:
        """Show the lines of one rank only, or of all."""
        self.rank = rank
        self._apply_filter()

    @property
    def _filter_expressions(self) -> tuple[str, ...]:
        """Expressions that every shown line has to match."""
        return (
            *((RANK_PREFIX_PATTERN_TEMPLATE % self.rank,) if self.rank is not None else ()),
            *((self._filter,) if self._filter else ()),
        )

    def _apply_filter(self) -> None:
        """Show all lines, or begin to look for those that match."""
        if self.log_file is None:
            return
        at = None if self._view.following else self._view.top_offset
        self._end_filter()
        try:
            self._filtered = FilteredLog(self.log_file, self._filter_expressions) if self._filter_expressions else None
        except (OSError, ValueError) as error:
            self.notify(f"The filter cannot be started: {error}", severity="error", markup=False)
        if self._filtered:
            self._post_search_updates(self._filtered.search)
        self._searched_text = self._status_text = ""
        self._view.show(self._filtered or self.log_file, start_offset=at)
        self._show_title_and_position()

    def _end_filter(self) -> None:
        filtered, self._filtered = self._filtered, None
        self._view.source = self.log_file
        if filtered:
            filtered.close()

    @work(thread=True, group="listen")
    def _post_search_updates(self, search: LogSearch) -> None:
        for found in search.updates():
            self.call_later(self._show_search_or_filter_update, search, found)

    def _show_search_or_filter_update(self, search: LogSearch, found: SearchUpdate) -> None:
        """Show the progress or a hit of a search or a filter; one that was replaced has nothing to say."""
        if self._filtered and search is self._filtered.search:
            self._searched_text = "" if found.done or found.error else f", {found.percent} % searched"
            if found.error:
                self._filter = ""
                self._report_bad_expression(found.error)
                self._apply_filter()
        elif search is self._search:
            self._show_search_update(found)
        self._show_title_and_position()

    @on(Worker.StateChanged)
    def _end_failed_search(self, event: Worker.StateChanged) -> None:
        """End a search of which nothing more will be said."""
        if event.state == WorkerState.ERROR:
            self._stop_search()
            self._searched_text = self._status_text = ""
            self._show_title_and_position()
            self.refresh_bindings()

    def _show_search_update(self, update: SearchUpdate) -> None:
        shown = visible(self._expression)
        self._status_text = f"searching {shown}: {update.percent} %, Esc stops it"
        if update.error:
            self._status_text = ""
            self._report_bad_expression(update.error)
        elif update.line_count:
            self._status_text = f"{self._hit_text}, {update.number} of {update.line_count}"
        elif update.hit is not None:
            self._hit = update
            self._status_text = f"/{shown}" + (", continued from the other end" if update.around else "")
            self._hit_text = self._status_text
            self._view.show_hit(LogHit(update.hit, update.spans))
        elif update.done:
            self._hit = None
            self._view.clear_hit()
            self._status_text = f"no line matches {shown}"
        if update.done:
            self._stop_search()
        self.refresh_bindings()

    def _report_bad_expression(self, why: str) -> None:
        words = f"Not a regular expression: {visible(why)}. Put \\ before a character that is meant literally."
        self.notify(words, severity="error", markup=False)

    def action_ask_expression(self, purpose: str) -> None:
        """Ask for an expression to search, or to filter by."""
        self._asking_for = purpose
        entry = self.query_one(Input)
        entry.placeholder = (
            "search (a regular expression)" if purpose == "search" else "show matching lines only; empty: all"
        )
        entry.value = self._filter if purpose == "filter" else ""
        entry.display = True
        self._show_title_and_position()
        self.screen.set_focus(entry)
        self.refresh_bindings()

    @on(Input.Submitted)
    def _search_or_filter_by_typed(self, event: Input.Submitted) -> None:
        event.stop()
        self._close_expression_input()
        if self._asking_for == "filter":
            self._filter = event.value
            self._apply_filter()
        elif event.value or self._expression:
            self._expression = event.value or self._expression
            self._hit = None
            self.action_find_next(upward=False)

    def _close_expression_input(self) -> None:
        self.query_one(Input).display = False
        self._show_title_and_position()
        self.screen.set_focus(self._view)

    def action_find_next(self, upward: bool) -> None:
        """Look for the next line that matches, or the one above."""
        if self.log_file is None or not self._expression:
            self.action_ask_expression("search")
            return
        self._stop_search()
        offset, hit = self._view.top_offset, self._hit
        if hit and hit.hit is not None and self._view.top_offset <= hit.hit < self._view.bottom_offset:
            offset = hit.hit if upward else hit.end
        try:
            self._search = start_nearest_search(
                self.log_file.path, offset, (*self._filter_expressions, self._expression), upward=upward
            )
        except (OSError, ValueError) as error:
            self.notify(f"The search cannot be started: {error}", severity="error", markup=False)
            return
        self._status_text = f"searching {visible(self._expression)}, Esc stops it"
        self._post_search_updates(self._search)
        self._show_title_and_position()
        self.refresh_bindings()

    def find_text(self, text: str) -> None:
        """Look for the next line with a text that is meant as it stands."""
        self._expression, self._hit = re.escape(text).replace("\\ ", " "), None
        self.action_find_next(upward=False)

    def _stop_search(self) -> None:
        if self._search:
            self._search.cancel()
        self._search = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Take Esc only where there is something to end, and the other keys as letters while one types."""
        typing = self.query_one(Input).display
        if action == "end_search_or_filter":
            return bool(typing or self._search or self._filter_expressions or self._hit)
        return not (action == "ask_expression" and typing)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Words of n and N, which show while a line is found, and of Esc where it ends something."""
        ends = {"escape": "End"} if self.check_action("end_search_or_filter", ()) else {}
        return {**ends, **({} if self._hit else {"n": "", "N": ""})}

    def action_end_search_or_filter(self) -> None:
        """Close what is typed, or end the search, or show all lines again."""
        if self.query_one(Input).display:
            self._close_expression_input()
        elif self._search:
            self._stop_search()
            self._status_text = "stopped searching"
        elif not self._filter_expressions:
            self._hit, self._status_text = None, ""
            self._view.clear_hit()
        else:
            self._filter, self.rank = "", None
            self._apply_filter()
        self._show_title_and_position()
        self.refresh_bindings()

    @on(LogView.Replaced)
    def _filter_again(self) -> None:
        """Search again for what matches."""
        if self._filtered:
            self._apply_filter()

    @on(LogView.ViewChanged)
    def _show_title_and_position(self) -> None:
        """Show the name of the log and the position in it."""
        sign, words = "›", "  ".join(filter(None, self._log_position_texts()))
        typing, place = self.query_one(Input).display, self.query_one("#place", Lines)
        if typing:
            sign, words = "/" if self._asking_for == "search" else "f", ""
        place.set_class(typing, "typing")
        place.show(lambda width: [fit(styled((sign, KEY_STYLE), " ", (words, MUTED)), width)])
        self.query_one("#title", Lines).show(lambda width: [heading("Log", self._caption, width)])

    def _log_position_texts(self) -> Iterator[str]:
        if self.log_file is None:
            yield "no log yet: it begins with the training"
            return
        whole, view = self.log_file.size(), self._view
        share = f"{100 * view.bottom_offset // max(1, whole)} %"
        if view.following:
            share = "following" if self.is_growing else "at its end" if whole else "is empty"
        yield f"{self.log_file.path.name}  " + (f"{size_text(whole)}, " if whole >= 1 << 20 else "") + share
        problem = self.log_file.why_unreadable()
        yield f"cannot be read: {visible(problem)}" if problem else ""
        yield self._status_text
        yield "wrapped" if view.wrapping else ""
        yield "as written" if view.as_written else ""
        yield f"rank {self.rank}" if self.rank is not None else ""
        if self._filtered:
            matching = f" matching {visible(self._filter)}" if self._filter else ""
            yield quantity(self._filtered.line_count(), "line") + matching + self._searched_text

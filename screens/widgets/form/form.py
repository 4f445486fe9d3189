"""A form in one widget: it draws every row itself, and one input stands over the value of the row one is on.

Not an Input of Textual's in each row: of 16 rows that takes 4.4 times as long to open, and 3.1 times to go to the next
row (8.2.8, 80x24).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from tui_train.base.text import visible
from tui_train.facts.machine.folder_names import names_in_local_folder
from tui_train.profile import fields

from ...messages import TYPING_PAUSE_SECONDS, UndoChange, ValueChosen
from ..dialogs import show_candidates
from ..path_suggester import ListFolderNames, PathSuggester
from ..text_layout import fit, line_strip
from .entry import Entry, run_key_binding
from .form_lines import VALUE_START_CELL, FormGroup, FormRow, cursor_stop_line_numbers, draw_form_line, entry_width
from .form_state import FormState

_PATH_KINDS = frozenset({"path", "paths", "model"})


class Form(Widget, can_focus=True):
    """Rows in groups: up and down move, left and right change a choice, Space opens it, typing replaces a value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("shift+tab", "move(-1)", show=False),
        Binding("tab", "move(1)", show=False),
        Binding("left", "cycle(-1)", "Change", key_display="←→"),
        Binding("right", "cycle(1)", show=False),
        Binding("space", "open", "Open"),
        Binding("enter", "select_option", "Take", key_display="Enter"),
        Binding("escape", "close_options", "Close", key_display="Esc"),
        Binding("ctrl+z", "undo", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row, or what is typed can be read no longer, or again."""

    class PathTyped(Message):
        """A path was being typed, and is taken as whole now."""

    @dataclass
    class GroupToggled(Message):
        """A group was opened or closed, by its key."""

        key: str
        unfolded: bool

    def __init__(self) -> None:
        super().__init__(id="form")
        self.state = FormState()
        self.entry = Entry()
        self.list_folder_names: ListFolderNames = names_in_local_folder
        self._drawn: list[Content] = []
        self._drawn_width = 0
        self._strips: dict[int, Strip] = {}
        self._typing_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Put the input above what is drawn."""
        self.entry.display = False
        yield self.entry

    # What it shows

    def show(self, groups: Sequence[FormGroup]) -> None:
        """Show these rows; what is being typed stays."""
        self.state.groups = tuple(groups)
        self._rebuild_lines()
        row = next((row for row in self.state.rows if row.key == self.cursor), None)
        if row and self.state.takes_typing(row):
            if self.holds_focus and not self.entry.display:
                self._show_entry_at_cursor_or_hide()  # the focus came before the rows
            elif self.state.adopt_profile_value(row):
                self._set_entry_text(row.text)
        elif row and row.why_disabled and self.entry.display:
            self._show_entry_at_cursor_or_hide()

    def _set_entry_text(self, text: str) -> None:
        with self.entry.prevent(Input.Changed):
            self.entry.value = text
        self.entry.cursor_position = len(text)

    @property
    def cursor(self) -> str:
        """The key of the row or group in which the cursor is."""
        return self.state.cursor

    @property
    def holds_focus(self) -> bool:
        """True while the focus is in the form; a widget itself learns that only later."""
        return self.is_attached and self.screen.focused in {self, self.entry}

    def _rebuild_lines(self) -> None:
        """Find the lines, and draw what has changed."""
        moved = self.state.rebuild_lines()
        self._draw()
        if moved:
            self._show_entry_at_cursor_or_hide()
        else:
            self._align_entry()

    def _draw(self) -> None:
        width = self.content_size.width
        if not width:
            # It is drawn as soon as it has a width.
            self.refresh(layout=True)
            return
        before, before_width = self._drawn, self._drawn_width
        self._draw_all_lines()
        if before_width != width or len(before) != len(self._drawn):
            self._strips.clear()
            self.refresh(layout=True)
            return
        changed = [at for at, (old, new) in enumerate(zip(before, self._drawn, strict=True)) if not old.is_same(new)]
        for at in changed:
            self._strips.pop(at, None)
        if changed:
            self.refresh(*(Region(0, at, width, 1) for at in changed))

    def _draw_all_lines(self) -> None:
        focused, here, width = self.holds_focus, self.state.cursor_line, self.content_size.width
        self._drawn_width = width
        self._drawn = [
            draw_form_line(
                line,
                width,
                has_cursor=focused and number == here,
                marked_option=self.state.marked_option if line.key == self.state.open_row else -1,
                unfolded=line.key in self.state.unfolded,
            )
            for number, line in enumerate(self.state.lines)
        ]

    def render_line(self, y: int) -> Strip:
        """Return one line, kept until it changes."""
        if self._drawn_width != self.content_size.width:
            # A new width is told after the picture of it.
            self._draw_all_lines()
            self._strips.clear()
        if y >= len(self._drawn):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        if y not in self._strips:
            self._strips[y] = line_strip(self, self._drawn[y], self.size.width)
        return self._strips[y]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are, with blank ones where the container has room for them."""
        if self.state.height != container.height:
            self.state.height, before = container.height, self.state.lines
            self.state.rebuild_lines()
            if len(before) != len(self.state.lines):
                self._drawn_width = 0  # they are drawn again as they are shown
                self.call_after_refresh(self._align_entry)
        return max(1, len(self.state.lines))

    def notify_style_update(self) -> None:
        """Draw again in other colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        """Put the input where the new width has it."""
        self._align_entry()

    # Where one is

    def focus(self, scroll_visible: bool = True) -> "Form":
        """Take the focus, and show the cursor's row: of a form that is not seen whole, Textual shows the first."""
        if scroll_visible:
            self._scroll_to_cursor()
        return super().focus(scroll_visible=False)

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row, opening the group in which it is."""
        self.take_typed_path()
        if group := self.state.folded_group_key_of_row(key):
            self._toggle_fold(group)
        if self.entry.display:
            self._parse_and_post_entry()
        self.state.open_row = ""
        self.state.cursor = key
        self._rebuild_lines()
        self.focus(scroll_visible=False)
        self._show_entry_at_cursor_or_hide()
        self.post_message(self.Moved())

    def action_move(self, rows: int) -> None:
        """Go to the next row, or out of the form."""
        self.state.refused_key = ""
        if self.state.has_open_options:
            self._move_option_mark(rows)
            return
        self.take_typed_path()
        if key := self.state.next_cursor_stop_key(rows):
            if self.entry.display:
                self._parse_and_post_entry()
            self.state.cursor = key
            self._draw()
            self._show_entry_at_cursor_or_hide()
            self.post_message(self.Moved())
            return
        chain = [widget for widget in self.screen.focus_chain if widget not in {self, self.entry}]
        beyond = [widget for widget in chain if (widget.region.y - self.region.y) * rows > 0]
        if beyond:
            (beyond[0] if rows > 0 else beyond[-1]).focus()

    def action_page(self, pages: int) -> None:
        """Go as many rows on as are seen, at most to the last; from there out of the form."""
        if not self.state.has_open_options:
            seen = max(1, min(self.size.height, self.screen.size.height // 2))
            self.action_move(self.state.cursor_steps_within(pages * seen) or pages)

    def _show_entry_at_cursor_or_hide(self) -> None:
        """Put the input where the cursor is, when something is typed there."""
        row = self.state.row
        mine = self.holds_focus
        if row and self.state.takes_typing(row):
            text = self.state.begin_typing(row)
            entry = self.entry
            entry.suggester = path_suggester(row, self.list_folder_names)
            entry.is_number = row.is_number
            with entry.prevent(Input.Changed):
                entry.value = text
                entry.cursor_position = len(text)
            entry.display = True
            self._align_entry()
            if mine:
                entry.focus(scroll_visible=False)
                entry.select_all()
        else:
            if mine:
                self.focus(scroll_visible=False)
            self.entry.display = False
        self._scroll_to_cursor()

    def _align_entry(self) -> None:
        row, at = self.state.row, self.state.cursor_line
        if row and at >= 0 and self.state.takes_typing(row):
            cells = entry_width(row, self.content_size.width)
            self.entry.styles.offset = (VALUE_START_CELL, at)
            self.entry.styles.width = cells
            self.entry.placeholder = fit(visible(row.default_text) or row.field.empty, cells).plain
            self.entry.set_class(bool(self.state.row_as_typed(row).error), "wrong")

    def _scroll_to_cursor(self) -> None:
        """Scroll to the cursor, and a title above it; on the first row to the top, on an open group to its rows."""
        if isinstance(self.parent, VerticalScroll) and (at := self.state.cursor_line) >= 0:
            numbers = cursor_stop_line_numbers(self.state.lines)
            title = at > 0 and self.state.lines[at - 1].kind == "title"
            top = 0 if numbers and at <= numbers[0] else at - title
            opened = self.state.cursor if self.state.cursor in self.state.unfolded else None
            below = sum(line.group.key == opened for line in self.state.lines[at + 1 :]) if opened else 0
            below = min(below, max(0, self.parent.size.height - 1))
            region = Region(0, self.virtual_region.y + top, 1, at - top + 1 + below)
            self.parent.scroll_to_region(region, animate=False, force=True, immediate=True)

    def watch_has_focus(self, _focused: bool) -> None:
        """Leave the styles as they are: none depends on it, and to find them again takes 2 ms."""

    def on_focus(self) -> None:
        """Go on where the cursor was."""
        self._draw()
        row = self.state.row
        if row and self.state.takes_typing(row):
            self._show_entry_at_cursor_or_hide()

    def on_descendant_focus(self) -> None:
        """Redraw the cursor's row as focused."""
        self._draw()

    def on_blur(self) -> None:
        """Redraw the cursor's row as not focused."""
        self.call_later(self._hide_entry_if_left)

    on_descendant_blur = on_blur

    def _hide_entry_if_left(self) -> None:
        if self.is_attached and not self.holds_focus:
            self.take_typed_path()
            self.entry.display = False
            self._draw()

    # What one chooses

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        row = self.state.row
        options = bool(row and not row.is_typed and row.options and not row.why_disabled)
        if action == "cycle":
            return options or self.state.is_cursor_on_fold
        if action == "open":
            return self.state.is_cursor_on_fold or options or self._may_list_names
        return bool(self.state.open_row) if action in {"select_option", "close_options"} else True

    @property
    def _may_list_names(self) -> bool:
        """True where a name is to be typed, nothing is or all of it is to be replaced, and names are known."""
        entry = self.entry
        is_begun = entry.value.strip() and not entry.is_all_selected
        names = entry.suggester.candidates("") if isinstance(entry.suggester, PathSuggester) else ()
        return entry.has_focus and not is_begun and bool(names)

    def action_cycle(self, steps: int) -> None:
        """Choose the next value that can work; open or close a group."""
        if self.state.is_cursor_on_fold:
            if (steps > 0) != (self.state.cursor in self.state.unfolded):
                self._toggle_fold(self.state.cursor)
            return
        row = self.state.row
        if self.state.open_row or row is None:
            self._move_option_mark(steps)
            return
        possible = [option.value for option in row.options if not option.why_disabled]
        value = fields.format_value(row.value)
        if not possible:
            self.app.bell()
            return
        at = (possible.index(value) + steps) % len(possible) if value in possible else 0
        self._post_chosen_value(row, possible[at])

    def action_open(self) -> None:
        """Show all values below the row; or open or close the group."""
        row = self.state.row
        if self.state.is_cursor_on_fold:
            self._toggle_fold(self.state.cursor)
        elif self._may_list_names:
            show_candidates(self.entry, "")
        elif row and self.state.open_row:
            self.action_select_option()
        elif row:
            self.state.open_options(row)
            self._rebuild_lines_and_report()

    def action_select_option(self) -> None:
        """Select the marked option, if it is not disabled."""
        row = self.state.row
        option = (
            row.options[self.state.marked_option] if row and 0 <= self.state.marked_option < len(row.options) else None
        )
        if row is None or option is None or option.why_disabled:
            self.app.bell()
            return
        self.action_close_options()
        self._post_chosen_value(row, option.value)

    def action_close_options(self) -> None:
        """Leave the value as it is."""
        self.state.close_options()
        self._rebuild_lines_and_report()

    def _move_option_mark(self, steps: int) -> None:
        row = self.state.row
        if row and row.options:
            self.state.marked_option = (self.state.marked_option + steps) % len(row.options)
            self._draw()
            self._scroll_to_cursor()
            self.post_message(self.Moved())

    def _toggle_fold(self, key: str) -> None:
        self.state.unfolded ^= {key}
        self._rebuild_lines_and_report()
        self.post_message(self.GroupToggled(key, unfolded=key in self.state.unfolded))

    def _rebuild_lines_and_report(self) -> None:
        self._rebuild_lines()
        self.call_after_refresh(self._scroll_to_cursor)
        self.post_message(self.Moved())
        self.screen.refresh_bindings()

    def _post_chosen_value(self, row: FormRow, value: str) -> None:
        if value != fields.format_value(row.value):
            self.post_message(ValueChosen(row.key, fields.parse_value(row.field, value)))

    def on_click(self, event: events.Click) -> None:
        """Go to what is clicked: a value is chosen, a group opened, an arrow turned."""
        number = event.get_content_offset(self)
        if number is None or not 0 <= number.y < len(self.state.lines):
            return
        line = self.state.lines[number.y]
        if line.kind == "option" and line.row:
            option = line.row.options[line.option]
            self.state.cursor = line.key
            self.action_close_options()
            if not option.why_disabled:
                self._post_chosen_value(line.row, option.value)
        elif line.kind == "fold":
            self.state.cursor = line.key
            self.focus(scroll_visible=False)
            self._toggle_fold(line.key)
        elif line.row:
            again = line.key == self.state.cursor
            self.go_to_row(line.key)
            if again and line.row.options:
                self.action_open()

    # What one types

    async def on_key(self, event: events.Key) -> None:
        """Do at once what a key is bound to here; type what came before the focus did; say where nothing can be."""
        if await run_key_binding(event, self):
            return
        row = self.state.row
        if not event.is_printable or row is None:
            return
        if self.state.takes_typing(row):
            if not self.entry.display:
                self._show_entry_at_cursor_or_hide()
            await self.entry.type_key(event)
        elif event.key not in self.screen.active_bindings:
            event.stop()
            self._refuse_typing()

    @on(Entry.TypingRefused)
    def _refuse_typing(self) -> None:
        self.app.bell()
        self.state.refused_key = self.state.cursor
        self.post_message(self.Moved())

    def fix_unparsable_text(self) -> None:
        """Set the value that was offered for an unparsable text."""
        if not self.state.is_cursor_row_unparsable:
            self.go_to_row(self.state.unparsable_row_key)
        unread, row = self.state.unread_texts.get(self.state.cursor), self.state.row
        if unread and row:
            value = self.state.row_with_profile_value(row)
            # What the row has may not be typed again: the address of a webhook is shown by its host.
            text = value.text if unread.fix == value.value else fields.format_value(unread.fix)
            self._set_entry_text(text)
            if unread.fix == value.value:
                del self.state.unread_texts[row.key]
                self.state.parsed_value = value.value
                self._rebuild_lines()
                self.post_message(self.Moved())
            else:
                self._parse_and_post_entry()

    def action_undo(self) -> None:
        """Undo the typing in this row; without any, the last change of the profile."""
        if self.state.unread_texts.pop(self.state.cursor, None):
            self._rebuild_lines()
        else:
            self.post_message(UndoChange())
            return
        if row := self.state.row:
            self.state.restore_profile_value(row)
            self._set_entry_text(row.text)
            self.post_message(self.Moved())
            if row.value != self.state.value_at_entry:
                self.post_message(UndoChange())

    @on(Input.Changed)
    def _parse_entry_if_current(self, event: Input.Changed) -> None:
        event.stop()
        # What was typed since, or in the row before, is read by what comes after it.
        if event.value == self.entry.value:
            self.state.refused_key = ""
            self._wait_for_whole_path()
            self._parse_and_post_entry()

    @on(Entry.CompletionOffered)
    def _report_offered_completion(self, event: Entry.CompletionOffered) -> None:
        event.stop()
        self.post_message(self.Moved())

    def _wait_for_whole_path(self) -> None:
        """Say nothing of a path, which is wrong at almost each letter, until it is left or nothing more is typed."""
        row = self.state.row
        if row is None or row.field.kind not in _PATH_KINDS:
            return
        self.state.half_typed_key = row.key
        if self._typing_timer:
            self._typing_timer.stop()
        self._typing_timer = self.set_timer(TYPING_PAUSE_SECONDS, self._take_path_unless_begun)

    def _take_path_unless_begun(self) -> None:
        """Take a path after a pause, unless it waits for Tab: what is missing of it stands there in grey."""
        if not self.entry.is_begun_name:
            self.take_typed_path()

    def take_typed_path(self) -> bool:
        """Take what is typed as a whole path, and return whether one was being typed."""
        if not self.state.half_typed_key:
            return False
        if self._typing_timer:
            self._typing_timer.stop()
        self.state.half_typed_key = ""
        self._rebuild_lines()
        self.post_message(self.PathTyped())
        return True

    def _parse_and_post_entry(self) -> None:
        """Parse the input's text as the value of the row, and post it."""
        row = self.state.row
        if row is None or not self.state.takes_typing(row):
            return
        changed = self.state.read_typed_text(row, self.entry.value)
        if changed == "lines":
            self._rebuild_lines()
            self.post_message(self.Moved())
        elif changed == "value":
            self.post_message(ValueChosen(row.key, self.state.parsed_value))


def path_suggester(row: FormRow, list_folder_names: ListFolderNames) -> PathSuggester | None:
    """Return what completes a row's text, where it is a path or one of known names."""
    names = tuple(option.value for option in row.options)
    if row.field.kind == "text" and names:
        return PathSuggester(names=names, list_folder_names=None)
    if row.field.kind not in {"path", "paths", "model", "rewards"}:
        return None
    if row.field.kind == "model":
        return PathSuggester(names=names, list_folder_names=list_folder_names)
    return PathSuggester(" " if row.field.kind in {"paths", "rewards"} else "", list_folder_names=list_folder_names)

"""The choices of a form: a value is changed in place, or taken from the list that Space opens; groups are folded."""

from textual.message import Message

from tui_train.profile import fields

from ...messages import ValueChosen
from .form_lines import FormRow
from .form_view import FormView


class FormChoices(FormView):
    """Rows whose values are chosen."""

    class Moved(Message):
        """The cursor is on another row, or what is typed can be read no longer, or again."""

    class Folded(Message):
        """A group was opened or closed, by its key."""

        def __init__(self, key: str, *, unfolded: bool) -> None:
            """Carry the group's key and whether it is open."""
            super().__init__()
            self.key = key
            self.unfolded = unfolded

    @property
    def is_list_open(self) -> bool:
        """True while the values of a row are shown to choose from."""
        return bool(self._open_row)

    @property
    def has_problem(self) -> bool:
        """True where something is wrong with the row in which the cursor is, or unusual."""
        row = self.row
        return bool(row and (self._row_as_typed(row).error or row.warning))

    def _is_on_fold(self) -> bool:
        return any(group.folds and group.key == self._cursor for group in self._groups)

    def action_cycle(self, by: int) -> None:
        """Choose the next value that can work; open or close a group."""
        if self._is_on_fold():
            if (by > 0) != (self._cursor in self.unfolded):
                self._toggle_fold(self._cursor)
            return
        row = self.row
        if self._open_row or row is None:
            self._mark_option(by)
            return
        possible = [option.value for option in row.options if not option.reason]
        value = fields.format_value(row.value)
        if not possible:
            self.app.bell()
            return
        at = (possible.index(value) + by) % len(possible) if value in possible else 0
        self._choose_value(row, possible[at])

    def action_open(self) -> None:
        """Show all values below the row; or open or close the group."""
        row = self.row
        if self._is_on_fold():
            self._toggle_fold(self._cursor)
        elif row and self._open_row:
            self.action_take()
        elif row:
            values = [option.value for option in row.options]
            value = fields.format_value(row.value)
            self._marked_option = values.index(value) if value in values else 0
            self._open_row = row.key
            self._update_lines()

    def action_take(self) -> None:
        """Take the value that is marked, where it can work."""
        row = self.row
        option = row.options[self._marked_option] if row and 0 <= self._marked_option < len(row.options) else None
        if row is None or option is None or option.reason:
            self.app.bell()
            return
        self.action_close()
        self._choose_value(row, option.value)

    def action_close(self) -> None:
        """Leave the value as it is."""
        self._open_row, self._marked_option = "", -1
        self._update_lines()

    def _mark_option(self, by: int) -> None:
        row = self.row
        if row and row.options:
            self._marked_option = (self._marked_option + by) % len(row.options)
            self._draw()
            self.scroll_to_cursor()
            self.post_message(self.Moved())

    def _toggle_fold(self, key: str) -> None:
        self.unfolded ^= {key}
        self._update_lines()
        self.post_message(self.Folded(key, unfolded=key in self.unfolded))

    def _update_lines(self) -> None:
        self.rebuild_lines()
        self.call_after_refresh(self.scroll_to_cursor)
        self.post_message(self.Moved())
        self.screen.refresh_bindings()

    def _choose_value(self, row: FormRow, value: str) -> None:
        if value != fields.format_value(row.value):
            self.post_message(ValueChosen(row.key, fields.parse(row.field, value)))

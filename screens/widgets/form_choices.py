"""The choices of a form: a value is changed in place, or taken from the list that Space opens; groups are folded."""

from textual.message import Message

from tui_train.profile import fields

from ..messages import Chosen
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
    def chooses(self) -> bool:
        """Whether the values of a row are shown to choose from."""
        return bool(self._opened)

    @property
    def wrong(self) -> bool:
        """Whether something is wrong with the row in which the cursor is, or unusual."""
        row = self.row
        return bool(row and (self._as_typed(row).wrong or row.caution))

    def _on_fold(self) -> bool:
        return any(group.folds and group.key == self._cursor for group in self._groups)

    def action_cycle(self, by: int) -> None:
        """Choose the next value that can work; open or close a group."""
        if self._on_fold():
            if (by > 0) != (self._cursor in self.unfolded):
                self._fold(self._cursor)
            return
        row = self.row
        if self._opened or row is None:
            self._mark(by)
            return
        possible = [option.value for option in row.options if not option.reason]
        value = fields.format_value(row.value)
        if not possible:
            self.app.bell()
            return
        at = (possible.index(value) + by) % len(possible) if value in possible else 0
        self._choose(row, possible[at])

    def action_open(self) -> None:
        """Show all values below the row; or open or close the group."""
        row = self.row
        if self._on_fold():
            self._fold(self._cursor)
        elif row and self._opened:
            self.action_take()
        elif row:
            values = [option.value for option in row.options]
            value = fields.format_value(row.value)
            self._marked = values.index(value) if value in values else 0
            self._opened = row.key
            self._changed()

    def action_take(self) -> None:
        """Take the value that is marked, where it can work."""
        row = self.row
        option = row.options[self._marked] if row and 0 <= self._marked < len(row.options) else None
        if row is None or option is None or option.reason:
            self.app.bell()
            return
        self.action_close()
        self._choose(row, option.value)

    def action_close(self) -> None:
        """Leave the value as it is."""
        self._opened, self._marked = "", -1
        self._changed()

    def _mark(self, by: int) -> None:
        row = self.row
        if row and row.options:
            self._marked = (self._marked + by) % len(row.options)
            self._draw()
            self.reveal()
            self.post_message(self.Moved())

    def _fold(self, key: str) -> None:
        self.unfolded ^= {key}
        self._changed()
        self.post_message(self.Folded(key, unfolded=key in self.unfolded))

    def _changed(self) -> None:
        self.rearrange()
        self.call_after_refresh(self.reveal)
        self.post_message(self.Moved())
        self.screen.refresh_bindings()

    def _choose(self, row: FormRow, value: str) -> None:
        if value != fields.format_value(row.value):
            self.post_message(Chosen(row.key, fields.parse(row.field, value)))

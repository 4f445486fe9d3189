"""Text typed in a form: it is read as a value at once, kept where it cannot be read, and taken back."""

from textual import events, on
from textual.widgets import Input

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.machine.folder_names import local_names
from tui_train.profile import fields
from tui_train.profile.fields import Value

from ...messages import Undo, ValueChosen
from .entry import Entry, NamesIn, PathSuggester, run_key_binding
from .form_choices import FormChoices
from .form_lines import FormRow
from .form_view import UnreadText

_UNLIKELY_FACTOR = 10.0  # times what is usual: so much is hardly meant


class FormText(FormChoices):
    """Rows whose values are typed into the one input."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        """Begin with an empty input."""
        super().__init__(id=id)
        self.entry = Entry()
        self.names_in: NamesIn = local_names
        self._parsed_value: Value = None  # what the input has been understood as
        self._profile_value: Value = None  # what the row has
        self._value_at_entry: Value = None  # what the row had when the cursor came to it
        self._posted_values: list[Value] = []
        self._refused_key = ""  # the row in which something was typed that takes none

    def place_entry(self) -> None:
        """Put the input where the cursor is."""
        raise NotImplementedError

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row."""
        raise NotImplementedError

    def committed_row(self, row: FormRow) -> FormRow:
        """Return a row with the value that it has, whatever is typed there."""
        return next((sound for sound in self.rows if sound.key == row.key), row)

    def takes_typing(self, row: FormRow) -> bool:
        """Tell whether a row's value can be typed now."""
        return row.is_typed and not self._row_as_typed(row).reason

    async def _on_key(self, event: events.Key) -> None:
        """Do at once what a key is bound to here; type what came before the focus did; say where nothing can be."""
        if await run_key_binding(event, self):
            return
        row = self.row
        if not event.is_printable or row is None:
            await super()._on_key(event)
        elif self.takes_typing(row):
            if not self.entry.display:
                self.place_entry()
            await self.entry.type_key(event)
        elif event.key not in self.screen.active_bindings:
            event.stop()
            self.app.bell()
            self._refused_key = row.key
            self.post_message(self.Moved())

    @property
    def has_refused_typing(self) -> bool:
        """True where something was typed where nothing can be."""
        return bool(self._refused_key) and self._refused_key == self._cursor

    def why_refused(self, row: FormRow) -> str:
        """Return why nothing can be typed in a row."""
        label, reason = row.field.label, self._row_as_typed(row).reason
        if reason:
            return f"{label} is not used here: {reason}."
        return f"{label}: ← → to choose" + ("." if row.stands_open else ", Space shows all.")

    # What cannot be read

    @property
    def unread_label(self) -> str:
        """The label of the row whose text cannot be read, the cursor's first; empty where there is none."""
        key = self._cursor if self._cursor in self._unread_texts else self.unread_key
        return next((row.field.label for row in self.rows if row.key == key), "")

    @property
    def unread_here(self) -> bool:
        """True where the text in the row of the cursor cannot be read."""
        return self._cursor in self._unread_texts

    @property
    def unread_fix(self) -> str:
        """Change by F2 of the text that cannot be read; empty where there is none."""
        key = self._cursor if self.unread_here else self.unread_key
        return self._unread_texts[key].fix_title if key else ""

    def fix_unread(self) -> None:
        """Take the value that was offered for the text that cannot be read."""
        if not self.unread_here:
            self.go_to_row(self.unread_key)
        unread, row = self._unread_texts.get(self._cursor), self.row
        if unread and row:
            value = self.committed_row(row)
            # What the row has may not be typed again: the address of a webhook is shown by its host.
            text = value.text if unread.fix == value.value else fields.format_value(unread.fix)
            with self.entry.prevent(Input.Changed):
                self.entry.value = text
            self.entry.cursor_position = len(text)
            if unread.fix == value.value:
                del self._unread_texts[row.key]
                self._parsed_value = value.value
                self.rebuild_lines()
                self.post_message(self.Moved())
            else:
                self._read_entry()

    def action_undo(self) -> None:
        """Take back what is typed here; where nothing is, the last change of the profile."""
        if self._unread_texts.pop(self._cursor, None):
            self.rebuild_lines()
        else:
            self.post_message(Undo())
            return
        if row := self.row:
            self._posted_values.clear()
            self._parsed_value = self._profile_value = row.value
            with self.entry.prevent(Input.Changed):
                self.entry.value = row.text
            self.entry.cursor_position = len(row.text)
            self.post_message(self.Moved())
            if row.value != self._value_at_entry:
                self.post_message(Undo())

    # What is read

    def _show_new_value(self, row: FormRow) -> None:
        """Show a value that came from elsewhere, unless it is the answer to what was typed."""
        before, self._profile_value = self._profile_value, row.value
        if row.value in self._posted_values:
            # More may have been typed since, and must not be written over.
            del self._posted_values[: self._posted_values.index(row.value) + 1]
        elif row.value not in (before, self._parsed_value):
            self._posted_values.clear()
            self._parsed_value = row.value
            self._unread_texts.pop(row.key, None)
            with self.entry.prevent(Input.Changed):
                self.entry.value = row.text
            self.entry.cursor_position = len(row.text)

    @on(Input.Changed)
    def _read_if_changed(self, event: Input.Changed) -> None:
        event.stop()
        # What was typed since, or in the row before, is read by what comes after it.
        if event.value == self.entry.value:
            self._read_entry()

    def _read_entry(self) -> None:
        """Take what the input holds as the value of the row."""
        row, text = self.row, self.entry.value
        if row is None or not self.takes_typing(row):
            return
        try:
            value = fields.parse(row.field, text)
        except BadInput as error:
            self._unread_texts[row.key] = _unread_text(self.committed_row(row), text, error)
            self.rebuild_lines()
            self.post_message(self.Moved())
            return
        was_unread = self._unread_texts.pop(row.key, None)
        self._parsed_value = value
        if value == (self._posted_values[-1] if self._posted_values else self._profile_value):
            if was_unread:
                self.rebuild_lines()
                self.post_message(self.Moved())
            return
        self._posted_values.append(value)
        self.post_message(ValueChosen(row.key, value))


def _unread_text(row: FormRow, text: str, error: BadInput) -> UnreadText:
    """Return a text that cannot be read with what F2 takes instead: what it seems to mean, else the value before."""
    fix, message = fields.closest_value(row.field, text), error.message.replace(row.key, row.field.label, 1)
    if row.usual_number is not None and not (
        isinstance(fix, float) and row.usual_number / _UNLIKELY_FACTOR < fix < row.usual_number * _UNLIKELY_FACTOR
    ):
        return UnreadText(
            text, error.remedy.rstrip("."), f"{message}. {error.remedy}", None, f"use {row.usual_number!r}"
        )
    fix = row.value if fix is None else fix
    shown = row.text if fix == row.value else visible(fields.format_value(fix))
    title = f"use {shown}" if shown else "leave it empty"
    return UnreadText(text, error.remedy.rstrip("."), f"{message}. {error.remedy}", fix, title)


def path_suggester(row: FormRow, names_in: NamesIn) -> PathSuggester | None:
    """Return what completes a row's text, where it is a path or one of known names."""
    names = tuple(option.value for option in row.options)
    if row.field.kind == "text" and names:
        return PathSuggester(names=names, names_in=None)
    if row.field.kind not in {"path", "paths", "model"}:
        return None
    if row.field.kind == "model":
        return PathSuggester(names=names, names_in=names_in)
    return PathSuggester(" " if row.field.kind == "paths" else "", names_in=names_in)

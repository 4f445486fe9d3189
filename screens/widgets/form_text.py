"""What is typed in a form: it is read as a value at once, kept where it cannot be read, and taken back."""

from textual import events, on
from textual.widgets import Input

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.names import names_here
from tui_train.profile import fields
from tui_train.profile.fields import Value

from ..messages import Chosen, Undo
from .entry import Entry, NamesIn, PathSuggester, pressed
from .form_choices import FormChoices
from .form_lines import FormRow
from .form_view import Unread

_FAR = 10.0  # times what is usual: so much is hardly meant


class FormText(FormChoices):
    """Rows whose values are typed into the one input."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        """Begin with an empty input."""
        super().__init__(id=id)
        self.entry = Entry()
        self.names_in: NamesIn = names_here
        self._shown: Value = None  # what the input has been understood as
        self._known: Value = None  # what the row has
        self._began: Value = None  # what the row had when the cursor came to it
        self._posted: list[Value] = []
        self._refusing = ""  # the row in which something was typed that takes none

    def place(self) -> None:
        """Put the input where the cursor is."""
        raise NotImplementedError

    def go(self, key: str) -> None:
        """Put the cursor on a row."""
        raise NotImplementedError

    def sound(self, row: FormRow) -> FormRow:
        """Return a row with the value that it has, whatever is typed there."""
        return next((sound for sound in self.rows if sound.key == row.key), row)

    def typing(self, row: FormRow) -> bool:
        """Tell whether a row's value can be typed now."""
        return row.typed and not self._as_typed(row).reason

    async def _on_key(self, event: events.Key) -> None:
        """Do at once what a key is bound to here; type what came before the focus did; say where nothing can be."""
        if await pressed(event, self):
            return
        row = self.row
        if not event.is_printable or row is None:
            await super()._on_key(event)
        elif self.typing(row):
            if not self.entry.display:
                self.place()
            await self.entry.type_key(event)
        elif event.key not in self.screen.active_bindings:
            event.stop()
            self.app.bell()
            self._refusing = row.key
            self.post_message(self.Moved())

    @property
    def refuses(self) -> bool:
        """Whether something was typed where nothing can be."""
        return bool(self._refusing) and self._refusing == self._cursor

    def why_refused(self, row: FormRow) -> str:
        """Return why nothing can be typed in a row."""
        label, reason = row.field.label, self._as_typed(row).reason
        if reason:
            return f"{label} is not used here: {reason}."
        return f"{label}: ← → to choose" + ("." if row.stands_open else ", Space shows all.")

    # What cannot be read

    @property
    def unread_label(self) -> str:
        """The label of the row whose text cannot be read, the cursor's first; empty where there is none."""
        key = self._cursor if self._cursor in self._unread else self.unread
        return next((row.field.label for row in self.rows if row.key == key), "")

    @property
    def unread_here(self) -> bool:
        """Whether the text in the row of the cursor cannot be read."""
        return self._cursor in self._unread

    @property
    def unread_fix(self) -> str:
        """What F2 makes of the text that cannot be read; empty where there is none."""
        key = self._cursor if self.unread_here else self.unread
        return self._unread[key].fix_title if key else ""

    def fix_unread(self) -> None:
        """Take the value that was offered for the text that cannot be read."""
        if not self.unread_here:
            self.go(self.unread)
        unread, row = self._unread.get(self._cursor), self.row
        if unread and row:
            value = self.sound(row)
            # What the row has may not be typed again: the address of a webhook is shown by its host.
            text = value.text if unread.fix == value.value else fields.format_value(unread.fix)
            with self.entry.prevent(Input.Changed):
                self.entry.value = text
            self.entry.cursor_position = len(text)
            if unread.fix == value.value:
                del self._unread[row.key]
                self._shown = value.value
                self.rearrange()
                self.post_message(self.Moved())
            else:
                self._read()

    def action_undo(self) -> None:
        """Take back what is typed here; where nothing is, the last change of the profile."""
        if self._unread.pop(self._cursor, None):
            self.rearrange()
        else:
            self.post_message(Undo())
            return
        if row := self.row:
            self._posted.clear()
            self._shown = self._known = row.value
            with self.entry.prevent(Input.Changed):
                self.entry.value = row.text
            self.entry.cursor_position = len(row.text)
            self.post_message(self.Moved())
            if row.value != self._began:
                self.post_message(Undo())

    # What is read

    def _follow(self, row: FormRow) -> None:
        """Show a value that came from elsewhere, unless it is the answer to what was typed."""
        before, self._known = self._known, row.value
        if row.value in self._posted:
            # More may have been typed since, and must not be written over.
            del self._posted[: self._posted.index(row.value) + 1]
        elif row.value not in (before, self._shown):
            self._posted.clear()
            self._shown = row.value
            self._unread.pop(row.key, None)
            with self.entry.prevent(Input.Changed):
                self.entry.value = row.text
            self.entry.cursor_position = len(row.text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        # What was typed since, or in the row before, is read by what comes after it.
        if event.value == self.entry.value:
            self._read()

    def _read(self) -> None:
        """Take what the input holds as the value of the row."""
        row, text = self.row, self.entry.value
        if row is None or not self.typing(row):
            return
        try:
            value = fields.parse(row.field, text)
        except BadInput as error:
            self._unread[row.key] = _unread(self.sound(row), text, error)
            self.rearrange()
            self.post_message(self.Moved())
            return
        was_unread = self._unread.pop(row.key, None)
        self._shown = value
        if value == (self._posted[-1] if self._posted else self._known):
            if was_unread:
                self.rearrange()
                self.post_message(self.Moved())
            return
        self._posted.append(value)
        self.post_message(Chosen(row.key, value))


def _unread(row: FormRow, text: str, error: BadInput) -> Unread:
    """Return a text that cannot be read with what F2 takes instead: what it seems to mean, else the value before."""
    fix, message = fields.closest(row.field, text), error.message.replace(row.key, row.field.label, 1)
    if row.usual is not None and not (isinstance(fix, float) and row.usual / _FAR < fix < row.usual * _FAR):
        return Unread(text, error.remedy.rstrip("."), f"{message}. {error.remedy}", None, f"use {row.usual!r}")
    fix = row.value if fix is None else fix
    shown = row.text if fix == row.value else visible(fields.format_value(fix))
    title = f"use {shown}" if shown else "leave it empty"
    return Unread(text, error.remedy.rstrip("."), f"{message}. {error.remedy}", fix, title)


def suggester(row: FormRow, names_in: NamesIn) -> PathSuggester | None:
    """Return what completes a row's text, where it is a path or one of known names."""
    names = tuple(option.value for option in row.options)
    if row.field.kind == "text" and names:
        return PathSuggester(names=names, names_in=None)
    if row.field.kind not in {"path", "paths", "model"}:
        return None
    if row.field.kind == "model":
        return PathSuggester(names=names, names_in=names_in)
    return PathSuggester(" " if row.field.kind == "paths" else "", names_in=names_in)

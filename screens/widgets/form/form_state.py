"""State of a form: its rows, where the cursor is, what is open, and what is typed, which is read as a value at once."""

from typing import Literal, NamedTuple

from msgspec.structs import replace

from tui_train.base.errors import BadInput
from tui_train.base.text import capitalised, visible
from tui_train.profile import fields
from tui_train.profile.fields import FieldValue

from .form_lines import (
    MAX_NOTE_WIDTH,
    FormGroup,
    FormLine,
    FormRow,
    cursor_stop_line_numbers,
    form_lines,
    note_text,
)

_VALUE_NOT_TYPABLE_REASON = "control characters: edit the profile file"
_UNUSUAL_NUMBER_FACTOR = 10.0  # times what is usual: so much is hardly meant


class UnparsableText(NamedTuple):
    """A text that cannot be read: why, in the row and in the hint, and the value that F2 takes instead."""

    text: str
    why: str
    hint: str
    fix: FieldValue
    fix_title: str


class FormState:
    """State of a form: rows and foldable groups by key, the cursor, and texts that cannot be parsed."""

    def __init__(self) -> None:
        self.groups: tuple[FormGroup, ...] = ()
        self.height = 0  # the lines that can be seen at once
        self.lines: tuple[FormLine, ...] = ()
        self.cursor = ""
        self.open_row = ""  # the row whose values are shown to choose from
        self.marked_option = -1  # which of them would be taken
        self.unfolded: frozenset[str] = frozenset()
        self.unread_texts: dict[str, UnparsableText] = {}
        self.refused_key = ""  # the row in which something was typed that takes none
        self.half_typed_key = ""  # the row in which a path is being typed: half of it may be that of nothing
        self.parsed_value: FieldValue = None  # what the input has been understood as
        self._profile_value: FieldValue = None  # what the row has
        self.value_at_entry: FieldValue = None  # what the row had when the cursor came to it
        self._posted_values: list[FieldValue] = []

    # Rows

    @property
    def rows(self) -> tuple[FormRow, ...]:
        """All rows, those of closed groups as well."""
        return tuple(row for group in self.groups for row in group.rows)

    @property
    def row(self) -> FormRow | None:
        """The row in which the cursor is."""
        return next((line.row for line in self.lines if line.key == self.cursor), None)

    def row_with_profile_value(self, row: FormRow) -> FormRow:
        """Return a row with the value that it has, whatever is typed there."""
        return next((sound for sound in self.rows if sound.key == row.key), row)

    def row_as_typed(self, row: FormRow) -> FormRow:
        """Return a row with what is typed there but cannot be read, and why."""
        if row.key not in self.unread_texts:
            untyped = row.is_typed and row.typed_text != row.text
            return replace(row, why_disabled=_VALUE_NOT_TYPABLE_REASON) if untyped and not row.why_disabled else row
        unread = self.unread_texts[row.key]
        if row.key == self.half_typed_key:
            return replace(row, value=unread.text)
        return replace(row, value=unread.text, error=unread.why, hint=unread.hint, fix=unread.fix_title)

    def takes_typing(self, row: FormRow) -> bool:
        """Tell whether a row's value can be typed now."""
        return row.is_typed and not self.row_as_typed(row).why_disabled

    @property
    def cursor_row_has_problem(self) -> bool:
        """True where something is wrong with the row in which the cursor is, or unusual."""
        row = self.row
        return bool(row and (self.row_as_typed(row).error or row.warning))

    # Lines, and the cursor

    @property
    def cursor_stop_keys(self) -> list[str]:
        """The keys of what the cursor may stand on, from above."""
        return [self.lines[stop].key for stop in cursor_stop_line_numbers(self.lines)]

    def rebuild_lines(self) -> bool:
        """Find the lines; the cursor stays on its row, or goes to the nearest: then return true."""
        before = self.cursor_stop_keys
        self.lines = tuple(
            line._replace(row=self.row_as_typed(line.row)) if line.row else line
            for line in form_lines(self.groups, self.unfolded, self.open_row, self.height)
        )
        keys = self.cursor_stop_keys
        if self.cursor in keys or not keys:
            return False
        at = before.index(self.cursor) if self.cursor in before else 0
        self.cursor = next((key for key in (*before[at::-1], *before[at:]) if key in keys), keys[0])
        return True

    def next_cursor_stop_key(self, steps: int) -> str:
        """Return what the cursor comes to next; empty where it leaves the form."""
        keys = self.cursor_stop_keys
        at = keys.index(self.cursor) + steps if self.cursor in keys else 0
        return keys[at] if 0 <= at < len(keys) else ""

    def cursor_steps_within(self, steps: int) -> int:
        """Return so many steps of the cursor, or as many as leave it in the form."""
        keys = self.cursor_stop_keys
        at = keys.index(self.cursor) if self.cursor in keys else 0
        return max(0, min(len(keys) - 1, at + steps)) - at

    @property
    def cursor_line(self) -> int:
        """The line of the cursor; -1: none."""
        numbers = [number for number, line in enumerate(self.lines) if line.key == self.cursor]
        if not numbers:
            return -1
        row = self.lines[numbers[0]].row
        if row and self.open_row == row.key:
            return numbers[0] + 1 + max(0, self.marked_option)
        return numbers[0]

    @property
    def hint(self) -> str:
        """Hint for the row of the cursor."""
        line = next((line for line in self.lines if line.key == self.cursor), None)
        if line is None:
            return ""
        row = self.row_as_typed(line.row) if line.row else None
        if row and self.open_row and 0 <= self.marked_option < len(row.options):
            option = row.options[self.marked_option]
            return ": ".join(filter(None, (option.label, option.why_disabled or option.note)))
        if row and (self.has_refused_typing or (row.why_disabled and not row.error)):
            return (
                self._why_typing_refused(row)
                if self.has_refused_typing
                else f"{self._why_typing_refused(row)} {row.hint}"
            )
        return _hint_after_note_if_cut(row) if row else line.group.hint

    @property
    def has_refused_typing(self) -> bool:
        """True where something was typed where nothing can be."""
        return bool(self.refused_key) and self.refused_key == self.cursor

    def _why_typing_refused(self, row: FormRow) -> str:
        label, reason = row.field.label, self.row_as_typed(row).why_disabled
        if row.is_typed and not reason:
            return f"{label} takes a number." if row.is_number else f"{label}: no path begins with a blank."
        if reason and row.is_set_elsewhere:
            return f"{label}: {reason}, and changes with it."
        if reason:
            return f"{label} is not used here: {reason}."
        return f"{label}: ← → to choose, Space shows all."

    # Groups and values to choose from

    @property
    def is_cursor_on_fold(self) -> bool:
        """True where the cursor is on a group that folds."""
        return any(group.folds and group.key == self.cursor for group in self.groups)

    @property
    def has_open_options(self) -> bool:
        """True while the values of a row are shown to choose from."""
        return bool(self.open_row)

    def folded_group_key_of_row(self, key: str) -> str:
        """Return the closed group in which a row is; empty where it is in none."""
        groups = (group for group in self.groups if group.folds and group.key not in self.unfolded)
        return next((group.key for group in groups if any(row.key == key for row in group.rows)), "")

    def open_options(self, row: FormRow) -> None:
        """Show the values of a row; the one that it has is marked."""
        values = [option.value for option in row.options]
        value = fields.format_value(row.value)
        self.marked_option = values.index(value) if value in values else 0
        self.open_row = row.key

    def close_options(self) -> None:
        """Show the values of no row."""
        self.open_row, self.marked_option = "", -1

    # Typed text

    @property
    def unparsable_row_key(self) -> str:
        """The key of a row whose text cannot be read; empty where there is none."""
        keys = {line.key for line in self.lines}
        return next((key for key in self.unread_texts if key in keys), "")

    @property
    def is_cursor_row_unparsable(self) -> bool:
        """True where the text in the row of the cursor cannot be read."""
        return self.cursor in self.unread_texts

    @property
    def unparsable_row_label(self) -> str:
        """The label of the row whose text cannot be read, the cursor's first; empty where there is none."""
        key = self.cursor if self.is_cursor_row_unparsable else self.unparsable_row_key
        return next((row.field.label for row in self.rows if row.key == key), "")

    @property
    def unparsable_text_fix(self) -> str:
        """Change by F2 of the text that cannot be read; empty where there is none."""
        key = self.cursor if self.is_cursor_row_unparsable else self.unparsable_row_key
        return self.unread_texts[key].fix_title if key else ""

    def begin_typing(self, row: FormRow) -> str:
        """Begin to type in a row, and return what stands there."""
        self._posted_values.clear()
        self.parsed_value = self._profile_value = self.value_at_entry = self.row_with_profile_value(row).value
        return self.unread_texts[row.key].text if row.key in self.unread_texts else row.text

    def adopt_profile_value(self, row: FormRow) -> bool:
        """Take the row's value; false where it is the answer to what was typed, which stays as it stands."""
        before, self._profile_value = self._profile_value, row.value
        if row.value in self._posted_values:
            # More may have been typed since, and must not be written over.
            del self._posted_values[: self._posted_values.index(row.value) + 1]
            return False
        if row.value in (before, self.parsed_value):
            return False
        self._posted_values.clear()
        self.parsed_value = row.value
        self.unread_texts.pop(row.key, None)
        return True

    def restore_profile_value(self, row: FormRow) -> None:
        """Replace the typed text by the row's value in the profile."""
        self._posted_values.clear()
        self.parsed_value = self._profile_value = row.value

    def read_typed_text(self, row: FormRow, text: str) -> Literal["same", "lines", "value"]:
        """Take a text as the value of a row: return whether its lines change, or it is a new value to post."""
        try:
            value = fields.parse_value(row.field, text)
        except BadInput as error:
            self.unread_texts[row.key] = _make_unparsable_text(self.row_with_profile_value(row), text, error)
            return "lines"
        was_unread = self.unread_texts.pop(row.key, None)
        self.parsed_value = value
        if value == (self._posted_values[-1] if self._posted_values else self._profile_value):
            return "lines" if was_unread else "same"
        self._posted_values.append(value)
        return "value"


def _hint_after_note_if_cut(row: FormRow) -> str:
    """Return what a row is for, after what stands beside it where that may be cut."""
    note = note_text(row)
    is_cut = len(note) > MAX_NOTE_WIDTH and not (row.error or row.warning)
    return f"{capitalised(note)}. {row.hint}" if is_cut and note.lower() not in row.hint.lower() else row.hint


def _make_unparsable_text(row: FormRow, text: str, error: BadInput) -> UnparsableText:
    """Return a text that cannot be read with what F2 takes instead: what it seems to mean, else the value before."""
    fix, message = fields.most_likely_meant_value(row.field, text), error.message.replace(row.key, row.field.label, 1)
    if row.usual_number is not None and not (
        isinstance(fix, float)
        and row.usual_number / _UNUSUAL_NUMBER_FACTOR < fix < row.usual_number * _UNUSUAL_NUMBER_FACTOR
    ):
        return UnparsableText(
            text, error.remedy.rstrip("."), f"{message}. {error.remedy}", None, f"use {row.usual_number!r}"
        )
    fix = row.value if fix is None else fix
    shown = row.text if fix == row.value else visible(fields.format_value(fix))
    title = f"use {shown}" if shown else "leave it empty"
    return UnparsableText(text, error.remedy.rstrip("."), f"{message}. {error.remedy}", fix, title)

"""Lines of a form, and how each is drawn: what it is, its value, and what follows from it."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from textual.content import Content

from tui_train.base import webhook
from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.fields import FieldValue
from tui_train.profile.rows import Field
from tui_train.views.choices import UNSET_LABEL, FieldOption

from ..text_layout import (
    FAILED_MARK,
    KEY_STYLE,
    LIVE_MARK,
    MUTED,
    OPEN_MARK,
    WARNING_MARK,
    StyledPiece,
    columns,
    fit,
    heading,
    line_with_cursor,
    styled,
)

LABEL_WIDTH = 20  # cells, of which the first is the focus bar's
_VALUE_WIDTH = 24  # cells, of which two stand before what is typed
_WIDE_VALUE_WIDTH = 34
_MIN_WIDE_FORM_WIDTH = 96
VALUE_START_CELL = LABEL_WIDTH + 2  # where a value begins
_GAP_CELLS = 2
_MIN_ERROR_BESIDE_FIX_WIDTH = 24  # cells of an error, beside what would fix it
_MAX_DEFAULT_WIDTH = 26  # cells that what holds may have beside a number
_MAX_TEXT_DEFAULT_WIDTH = 34  # the same in place of a text
MAX_NOTE_WIDTH = 36  # cells that a note leaves to a value that may be long
_LEFT_ANGLE, _RIGHT_ANGLE = "\u2039", "\u203a"
# Their values are found, not listed in the field.
_KEYS_WITH_DISCOVERED_VALUES = frozenset({"trainer.python", "trainer.preset"})


class FormRow(Struct, frozen=True, kw_only=True):
    """A field as it is shown: its value, what it may be, why it cannot be changed, and what stands beside it."""

    field: Field
    value: FieldValue = None
    options: tuple[FieldOption, ...] = ()
    why_disabled: str = ""
    is_set_elsewhere: bool = False
    """True if it has a value that another row sets, which `why_disabled` names."""
    default_text: str = ""
    """The value in force while none is chosen, in words."""
    note: str = ""
    """A consequence of the value."""
    error: str = ""
    """The error in the value; an unusual one has a `warning` instead, one that is being fixed its `progress`."""
    warning: str = ""
    progress: str = ""
    fix: str = ""
    """The fix that F2 makes, in words."""
    usual_number: float | None = None
    """A number from which what is meant by an unreadable one is not far; None: not known."""
    hint: str = ""
    line_below: str = ""
    """A line about it under the row."""
    has_long_default: bool = False
    """True if `default_text` is a sentence, also beside a number."""

    @property
    def key(self) -> str:
        """The field's key."""
        return self.field.key

    @property
    def problem(self) -> str:
        """What is wrong with the value, or unusual, or being fixed."""
        return self.error or self.warning or self.progress

    @property
    def is_typed(self) -> bool:
        """True where its value is typed rather than chosen."""
        return is_typed_field(self.field)

    @property
    def is_number(self) -> bool:
        """True where its value is a number, which needs little room."""
        return self.field.kind in {"integer", "number"}

    @property
    def typed_text(self) -> str:
        """The value as it would be typed; of the address of a webhook its host alone."""
        return (
            webhook.displayed_webhook(str(self.value))
            if self.field.kind == "webhook"
            else fields.format_value(self.value)
        )

    @property
    def text(self) -> str:
        """The value as it would be typed, safe to show."""
        return visible(self.typed_text)


def is_typed_field(field: Field) -> bool:
    """Tell whether a field's value is typed rather than chosen from a list."""
    return not field.options and field.kind != "switch" and field.key not in _KEYS_WITH_DISCOVERED_VALUES


class FormGroup(Struct, frozen=True, kw_only=True):
    """Rows that belong together; a folded one is a line, which opens them."""

    title: str
    rows: tuple[FormRow, ...] = ()
    note: str = ""
    folds: bool = False
    value: str = ""
    key: str = ""
    hint: str = ""


FormLineKind = Literal["title", "air", "row", "option", "fold", "below"]


class FormLine(NamedTuple):
    """A line of the form: its kind, its group, the key of the row or fold it is of, and which option it shows."""

    kind: FormLineKind
    group: FormGroup
    key: str = ""
    row: FormRow | None = None
    option: int = -1


def form_lines(
    groups: Sequence[FormGroup], unfolded: frozenset[str], open_row_key: str, height: int = 0
) -> tuple[FormLine, ...]:
    """Return the lines, with those of open groups and of the opened row's options.

    A blank line stands before each open group where all lines fit in the height with those.
    """
    aired = tuple(_lines_of_groups(groups, unfolded, open_row_key, has_air=True))
    if len(aired) <= height:
        return aired
    return tuple(_lines_of_groups(groups, unfolded, open_row_key, has_air=False))


def _lines_of_groups(
    groups: Sequence[FormGroup], unfolded: frozenset[str], open_row_key: str, *, has_air: bool
) -> Iterator[FormLine]:
    first = True
    for group in groups:
        if not group.rows and not group.folds:
            continue
        if not first and (not group.folds or (has_air and group.key in unfolded)):
            yield FormLine("air", group)
        first = False
        if group.folds:
            yield FormLine("fold", group, group.key)
            if group.key not in unfolded:
                continue
        elif group.title:
            yield FormLine("title", group)
        for row in group.rows:
            yield from _lines_of_row(group, row, open_row_key)


def _lines_of_row(group: FormGroup, row: FormRow, open_row_key: str) -> Iterator[FormLine]:
    yield FormLine("row", group, row.key, row)
    if row.key == open_row_key:
        yield from (FormLine("option", group, row.key, row, at) for at in range(len(row.options)))
    if row.line_below:
        yield FormLine("below", group, row.key, row)


def cursor_stop_line_numbers(lines: Sequence[FormLine]) -> tuple[int, ...]:
    """Return the numbers of the lines on which the cursor may stand."""
    return tuple(number for number, line in enumerate(lines) if line.kind in {"row", "fold"})


def value_width(form_width: int) -> int:
    """Return the cells of a value, of which two stand before it, in a form of a width."""
    return _WIDE_VALUE_WIDTH if form_width >= _MIN_WIDE_FORM_WIDTH else _VALUE_WIDTH


def entry_width(row: FormRow, form_width: int) -> int:
    """Return the cells of what can be typed; a text may have what its note leaves."""
    if row.is_number:
        cells = value_width(form_width) - _GAP_CELLS - 2
        return max(cells, _MAX_DEFAULT_WIDTH) if row.has_long_default and not row.error else cells
    beside = (
        min(MAX_NOTE_WIDTH, len(_note_beside_value(row).plain)) + _GAP_CELLS + 1 if _note_beside_value(row).plain else 1
    )
    cells = max(value_width(form_width) - _GAP_CELLS - 2, form_width - VALUE_START_CELL - beside)
    has_long_default = row.has_long_default and not row.error
    return max(cells, min(_MAX_TEXT_DEFAULT_WIDTH, len(row.default_text))) if has_long_default else cells


def draw_form_line(
    line: FormLine, width: int, *, has_cursor: bool, marked_option: int = -1, unfolded: bool = False
) -> Content:
    """Return a line for a width; `marked_option` is the option that would be taken."""
    if line.kind == "air":
        return Content(" " * width)
    if line.kind == "title":
        return styled(" ", heading(line.group.title, line.group.note, width - 2))
    if line.kind == "below":
        return styled(
            " ", columns(width - 2, ("", VALUE_START_CELL - 1), ((line.row.line_below if line.row else "", MUTED), 0))
        )
    if line.kind == "fold":
        drawn = _foldable_group_line(line.group, width, unfolded=unfolded)
    elif line.kind == "option":
        drawn = _option_line(line, width, marked_option)
    else:
        drawn = _row_line(line.row, width) if line.row else Content()
    return line_with_cursor(drawn, width, has_cursor=has_cursor)


def _foldable_group_line(group: FormGroup, width: int, *, unfolded: bool) -> Content:
    # Behind the title: titles and rows begin in the same column.
    words = styled((group.title, "b" if unfolded else ""), (" ▾" if unfolded else " ▸", "$primary"))
    # What is wrong in a closed group is seen on its line.
    wrong = min((row for row in group.rows if row.problem), key=lambda row: not row.error, default=None)
    note = styled((group.note, MUTED))
    if wrong and not unfolded:
        note = _problem(wrong, f"{wrong.field.label}: ")
    # What stands beside a long value begins no less than a gap behind it.
    cells = max(value_width(width), len(group.value) + 2 + _GAP_CELLS)
    return columns(width - 1, (words, LABEL_WIDTH - 1), (f"  {group.value}", cells), (note, 0))


def _option_line(line: FormLine, width: int, marked_option: int) -> Content:
    row = line.row
    if row is None:
        return Content()
    option = row.options[line.option]
    chosen = option.value == fields.format_value(row.value)
    mark: StyledPiece = FAILED_MARK if option.why_disabled else (LIVE_MARK[0], "$primary") if chosen else OPEN_MARK
    style = MUTED if option.why_disabled else "b" if chosen or marked_option == line.option else ""
    note: StyledPiece = option.why_disabled or (option.note, MUTED)
    label = styled(mark, (f" {option.label}", style))
    return columns(width - 2, ("", LABEL_WIDTH - 1), (label, value_width(width)), (note, 0))


def _problem(row: FormRow, label: str = "") -> Content:
    """Return what is wrong with a row, after its mark."""
    mark, style = FAILED_MARK if row.error else WARNING_MARK if row.warning else LIVE_MARK
    return styled((f"{mark} {label}{row.problem}", style))


def _note_beside_value(row: FormRow, room: int = 0) -> Content:
    """Return what stands beside a value; where there is no room for an error and its fix, the error alone."""
    if row.problem:
        wrong = _problem(row)
        fix = styled("   ", ("F2", KEY_STYLE), f" {row.fix}") if row.fix else Content()
        if room and room - fix.cell_length < min(wrong.cell_length, _MIN_ERROR_BESIDE_FIX_WIDTH):
            return wrong  # the footer names the fix
        if not (room and fix):
            return styled(wrong, fix)
        # The fixes of all rows end below each other, at the right.
        words = fit(wrong, room - fix.cell_length)
        return styled(words.pad_right(max(0, room - words.cell_length - fix.cell_length)), fix)
    return styled((note_text(row), MUTED))


def note_text(row: FormRow) -> str:
    """Return what follows from a value, or what is known of the chosen one."""
    chosen = () if row.is_typed else row.options
    option = next((option for option in chosen if option.value == fields.format_value(row.value)), None)
    return row.note or (option.note if option else "")


def _row_line(row: FormRow, width: int) -> Content:
    label = styled((row.field.label, "$error" if row.error else ""))
    room = width - 2
    cells = entry_width(row, width) if row.is_typed else value_width(width)
    if row.why_disabled:
        return columns(room, (label, LABEL_WIDTH - 1), (("  " + row.why_disabled, MUTED), 0))
    beside = _note_beside_value(row, room - LABEL_WIDTH + 1 - cells - (_GAP_CELLS + 2 if row.is_typed else 0))
    # In plain what is dim has no colour besides.
    style = "$error $field" if row.error and (row.text or not row.is_typed) else "$field"
    if row.is_typed:
        text = row.text or row.default_text or row.field.empty
        # Of a path its end says more than its beginning.
        tail = "…" + row.text[1 - cells :] if len(row.text) > cells and not row.is_number else text
        shown = fit((tail, "" if row.text else MUTED), cells)
        value = styled("  ", shown.pad_right(cells - shown.cell_length)).stylize_before(style)
        return columns(room, (label, LABEL_WIDTH - 1), (value, cells + 2), ("", _GAP_CELLS), (beside, 0))
    option = next((option for option in row.options if option.value == fields.format_value(row.value)), None)
    words: StyledPiece = option.label if option else row.text
    if option and option.label == UNSET_LABEL and option.note:
        words = (option.note, MUTED)
        beside = beside if row.problem or row.note else Content()
    chosen = fit(words, cells - 6)
    value = styled((_LEFT_ANGLE, KEY_STYLE), " ", chosen, " ", (_RIGHT_ANGLE, KEY_STYLE)).pad_right(
        cells - 6 - chosen.cell_length
    )
    return columns(
        room, (label, LABEL_WIDTH - 1), (value.stylize_before(style), cells - _GAP_CELLS), ("", _GAP_CELLS), (beside, 0)
    )

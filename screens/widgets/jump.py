"""Jump keys: a letter on each panel of a screen and each group of its form; typing it goes there.

As in posting. The screen below stays as it is: the letters and the line at the bottom lie over it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from string import ascii_lowercase
from typing import Any, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from .cursor_list import CursorList
from .form.form import Form
from .lines import Lines
from .text_layout import KEY_STYLE, fit, styled

_LETTER_STYLE = "b reverse $primary"
_FIXED_SPACE = "\N{NO-BREAK SPACE}"


class JumpTarget(NamedTuple):
    """A panel or group: its title, the line of a widget that is its head, and what goes there.

    `column` is where the letter stands, counted from the widget's left edge. `is_heading`: the title begins in the
    next column, and is written once more with a blank between.
    """

    title: str
    widget: Widget
    line: int
    go: Callable[[], object]
    column: int = 0
    is_heading: bool = True

    def position_on_screen(self, screen: Screen[Any]) -> Offset | None:
        """Return where its head is on the screen; None where it is out of sight."""
        if not self.widget.is_on_screen:
            return None
        shown = screen.find_widget(self.widget)
        at = shown.region.offset + Offset(0, self.widget.gutter.top + self.line)
        return at + Offset(self.column, 0) if shown.visible_region.contains_point(at) else None

    def head_with_letter(self, letter: str) -> Content:
        """Return what is drawn over the head."""
        title = ((" ", ""), (self.title, "b"), (" ", "")) if self.is_heading else ()
        return fit(styled((letter, _LETTER_STYLE), *title), max(1, self.widget.region.width - self.column))


def form_jump_targets(form: Form) -> Iterator[JumpTarget]:
    """Yield the groups of a form: the cursor goes to the line of one that folds, else to the first row."""
    lines = form.state.lines
    for number, line in enumerate(lines):
        if line.kind == "fold":
            yield JumpTarget(line.group.title, form, number, partial(form.go_to_row, line.key))
        elif line.kind == "title":
            yield JumpTarget(line.group.title, form, number, partial(form.go_to_row, lines[number + 1].key))


def list_jump_targets(rows: CursorList) -> Iterator[JumpTarget]:
    """Yield the panels of a list, by the rows that are their titles: the cursor goes to the row below."""

    def go(key: str) -> None:
        rows.focus()
        rows.go_to_row(key)

    line = 0
    for title, first in zip(rows.state.rows, rows.state.rows[1:], strict=False):
        if title.data and not title.key and first.key:
            yield JumpTarget(str(title.data[0]), rows, rows.y_of_line(line), partial(go, first.key))
        line += title.height


def page_jump_targets(page: VerticalScroll) -> Iterator[JumpTarget]:
    """Yield the panels of a page: it is scrolled to one; of a page that fits, the first, if it takes the focus."""

    def go(lines: Lines, number: int) -> None:
        page.scroll_to(y=lines.virtual_region.y + number, animate=False)
        if page.focusable:
            page.focus()

    panels = [(lines, *panel) for lines in page.query(Lines) for panel in lines.panels]
    if not page.max_scroll_y:
        panels = panels[:1] if page.focusable else []
    for lines, number, title in panels:
        yield JumpTarget(title, lines, number, partial(go, lines, number), lines.gutter.left - 1)


def jump_letters(titles: Sequence[str]) -> list[str]:
    """Return a letter for each title, none twice: of its words' first letters, else of its others, else any.

    Where there are more titles than letters the last ones have none.
    """
    letters: list[str] = []
    for title in titles:
        words = title.lower().split()
        wanted = chain((word[0] for word in words), "".join(words), ascii_lowercase)
        free = (each for each in wanted if each in ascii_lowercase and each not in letters)
        letters.append(next(free, ""))
    return letters


class JumpScreen(ModalScreen["JumpTarget | None"]):
    """Puts the letters over a screen, and answers with the target of the one that is typed; another key ends it."""

    def __init__(self, stops: Sequence[JumpTarget], screen: Screen[Any]) -> None:
        super().__init__()
        self._size = screen.size
        placed = [(stop, stop.position_on_screen(screen)) for stop in stops]
        # Where there are more than letters, those in sight have one.
        placed.sort(key=lambda each: each[1] is None)
        letters = jump_letters([stop.title for stop, _ in placed])
        self._target_by_letter = {letter: each for letter, each in zip(letters, placed, strict=True) if letter}

    def compose(self) -> ComposeResult:
        """Put each letter at the left of its head, and at the bottom what all of them are for."""
        for letter, (stop, place) in self._target_by_letter.items():
            if place is not None:
                drawn = Static(stop.head_with_letter(letter), classes="letter")
                drawn.styles.offset = place
                yield drawn
        words = (("Esc", "Back"), *((letter, stop.title) for letter, (stop, _) in self._target_by_letter.items()))
        # It is folded between them only.
        parts = [styled((key, KEY_STYLE), f" {title}".replace(" ", _FIXED_SPACE)) for key, title in words]
        yield Static(Content("   ").join(parts), classes="bottom")

    def on_key(self, event: events.Key) -> None:
        """Dismiss with the target of the typed letter, or None."""
        event.stop()
        self.dismiss(self._target_by_letter[event.key][0] if event.key in self._target_by_letter else None)

    def on_click(self) -> None:
        """End it."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """End it where the heads stand elsewhere now."""
        if event.size != self._size:
            self.dismiss(None)

"""One side of a chat: what was asked and answered, drawn as it is written; only lines that change are drawn again."""

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from ..widgets.lines import Lines
from ..widgets.text_layout import KEY_STYLE, MUTED, heading, styled


class _ChatBlock(NamedTuple):
    """A part of a chat: whether it was asked, answered, is waited for, names pictures or is a note."""

    kind: str
    text: str


class ChatPane(Lines):
    """The chat of one side under its title; it stands at the end until it is scrolled."""

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._title, self._about = title, ""
        self._blocks: list[_ChatBlock] = []
        self._rows: list[Content] = []
        self._fixed_rows = 0  # rows of the blocks before the last one
        self._top = 0
        self._following = True
        self._wrapped_width = 0  # cells for which the rows are wrapped

    def set_subtitle(self, subtitle: str) -> None:
        """Show something else beside the title."""
        self._about = subtitle
        self.show(self._page_lines)

    def begin_turn(self, prompt: str, picture_names: Sequence[str] = (), waiting_text: str = "") -> None:
        """Begin a turn with the user's prompt, the pictures that are shown with it, and what is waited for."""
        self._following = True
        self._add_block(_ChatBlock("asked", prompt))
        if picture_names:
            self._add_block(_ChatBlock("pictures", f"with {', '.join(picture_names)}"))
        self._add_block(_ChatBlock("waiting", waiting_text))

    def show_waiting(self, text: str) -> None:
        """Show what an answer waits for, in place of what it waited for; nothing where none is waited for."""
        if self._is_waiting:
            self._replace_last_block("waiting", text)

    def append_to_answer(self, text: str) -> None:
        """Add to the answer that is being written; it begins with the first character that can be seen."""
        if self._is_waiting:
            if text := text.lstrip():
                self._replace_last_block("answered", text)
        elif self._blocks and self._blocks[-1].kind == "answered":
            self._replace_last_block("answered", self._blocks[-1].text + text)

    def add_note(self, words: str, blank_text: str = "") -> None:
        """Add a note about an answer that has ended, and `blank_text` where that shows nothing.

        The pane is filled now, also with its prompt where that fits.
        """
        if self._is_waiting and blank_text:
            self._replace_last_block("answered", blank_text)
        self._add_block(_ChatBlock("note", words))
        if self._following:
            self._top = max(0, len(self._rows) - self._visible_row_count)
            self.show(self._page_lines)

    @property
    def _is_waiting(self) -> bool:
        return bool(self._blocks) and self._blocks[-1].kind == "waiting"

    def _replace_last_block(self, kind: str, text: str) -> None:
        self._blocks[-1] = _ChatBlock(kind, text)
        self._lay_out_last_block()

    def _add_block(self, block: _ChatBlock) -> None:
        self._fixed_rows = len(self._rows)
        self._blocks.append(block)
        self._lay_out_last_block()

    def _lay_out_last_block(self) -> None:
        width = self.content_size.width
        if width:
            self._rows[self._fixed_rows :] = _block_rows(self._blocks[-1], width)
            self._scroll_and_show_page()

    def _scroll_and_show_page(self) -> None:
        """Draw what is in sight; a full pane jumps by half, so that not every line is written again for one."""
        room, rows = self._visible_row_count, len(self._rows)
        if self._following and not max(0, rows - room) <= self._top < max(1, rows):
            self._top = max(0, rows - room // 2) if rows > room else 0
        self.show(self._page_lines)

    @property
    def _visible_row_count(self) -> int:
        return max(1, self.content_size.height - 1)

    def scroll_pages(self, pages: int) -> None:
        """Show the pages before or after."""
        last = max(0, len(self._rows) - self._visible_row_count)
        self._top = min(max(0, self._top + pages * max(1, self._visible_row_count - 1)), last)
        self._following = self._top >= last
        self.show(self._page_lines)

    def on_resize(self) -> None:
        """Wrap everything again for another width."""
        width = self.content_size.width
        if width != self._wrapped_width:
            self._wrapped_width = width
            self._rows = []
            for block in self._blocks:
                self._fixed_rows = len(self._rows)
                self._rows += _block_rows(block, width)
        self._scroll_and_show_page()

    def _page_lines(self, width: int) -> list[Content]:
        shown = self._rows[self._top : self._top + self._visible_row_count]
        return [heading(self._title, self._about, width), *shown, *[Content()] * (self._visible_row_count - len(shown))]


def _block_rows(block: _ChatBlock, width: int) -> list[Content]:
    """Return the rows of a block; one that is asked has a line of air above it."""
    if block.kind in {"note", "waiting"}:
        return [row.stylize(MUTED) for row in Content(block.text).wrap(max(1, width))]
    if block.kind == "pictures":
        return [styled("  ", row.stylize(MUTED)) for row in Content(block.text).wrap(max(1, width - 2))]
    if block.kind == "asked":
        rows = Content(block.text).wrap(max(1, width - 2))
        return [
            Content(),
            *(styled(("›" if row is rows[0] else " ", KEY_STYLE), " ", row.stylize("b")) for row in rows),
        ]
    lines = block.text.split("\n")
    return [row for line in lines for row in (Content(line).wrap(max(1, width)) if line else [Content()])]

"""Files to read: their names in a line, one of them in the theme's colours, and a search in all of them."""

import re
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from tui_train.base.text import quantity, visible
from tui_train.plan.run_files import RenderedFile
from tui_train.views.file_diff import FileDiff

from .lines import Lines
from .side_by_side import MIN_SIDE_BY_SIDE_WIDTH, side_by_side, side_by_side_texts
from .text_layout import KEY_STYLE, MUTED, fit, heading, styled

_LANGUAGE_BY_ENDING = {"sh": "bash", "yaml": "yaml", "py": "python", "toml": "toml", "diff": "diff"}
_MAX_CHARACTERS_SHOWN = 40_000
_MIN_FOLD_WIDTH = 20  # cells below which nothing is folded
_COMMENT_START_PATTERN = re.compile(r"\s*#+\s*")
_LEFT_ANGLE, _RIGHT_ANGLE = "\u2039", "\u203a"
# By pygments' names: few things have a colour, and comments are quiet.
_STYLE_BY_TOKEN = {
    ("Comment",): MUTED,
    ("Keyword",): "$primary",
    ("Keyword", "Constant"): "$live",
    ("Literal", "Number"): "$live",
    ("Literal", "String"): "$success",
    ("Literal", "String", "Doc"): MUTED,
    ("Name", "Variable"): "$live",
    ("Name", "Tag"): "$primary",
    ("Name", "Builtin"): "$primary",
    ("Generic", "Deleted"): "$error",
    ("Generic", "Inserted"): "$success",
    ("Generic", "Subheading"): MUTED,
    ("Generic", "Heading"): MUTED,
}
_CURRENT_HIT_STYLE, _OTHER_HIT_STYLE = "b $here", "b $warning"


class ScrollingPage(VerticalScroll, inherit_bindings=False):
    """A text that scrolls up and down and leaves left and right to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown,space", "page_down", show=False),
        Binding("home", "scroll_home", show=False),
        Binding("end", "scroll_end", show=False),
    ]


ViewedFile = RenderedFile | FileDiff


class FileTextResized(Message):
    """Message that the width for a file has changed."""


class FileText(Static):
    """A file, which says when it has another width."""

    def on_resize(self) -> None:
        """Post that the width has changed."""
        self.post_message(FileTextResized())


class FileViewer(Vertical):
    """Shows one of some files, and the places where a text that is searched for stands."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "end_search", "End search", key_display="Esc")]

    def __init__(self) -> None:
        super().__init__(id="files")
        self.files: tuple[ViewedFile, ...] = ()
        self.shown_index = 0
        self._search_words = ""
        self._hits: list[tuple[int, int]] = []  # file and line
        self._hit_index = -1
        self._drawn: tuple[ViewedFile | None, list[int], int, int] | None = None

    def compose(self) -> ComposeResult:
        """Put the names over the file, and what is searched for under it."""
        yield Lines(id="names")
        with ScrollingPage(id="page"):
            yield FileText(id="file", markup=False)
        yield Input(id="search", placeholder="Search in all files", compact=True)

    def on_mount(self) -> None:
        """Hide what is typed until it is."""
        self.query_one(Input).display = False

    def show(self, files: Sequence[ViewedFile]) -> None:
        """Show these files; the place stays."""
        self.files = tuple(files)
        self.shown_index = min(self.shown_index, max(0, len(self.files) - 1))
        self._hits = find_search_hits(self.files, self._search_words, self._text_width)
        self._hit_index = min(self._hit_index, len(self._hits) - 1)
        self.draw()

    @property
    def shown_file(self) -> ViewedFile | None:
        """The file that is shown."""
        return self.files[self.shown_index] if self.files else None

    def show_neighbouring_file(self, steps: int) -> None:
        """Show another file."""
        if self.files:
            self.shown_index = (self.shown_index + steps) % len(self.files)
            self.draw()
            self.query_one(ScrollingPage).scroll_home(animate=False)

    def draw(self) -> None:
        """Draw the names and the file."""
        names, shown_index, said = (
            [visible(file.path) for file in self.files],
            self.shown_index,
            self._search_status_text(),
        )
        self.query_one("#names", Lines).show(lambda width: file_names_lines(names, shown_index, said, width))
        file = self.shown_file
        lines = [at for number, at in self._hits if number == shown_index] if self._search_words else []
        now = self._hits[self._hit_index][1] if self._hits and self._hits[self._hit_index][0] == shown_index else -1
        # The colours of a file take long to find: they are for a file that is seen, and once.
        width = self._text_width
        if self.display and self._drawn != (file, lines, now, width):
            self._drawn = (file, lines, now, width)
            self.query_one("#file", Static).update(file_content(file, lines, now, width) if file else "")

    @property
    def _text_width(self) -> int:
        return self.query_one("#file", Static).content_size.width

    @on(FileTextResized)
    def _fold_again(self, event: FileTextResized) -> None:
        event.stop()
        self.show(self.files)

    def _search_status_text(self) -> str:
        if not self._search_words:
            return ""
        found = f"{self._hit_index + 1} of {len(self._hits)}" if self._hits else "not found"
        return f"“{visible(self._search_words)}”: {found}"

    def open_search_input(self) -> None:
        """Ask for what is searched for."""
        entry = self.query_one(Input)
        entry.display = True
        entry.focus()

    @on(Input.Submitted)
    def _search_next(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value != self._search_words:
            self._search_words, self._hit_index = event.value, -1
            self._hits = find_search_hits(self.files, event.value, self._text_width)
        if self._hits:
            after = next((at for at, hit in enumerate(self._hits) if hit[0] >= self.shown_index), 0)
            self._hit_index = after if self._hit_index < 0 else (self._hit_index + 1) % len(self._hits)
            self.shown_index = self._hits[self._hit_index][0]
        self.draw()
        if self._hits:
            page, line = self.query_one(ScrollingPage), self._hits[self._hit_index][1]
            self.call_after_refresh(page.scroll_to, y=max(0, line - page.size.height // 2), animate=False)
        elif self._search_words:
            self.app.bell()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc ends a search only where there is one."""
        return action != "end_search" or self.query_one(Input).display

    def action_end_search(self) -> None:
        """Show the file without what was searched for."""
        entry = self.query_one(Input)
        entry.display = False
        entry.value = ""
        self._search_words, self._hits, self._hit_index = "", [], -1
        self.query_one(ScrollingPage).focus()
        self.draw()


def find_search_hits(files: Sequence[ViewedFile], words: str, width: int) -> list[tuple[int, int]]:
    """Return where a text stands, in any case: each file and line, as they are drawn for a width."""
    wanted = words.lower()
    if not wanted:
        return []
    return [
        (number, at)
        for number, file in enumerate(files)
        for at, line in enumerate(_line_texts(file, width))
        if wanted in line.lower()
    ]


def file_names_lines(names: Sequence[str], shown_index: int, search_text: str, width: int) -> list[Content]:
    """Return the heading and the files' names, the shown one between angles; those before it are dropped for room."""
    note = search_text or f"{quantity(len(names), 'file')}; / searches in them"
    title = heading("Files", note, width)
    cells = [
        styled((f"{_LEFT_ANGLE} ", KEY_STYLE), (name, "b"), (f" {_RIGHT_ANGLE}  ", KEY_STYLE))
        if at == shown_index
        else styled((f"{name}  ", MUTED))
        for at, name in enumerate(names)
    ]
    first = 0
    while first < shown_index and sum(cell.cell_length for cell in cells[first : shown_index + 1]) > width - 2:
        first += 1
    cells = cells[first:]
    line = styled(("… ", MUTED), *cells) if first else styled(*cells)
    return [title, fit(line, width)]


def _diff_for_two_columns(file: ViewedFile, width: int) -> FileDiff | None:
    """Return a file that is drawn in two columns; None for any other, also where there is no room for them."""
    return file if isinstance(file, FileDiff) and width >= MIN_SIDE_BY_SIDE_WIDTH else None


def _line_texts(file: ViewedFile, width: int) -> Sequence[str]:
    """Return the text of each line of a file as it is drawn for a width."""
    diff = _diff_for_two_columns(file, width)
    return side_by_side_texts(diff) if diff else file.text[:_MAX_CHARACTERS_SHOWN].split("\n")


def file_content(file: ViewedFile, hit_lines: Sequence[int], current_hit_line: int, width: int) -> Content:
    """Return a file as it is drawn for a width: what differs in one in two columns, where there is room."""
    if diff := _diff_for_two_columns(file, width):
        return _mark_hit_lines(side_by_side(diff, width), hit_lines, current_hit_line)
    return fold_comments(highlight_file(file, hit_lines, current_hit_line), width)


def highlight_file(file: ViewedFile, hit_lines: Sequence[int] = (), current_hit_line: int = -1) -> Content:
    """Return a file in the theme's colours, the lines in which something was found marked; long ones are cut."""
    from textual.highlight import HighlightTheme, highlight

    lines = "\n".join(visible(line.expandtabs()) for line in file.text[:_MAX_CHARACTERS_SHOWN].split("\n"))
    language = _LANGUAGE_BY_ENDING.get(file.path.rpartition(".")[2], "text")
    text = highlight(lines, language=language, theme=type("Colours", (HighlightTheme,), {"STYLES": _STYLE_BY_TOKEN}))
    if hit_lines:
        text = _mark_hit_lines(text, hit_lines, current_hit_line)
    if len(file.text) > _MAX_CHARACTERS_SHOWN:
        more = f"\n… {len(file.text) - _MAX_CHARACTERS_SHOWN} more characters: export the files to read on"
        text = text.append_text(more, MUTED)
    return text


def fold_comments(text: Content, width: int) -> Content:
    """Return a file's text with long comments folded into several: they are still read as comments."""
    if width < _MIN_FOLD_WIDTH:
        return text
    lines: list[Content] = []
    for line in text.split("\n", allow_blank=True):
        sign = _COMMENT_START_PATTERN.match(line.plain)
        if sign is None or line.cell_length <= width or sign.end() > width // 2:
            lines.append(line)
            continue
        head = line[: sign.end()]
        lines += [head + part.rstrip() for part in line[sign.end() :].wrap(width - head.cell_length)]
    return Content("\n").join(lines)


def _mark_hit_lines(text: Content, hit_lines: Sequence[int], current_hit_line: int) -> Content:
    start = 0
    for number, line in enumerate(text.plain.split("\n")):
        if number in hit_lines:
            text = text.stylize(
                _CURRENT_HIT_STYLE if number == current_hit_line else _OTHER_HIT_STYLE, start, start + len(line)
            )
        start += len(line) + 1
    return text

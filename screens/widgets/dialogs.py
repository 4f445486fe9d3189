"""Questions: one of some answers, or a line of text; and the help of a screen."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Paste
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, visible

from ..screen_words import words_on_screen
from .file_viewer import ScrollingPage
from .lines import DrawLines, Lines
from .path_suggester import ListFolderNames, PathSuggester
from .text_layout import FAILED_MARK, KEY_STYLE, keep_titles_with_text, styled

_HELP_MARGIN_HEIGHT = 3  # lines around a help: a blank one above and below, and the keys


def keys_with_words_line(*keys_and_words: tuple[str, str]) -> Content:
    """Return keys with what they do, as the line at the bottom of screens has them."""
    return Content("   ").join([styled((key, KEY_STYLE), f" {words}") for key, words in keys_and_words])


def _question_lines(question: str) -> Content:
    """Return a question, which is bold, and below it plain what is said of it."""
    first, *rest = question.split("\n", 1)
    return styled(first, *((f"\n{words}", "not bold") for words in rest))


class ChoiceDialog(ModalScreen[str]):
    """Asks for one of some answers, given as id and words, of one line or more; Esc answers with nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "Cancel")]

    def __init__(self, question: str, answers: Iterable[tuple[str, str | Content]]) -> None:
        super().__init__()
        self.question = question
        self.answers = dict(answers)
        self.is_closed = False
        self.takes_paste = False  # as an answer

    def compose(self) -> ComposeResult:
        """Put the answers under the question."""
        with Vertical(classes="dialog"):
            yield Static(_question_lines(self.question), classes="question")
            yield OptionList(*(Option(words, id=name) for name, words in self.answers.items()), markup=False)
            yield Static(keys_with_words_line(("↑↓", "Choose"), ("Enter", "OK"), ("Esc", "Cancel")))

    def show_question(self, question: str) -> None:
        """Show another question, while it is open."""
        self.question = question
        for shown in self.query(".question").results(Static):
            shown.update(_question_lines(question))

    def change_answer_text(self, answer: str, words: str | Content) -> None:
        """Show other words for an answer, while the question is open."""
        self.answers[answer] = words
        for options in self.query(OptionList):
            options.replace_option_prompt(answer, words)

    def on_unmount(self) -> None:
        """Tell whoever still finds words that nobody reads them."""
        self.is_closed = True

    def on_paste(self, event: Paste) -> None:
        """Answer with what is pasted, where that is one."""
        event.stop()
        if self.takes_paste and event.text.strip():
            self.dismiss(event.text)

    @on(OptionList.OptionSelected)
    def _take_answer(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or "")


class _LineInput(Input):
    """The input of a dialog, which marks where a long text is cut."""

    def render_line(self, y: int) -> Strip:
        """Put … in place of the first cell where there is more text before it, unless the cursor is there."""
        strip, before = super().render_line(y), int(self.scroll_offset.x)
        if not before or cell_len(self.value[: self.cursor_position]) <= before:
            return strip
        style = next(iter(strip.crop(0, 1))).style
        return Strip.join([Strip([Segment("…", style)]), strip.crop(1)])


class TextDialog(ModalScreen[str | None]):
    """Asks for a line of text, which may be empty; Esc answers with None.

    Where there is a `change` that the text makes, it is asked on until that takes it, and answers with what it says;
    `refusal` is why it did not take the first value. A path is completed by `list_folder_names`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("tab", "complete", "Complete", priority=True),
    ]

    def __init__(
        self,
        question: str,
        value: str = "",
        change: Callable[[str], str] | None = None,
        list_folder_names: ListFolderNames | None = None,
        refusal: TuiTrainError | None = None,
    ) -> None:
        super().__init__()
        self.list_folder_names = list_folder_names
        self._refusal = refusal
        self.question = question
        self.value = value
        self.change = change

    def compose(self) -> ComposeResult:
        """Put an input under the question."""
        with Vertical(classes="dialog"):
            yield Static(_question_lines(self.question), classes="question")
            suggester = PathSuggester(list_folder_names=self.list_folder_names) if self.list_folder_names else None
            yield _LineInput(visible(self.value), compact=True, suggester=suggester)
            yield Static(_refusal_line(self._refusal) if self._refusal else "", id="refused", markup=False)
            completes = (("Tab", "Complete"),) if self.list_folder_names else ()
            yield Static(keys_with_words_line(("Enter", "OK"), *completes, ("Esc", "Cancel")))

    def action_complete(self) -> None:
        """Complete the path with the suggestion; where several names begin so, show them."""
        entry, before = self.query_one(Input), self.query_one(Input).value
        if entry.cursor_at_end:
            entry.action_cursor_right()
            if entry.value == before:
                show_candidates(entry)

    @on(Input.Changed)
    def _forget_refusal(self, event: Input.Changed) -> None:
        if event.value != visible(self.value):
            self.query_one("#refused", Static).update("")

    @on(Input.Submitted)
    def _take_answer(self, event: Input.Submitted) -> None:
        if self.change is None:
            self.dismiss(event.value)
        else:
            self._try_change(self.change, event.value)

    @work(thread=True, exclusive=True)
    def _try_change(self, change: Callable[[str], str], text: str) -> None:
        try:
            report = change(text)
        except TuiTrainError as error:
            self.app.call_from_thread(self.query_one("#refused", Static).update, _refusal_line(error))
        else:
            self.app.call_from_thread(self.dismiss, report)


def _refusal_line(error: TuiTrainError) -> Content:
    return styled(FAILED_MARK, f" {visible(capitalised(error.message))}. {visible(words_on_screen(error.remedy))}")


class HelpScreen(ModalScreen[None]):
    """Explains a screen: what it is for, its fields, its keys; it takes the whole page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,question_mark,enter", "dismiss(None)", "Close", key_display="Esc"),
    ]

    def __init__(self, draw: DrawLines) -> None:
        """Show what is drawn for a width."""
        super().__init__()
        self._draw = draw

    def compose(self) -> ComposeResult:
        """Put the lines on a page that scrolls."""
        with ScrollingPage(id="help"):
            yield Lines()
        yield Static(keys_with_words_line(("Esc", "Close")), classes="bottom")

    def on_mount(self) -> None:
        """Draw the help."""
        self.query_one(Lines).show(self._lines_in_pages)
        self.query_one(ScrollingPage).focus()

    def _lines_in_pages(self, width: int) -> list[Content]:
        return keep_titles_with_text(self._draw(width), self.app.size.height - _HELP_MARGIN_HEIGHT)

    def on_resize(self) -> None:
        """Draw it for the new height, and name the arrow keys where they scroll."""
        self.query_one(Lines).redraw()
        self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        scrolling = (("↑↓", "Scroll"),) if self.query_one(ScrollingPage).max_scroll_y else ()
        self.query_one(".bottom", Static).update(keys_with_words_line(*scrolling, ("Esc", "Close")))


def show_candidates(entry: Input, text: str | None = None) -> None:
    """Show the names with which the path in an input, or another text, may go on, to choose from."""

    def take(name: str | None) -> None:
        if name:
            entry.value = name
            entry.cursor_position = len(name)

    begun = entry.value if text is None else text
    candidates = entry.suggester.candidates(begun) if isinstance(entry.suggester, PathSuggester) else ()
    if candidates:
        folder = begun.rpartition("/")[0]
        rows = [(name, name.removeprefix(f"{folder}/")) for name in candidates]
        entry.app.push_screen(ChoiceDialog("Which one?", rows), take)

"""Questions: one of some answers, or a line of text; and the help of a screen."""

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui_train.base.text import visible


class Ask(ModalScreen[str]):
    """Asks for one of some answers, given as id and words; Esc answers with nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "Cancel")]

    def __init__(self, question: str, answers: tuple[tuple[str, str], ...]) -> None:
        """Ask a question."""
        super().__init__()
        self.question = question
        self.answers = answers

    def compose(self) -> ComposeResult:
        """Put the answers under the question."""
        with Vertical(classes="dialog"):
            yield Static(self.question, markup=False)
            yield OptionList(*(Option(words, id=name) for name, words in self.answers), markup=False)
            yield Static("↑↓ choose   Enter take it   Esc cancel", classes="keys")

    @on(OptionList.OptionSelected)
    def _answered(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or "")


class AskText(ModalScreen[str | None]):
    """Asks for a line of text; Esc answers with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str, value: str = "") -> None:
        """Ask, with a value to begin with."""
        super().__init__()
        self.question = question
        self.value = value

    def compose(self) -> ComposeResult:
        """Put an input under the question."""
        with Vertical(classes="dialog"):
            yield Static(self.question, markup=False)
            yield Input(visible(self.value), compact=True)
            yield Static("Enter take it   Esc cancel", classes="keys")

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Help(ModalScreen[None]):
    """Explains a screen: what it is for, its fields, its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,question_mark,enter", "dismiss(None)", "Close", key_display="Esc"),
    ]

    def __init__(self, text: Text) -> None:
        """Show a text."""
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """Put the text into a box that scrolls."""
        with Vertical(classes="dialog help"):
            with VerticalScroll():
                yield Static(self.text)
            yield Static("↑↓ scroll   Esc close", classes="keys")

"""The line at the top: which program, which step."""

from rich.text import Text
from textual.widget import Widget

from .. import STEPS
from ..looking import Looking

_MOST = 20


def _short(name: str) -> str:
    """Return the end of a name, where a file's own name stands."""
    return name if len(name) <= _MOST else f"…{name[-_MOST:]}"


class StepBar(Widget):
    """Shows all steps in order, the present one marked; without a step, a title."""

    def __init__(self, step: str = "", title: str = "") -> None:
        """Mark a step, or show a title."""
        super().__init__()
        self.step = step
        self.title = title

    def render(self) -> Text:
        """Draw the line."""
        words = Text(" tui-train  ", "bold", no_wrap=True, overflow="ellipsis")
        if isinstance(self.app, Looking) and self.app.elsewhere:
            words.append(f"for {_short(self.app.elsewhere)}  ", "bold reverse")
        if self.title:
            return words.append(self.title)
        for number, step in enumerate(STEPS, start=1):
            here = step.title == self.step
            words.append(
                f"[{number} {step.title}]" if here else f" {number} {step.title} ", "bold reverse" if here else "dim"
            )
            words.append("›" if number < len(STEPS) else "", "dim")
        return words

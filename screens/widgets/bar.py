"""The line at the top: which program, which step."""

from rich.text import Text
from textual.widget import Widget

from .. import STEPS
from ..looking import Looking

# So that all steps have room beside it.
_MOST = 17


def _short(name: str) -> str:
    """Return the beginning of a host's name, or of a file's own."""
    own = name.rpartition("/")[2]
    return own if len(own) <= _MOST else f"{own[: _MOST - 1]}…"


class StepBar(Widget):
    """Shows all steps in order, the present one marked; without a step, a title."""

    def __init__(self, step: str = "", title: str = "") -> None:
        """Mark a step, or show a title."""
        super().__init__()
        self.step = step
        self.title = title

    def render(self) -> Text:
        """Draw the line."""
        words = Text(" ", "bold", no_wrap=True, overflow="ellipsis")
        elsewhere = self.app.elsewhere if isinstance(self.app, Looking) else ""
        words.append(f"for {_short(elsewhere)}" if elsewhere else "tui-train", "reverse" if elsewhere else "")
        words.append("  ")
        if self.title:
            return words.append(self.title)
        for number, step in enumerate(STEPS, start=1):
            here = step.title == self.step
            words.append(
                f"[{number} {step.title}]" if here else f" {number} {step.title} ", "bold reverse" if here else "dim"
            )
            words.append("›" if number < len(STEPS) else "", "dim")
        return words

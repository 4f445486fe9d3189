"""Why a run failed: the cause, the line that shows it, what to do, and the change that a key makes."""

from rich.text import Text
from textual.widgets import Static

from tui_train.base.text import visible
from tui_train.diagnose import Diagnosis


class Why(Static):
    """A few lines, and none while nothing is wrong."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        super().__init__(id="why", markup=False)
        self.display = False

    def say(self, found: Diagnosis | None) -> None:
        """Show a diagnosis, or none."""
        self.display = found is not None
        self.update(_words(found) if found else "")


def _words(found: Diagnosis) -> Text:
    rank = f" on rank {found.rank}" if found.rank is not None else ""
    words = Text.assemble((f"{visible(found.failure).replace('_', ' ')}{rank}: ", "bold red"), (found.cause, "bold"))
    words.append(f"\n{found.remedy}")
    if found.change:
        words.append("\n").append(" f2 ", "bold reverse")
        words.append(f" {visible(found.change.title)}: {visible(found.change.why)}")
    if found.line_number:
        # The last, for it may be long, and what does not fit is cut off.
        words.append(f"\nline {found.line_number}: {found.line}", "dim")
    return words

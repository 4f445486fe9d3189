"""The line at the top: the steps with the present one marked, or a title outside of the steps."""

from textual import events
from textual.content import Content
from textual.widget import Widget

from .. import STEPS
from ..discovery.discovery import DiscoveryApp
from ..messages import GoToStep
from .text_layout import DONE_MARK, LIVE_MARK, MUTED, OPEN_MARK, RULE_STYLE, fit, styled

# So that all steps have room beside it.
_MAX_MACHINE_CHARACTERS = 14
_MIN_ALL_NAMES_WIDTH = 69  # cells in which every step has its name
_MIN_LONG_RULES_WIDTH = 92
_SPACE_AFTER_NAME = 3  # cells between the name of a machine and what is true of it
_CURRENT_STEP_STYLE = "b reverse $primary"


def _short_machine_name(name: str) -> str:
    """Return the beginning of a host's name, or of a file's own."""
    own = name.rpartition("/")[2]
    return own if len(own) <= _MAX_MACHINE_CHARACTERS else f"{own[: _MAX_MACHINE_CHARACTERS - 1]}…"


class StepBar(Widget):
    """Shows all steps in order, the present one marked; without a step, a title and what is true of it."""

    def __init__(self, step: str = "", title: str = "") -> None:
        super().__init__()
        self.step = step
        self.title = title
        self._aside: Content = Content()
        self._name_beside = ""
        self._spans: list[tuple[int, int, str]] = []
        self._wrong: frozenset[str] = frozenset()

    def show_at_right(self, aside: Content, name: str = "") -> None:
        """Show something at the right, beside a title, and before it a name, which is cut first."""
        if not aside.is_same(self._aside) or name != self._name_beside:
            self._aside, self._name_beside = aside, name
            self.refresh()

    def mark_wrong_steps(self, modules: frozenset[str]) -> None:
        """Mark the steps, by their modules, in which something forbids the run."""
        if modules != self._wrong:
            self._wrong = modules
            self.refresh()

    def render(self) -> Content:
        """Draw the line."""
        elsewhere = self.app.other_machine_title if isinstance(self.app, DiscoveryApp) else ""
        name = (
            styled((f"for {_short_machine_name(elsewhere)}", "b reverse")) if elsewhere else styled(("tui-train", "b"))
        )
        width = self.content_size.width
        if self.title:
            left = styled(name, "  ", (f" {self.title} ", _CURRENT_STEP_STYLE))
            room = max(0, width - left.cell_length - 2)
            gap = _SPACE_AFTER_NAME if self._aside else 0
            before = fit((self._name_beside, MUTED), room - self._aside.cell_length - gap)
            aside = fit(styled(before, " " * (gap if before else 0), self._aside), room)
            return styled(left, " " * max(1, width - left.cell_length - aside.cell_length), aside)
        return fit(self._steps_line(name, width), width)

    def _steps_line(self, name: Content, width: int) -> Content:
        line = styled(name, "  ")
        self._spans = []
        numbers = {step.title: number for number, step in enumerate(STEPS, start=1)}
        here = numbers[self.step]
        for step, number in zip(STEPS, numbers.values(), strict=True):
            named = width - name.cell_length >= _MIN_ALL_NAMES_WIDTH or number == here
            words = f"{number} {step.title}" if named else f"{number}"
            start = line.cell_length
            if number == here:
                line += styled((f" {LIVE_MARK[0]} {words} ", _CURRENT_STEP_STYLE))
            elif step.module in self._wrong:
                line += styled(("!", "b $error"), f" {words}")
            elif number < here:
                line += styled(DONE_MARK, f" {words}")
            else:
                line += styled(OPEN_MARK, (f" {words}", MUTED))
            self._spans.append((start, line.cell_length, step.module))
            if number < len(STEPS):
                line += styled((" ── " if width >= _MIN_LONG_RULES_WIDTH else " ─ ", RULE_STYLE))
        return line

    def on_click(self, event: events.Click) -> None:
        """Go to the step that is clicked."""
        at = event.x - self.styles.padding.left
        module = next((module for start, end, module in self._spans if start <= at < end), "")
        if module and not self.title:
            self.post_message(GoToStep(module))

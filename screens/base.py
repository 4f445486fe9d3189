"""What all screens share: the keys that are the same everywhere, and a help text."""

import re
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from .looking import Looking
from .messages import Shown


class Base(Screen[None]):
    """A screen with the wizard's keys."""

    HELP: ClassVar[str | None] = None
    LIVE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("f1", "app.help", "Help"),
        Binding("question_mark", "app.help", show=False),
        Binding("q", "app.leave", "Quit"),
    ]

    @property
    def elsewhere(self) -> str:
        """The other machine that all is for, in words; empty: this one."""
        return self.app.elsewhere if isinstance(self.app, Looking) else ""

    @property
    def is_current(self) -> bool:
        """Whether it is drawn: Textual draws also the screen below the top one, though that covers it whole."""
        top = self.app.screen
        return super().is_current and (top is self or top.styles.background.a < 1)

    def on_screen_resume(self) -> None:
        """Tell what this screen wants to know."""
        self.post_message(Shown(live=self.LIVE))

    @on(Worker.StateChanged)
    def _worker_ended(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR:
            self.recover(event.worker.group)

    def recover(self, group: str) -> None:
        """Stop waiting for a worker of this screen that failed; the app shows why."""

    def help_text(self) -> Text:
        """Return what F1 shows."""
        return Text(self.about())

    def about(self) -> str:
        """Return the screen's help, in which a line goes on to the end of a sentence."""
        return re.sub(r"(?<![.:\n])\n(?!\n)", " ", self.HELP or "")

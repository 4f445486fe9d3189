"""The real program in a pseudo-terminal: what a user types, and the screen that they see."""

import os
import re
import sys
import time

import pexpect
import pyte
import pytest


class Terminal:
    """A wizard in a pseudo-terminal, and the screen that a user would see."""

    def __init__(
        self, *arguments: str, rows: int = 24, columns: int = 80, command: list[str] | None = None, **environment: str
    ) -> None:
        """Open one by its own Python, or by another command."""
        command = command or [sys.executable, "-m", "tui_train"]
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            command[0],
            [*command[1:], *arguments],
            dimensions=(rows, columns),
            env={**os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none", **environment},
            timeout=60,
        )

    def text(self) -> str:
        """Return what is on the screen now."""
        try:
            while True:
                self._stream.feed(self.child.read_nonblocking(65536, timeout=0.05))
        except (pexpect.TIMEOUT, pexpect.EOF):
            return "\n".join(self.screen.display)

    def wait_for_any(self, *wanted: str, seconds: float = 60) -> str:
        """Wait until one of the texts is on the screen, and return the screen."""
        deadline = time.monotonic() + seconds
        while not any(text in (shown := self.text()) for text in wanted):
            if time.monotonic() > deadline or not self.child.isalive():
                pytest.fail(f"{wanted!r} did not show:\n{shown}")
        return shown

    def press(self, keys: str, wanted: str) -> str:
        """Press keys and wait for what they bring."""
        self.child.send(keys)
        return self.wait_for_any(wanted)


def go_to_recipe(terminal: Terminal) -> None:
    """Go from a Home without runs to the recipe of a small new model."""
    terminal.wait_for_any("See it work")
    terminal.press("\r", "● 1 Hardware")
    terminal.press("\r", "● 2 Backend")
    terminal.wait_for_any("▌Model")
    terminal.press("\x1b[A", "▌Trainer")
    terminal.press("\x1b[C", "Pretrain a new one")
    terminal.press("\r", "● 3 Recipe")


def go_to_preview(terminal: Terminal) -> None:
    """Go from Home to Preview with the profile that was used last."""
    # How many runs there are stands at the top, and of many the draft is below the screen.
    shown = terminal.wait_for_any("1 run", " runs", "Continue the draft")
    runs_lead = bool(re.search(r"\d runs?\b", shown))
    terminal.press("\x1b[F", "▌+ New" if runs_lead else "▌Continue")
    if runs_lead:
        terminal.press("\x1b[A", "▌+ Continue")
    terminal.press("\r", "● 1 Hardware")
    terminal.wait_for_any("No NVIDIA GPU")
    terminal.press("\r", "● 2 Backend")
    terminal.press("\r", "● 3 Recipe")
    terminal.press("\r", "● 4 Preview")
    terminal.wait_for_any("Command")

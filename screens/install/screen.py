"""An environment that is being made: what is done now, how much is downloaded, the last lines, and how it ended."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import reactive

from tui_train.base.text import display_path, duration_text, size_text, visible

from ..base import WizardScreen
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import DONE_MARK, FAILED_MARK, LIVE_MARK, MUTED, fit, fit_path, heading, styled
from .installation import Installation

_HEADING_FRAME_WIDTH = 4  # cells of a heading that are neither title nor note
_REFRESH_SECONDS = 10.0  # seconds between two pictures of the time it has taken
_ROWS_OUTSIDE_OUTPUT = 14  # rows of the screen that are not the last lines


class InstallScreen(WizardScreen):
    """Follows the installation of the app."""

    HELP = """Install

An environment of its own is made for the training: your other Pythons stay as they are. Where the training runs on
a host, it is made there, by what that has.
Esc leaves this page, and the work goes on; F2 on the step before shows it again, also when the connection was lost
or the wizard was left in the meantime. When it is done, your settings use the new Python. x cancels it: what was
made so far is removed, what was downloaded is kept by pip or uv for the next time."""
    SHARED_VALUES = ("installation",)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "app.back", "Go on", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("x", "cancel", "Cancel it"),
    ]
    installation: reactive[Installation | None] = reactive(None, init=False, repaint=False)

    def __init__(self, cancel: Callable[[], None]) -> None:
        """Begin with what cancels the installation."""
        super().__init__()
        self._cancel = cancel

    def compose(self) -> ComposeResult:
        """Put what is done over the last lines."""
        yield StepBar(title="Install")
        yield Lines(id="installation")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the installation."""
        self.set_interval(_REFRESH_SECONDS, self.update)
        self.update()

    def on_resize(self) -> None:
        """Show as many lines as there is room for."""
        self.update()

    def watch_installation(self) -> None:
        """Show the state of the installation."""
        if self.is_mounted:
            self.update()

    def update(self) -> None:
        """Show what is done now."""
        now = self.installation
        if now is None:
            return
        rows = max(3, self.size.height - _ROWS_OUTSIDE_OUTPUT)
        self.query_one("#installation", Lines).show(lambda width: _installation_lines(now, width, rows))
        self.query_one(Hint).show_text(_hint_text(now))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow cancelling until the installation has ended."""
        return action != "cancel" or bool(self.installation and self.installation.is_running)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Go on only to what is done."""
        is_done = bool(self.installation and self.installation.python)
        return {**super().footer_text_by_key, **({} if is_done else {"enter": ""})}

    def action_cancel(self) -> None:
        """End it; what was made is removed."""
        self._cancel()
        self.notify("Cancelling, and removing what was made …", markup=False)


def _installation_lines(installation: Installation, width: int, max_output_lines: int) -> Sequence[Content]:
    title = visible(f"{installation.title[:1].upper()}{installation.title[1:]}")
    place = f"into {visible(_location_text(installation))}" if installation.folder else ""
    has_room = len(title) + len(place) < width - _HEADING_FRAME_WIDTH
    lines = [heading(title, place if has_room else "", width)]
    lines += [] if has_room else [fit(styled((place, MUTED)), width)]
    progress, seconds = installation.progress, installation.seconds or time.monotonic() - installation.began_at
    words = progress.text if progress else "Looking for Python and pip …"
    if installation.python:
        done = f" is ready, after {duration_text(seconds)}."
        path = fit_path(display_path(installation.python), width - len(done) - len("  Done: "))
        lines.append(styled(DONE_MARK, " Done: ", (visible(path), "b"), done))
    elif installation.failure:
        lines += styled(FAILED_MARK, f" {installation.failure}").wrap(width)
    else:
        lines.append(fit(styled(LIVE_MARK, f" {words}"), width))
    # No share of a whole: what is still to come is known to uv and pip alone.
    amount = f"{size_text(progress.downloaded)} downloaded, " if progress and progress.downloaded else ""
    if amount or installation.is_running:
        # Whole steps of the picture: others would jump.
        shown = seconds // _REFRESH_SECONDS * _REFRESH_SECONDS if installation.is_running else seconds
        lines.append(fit(styled(amount, (duration_text(shown), MUTED)), width))
    lines += [Content(), heading("Output", "", width)]
    return [*lines, *(fit(styled((line, MUTED)), width) for line in installation.lines[-max_output_lines:])]


def _location_text(installation: Installation) -> str:
    return f"{installation.host}:{installation.folder}" if installation.host else installation.folder


def _hint_text(installation: Installation) -> Content:
    if installation.python:
        return Content("Your settings use this Python now. Enter goes on.")
    if installation.failure and installation.host:
        return Content("Esc goes back; F2 there tries again, or follows what still goes on there.")
    if installation.failure:
        return Content(
            "Nothing of it is left. Esc goes back; F2 there tries again, and downloads only what is missing."
        )
    return Content("Esc leaves this page; the installation goes on. x cancels it and removes what was made.")


SCREEN = InstallScreen

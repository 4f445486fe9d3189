"""Keeps the wizard usable where a part of it fails: the fault is shown in one line and written to a file."""

import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rich.text import Text
from textual._context import active_message_pump
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import NoActiveWorker, WorkerFailed, get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.fault_log import record_fault
from tui_train.base.text import capitalised, visible

from .screen_words import words_on_screen
from .themes import needs_plain_colours

# Seconds until the same fault is shown again: one in a timer comes ten times a second.
_SECONDS_WITHOUT_REPEATED_FAULT = 30.0
_NOTICE_SECONDS = 20.0
_FAULT_PREFIX = "Internal error: "
_MIN_FAULT_WIDTH = 12
_NOTICE_MARGIN_CELLS = 6  # of a notice: its border, padding, and a scroll bar beside it


# Textual ends the message loop of whatever raises, and then the app (8.2.8; #2818, closed: no public hook is meant). A
# test shows that it still does: what is private in Textual here goes with that.
class GuardedApp(App[int]):
    """An app that an exception in a handler, a worker, a timer or a drawing does not end."""

    def __init__(self) -> None:
        # Textual chooses its filter for NO_COLOR here: told later, it makes black of the terminal's own colours.
        super().__init__(ansi_color=True if needs_plain_colours() else None)
        self._faults: dict[str, float] = {}
        self._last_fault = ""

    # All messages of all widgets pass here.
    async def _dispatch_message(self, message: Message) -> None:
        await self._dispatch_guarded(super()._dispatch_message, message)

    async def _dispatch_guarded(self, dispatch: Callable[[Message], Awaitable[None]], message: Message) -> None:
        try:
            await dispatch(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next key is to work
            self._handle_exception(error)

    def _register_child(self, parent: DOMNode, child: Widget, before: int | None, after: int | None) -> None:
        self._guard_widget(child)
        super()._register_child(parent, child, before, after)

    def _start_widget(self, parent: Widget, widget: Widget) -> None:
        self._guard_widget(widget)
        super()._start_widget(parent, widget)

    def _guard_widget(self, widget: Widget) -> None:
        """Handle what a widget raises where it is raised, so that all others are still drawn."""
        if "_dispatch_message" in vars(widget):
            return
        guards = {
            "_dispatch_message": partial(self._dispatch_guarded, widget._dispatch_message),  # noqa: SLF001
            "render_lines": partial(self._render_lines_guarded, widget.render_lines),
            "get_content_width": partial(self._measure_guarded, widget.get_content_width),
            "get_content_height": partial(self._measure_guarded, widget.get_content_height),
        }
        vars(widget).update(guards)

    def _render_lines_guarded(self, render: Callable[[Region], list[Strip]], crop: Region) -> list[Strip]:
        try:
            return render(crop)
        except Exception as error:  # noqa: BLE001 - as above
            self._handle_exception(error)
            return [Strip.blank(crop.width)] * crop.height

    def _measure_guarded(self, measure: Callable[..., int], *sizes: Size | int) -> int:
        try:
            return measure(*sizes)
        except Exception as error:  # noqa: BLE001 - as above
            self._handle_exception(error)
            return 1

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(cause, TuiTrainError):
            self.show_error(cause)
            return
        if isinstance(cause, NoMatches) and (
            self._exit
            or _is_in_closing_screen()
            or _is_error_of_empty_node(cause)
            or (self._last_fault and self._is_screen_empty())
        ):
            return  # what is looked for is gone, or never came for a reason that was shown
        if self._exception is None and not self._exit:
            # What tests end with.
            self._exception = error
            self._exception_event.set()
        self._report_fault(cause)

    def _report_fault(self, error: BaseException) -> None:
        """Show in one line that something failed and where to read on; keep the traceback for a report."""
        frame = traceback.extract_tb(error.__traceback__)[-1:]
        name = f"{type(error).__name__} {frame}"
        now = time.monotonic()
        if now - self._faults.get(name, -_SECONDS_WITHOUT_REPEATED_FAULT) < _SECONDS_WITHOUT_REPEATED_FAULT:
            return
        self._faults[name] = now
        self._last_fault = _fault_line(error, record_fault(error), self.size.width)
        if not self._running or self._exit:
            return
        self.notify(self._last_fault, severity="error", timeout=_NOTICE_SECONDS, markup=False)
        self.call_later(self._leave_screen_if_empty)

    def _leave_screen_if_empty(self) -> None:
        """Go back from a screen that could not be composed: it has neither words nor keys."""
        if len(self.screen_stack) > 1 and self.screen.is_mounted and self._is_screen_empty():
            self.pop_screen()
            self.notify(self._last_fault, severity="error", timeout=_NOTICE_SECONDS, markup=False)

    def _is_screen_empty(self) -> bool:
        return bool(self.screen_stack) and not self.screen.query("*").exclude(".-textual-system")

    def show_error(self, error: TuiTrainError) -> None:
        """Show an error with its remedy."""
        self.notify(
            visible(words_on_screen(f"{capitalised(error.message)}. {error.remedy}")),
            severity="error",
            timeout=10,
            markup=False,
        )

    async def _process_messages(self, *arguments: Any, **named: Any) -> None:
        await super()._process_messages(*arguments, **named)
        if self._last_fault and not self._exit:
            # It could not be begun, or not go on: the terminal is restored, and gets one line, no traceback.
            self._return_code = TuiTrainError.exit_code
            self._exit_renderables.append(Text(f"tui-train: {self._last_fault}"))


def _is_in_closing_screen() -> bool:
    """Tell whether what runs belongs to a closed screen: it loses its parts first, while its messages are handled."""
    try:
        node: object = get_current_worker().node
    except NoActiveWorker:
        node = active_message_pump.get(None)
    return isinstance(node, DOMNode) and any(getattr(part, "_pruning", False) for part in node.ancestors_with_self)


def _is_error_of_empty_node(error: NoMatches) -> bool:
    """Tell whether what was looked through has no parts yet, or lost them: a key came before, or after all others."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    searched = frame.f_locals.get("self")
    return isinstance(searched, DOMNode) and not searched.query("*").exclude(".-textual-system")


def _fault_line(error: BaseException, report_file: str, width: int) -> str:
    """Return what failed and the file to report it with, in one line where the terminal has room for it."""
    report = f"; report: {visible(report_file)}"
    room = max(_MIN_FAULT_WIDTH, width - _NOTICE_MARGIN_CELLS - len(_FAULT_PREFIX) - len(report))
    words = visible(" ".join(f"{type(error).__name__}: {error}".split()))
    return _FAULT_PREFIX + (words if len(words) <= room else f"{words[: room - 1]}…") + report

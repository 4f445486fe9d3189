"""Signals about a run are recorded and handled later, where nothing is half done and no message becomes untrue."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tui_train.base.errors import StartInterrupted
from tui_train.base.signal_handlers import SignalHandler, install_handlers, restore_handlers
from tui_train.base.text import visible

_DEFERRED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals received: the `number` of the first (0: none), and whether another came `again`."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.number = 0
        self.again = False
        self._say = say
        self._before: dict[int, SignalHandler] = {}

    @property
    def signal_name(self) -> str:
        """The name of the first signal, such as Ctrl-C."""
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends because of it."""
        return 128 + self.number

    def report(self, text: str) -> None:
        """Print how a signal is handled, unless the terminal is gone."""
        with suppress(OSError):
            self._say(text)

    def raise_if_start_interrupted(self, run_name: str) -> None:
        """Raise StartInterrupted if a signal came before the run was started."""
        if self.number:
            resume = f" Resume it: tui-train resume {visible(run_name)}" if run_name else ""
            message = f"the run was not started ({self.signal_name})"
            raise StartInterrupted(message, f"Nothing is running.{resume}", self.exit_code)

    def record_signal(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal."""
        self.again = bool(self.number)
        self.number = self.number or number

    def start_recording(self) -> None:
        """Record signals from now on; ignored ones, as under nohup, stay ignored."""
        self._before = install_handlers(_DEFERRED_SIGNALS, self.record_signal)

    def stop_recording(self, *, resend: bool = True) -> None:
        """Restore the handlers; with `resend` a recorded signal is sent again."""
        restore_handlers(self._before)
        self._before = {}
        if self.number and resend:
            signal.raise_signal(self.number)


NO_INTERRUPTS = Interrupts()


@contextmanager
def record_signals(say: Callable[[str], None] = lambda _: None) -> Iterator[Interrupts]:
    """Record SIGINT, SIGTERM and SIGHUP until the end; only in the main thread."""
    interrupts = Interrupts(say)
    if threading.current_thread() is threading.main_thread():
        interrupts.start_recording()
    try:
        yield interrupts
    finally:
        interrupts.stop_recording(resend=False)


@contextmanager
def defer_ctrl_c() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt where Ctrl-C was pressed before; a second Ctrl-C raises at once.

    Only in the main thread. Raised wherever it comes, it can be lost: Python ignores what a destructor or a weak
    reference's callback raises, and a library in C may clear it.
    """
    pressed = False

    def record_or_raise_again(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def raise_if_pressed() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = install_handlers((signal.SIGINT,), record_or_raise_again)
    try:
        yield raise_if_pressed
    finally:
        restore_handlers(before)

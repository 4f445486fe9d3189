"""A wizard that is asked to end from outside, or whose terminal is gone, leaves as by its own key: nothing is lost."""

import asyncio
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from tui_train.base.signal_handlers import install_handlers, restore_handlers

# Seconds for it to leave by itself: after that the terminal is restored, and the process ends.
_FORCED_EXIT_DELAY_SECONDS = 5.0
# The other screen, mouse, focus and pasting off; the cursor shown.
_TERMINAL_RESET_SEQUENCES = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[?25h"
)


@contextmanager
def leaving_on_signals(leave: Callable[[int], None], terminal_fd: int) -> Iterator[Callable[[int], None]]:
    """Call `leave` with an exit code when the process is asked to end, or its terminal is gone.

    From the main thread, in the loop it runs in; afterwards, when that loop ends, signals are handled as before.
    Yield what ends the process with an exit code where it has not ended by itself some seconds later.
    """
    loop = asyncio.get_running_loop()
    before = None
    with suppress(termios.error, OSError):
        before = termios.tcgetattr(terminal_fd)
    received: list[int] = []

    def exit_by_force_later(exit_code: int) -> None:
        # The loop may wait for a terminal that takes nothing, or a thread for a disk.
        threading.Thread(target=_exit_after_delay, args=(terminal_fd, before, exit_code), daemon=True).start()

    def end(number: int, _frame: FrameType | None = None) -> None:
        if received:
            return
        received.append(number)
        exit_by_force_later(128 + number)
        loop.call_soon_threadsafe(leave, 128 + number)

    handlers = install_handlers((signal.SIGTERM, signal.SIGHUP), end)
    # A terminal may go without a signal: under nohup, or while an import swallows what a handler raises.
    threading.Thread(target=_call_at_hangup, args=(terminal_fd, end), daemon=True).start()
    try:
        yield exit_by_force_later
    finally:
        received.append(0)
        restore_handlers(handlers)


def _call_at_hangup(terminal_fd: int, end: Callable[[int], None]) -> None:
    hangup = select.poll()
    # Of no event but that its other end is gone, which is always told.
    hangup.register(terminal_fd, 0)
    with suppress(OSError):
        if any(event & select.POLLHUP for _, event in hangup.poll()):
            end(signal.SIGHUP)


def _exit_after_delay(
    terminal_fd: int, settings_before: "list[int | list[bytes | int]] | None", exit_code: int
) -> NoReturn:
    time.sleep(_FORCED_EXIT_DELAY_SECONDS)
    try:
        _restore_terminal(terminal_fd, settings_before)
    finally:
        os._exit(exit_code)


def _restore_terminal(terminal_fd: int, settings_before: "list[int | list[bytes | int]] | None") -> None:
    if settings_before is not None:
        with suppress(termios.error, OSError):
            termios.tcsetattr(terminal_fd, termios.TCSANOW, settings_before)
    with suppress(OSError):
        # It may take nothing; and the shell that has it next has the very same open file.
        os.set_blocking(terminal_fd, False)
        try:
            os.write(terminal_fd, _TERMINAL_RESET_SEQUENCES)
        finally:
            os.set_blocking(terminal_fd, True)

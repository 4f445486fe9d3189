"""Signal handlers; signals that were ignored at the start, as under nohup, stay ignored."""

import signal
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

SignalHandler = Callable[[int, FrameType | None], object] | int | None


def install_handlers(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]
) -> dict[int, SignalHandler]:
    """Install a handler for signals that are not ignored; return the old handlers. Only in the main thread."""
    old_handlers: dict[int, SignalHandler] = {}
    for number in numbers:
        # None: not set by Python, which could not restore it.
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            old_handlers[number] = signal.signal(number, handler)
    return old_handlers


def set_unignored_signals_to_default(numbers: Iterable[int]) -> None:
    """Have signals that are not ignored end the process at once."""
    for number in numbers:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)


def restore_handlers(old_handlers: Mapping[int, SignalHandler]) -> None:
    """Restore the handlers that `install_handlers` returned."""
    for number, handler in old_handlers.items():
        signal.signal(number, handler)

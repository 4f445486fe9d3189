"""Signal handlers of this program: what was ignored when it started, as under nohup, stays ignored."""

import signal
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None


def install(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> dict[int, Handler]:
    """Handle signals, but for those that are ignored; return the handlers before. Only in the main thread."""
    before: dict[int, Handler] = {}
    for number in numbers:
        # None is a handler that Python has not set and could not set again.
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, handler)
    return before


def restore(before: Mapping[int, Handler]) -> None:
    """Handle signals again as `install` found them."""
    for number, handler in before.items():
        signal.signal(number, handler)

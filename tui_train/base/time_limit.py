"""A call that is waited for no longer than some seconds, such as one that reads a disk which may hang."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Thread
from typing import TypeVar

_Result = TypeVar("_Result")


class TimeLimitError(Exception):
    """The call takes longer than its limit."""


def call_within(seconds: float, function: Callable[[], _Result]) -> _Result:
    """Return what a function returns, or raise what it raises; TimeLimitError where it takes longer.

    It runs in a thread, which is left behind where it is late: no thread can be ended that a dead disk holds.
    """
    result = Future[_Result]()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            result.set_exception(error)

    Thread(target=call, daemon=True).start()
    try:
        return result.result(seconds)
    except FutureTimeoutError:
        # It may have ended just now.
        if result.done():
            return result.result()
        raise TimeLimitError from None

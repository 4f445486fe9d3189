"""Signals that come while a run starts: noted instead of obeyed, so that what is printed about the run stays true."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tui_train.base.errors import Interrupted
from tui_train.base.handlers import Handler, install, restore
from tui_train.base.text import visible

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals that came: the `number` of the first, 0 for none, and whether another one came `again`."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.number = 0
        self.again = False
        self._say = say
        self._before: dict[int, Handler] = {}

    @property
    def name(self) -> str:
        """How the first one is called, such as Ctrl-C."""
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """What a command ends with that obeys it."""
        return 128 + self.number

    def say(self, text: str) -> None:
        """Print what is done about a signal; a lost terminal takes no words, and is no reason not to do it."""
        with suppress(OSError):
            self._say(text)

    def check(self, run: str) -> None:
        """Raise Interrupted where a signal came before a run was started."""
        if self.number:
            remedy = f"Nothing of it runs. Resume it: tui-train resume {visible(run)}" if run else "Nothing of it runs."
            raise Interrupted(f"the run was not started ({self.name})", remedy, self.exit_code)

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Remember a signal."""
        self.again = bool(self.number)
        self.number = self.number or number

    def install(self) -> None:
        """Note signals from now on; one that is ignored, as under nohup, stays so."""
        self._before = install(_NUMBERS, self.note)

    def release(self, *, again: bool = True) -> None:
        """Handle signals as before; what was noted is sent `again`."""
        restore(self._before)
        self._before = {}
        if self.number and again:
            signal.raise_signal(self.number)


NONE = Interrupts()


@contextmanager
def deferred(say: Callable[[str], None] = lambda _: None) -> Iterator[Interrupts]:
    """Note SIGINT, SIGTERM and SIGHUP until the end, or until `release`; only the main thread can."""
    found = Interrupts(say)
    if threading.current_thread() is threading.main_thread():
        found.install()
    try:
        yield found
    finally:
        found.release(again=False)

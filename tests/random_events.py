"""Drives the real wizard with random keys, mouse, pastes and sizes, and shrinks what makes it fail.

`python tests/random_events.py SEED` plays a session again, `--only 3,17,40` those events of it alone.
"""

import argparse
import asyncio
import contextlib
import gc
import inspect
import json
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from random_worlds import World, make_world
from textual import events
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.keys import _character_to_key
from tui_train.screens.app.app import Wizard

# Seconds of processor time that one event may take: more is a loop that does not end.
_MAX_EVENT_SECONDS = 20.0
_MAX_LOOP_TURNS = 2000
_MAX_SHRINK_SECONDS = 120.0
_KEYS = (
    *["enter"] * 12, *["down"] * 6, *["up"] * 4, *["escape"] * 4, *["left", "right", "space", "tab", "shift+tab"] * 3,
    *["pageup", "pagedown", "home", "end", "ctrl+p", "backspace", "f2"] * 2, "f1", "f3", "f4", "delete", "ctrl+z",
    "ctrl+a", "ctrl+e", "ctrl+k", "ctrl+u", "ctrl+w", "ctrl+v", "ctrl+c", "ctrl+left", "shift+home", "shift+end",
    "ctrl+pagedown", "ctrl+home", "f12", "insert", "ctrl+@", "alt+enter",
)  # fmt: skip
_LETTERS = "nnnssrrrovhpipxdfwaoggGGbcqec/??[[]]0123456789..-=N{}\\ y中é👩🏽‍🔬\u202e\u0301"
_PASTES = (
    "4", "9" * 400, "-1", "1e999", "nan", "two words", "$(touch pwned)", "`touch pwned`", "'\"", "[red]$(x)[/]",
    "a\nb\nc", "\x1b[31mred\x1b[0m", "中文 数据 " * 40, "(a+)+$", "[z", "\\", "", "\x00", "train.py", "a=b " * 200,
    "\t\r\n", "👩🏽‍🔬" * 30, "../" * 30,
)  # fmt: skip

Event = tuple[Any, ...]


class Fault(NamedTuple):
    """A failure: a name by which it is known again, and its traceback."""

    name: str
    text: str


class EventTookTooLong(Exception):
    """One event took too long."""


def random_events(seed: int, count: int) -> list[Event]:
    """Return the events of a session; the last part of each says whether the wizard may draw before the next."""
    chance = random.Random(f"events {seed}")
    return [(*_random_event(chance), chance.random() < 0.3) for _ in range(count)]


def _random_event(chance: random.Random) -> Event:
    kind = chance.choices(("key", "letter", "mouse", "wheel", "move", "paste", "size", "wait"),
                          (50, 18, 10, 4, 5, 4, 6, 3))[0]  # fmt: skip
    if kind == "key":
        return (kind, chance.choice(_KEYS))
    if kind == "letter":
        return (kind, chance.choice(_LETTERS))
    if kind == "paste":
        return (kind, chance.choice(_PASTES))
    if kind == "size":
        # The extremes are where most goes wrong.
        return (kind, chance.choice((20, 200, chance.randint(20, 200))), chance.choice((5, 60, chance.randint(5, 60))))
    if kind == "wait":
        return (kind, chance.choice((0.0, 0.02, 0.05, 0.1)))
    return (kind, chance.randrange(-1, 201), chance.randrange(-1, 61), chance.choice((1, 1, 1, 2, 3)))


class InvisibleDriver(HeadlessDriver):
    """A terminal that everything is really drawn for, and that shows nothing."""

    @property
    def is_headless(self) -> bool:
        return False


class RecordingWizard(Wizard):
    """The wizard, and what went wrong in it."""

    CSS_PATH = Path(inspect.getfile(Wizard)).with_name("app.tcss")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faults: list[Fault] = []

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: Any) -> Any:
        self._driver = InvisibleDriver(self, mouse=mouse, size=size)
        return self._driver

    def _report_fault(self, error: BaseException) -> None:
        self.faults.append(fault_of(error))
        super()._report_fault(error)


def fault_of(error: BaseException) -> Fault:
    """Return a fault, named by its kind and the line of code that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "_stuck" not in frame.name]
    at = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
    return Fault(f"{type(error).__name__} in {at}: {str(error)[:200]}", "".join(traceback.format_exception(error)))


async def run_ready_callbacks(app: Wizard, *, draw: bool = True) -> None:
    """Let everything happen that waits for nothing but its turn; what a worker or a timer brings comes later."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for last in (not draw, True):
        for _ in range(_MAX_LOOP_TURNS):
            await asyncio.sleep(0)
            if not ready:
                break
        if last or not app._running or not app.screen_stack:
            return
        # Its timer would draw within a sixtieth of a second.
        app.screen._on_timer_update()


def send_event(app: Wizard, event: Event) -> None:
    """Hand the wizard an event as its terminal would."""
    driver = app._driver
    assert driver is not None
    kind, first, *rest = event[:-1]
    if kind == "key":
        driver.process_message(events.Key(first, None))
    elif kind == "letter":
        driver.process_message(events.Key(_character_to_key(first), first))
    elif kind == "paste":
        driver.process_message(events.Paste(first))
    elif kind == "size":
        driver._size = Size(first, rest[0])
        driver.process_message(events.Resize(driver._size, driver._size))
    elif kind == "wheel":
        scroll = events.MouseScrollDown if rest[1] == 1 else events.MouseScrollUp
        driver.process_message(_mouse_event(scroll, first, rest[0], 0))
    elif kind == "move":
        driver.process_message(_mouse_event(events.MouseMove, first, rest[0], 0 if rest[1] == 1 else 1))
    else:
        x, y = first % app.size.width, rest[0] % app.size.height
        for part in (events.MouseMove, events.MouseDown, events.MouseUp):
            driver.process_message(_mouse_event(part, x, y, 0 if part is events.MouseMove else rest[1]))


def _mouse_event(kind: type[events.MouseEvent], x: int, y: int, button: int) -> events.MouseEvent:
    return kind(None, x, y, 0, 0, button, shift=False, meta=False, ctrl=False, screen_x=x, screen_y=y)


@contextlib.contextmanager
def _limit_event_time() -> Iterator[None]:
    def stuck(*_: object) -> None:
        raise EventTookTooLong

    before = signal.signal(signal.SIGVTALRM, stuck)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def _collect_garbage_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _play_events(found: World, played: Sequence[Event]) -> list[Fault]:
    """Play events; who leaves the wizard opens it again, and in the end its first screen can be reached."""
    left = list(played)[::-1]
    while True:
        app = RecordingWizard(*found.arguments())
        async with app.run_test(size=found.size, notifications=True, tooltips=True):
            app.animation_level = found.animations
            await run_ready_callbacks(app)
            while left and not app._exit and not app.faults:
                event = left.pop()
                signal.setitimer(signal.ITIMER_VIRTUAL, _MAX_EVENT_SECONDS)
                if event[0] == "wait":
                    await asyncio.sleep(event[1])
                else:
                    send_event(app, event)
                if event[-1]:
                    await run_ready_callbacks(app)
            if not left and not app._exit and not app.faults:
                app.faults += await _go_home(app)
            app._exception = None
            if not app._exit:
                app.exit(0)
        if app.faults or not left:
            return app.faults


async def _go_home(app: Wizard) -> list[Fault]:
    """Press Escape until Home is shown; a wizard that goes on but no longer answers has failed as well."""
    send_event(app, ("size", 80, 24, True))
    for _ in range(60):
        await run_ready_callbacks(app)
        if len(app.screen_stack) == 1 or app._exit:
            return []
        send_event(app, ("key", "escape", True))
        await asyncio.sleep(0.02)
    return [Fault("Escape does not lead to Home", f"the screens are {app.screen_stack}")]


def play_session(seed: int, played: Sequence[Event]) -> list[Fault]:
    """Play events in the world of a seed, and return what went wrong."""
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            found = stack.enter_context(make_world(seed, Path(folder)))
            stack.enter_context(_limit_event_time())
            stack.enter_context(_collect_garbage_rarely())
            return asyncio.run(_play_events(found, played))
    finally:
        # The wizard keeps all that it has imported out of the collector's sight, and here the session before as well.
        gc.unfreeze()
        gc.collect()


def shrink_events(seed: int, events_of: dict[int, Event], name: str) -> dict[int, Event]:
    """Return fewer events that fail in the same way, as few as are found in some time."""
    deadline = time.monotonic() + _MAX_SHRINK_SECONDS
    numbers = list(events_of)
    part = max(1, len(numbers) // 2)
    while part and time.monotonic() < deadline:
        at = 0
        while at < len(numbers) and time.monotonic() < deadline:
            fewer = numbers[:at] + numbers[at + part :]
            if any(fault.name == name for fault in play_session(seed, [events_of[number] for number in fewer])):
                numbers = fewer
            else:
                at += part
        part //= 2
    return {number: events_of[number] for number in numbers}


def failure_report(seed: int, events_of: dict[int, Event], fault: Fault) -> str:
    """Return what failed, the fewest events that were found to do it, and the command that plays them again."""
    left = shrink_events(seed, events_of, fault.name)
    listed = "".join(f"  {number}: {json.dumps(event)}\n" for number, event in left.items())
    only = ",".join(map(str, left))
    command = f"PYTHONPATH=. python tests/random_events.py {seed} --events {len(events_of)} --only {only}"
    return f"{fault.text}\n{fault.name}\nSeed {seed}, the events that were left:\n{listed}Again with:\n  {command}\n"


def main() -> int:
    """Play a session, or some of its events, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--events", type=int, default=300, help="how many the session has (default: 300)")
    parser.add_argument("--only", default="", help="the numbers of those that are played (default: all)")
    parser.add_argument("--sessions", type=int, default=1, help="how many, each with the next seed (default: 1)")
    parser.add_argument("--shrink", action="store_true", help="find the fewest events that fail")
    chosen = parser.parse_args()
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.sessions):
        every = dict(enumerate(random_events(seed, chosen.events)))
        numbers = [int(number) for number in chosen.only.split(",")] if chosen.only else list(every)
        began = time.monotonic()
        faults = play_session(seed, [every[number] for number in numbers])
        sys.stdout.write(f"{seed}: {len(numbers)} events, {time.monotonic() - began:.1f} s, {len(faults)} faults\n")
        for fault in faults[:1]:
            sys.stdout.write(failure_report(seed, every, fault) if chosen.shrink else f"{fault.text}\n{fault.name}\n")
        failed += bool(faults)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Figures of the wizard's screens in a terminal of 80x24: memory over steps, keys, and what stays unchanged.

Usage: python benchmarks/screens.py [--quick] [--only NAME]. Each line gives a figure, its goal, and what it was before
there was one. Times are of this machine at this moment: beside them stands their ratio to a bare Textual program.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from bench import STEP_TEXTS, Terminal

# A list beside a bare screen, which the same keys move in, open and close.
HELLO_PROGRAM = """
from textual.app import App
from textual.screen import Screen
from textual.widgets import OptionList, Static
class Next(Screen):
    BINDINGS = [("escape", "app.pop_screen", "")]
    def compose(self):
        yield Static("the next screen")
class Hello(App):
    BINDINGS = [("n", "next", "")]
    def compose(self):
        yield Static("Hello, world")
        yield OptionList(*(f"line {number}" for number in range(15)))
    def action_next(self):
        self.push_screen(Next())
Hello().run()
"""
# The wizard, which on a signal writes how many screens and widgets are alive.
COUNTING_WIZARD_PROGRAM = """
import gc, signal, sys, weakref
from textual.screen import Screen
from textual.widget import Widget
alive = weakref.WeakSet()
begin = Widget.__init__
def counted(self, *arguments, **named):
    begin(self, *arguments, **named)
    alive.add(self)
Widget.__init__ = counted
def tell(*_):
    gc.collect()
    widgets = list(alive)
    with open({told!r}, "w") as file:
        file.write(f"{{sum(isinstance(widget, Screen) for widget in widgets)}} {{len(widgets)}}\\n")
signal.signal(signal.SIGUSR1, tell)
sys.argv = ["tui-train"]
from tui_train.__main__ import main
main()
"""
# From a Home with a profile, where the cursor begins, to Preview.
HOME_TEXT = "New training"
TEXTS_ON_THE_WAY = (HOME_TEXT, *STEP_TEXTS[:4])
CHANGES_OF_A_ROUND = 2 * (len(TEXTS_ON_THE_WAY) - 1)
ENTER, ESCAPE, DOWN, UP = "\r", "\x1b", "\x1b[B", "\x1b[A"


def open_wizard(env: dict[str, str]) -> Terminal:
    """Return a wizard that shows Home and has become quiet."""
    terminal = Terminal([sys.executable, "-m", "tui_train"], env)
    terminal.wait_for_text(HOME_TEXT)
    wait_until_quiet(terminal)
    return terminal


def wait_until_quiet(terminal: Terminal, seconds: float = 0.3, most: float = 60) -> None:
    """Wait until nothing has been drawn for so long."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        before = len(terminal.seen)
        terminal.drain(seconds)
        if len(terminal.seen) == before:
            return


def go_to_preview_and_back(terminal: Terminal) -> tuple[list[float], list[float]]:
    """Go from Home to Preview and back; return the seconds that each Enter and each Esc took."""
    forth = []
    for step in TEXTS_ON_THE_WAY[1:]:
        forth.append(terminal.press(ENTER, step))
        wait_until_quiet(terminal)
    back = []
    for step in TEXTS_ON_THE_WAY[-2::-1]:
        back.append(terminal.press(ESCAPE, step))
        wait_until_quiet(terminal)
    return forth, back


def measure_memory(changes: tuple[int, ...], env: dict[str, str], folder: Path) -> None:
    """Print the memory, and how many screens and widgets live, after so many changes of the step."""
    told = folder / "told.txt"
    terminal = Terminal([sys.executable, "-c", COUNTING_WIZARD_PROGRAM.format(told=str(told))], env)
    terminal.wait_for_text(HOME_TEXT)
    wait_until_quiet(terminal)
    process, done, first = psutil.Process(terminal.pid), 0, 0.0
    before = {12: 81, 60: 146, 180: 315, 1000: "400 after 240"}
    for wanted in changes:
        while done < wanted:
            for step in TEXTS_ON_THE_WAY[1:]:
                terminal.press(ENTER, step)
                terminal.drain(0.02)
            for step in TEXTS_ON_THE_WAY[-2::-1]:
                terminal.press(ESCAPE, step)
                terminal.drain(0.02)
            done += CHANGES_OF_A_ROUND
        wait_until_quiet(terminal, 1)
        told.unlink(missing_ok=True)
        os.kill(terminal.pid, signal.SIGUSR1)
        while not told.exists() or not told.read_text().endswith("\n"):
            terminal.drain(0.05)
        screens, widgets = map(int, told.read_text().split())
        now = process.memory_info().rss / 2**20
        first = first or now
        print(
            f"after {done:>4} changes of the step {now:6.1f} MiB, {now - first:+.1f} (goal +10; before "
            f"{before.get(wanted, '-')} MiB), {screens} screens and {widgets} widgets alive",
            flush=True,
        )
    terminal.close()


def measure_keys(times: int, env: dict[str, str]) -> None:
    """Print how long a step, a step back and a cursor key take, and what the last one writes."""
    hello = Terminal([sys.executable, "-c", HELLO_PROGRAM], env)
    hello.wait_for_text("line 14")
    wait_until_quiet(hello)
    ours = open_wizard(env)
    found: dict[str, list[float]] = {name: [] for name in ("hello next", "hello key", "next", "back", "key")}
    written: list[int] = []
    go_to_preview_and_back(ours)
    for _ in range(times):
        found["hello next"].append(hello.press("n", "the next screen"))
        wait_until_quiet(hello, 0.1)
        hello.press(ESCAPE, "Hello, world")
        wait_until_quiet(hello, 0.1)
        for key in (DOWN, DOWN, UP, DOWN):
            found["hello key"].append(seconds_and_bytes_of_key(hello, key)[0])
        for step in TEXTS_ON_THE_WAY[1:4]:
            found["next"].append(ours.press(ENTER, step))
            wait_until_quiet(ours)
        for key in [DOWN] * 10 + [UP] * 10:  # as many as there are rows
            seconds, size = seconds_and_bytes_of_key(ours, key)
            found["key"].append(seconds)
            written.append(size)
        found["next"].append(ours.press(ENTER, TEXTS_ON_THE_WAY[4]))
        wait_until_quiet(ours)
        for step in TEXTS_ON_THE_WAY[-2::-1]:
            found["back"].append(ours.press(ESCAPE, step))
            wait_until_quiet(ours)
    hello.close()
    ours.close()
    print_times("the next step", found["next"], found["hello next"], "p99 60 ms; before 110, 268-550")
    print_times("Esc, a step back", found["back"], found["hello next"], "p99 60 ms; before 110, 268-550")
    print_times("a cursor key on Recipe", found["key"], found["hello key"], "p99 25 ms; before 11, 32")
    print(
        f"a cursor key on Recipe writes {statistics.median(written):,.0f} bytes, at most {max(written):,} "
        "(goal 1,500; before 7,900)"
    )


def print_times(name: str, found: list[float], beside: list[float], goal: str) -> None:
    """Print times and their ratio to those of a bare Textual program."""
    middle, worst = statistics.median(found), statistics.quantiles(found, n=100)[98]
    other, others_worst = statistics.median(beside), statistics.quantiles(beside, n=100)[98]
    print(
        f"{name:<24}{1000 * middle:6.0f} ms median, {1000 * worst:.0f} p99; bare Textual {1000 * other:.0f}, "
        f"{1000 * others_worst:.0f}: {middle / other:.1f}, {worst / others_worst:.1f} times (goal {goal})"
    )


def seconds_and_bytes_of_key(terminal: Terminal, key: str) -> tuple[float, int]:
    """Return the seconds until a key's first answer, and how many bytes it writes in all."""
    terminal.drain(0)
    terminal.seen, begin = b"", time.perf_counter()
    os.write(terminal.fd, key.encode())
    while not terminal.seen and time.perf_counter() < begin + 10:
        terminal.drain(0.5)
    seconds = time.perf_counter() - begin
    wait_until_quiet(terminal, 0.1)
    return seconds, len(terminal.seen)


def measure_idle_bytes(seconds: int, env: dict[str, str]) -> None:
    """Print how many bytes each screen writes while nothing changes."""
    terminal = open_wizard(env)
    rates = {"Home": idle_bytes_per_second(terminal, seconds)}
    for step in TEXTS_ON_THE_WAY[1:]:
        terminal.press(ENTER, step)
        rates[step.strip("]")] = idle_bytes_per_second(terminal, seconds)
        if step.startswith("3"):
            os.write(terminal.fd, DOWN.encode() * 2)
            rates["3 Recipe, in a field"] = idle_bytes_per_second(terminal, seconds)
    terminal.close()
    print("unchanged screens, bytes/s: " + ", ".join(f"{name} {found:.0f}" for name, found in rates.items()))
    print("  (goal 0; before 289 on Recipe)")


def idle_bytes_per_second(terminal: Terminal, seconds: int) -> float:
    """Return the bytes a second that are written once a screen has settled."""
    wait_until_quiet(terminal, 3)
    terminal.seen, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        terminal.drain(left)
    return len(terminal.seen) / seconds


def main() -> None:
    """Run all, or the one that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=("memory", "keys", "idle"), help="this one alone")
    given = parser.parse_args()
    quick = given.quick
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        env = {"XDG_STATE_HOME": f"{name}/state", "XDG_CONFIG_HOME": f"{name}/config"}
        profiles = Path(name, "config/tui-train/profiles")
        profiles.mkdir(parents=True)
        (profiles / "small.toml").write_text('schema = 2\nname = "small"\n')
        measured: dict[str, Callable[[], None]] = {
            "memory": lambda: measure_memory((12, 60, 180) if quick else (12, 60, 180, 1000), env, Path(name)),
            "keys": lambda: measure_keys(2 if quick else 25, env),
            "idle": lambda: measure_idle_bytes(5 if quick else 10, env),
        }
        for kind, measure in measured.items():
            if given.only in {None, kind}:
                measure()


if __name__ == "__main__":
    main()

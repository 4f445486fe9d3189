"""Figures of the wizard as ratios measured in one run: first screen, producer under a viewer, key to changed screen.

Usage: python benchmarks/bench.py [--quick]. Times are of this machine at this moment: compare ratios.
"""

import argparse
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

HELLO = """
from textual.app import App
from textual.widgets import Static
class Hello(App):
    def compose(self):
        yield Static("Hello, world")
Hello().run()
"""
PRODUCER = """
import sys, time
time.sleep(4)
line = "x" * 119 + "\\n"
begin = time.perf_counter()
for number in range({lines}):
    sys.stdout.write(line)
    sys.stdout.flush()
open({result!r}, "a").write(f"{{time.perf_counter() - begin}}\\n")
"""


class Terminal:
    """A program in a pseudo-terminal of 80x24; time until a text shows is counted from its start or the last key."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        """Start the program."""
        self.begin = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            own = {"TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"}
            os.execvpe(argv[0], argv, {**os.environ, **env, **own})  # noqa: S606 - a list, never a shell
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = b""

    def until(self, text: str, seconds: float = 60) -> float:
        """Return the seconds until a text has been drawn."""
        wanted, deadline = text.encode(), time.monotonic() + seconds
        while wanted not in self.seen:
            if time.monotonic() > deadline:
                raise TimeoutError(text)
            self.drain(0.5)
        return time.perf_counter() - self.begin

    def press(self, keys: str, text: str) -> float:
        """Return the seconds from a key to the text that it brings."""
        self.drain(0)
        self.seen, self.begin = b"", time.perf_counter()
        os.write(self.fd, keys.encode())
        return self.until(text)

    def drain(self, seconds: float) -> None:
        """Read what the program has drawn."""
        while select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 1 << 16)
            except OSError:
                return
            seconds = 0

    def close(self) -> None:
        """End the program."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def wizard(env: dict[str, str]) -> Terminal:
    """Return a wizard that is starting."""
    return Terminal([sys.executable, "-m", "tui_train"], env)


def first_screen(times: int, env: dict[str, str]) -> None:
    """Print the time to the first screen over that of a bare Textual program."""
    hello, ours = [], []
    for _ in range(times):
        for found, argv, text in (
            (hello, [sys.executable, "-c", HELLO], "Hello, world"),
            (ours, [sys.executable, "-m", "tui_train"], "New training"),
        ):
            terminal = Terminal(argv, env)
            found.append(terminal.until(text))
            terminal.close()
    ratio = statistics.median(ours) / statistics.median(hello)
    print(f"first screen / bare Textual hello        {ratio:.2f}   ({_ms(ours)} / {_ms(hello)}; goal 1.15)")


def keys(times: int, env: dict[str, str]) -> None:
    """Print the time from a key to the screen that it brings."""
    terminal = wizard(env)
    terminal.until("New training")
    terminal.drain(2)
    forward, back = [], []
    for _ in range(times):
        forward.append(terminal.press("\r", "1 Hardware]"))
        terminal.drain(0.2)
        back.append(terminal.press("\x1b", "New training"))
        terminal.drain(0.2)
    terminal.close()
    for name, found in (("Enter to Hardware", forward), ("Esc to Home", back)):
        worst = statistics.quantiles(found, n=100)[98]
        print(f"key to changed screen, {name:<17} {_ms(found)} median, {worst * 1000:.0f} ms at the 99th percentile")


def producer(times: int, lines: int, env: dict[str, str], folder: Path) -> None:
    """Print the time of a training that writes as fast as it can, viewed, over the same with a plain redirect.

    Both sleep before they write: the viewer has to be there by then, and a process that has slept starts slower.
    """
    plain, viewed = folder / "plain.txt", folder / "viewed.txt"
    for _ in range(times):
        script = folder / "plain.py"
        script.write_text(PRODUCER.format(lines=lines, result=str(plain)))
        with (folder / "plain.log").open("wb") as log:
            unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}  # as launch.sh sets it: a write for each line
            subprocess.run([sys.executable, str(script)], env=unbuffered, stdout=log, check=True)
        script = folder / "viewed.py"
        script.write_text(PRODUCER.format(lines=lines, result=str(viewed)))
        before = len(viewed.read_text().split()) if viewed.exists() else 0
        edits = ["trainer.kind=script", "trainer.preset=custom", f"trainer.script={script}"]
        options = [word for edit in edits for word in ("--set", edit)]
        command = [sys.executable, "-m", "tui_train", "run", "quickstart", "--detach", *options]
        subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=True)
        terminal = Terminal([sys.executable, "-m", "tui_train", "attach", "last"], env)
        terminal.until("5 Run]")
        while not viewed.exists() or len(viewed.read_text().split()) == before:
            terminal.drain(0.2)
            terminal.seen = b""
        terminal.close()
    times_plain, times_viewed = (list(map(float, path.read_text().split())) for path in (plain, viewed))
    ratio = statistics.median(times_viewed) / statistics.median(times_plain)
    rate = lines / statistics.median(times_viewed)
    print(f"producer under the viewer / redirect     {ratio:.2f}   ({lines} lines, {rate:,.0f} lines/s; goal 1.01)")


def _ms(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.0f} ms"


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    quick = parser.parse_args().quick
    # An installed program has its bytecode; a checkout where this is set would compile at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {"XDG_STATE_HOME": f"{name}/state", "XDG_CONFIG_HOME": f"{name}/config"}
        first_screen(3 if quick else 9, env)
        keys(10 if quick else 40, env)
        producer(1 if quick else 7, 200_000 if quick else 1_000_000, env, folder)


if __name__ == "__main__":
    main()

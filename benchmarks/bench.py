"""Figures as ratios measured in one run: first screen, keys, the supervisor, producer under viewers, a large log.

Usage: python benchmarks/bench.py [--quick] [--only NAME]. Times are of this machine at this moment: compare ratios.
"""

import argparse
import io
import os
import pty
import select
import shutil
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

import psutil

from tui_train.diagnose.log_reader import relevant_log_lines

# What a Home without runs shows, and the header of each step, in their order.
HOME_TEXT, *STEP_TEXTS = ("See it work", "● 1 Hardware", "● 2 Backend", "● 3 Recipe", "● 4 Preview", "● 5 Run")
HELLO_PROGRAM = """
from textual.app import App
from textual.widgets import Static
class Hello(App):
    def compose(self):
        yield Static("Hello, world")
Hello().run()
"""
# How fast it writes is told by the quickest quarter of its blocks: the others met a disk or another process.
PRODUCER_SCRIPT = """
import statistics, sys, time
time.sleep(4)
line = "x" * 119 + "\\n"
blocks = []
for block in range({blocks}):
    begin, used = time.perf_counter(), time.process_time()
    for number in range(10_000):
        sys.stdout.write(line)
        sys.stdout.flush()
    blocks.append((time.perf_counter() - begin, time.process_time() - used))
with open({result!r}, "a") as file:
    file.write("{{}} {{}}\\n".format(*(statistics.quantiles(times, n=4)[0] for times in zip(*blocks))))
"""
BEGIN_SCRIPT = """
import time
with open({result!r}, "a") as file:
    file.write(f"{{time.time()}}\\n")
time.sleep({seconds})
"""
STREAM_SCRIPT = """
import os, sys, time
time.sleep(4)
begin = time.perf_counter()
for tick in range({seconds} * 100):
    for number in range({rate} // 100):
        sys.stdout.write(f"number {{tick}} {{number}} " + "x" * 100 + "\\n")
        sys.stdout.flush()
    time.sleep(max(0, begin + (tick + 1) / 100 - time.perf_counter()))
with open({result!r} + ".new", "w") as file:
    file.write(str(time.perf_counter() - begin))
os.rename({result!r} + ".new", {result!r})
time.sleep(30)  # so that the last keys are answered by a run that is still followed
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

    def wait_for_text(self, text: str, seconds: float = 60) -> float:
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
        return self.wait_for_text(text, 300)

    def answer(self, keys: bytes) -> float:
        """Return the seconds from a key to the first that it draws."""
        begin = time.perf_counter()
        os.write(self.fd, keys)
        select.select([self.fd], [], [], 1)
        took = time.perf_counter() - begin
        self.drain(0)
        return took

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


def open_wizard(env: dict[str, str]) -> Terminal:
    """Return a wizard that is starting."""
    return Terminal([sys.executable, "-m", "tui_train"], env)


def measure_first_screen(times: int, env: dict[str, str]) -> None:
    """Print the time to the first screen over that of a bare Textual program."""
    hello, ours = [], []
    for _ in range(times):
        for found, argv, text in (
            (hello, [sys.executable, "-c", HELLO_PROGRAM], "Hello, world"),
            (ours, [sys.executable, "-m", "tui_train"], HOME_TEXT),
        ):
            terminal = Terminal(argv, env)
            found.append(terminal.wait_for_text(text))
            terminal.close()
    ratio = statistics.median(ours) / statistics.median(hello)
    print(
        f"first screen / bare Textual hello        {ratio:.2f}   ({_median_ms(ours)} / {_median_ms(hello)}; goal 1.10)"
    )


def measure_keys(times: int, env: dict[str, str]) -> None:
    """Print the time from a key to the screen that it brings."""
    at_once = []
    for _ in range(5):
        terminal = open_wizard(env)
        terminal.wait_for_text(HOME_TEXT)
        at_once.append(terminal.press("\r", STEP_TEXTS[0]))
        terminal.close()
    print(f"first Enter, while steps are imported    {_median_ms(at_once)} median of {len(at_once)} starts")
    terminal = open_wizard(env)
    terminal.wait_for_text(HOME_TEXT)
    time.sleep(2)
    terminal.drain(0)
    forward, back = [], []
    for _ in range(times):
        forward.append(terminal.press("\r", STEP_TEXTS[0]))
        terminal.drain(0.2)
        back.append(terminal.press("\x1b", HOME_TEXT))
        terminal.drain(0.2)
    terminal.close()
    for name, found in (("Enter to Hardware", forward), ("Esc to Home", back)):
        print(f"key to changed screen, {name:<17} {_median_and_p99(found)}")


def measure_home(times: int, env: dict[str, str], folder: Path) -> None:
    """Print how much longer Home takes to list many runs and profiles than few, and its keys among many."""
    script = folder / "ended.py"
    script.write_text("print('step 1/1 | loss 1.5')\n")
    few, many = (
        {**env, **_make_runs_and_profiles(folder / name, env, script, *counts)} for name, *counts in _HOME_SIZES
    )
    found: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(times):
        for name, own in (("few", few), ("many", many)):
            terminal = open_wizard(own)
            found[name].append(terminal.wait_for_text(" runs, "))
            terminal.close()
    ratio = statistics.median(found["many"]) / statistics.median(found["few"])
    times_of_both = f"{_median_ms(found['many'])} / {_median_ms(found['few'])}"
    print(f"Home with 1000 runs / with 10            {ratio:.2f}   ({times_of_both}; goal 1.2)")
    terminal = open_wizard(many)
    terminal.wait_for_text(" runs, ")
    for when in ("while they are read", "afterwards"):
        took = []
        for key in (b"\x1b[B", b"\x1b[6~", b"\x1b[A", b"\x1b[5~") * (10 * times):
            took.append(terminal.answer(key))
            terminal.drain(0.03)
        print(f"keys among 1000 runs, {when:<19} {_median_and_p99(took)} (goal 25)")
        time.sleep(10)
        terminal.drain(0)
    terminal.close()


_HOME_SIZES = (("few", 10, 10), ("many", 1000, 300))


def _make_runs_and_profiles(
    folder: Path, env: dict[str, str], script: Path, runs: int, profiles: int
) -> dict[str, str]:
    """Make so many ended runs, all copies of one, and so many profiles; return the environment in which they are."""
    own = {"XDG_STATE_HOME": f"{folder}/state", "XDG_CONFIG_HOME": f"{folder}/config"}
    start_run(script, {**env, **own})
    parent, saved = folder / "state/tui-train/runs", folder / "config/tui-train/profiles"
    (first,) = parent.glob("2*")
    while '"run_ended"' not in (first / "events.jsonl").read_text():
        time.sleep(0.1)
    for number in range(runs - 1):
        copy = parent / time.strftime("%Y%m%d-%H%M%S-copy", time.localtime(1.7e9 + 3600 * number))
        copy.mkdir()
        for name in ("launch.sh", "plan.json", "profile.toml", "attempt-1.log", "events.jsonl"):
            shutil.copy(first / name, copy / name)
        (copy / ".number").write_text(f"{number + 1}\n")
    (first / ".number").write_text(f"{runs}\n")
    saved.mkdir(parents=True)
    for number in range(profiles):
        (saved / f"p{number}.toml").write_text(f'schema = 2\nname = "p{number}"\n[recipe]\nsteps = {number + 1}\n')
    return own


def start_run(script: Path, env: dict[str, str], *more_edits: str) -> None:
    """Start a script as a run, as users do."""
    edits = ["trainer.kind=script", "trainer.preset=custom", f"trainer.script={script}", *more_edits]
    options = [word for edit in edits for word in ("--set", edit)]
    command = [sys.executable, "-m", "tui_train", "run", "quickstart", "--detach", *options]
    subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=True)


def measure_supervisor(times: int, env: dict[str, str], folder: Path) -> None:
    """Print how much later a training begins under its supervisor than by itself, and the memory of that one.

    The first start of a folder, which no other one is compared with, compiles what lies in it.
    """
    script, result, run = folder / "begun.py", folder / "begun.txt", folder / "supervised"
    script.write_text(BEGIN_SCRIPT.format(result=str(result), seconds=0))
    words = ["quickstart", "--set", "trainer.kind=script", "--set", "trainer.preset=custom"]
    words += ["--set", f"trainer.script={script}", str(run)]
    export = [sys.executable, "-m", "tui_train", "export", *words]
    subprocess.run(export, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=True)
    launch = ["bash", str(run / "launch.sh")]
    kinds = {"bare": [sys.executable, str(script)], "--plain": [*launch, "--plain"], "supervised": launch}
    first = _seconds_until_training_begins(launch, result)
    later: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(times):
        for kind, command in kinds.items():
            later[kind].append(_seconds_until_training_begins(command, result))
    bare = statistics.median(later["bare"])
    plain, supervised = (1000 * (statistics.median(later[kind]) - bare) for kind in ("--plain", "supervised"))
    print(
        f"start, bare command {1000 * bare:.0f} ms, --plain +{plain:.0f}, supervised +{supervised:.0f} (goal 100), "
        f"the first time +{1000 * (first - bare):.0f}"
    )
    script.write_text(BEGIN_SCRIPT.format(result=str(result), seconds=2))
    with subprocess.Popen(launch, stdout=subprocess.DEVNULL) as process:
        time.sleep(1.5)
        print(f"memory of the supervisor {psutil.Process(process.pid).memory_info().rss / 2**20:.1f} MiB (goal 20)")


def _seconds_until_training_begins(command: list[str], result: Path) -> float:
    """Return how many seconds after its start a command has begun the training."""
    result.unlink(missing_ok=True)
    begin = time.time()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return float(result.read_text()) - begin


def open_viewers(count: int, env: dict[str, str]) -> list[Terminal]:
    """Return terminals that show the newest run."""
    terminals = [Terminal([sys.executable, "-m", "tui_train", "attach", "last"], env) for _ in range(count)]
    for terminal in terminals:
        terminal.wait_for_text(STEP_TEXTS[4])
    return terminals


def draw_until_times_told(terminals: list[Terminal], result: Path, wanted: int) -> None:
    """Draw what the terminals are sent until a producer has told so many times."""
    while not result.exists() or len(result.read_text().splitlines()) < wanted:
        for terminal in terminals or [None]:
            if terminal is None:
                time.sleep(0.2)
            else:
                terminal.drain(0.2)
                terminal.seen = b""


def measure_producer(times: int, blocks: int, env: dict[str, str], folder: Path) -> None:
    """Print the time of a training that writes as fast as it can, viewed or not, over that with a plain redirect.

    All sleep before they write: the viewers have to be there by then, and a process that has slept starts slower. They
    take turns, each time in another order, so that what else the machine does hits all alike. Each writes a new file:
    the memory of one that was just emptied is at hand, and quicker. Wall time counts other work, CPU time does not.
    """
    kinds: dict[str, int | None] = {"redirect": None, "run, no viewer": 0, "run, 1 viewer": 1, "run, 3 viewers": 3}
    results = {kind: folder / f"{number}.txt" for number, kind in enumerate(kinds)}
    for turn in range(times):
        order = list(kinds)
        for kind in order[turn % len(order) :] + order[: turn % len(order)]:
            script = folder / "producer.py"
            script.write_text(PRODUCER_SCRIPT.format(blocks=blocks, result=str(results[kind])))
            _run_producer(script, kinds[kind], results[kind], turn + 1, env)
    found = {
        kind: [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        for kind, path in results.items()
    }
    for kind in list(kinds)[1:]:
        # The quickest turn of each: what slows one down is never the program that is measured.
        wall, cpu = (
            min(one[part] for one in found[kind]) / min(one[part] for one in found["redirect"]) for part in (0, 1)
        )
        rate = 10_000 / statistics.median(one[0] for one in found[kind])
        print(
            f"producer, {kind:<14} / redirect        {wall:.3f} wall, {cpu:.3f} CPU   ({rate:,.0f} lines/s; goal 1.01)"
        )


def _run_producer(script: Path, count: int | None, result: Path, wanted: int, env: dict[str, str]) -> None:
    """Run it by a plain redirect (None), or as a run under so many viewers, until it has told its times."""
    if count is None:
        log = script.with_suffix(".log")
        with log.open("wb") as file:
            unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}  # as launch.sh sets it: a write for each line
            subprocess.run([sys.executable, str(script)], env=unbuffered, stdout=file, check=True)
        log.unlink()
        return
    start_run(script, env)
    terminals = open_viewers(count, env)
    draw_until_times_told(terminals, result, wanted)
    for terminal in terminals:
        terminal.close()
    for log in Path(env["XDG_STATE_HOME"]).rglob("attempt-1.log"):
        log.unlink()


def measure_stream(seconds: int, rate: int, env: dict[str, str], folder: Path) -> None:
    """Print how keys are answered, and the memory, while a training writes so many lines a second."""
    result = folder / "stream.txt"
    script = folder / "stream.py"
    script.write_text(STREAM_SCRIPT.format(seconds=seconds, rate=rate, result=str(result)))
    start_run(script, env)
    (terminal,) = open_viewers(1, env)
    process = psutil.Process(terminal.pid)
    terminal.wait_for_text("number")
    found, memory = [], 0
    while not result.exists():
        for key, text in (("g", " %"), ("G", "following")):
            found.append(terminal.press(key, text))
            terminal.drain(0.2)
        memory = max(memory, process.memory_info().rss)
    late = float(result.read_text())
    terminal.close()
    print(f"keys under {rate:,} lines/s, {len(found)} keys   {_median_and_p99(found)}, goal 50")
    print(f"  memory {memory / 2**20:.0f} MiB, the producer took {late / seconds:.2f} of its {seconds} s")


def measure_large_log(gigabytes: int, env: dict[str, str], folder: Path) -> None:
    """Print how a log of some GB opens, is gone through and searched, over the same with a small one."""
    script = folder / "short.py"
    times = {}
    for name, blocks in (("small", 0), ("large", gigabytes * 16)):
        script.write_text(f"print('a {name} log')")
        start_run(script, env)
        run = max(Path(env["XDG_STATE_HOME"], "tui-train/runs").iterdir())
        while "run_ended" not in (run / "events.jsonl").read_text():
            time.sleep(0.1)
        block = b"".join(b"number %07d %s\n" % (number, b"x" * 104) for number in range(1 << 19))
        with (run / "attempt-1.log").open("ab") as log:
            for _ in range(blocks):
                log.write(block)
            log.write(b"the needle\n" + block[:2560] + b"the last line\n")
        terminal = Terminal([sys.executable, "-m", "tui_train", "attach", "last"], env)
        times[name] = terminal.wait_for_text("the last line")
        if name == "large":
            time.sleep(1)
            start = terminal.press("g", f"a {name} log")
            end = terminal.press("G", "the last line")
            terminal.press("g", f"a {name} log")
            words = terminal.press("/the needle\r", "/the needle")
            terminal.press("g", f"a {name} log")
            expression = terminal.press("/ne+dle$\r", "/ne+dle$")
            memory = psutil.Process(terminal.pid).memory_info().rss
            size = (run / "attempt-1.log").stat().st_size
            print(
                f"a log of {size / 1e9:.1f} GB opened / a small one    {times['large'] / times['small']:.2f}   "
                f"({times['large'] * 1000:.0f} / {times['small'] * 1000:.0f} ms; goal 1.2)"
            )
            print(
                f"  to its start {start * 1000:.0f} ms, to its end {end * 1000:.0f} ms, words found after "
                f"{words:.1f} s, an expression after {expression:.1f} s, memory {memory / 2**20:.0f} MiB"
            )
        terminal.close()
        (run / "attempt-1.log").unlink()


def measure_diagnosis(megabytes: int) -> None:
    """Print how fast a large log is read for a diagnosis, beside what it takes to split it into lines."""
    steps = b"".join(
        b"step %d | loss %.4f | lr 5.0e-04 | tokens/s 10711\n" % (step, 1 / step) for step in range(1, 20_000)
    )
    log = steps * (megabytes * 2**20 // len(steps))
    relevant_log_lines(io.BytesIO(steps))  # its expressions are compiled once
    begin = time.perf_counter()
    relevant_log_lines(io.BytesIO(log))
    read = time.perf_counter()
    log.split(b"\n")
    split = time.perf_counter() - read
    rate, ratio = len(log) / 1e6 / (read - begin), (read - begin) / split
    print(f"diagnose reads a large log at {rate:.0f} MB/s, {ratio:.0f} times as long as it takes to split")


def _median_ms(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.0f} ms"


def _median_and_p99(found: list[float]) -> str:
    worst = statistics.quantiles(found, n=100)[98]
    return f"{_median_ms(found)} median, {worst * 1000:.0f} ms at the 99th percentile"


def main() -> None:
    """Run all, or the one that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    kinds = ("first", "keys", "home", "supervisor", "producer", "stream", "large", "diagnose")
    parser.add_argument("--only", choices=kinds, help="this one alone")
    given = parser.parse_args()
    quick = given.quick
    # An installed program has its bytecode; a checkout where this is set would compile at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # In memory where there is such a folder: a disk that writes back is the noise of all that is measured here.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if given.only == "producer" else None) as name:
        folder = Path(name)
        env = {"XDG_STATE_HOME": f"{name}/state", "XDG_CONFIG_HOME": f"{name}/config"}
        measured = {
            "first": lambda: measure_first_screen(3 if quick else 9, env),
            "keys": lambda: measure_keys(10 if quick else 40, env),
            "home": lambda: measure_home(3 if quick else 9, env, folder),
            "supervisor": lambda: measure_supervisor(5 if quick else 15, env, folder),
            "producer": lambda: measure_producer(4 if quick else 12, 40, env, folder),
            "stream": lambda: measure_stream(10 if quick else 30, 100_000, env, folder),
            "large": lambda: measure_large_log(1 if quick else 5, env, folder),
            "diagnose": lambda: measure_diagnosis(20 if quick else 100),
        }
        for kind, measure in measured.items():
            if given.only in {None, kind}:
                measure()


if __name__ == "__main__":
    main()

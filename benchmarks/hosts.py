"""The wizard while it asks 200 hosts over ssh: how long that takes beside 25, and what its keys take meanwhile.

Before that the first answer of one host, which has kept the runner, beside `ssh HOST true`.

Usage: python benchmarks/hosts.py [--quick]. All hosts are one real sshd of this machine under as many names, which
takes this machine's processors as well: it runs at the lowest priority, and the Python that is asked for is one
without torch. Needs openssh-server.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from bench import STEP_TEXTS, Terminal

from tui_train.channel.session import ask_host

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import ssh

ENTER, DOWN, UP = "\r", "\x1b[B", "\x1b[A"


def is_asking(terminal: Terminal) -> bool:
    """Return whether an ssh of the wizard lives."""
    for child in psutil.Process(terminal.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "ssh":
                return True
    return False


def answer_seconds(terminal: Terminal) -> list[float]:
    """Return the seconds of two keys, one after the other."""
    found = []
    for key in (DOWN, UP):
        found.append(terminal.answer(key.encode()))
        terminal.drain(0.05)
    return found


def measure_asking(count: int, env: dict[str, str], folder: Path) -> tuple[float, list[float], list[float]]:
    """Return the seconds that so many hosts took, and those of keys meanwhile and afterwards."""
    hosts = ",".join(f"h{number}" for number in range(count + 1))
    env = {**env, "XDG_CONFIG_HOME": str(folder / str(count))}
    values = {"nodes.hosts": hosts, "trainer.python": os.path.realpath(sys.executable)}
    new = [sys.executable, "-m", "tui_train", "new", "many", *(f"--set={key}={text}" for key, text in values.items())]
    subprocess.run(new, env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL)
    terminal = Terminal([sys.executable, "-m", "tui_train"], env)
    terminal.wait_for_text("many")
    terminal.drain(1)
    terminal.press(ENTER, STEP_TEXTS[0])
    deadline = time.monotonic() + 60
    while not is_asking(terminal) and time.monotonic() < deadline:
        terminal.drain(0.05)
    began, busy = time.monotonic(), []
    while is_asking(terminal):
        busy += answer_seconds(terminal)
    seconds = time.monotonic() - began
    terminal.drain(3)
    free = [each for _ in range(max(10, len(busy) // 2)) for each in answer_seconds(terminal)]
    terminal.close()
    return seconds, busy, free


def measure_first_answer(times: int, folder: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of `ssh HOST true` and of a question to a host, each over a connection of its own."""
    question = {"do": "names", "folder": "/", "most": 100}
    bare, ours = [], []
    for number in range(times + 1):
        began = time.monotonic()
        subprocess.run([folder / "bin/ssh", "h0", "true"], check=True)
        bare.append(time.monotonic() - began)
        os.environ["XDG_CACHE_HOME"] = str(folder / f"c{number}")  # where connections are kept
        began = time.monotonic()
        ask_host("h0", question, list[str], 60.0)
        ours.append(time.monotonic() - began)
    del os.environ["XDG_CACHE_HOME"]
    return bare[1:], ours[1:]  # the first question brings the runner


def percentile_99(found: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(found, n=100)[98]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer hosts")
    few_hosts, many_hosts = (4, 16) if parser.parse_args().quick else (25, 200)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name, ssh.run_sshd(Path(name), what="many hosts") as words:
        folder = Path(name)
        for child in psutil.Process().children():
            child.nice(19)
        config = (folder / "config").read_text().replace("Host box", "Host h*")
        (folder / "config").write_text(config)
        (folder / "bin").mkdir()
        tool = folder / "bin" / "ssh"
        tool.write_text(f'#!/bin/sh\nexec {words[0]} -F {folder}/config "$@"\n')
        tool.chmod(0o755)
        env = {"XDG_STATE_HOME": f"{name}/state"}
        env["PATH"] = os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        bare, ours = map(statistics.median, measure_first_answer(5 if few_hosts == 4 else 25, folder))
        times = f"{ours / bare:.2f} ({1000 * ours:.0f} ms / {1000 * bare:.0f} ms; goal 2)"
        print(f"first answer of a host / ssh HOST true: {times}", flush=True)
        few, *_ = measure_asking(few_hosts, env, folder)
        many, busy, free = measure_asking(many_hosts, env, folder)
    times = f"{many / few:.1f} ({many:.1f} s / {few:.1f} s; {many_hosts / few_hosts:.0f} times as many)"
    print(f"asking {many_hosts} hosts / asking {few_hosts}: {times}")
    for name, of in (("median", statistics.median), ("p99", percentile_99)):
        meanwhile, afterwards = of(busy), of(free)
        times = f"{1000 * meanwhile:.0f} ms / {1000 * afterwards:.0f} ms"
        print(f"a key meanwhile / afterwards, {name}: {meanwhile / afterwards:.1f} ({times})")


if __name__ == "__main__":
    main()

"""Cost of waiting for GPUs: the share of a core that the supervisor of a run takes, and the bytes that a viewer gets.

Usage: python benchmarks/waiting.py [--quick] [--seconds N]. A run waits for 1, 2 and 8 cards of the fake driver of the
tests, on each of which somebody else computes all the time. Run, in a terminal, watches it, and shows the minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from bench import Terminal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fake_driver import driver_environment

from tui_train.base.text import quantity

GOAL_CORE_SHARE = 0.002
SETTLING_SECONDS = 15  # the first looks at the cards, and the start of the viewer
CARD = """[card]
uuid = {uuid}
name = NVIDIA GeForce RTX 3090
bus = 00000000:{number:02x}:00.0
memory = 24576 MiB
used = 21500 MiB
process = 5000010 compute 21480 MiB python finetune.py
"""


def export_run(folder: Path, env: dict[str, str], uuids: list[str]) -> None:
    """Export a run that trains on these cards."""
    script = folder.with_suffix(".py")
    script.write_text("print('trains')\n")
    edits = ["trainer.kind=script", "trainer.preset=custom", "hardware.device=cpu", f"trainer.python={sys.executable}"]
    options = [word for edit in [*edits, f"trainer.script={script}"] for word in ("--set", edit)]
    command = [sys.executable, "-m", "tui_train", "export", "quickstart", *options, str(folder)]
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    plan = json.loads((folder / "plan.json").read_text())
    plan["gpus"], plan["gpu_names"] = uuids, ["NVIDIA GeForce RTX 3090"] * len(uuids)
    (folder / "plan.json").write_text(json.dumps(plan))


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor time so far of a process and all below it, in seconds."""
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (each.cpu_times() for each in family))


def measure_waiting(folder: Path, card_count: int, seconds: int) -> tuple[float, int, int]:
    """Return a waiting supervisor's share of a core, its viewer's bytes, and in how many seconds these came."""
    folder.mkdir()
    uuids = [f"GPU-00003090-0000-4000-8000-{number:012x}" for number in range(card_count)]
    cards = (CARD.format(uuid=uuid, number=number) for number, uuid in enumerate(uuids))
    (folder / "machine.txt").write_text("driver = 580.95.05\ncuda = 13.0\n" + "".join(cards))
    homes = {f"XDG_{kind}_HOME": f"{folder}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
    own = {**homes, "TUI_TRAIN_QUEUE": f"{folder}/queue", "TUI_TRAIN_NOTIFY": "off"}
    env = {**os.environ, **own, **driver_environment(folder / "machine.txt")}
    run = folder / "run"
    export_run(run, env, uuids)
    with (folder / "log").open("w") as log:
        words = ["bash", str(run / "launch.sh"), "--when-free"]
        supervisor = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
    viewer = Terminal([sys.executable, "-m", "tui_train", "attach", str(run)], env)
    try:
        viewer.wait_for_text("finetune.py")
        drain_for(viewer, SETTLING_SECONDS)
        process = psutil.Process(supervisor.pid)
        before, begin = processor_seconds(process), time.monotonic()
        sizes = [drain_for(viewer, 1) for _ in range(seconds)]
        share = (processor_seconds(process) - before) / (time.monotonic() - begin)
        return share, sum(sizes), sum(map(bool, sizes))
    finally:
        viewer.close()
        supervisor.terminate()
        supervisor.wait(60)


def drain_for(terminal: Terminal, seconds: float) -> int:
    """Read what a program draws for some seconds, and return the bytes."""
    end, terminal.seen = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        terminal.drain(left)
    return len(terminal.seen)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 seconds for each number of cards")
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for card_count in (1, 2, 8):
            seconds = 10 if given.quick else given.seconds
            share, size, busy_seconds = measure_waiting(Path(name) / str(card_count), card_count, seconds)
            shown = f"waiting for {quantity(card_count, 'card')}: {share:.2%} of a core (goal {GOAL_CORE_SHARE:.1%})"
            print(f"{shown}, {size} bytes to a viewer in {busy_seconds} of {seconds} s", flush=True)


if __name__ == "__main__":
    main()

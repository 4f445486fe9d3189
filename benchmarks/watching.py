"""Bytes a second through `ssh -C` while a live run with two cards is watched, at several sizes of the terminal.

Usage: python benchmarks/watching.py [--quick] [--seconds N] [--steps-per-second N]. The run trains at that pace, and
its cards change every second. What the wizard writes is compressed as OpenSSH does: zlib at level 6, flushed for each
packet, which has some 40 bytes around it.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import termios
import time
import zlib
from fcntl import ioctl
from pathlib import Path

from bench import Terminal, start_run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fake_driver import MACHINES_FOLDER, driver_environment

GOAL_BYTES_PER_SECOND = 300
PACKET_OVERHEAD_BYTES = 40  # length, padding, channel, MAC
TERMINAL_SIZES = ((24, 80), (40, 120), (50, 200))
TRAINING_SCRIPT = """
import math, random, sys, time
for step in range(1, 100000):
    loss = 1.3 + 1.7 * math.exp(-step / 80) + random.gauss(0, 0.02)
    rate, norm = 2e-4 * (1 - step / 900), random.uniform(0.7, 0.9)
    numbers = f"lr {{rate:.3e}} | grad_norm {{norm:.4f}} | tokens/s {{5100 + step % 40}}"
    print(f"step {{step}}/900 | loss {{loss:.7f}} | {{numbers}}", flush=True)
    if step % 100 == 0:
        print(f"eval | step {{step}} | loss {{loss + 0.1:.4f}}", flush=True)
    if step > 400:
        time.sleep(1 / {pace})
"""


def start_run_with_cards(folder: Path, env: dict[str, str], pace: float) -> Path:
    """Start a run in the background, as if it had two cards, and return its folder."""
    script = folder / "train.py"
    script.write_text(TRAINING_SCRIPT.format(pace=pace))
    start_run(script, env, f"trainer.python={sys.executable}", "hardware.device=cpu")
    run = next(path for path in (folder / "state/tui-train/runs").iterdir() if path.name[0] != ".")
    plan = json.loads((run / "plan.json").read_text())
    plan["gpus"] = [f"GPU-00003090-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    plan["gpu_names"] = ["NVIDIA GeForce RTX 3090"] * 2
    (run / "plan.json").write_text(json.dumps(plan))
    return run


def change_cards(machine: Path) -> None:
    """Let the cards do something else than a moment ago."""
    text = (MACHINES_FOLDER / "two-3090-display-and-busy.txt").read_text()
    cards = text.split("[card]")
    for number in (1, 2):
        kept = [
            line
            for line in cards[number].splitlines()
            if line.split(" ")[0] not in {"use", "temperature", "power", "used"}
        ]
        kept += [f"use = {random.randint(93, 99)}", f"temperature = {random.randint(68, 72)}"]
        kept += [f"power = {random.randint(325, 345)}", f"used = {14200 + random.randint(0, 50)} MiB", ""]
        cards[number] = "\n".join(kept) + "\n"
    beside = machine.with_suffix(".next")
    beside.write_text("[card]".join(cards))
    beside.rename(machine)


def measure_bytes_per_second(
    run: Path, env: dict[str, str], machine: Path, size: tuple[int, int], seconds: int
) -> tuple[float, float]:
    """Return the bytes a second that are written, and those that go through the line."""
    terminal = Terminal([sys.executable, "-m", "tui_train", "attach", str(run)], env)
    ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    terminal.wait_for_text("of 900")
    packer = zlib.compressobj(6)
    plain = packed = packets = 0
    for second in range(-6, seconds):
        change_cards(machine)
        end = time.monotonic() + 1
        while (left := end - time.monotonic()) > 0:
            terminal.seen = b""
            terminal.drain(left)
            if not terminal.seen:
                continue
            sent = len(packer.compress(terminal.seen)) + len(packer.flush(zlib.Z_SYNC_FLUSH))
            if second >= 0:
                plain, packed, packets = plain + len(terminal.seen), packed + sent, packets + 1
    terminal.close()
    return plain / seconds, (packed + packets * PACKET_OVERHEAD_BYTES) / seconds


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seconds at each size")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--steps-per-second", type=float, default=1.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine = folder / "machine.txt"
        change_cards(machine)
        env = {f"XDG_{kind}_HOME": f"{name}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
        run = start_run_with_cards(folder, env, given.steps_per_second)
        env |= driver_environment(machine) | {"TUI_TRAIN_NOTIFY": "off"}
        try:
            for size in TERMINAL_SIZES:
                plain, packed = measure_bytes_per_second(run, env, machine, size, 3 if given.quick else given.seconds)
                shown = f"watching at {size[1]}x{size[0]}, {given.steps_per_second:g} steps/s"
                print(
                    f"{shown}: {packed:.0f} bytes/s through ssh -C (goal {GOAL_BYTES_PER_SECOND}), {plain:.0f} written",
                    flush=True,
                )
        finally:
            words = [sys.executable, "-m", "tui_train", "stop", "--now", str(run)]
            subprocess.run(words, env={**os.environ, **env}, check=False, capture_output=True)


if __name__ == "__main__":
    main()

"""A training that only prints and sleeps, as well or badly behaved as it is told to be."""

import argparse
import os
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--ignore-signals", action="store_true")
parser.add_argument("--children-apart", type=int, default=0)
parser.add_argument("--children-save", default="")
parser.add_argument("--out-of-memory", type=float, default=None, help="after so many seconds")
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--memory-for", type=int, default=0, help="runs out of memory at once with a larger batch")
parser.add_argument("--lines", type=int, default=0)
parser.add_argument("--until", default="", help="a file: quiet, until it is there")
parser.add_argument("--code", type=int, default=0)
parser.add_argument("--save-on-term", default="")
parser.add_argument("--hide", action="store_true", help="write over the environment, as setproctitle does")
options, _ = parser.parse_known_args()

if options.hide:
    with open("/proc/self/stat") as file:
        begin, end = map(int, file.read().rpartition(")")[2].split()[47:49])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(b"\0" * (end - begin))

if options.ignore_signals:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if options.save_on_term:

    def save(*_):
        time.sleep(0.5)
        with open(options.save_on_term, "a") as file:
            file.write("saved\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
for _ in range(options.children_apart):
    # A child in a session of its own whose parent leaves at once, as a daemon is.
    words = [sys.executable, __file__, f"--seconds={options.seconds}"] + ["--ignore-signals"] * options.ignore_signals
    words += [f"--save-on-term={options.children_save}"] * bool(options.children_save)
    between = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    subprocess.run(
        [sys.executable, "-c", between, *words], start_new_session=True, check=True, stdin=subprocess.DEVNULL
    )
for number in range(options.lines):
    print(f"line {number} of many, to make the log long enough that reading it takes a while")
began = time.monotonic()
tick = 0
while time.monotonic() - began < options.seconds:
    tick += 1
    if not options.until:
        # In one piece: unbuffered, `print` writes the end of a line by itself, and another process may come between.
        sys.stdout.write(f"tick {tick}\n")
        sys.stdout.flush()
    elif os.path.exists(options.until):
        break
    elif tick == 1:
        sys.stdout.write("tick 1\n")
        sys.stdout.flush()
    if 0 < options.memory_for < options.batch:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    time.sleep(0.05)
    if options.out_of_memory is not None and time.monotonic() - began >= options.out_of_memory:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
sys.exit(options.code)

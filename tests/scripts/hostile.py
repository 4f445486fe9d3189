"""A worker that makes it hard to end a training: it saves slowly, ignores signals, forks meanwhile, and hides."""

import argparse
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--save", default="", help="a file that gets a line when it has saved")
parser.add_argument("--save-seconds", type=float, default=1.0)
parser.add_argument("--ignore", action="store_true", help="go on after it has saved")
parser.add_argument("--forks", type=int, default=0, help="so many children once it is asked to end")
parser.add_argument("--apart", type=int, default=0, help="children in sessions of their own, without an environment")
parser.add_argument("--pids", default="", help="a file that gets the number of every process")
options, _ = parser.parse_known_args()


def note():
    file = os.open(options.pids, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{os.getpid()}\n".encode())
    os.close(file)


def child():
    """Start a process that ignores whoever asks it to end."""
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        note()
        time.sleep(600)
        os._exit(0)


def apart():
    """Start a daemon that has lost its environment: two forks, a session of its own, and another program."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note()
    os.execve(sys.executable, [sys.executable, "-IS", "-c", "import time; time.sleep(600)"], {})  # noqa: S606


def save(*_):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for _ in range(options.forks):
        child()
        time.sleep(options.save_seconds / options.forks / 2)
    time.sleep(options.save_seconds)
    if options.save:
        with open(options.save, "a") as file:
            file.write("saved\n")
    if not options.ignore:
        os._exit(0)


note()
signal.signal(signal.SIGTERM, save)
for _ in range(options.apart):
    apart()
print("ready", flush=True)
while True:
    time.sleep(0.05)

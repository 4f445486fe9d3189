"""What a file may turn out to be, and runs whose files are spoiled."""

import json
import os
import re

from support import facts, profile, ready

from tui_train.runs import rundir

EVENT = b'{"time":1700000000,"event":"run_started","pid":1}\n'
ENDED = (
    EVENT + b'{"time":1700000001,"event":"attempt_started","attempt":1,"position":1}\n'
    b'{"time":1700000002,"event":"attempt_ended","attempt":1,"exit_code":0}\n'
    b'{"time":1700000003,"event":"run_ended","state":"finished","exit_code":0}\n'
)
DEEP = b"[" * 5000
# Root may read what nobody may, unless it gives that up.
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()


# An error that nobody foresaw.
UNFORESEEN = re.compile(r"Traceback|tui-train: \w+Error:")


def new_run(name="x"):
    return rundir.create_run_folder(name, ready(profile({"hardware.device": "cpu"}), facts()).files)


def fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path):
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def holds(data):
    def write(path):
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    return write


def large(path):
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)


def folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def loop(path):
    path.symlink_to(path)


def no_rights(path):
    path.write_bytes(b"line\n" * 1000)
    path.chmod(0)


def header(text, data=b"", length=None):
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(**values):
    return json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **values}}).encode()

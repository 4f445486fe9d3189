"""Damaged files of a run: pipes, devices, huge or nested content in their place."""

import json
import os
import re

from support import create_run, profile

START_EVENT_LINE = b'{"time":1700000000,"event":"run_started","pid":1}\n'
ENDED_RUN_EVENTS = (
    START_EVENT_LINE + b'{"time":1700000001,"event":"attempt_started","attempt":1,"position":1}\n'
    b'{"time":1700000002,"event":"attempt_ended","attempt":1,"exit_code":0}\n'
    b'{"time":1700000003,"event":"run_ended","state":"finished","exit_code":0}\n'
)
DEEPLY_NESTED = b"[" * 5000
# Root may read what nobody may, unless it gives that up.
UNPRIVILEGED_COMMAND = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()


# An error that nobody foresaw.
UNEXPECTED_ERROR_PATTERN = re.compile(r"Traceback|tui-train: \w+Error:")


def new_run(name="x"):
    return create_run(profile({"hardware.device": "cpu"}), name=name)


def replace_by_fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def replace_by_endless_file(path):
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def content_writer(data):
    def write(path):
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    return write


def replace_by_huge_file(path):
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)


def replace_by_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def loop(path):
    path.symlink_to(path)


def no_rights(path):
    path.write_bytes(b"line\n" * 1000)
    path.chmod(0)


# What may stand in a file's place, and is no file that can be read, or none with an end.
REPLACEMENTS = {
    "pipe": replace_by_fifo, "endless": replace_by_endless_file, "large": replace_by_huge_file,
    "folder": replace_by_folder, "no rights": no_rights, "loop": loop,
}  # fmt: skip


def safetensors_with_header(text, data=b"", length=None):
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor_header(**values):
    return json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **values}}).encode()

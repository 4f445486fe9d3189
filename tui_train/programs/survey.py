"""Prints the facts of a host as one line of JSON: memory, Pythons, cached models, paths, contents of files, clock.

Runs on another host, over ssh, in any Python 3.8 or later, standard library only; its text and the question, in JSON,
are passed on the command line. `files` are given in base64, no more than 256 KiB of each.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

MAX_FILE_BYTES = 2**18
TIMEOUT_SECONDS = 10


def path_state(name: str) -> str:
    """Return whether a path is a file or a folder that may be read, missing, or unreadable."""
    if not name:
        return "missing"
    try:
        path = Path(name).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    folder = stat.S_ISDIR(mode)
    # A device or a pipe has no end, or is read once only.
    if not folder and not stat.S_ISREG(mode):
        return "unreadable"
    if not os.access(path, os.R_OK | os.X_OK if folder else os.R_OK):
        return "unreadable"
    return "folder" if folder else "file"


def why_unwritable(name: str) -> str:
    """Return why nothing can be written into the folder of this path, there or yet to be made; empty where it can."""
    try:
        path = Path(name).expanduser().absolute()
        while not path.exists() and path != path.parent:
            path = path.parent
        if not path.is_dir():
            return str(path) + " is a file"
        if path.resolve().parts[1:2] in {("proc",), ("sys",)}:
            return "nothing can be saved in " + str(path)
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return str(path) + " is on a file system that is read-only"
        return "" if os.access(path, os.W_OK | os.X_OK) else "you may not write in " + str(path)
    except (OSError, ValueError, RuntimeError) as error:
        return getattr(error, "strerror", None) or "it is no path"


def free_bytes(name: str) -> int | None:
    """Return the bytes that are free for the folder of this path, there or yet to be made; None where none can be."""
    try:
        path = Path(name).expanduser().absolute()
        while not path.exists() and path != path.parent:
            path = path.parent
        disk = os.statvfs(path)
        # What is no disk has no blocks.
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else None
    except (OSError, ValueError, RuntimeError):
        return None


def runs_folder() -> str:
    """Return the folder of the runs, as tui-train has it on this host."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(state if os.path.isabs(state) else "~/.local/state", "tui-train", "runs")  # noqa: PTH117, PTH118


def read_as_base64(name: str) -> str | None:
    """Return the beginning of a file in base64, None where it cannot be read."""
    if path_state(name) != "file":
        return None
    try:
        with Path(name).expanduser().open("rb") as file:
            return base64.b64encode(file.read(MAX_FILE_BYTES)).decode("ascii")
    except OSError:
        return None


def python_candidates(named: list[str], *, also_others: bool = True) -> dict[str, str]:
    """Return the paths of Pythons to ask, each with what it is; without `also_others` those that are named."""
    home = Path.home()
    data = os.environ.get("XDG_DATA_HOME") or str(home / ".local" / "share")
    found = {str(Path(name).expanduser()): "chosen" for name in named}
    if not also_others:
        return found
    for python in sorted(Path(data, "tui-train", "envs").glob("*/bin/python")):
        found.setdefault(str(python), "env " + python.parent.parent.name)
    kept = base64.b64decode(read_as_base64(str(home / ".conda" / "environments.txt")) or "")
    for folder in filter(None, map(str.strip, kept.decode("utf-8", "replace").splitlines())):
        if Path(folder, "bin", "python").exists():
            found.setdefault(str(Path(folder, "bin", "python")), "conda env (" + Path(folder).name + ")")
    for name in ("python3", "python"):
        where = shutil.which(name)
        if where:
            found.setdefault(where, "PATH")
    return found


def probe_python(python: str, run_code: str, probe_text: str) -> dict[str, object] | None:
    """Return what a Python says of itself, None where it says nothing."""
    command = [python, "-B", "-c", run_code, probe_text]
    try:
        out = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        ).stdout
        found = json.loads(out.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, dict) else None


def probe_toolchains(question: dict[str, object]) -> list[object]:
    """Return what the Pythons have, those named and those found; of several that are one, the first."""
    of_prefix: dict[object, object] = {}
    named, run_code, probe_text = question["pythons"], question["run"], question["probe"]
    only_named = bool(question.get("only_named"))
    for python, label in python_candidates(
        list(named) if isinstance(named, list) else [], also_others=not only_named
    ).items():
        found = probe_python(python, str(run_code), str(probe_text))
        tool = found.get("toolchain") if found else None
        if found and isinstance(tool, dict):
            kept = found.get("executable") if label == "PATH" else python
            of_prefix.setdefault(found.get("prefix"), {**tool, "python": kept or python, "label": label})
    return list(of_prefix.values())


def machine_identity() -> str:
    """Return what no other machine has: its name, which clones share, with the id of its last boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = ""
    return platform.node() + " " + boot


def read_processor() -> dict[str, str]:
    """Return the name of the host's processor, where it tells."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return {"cpu_name": next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))}
    except (OSError, StopIteration):
        return {}


def read_memory() -> dict[str, int]:
    """Return the host's memory and shared memory in bytes, as far as it tells."""
    found = {}
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            kept = {line.partition(":")[0]: line.split()[1] for line in lines}
        found = {"memory_total": int(kept["MemTotal"]) * 1024, "memory_available": int(kept["MemAvailable"]) * 1024}
        shared = os.statvfs("/dev/shm")  # noqa: S108 - only reported
        found.update(shm_total=shared.f_blocks * shared.f_frsize, shm_free=shared.f_bavail * shared.f_frsize)
    except (OSError, LookupError, ValueError):
        pass
    return found


def command_result(command: list[str]) -> dict[str, object] | None:
    """Return what a command prints and its exit code, None where there is none."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return {"code": done.returncode, "text": done.stdout.decode("utf-8", "replace")}


def call_in_program(program_text: str, function_name: str) -> object:
    """Return what a function says of this environment, in a program on Hugging Face's folder that was sent along."""
    names: dict[str, object] = {"__name__": "hub_cache"}
    exec(compile(program_text, "hub_cache.py", "exec"), names)  # noqa: S102  # sent by whoever sent this program
    function = names.get(function_name)
    return function(dict(os.environ)) if callable(function) else None


def main(question: dict[str, list[str]]) -> None:
    """Answer a question: `paths`, `files`, `pythons` and how they are asked, `hub` as the program that reads it.

    `command` is what to run there; with `only_named` no other Pythons are looked for.
    """
    own = {"hostname": platform.node(), "kernel": platform.release(), "cpu_count": os.cpu_count() or 1}
    hub = str(question.get("hub") or "")
    config = str(call_in_program(hub, "accelerate_config") or "")
    machine = {**own, **read_processor(), **read_memory()}
    answer = {
        "machine": machine,
        "toolchains": probe_toolchains(dict(question)) if question["probe"] else [],
        "paths": {name: path_state(name) for name in question["paths"]},
        "closed": {name: why_unwritable(name) for name in question["paths"]},
        "free": {name: free_bytes(name or runs_folder()) for name in ("", *question["paths"])},
        "files": {name: read_as_base64(name) for name in (*question["files"], *filter(None, [config]))},
        "accelerate_config": config,
        "hub": call_in_program(hub, "read"),
        "said": command_result(question["command"]) if question.get("command") else None,
        "clock": time.time(),
        "identity": machine_identity(),
        "submits": shutil.which("sbatch") is not None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

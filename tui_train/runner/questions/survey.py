"""Facts of this machine: memory, GPUs, Pythons, cached models, paths, contents of files, clock."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Sequence

from ..paths import folder_names, free_bytes, path_state, runs_folder, why_unwritable
from ..processes import machine_identity
from ..safe_open import user_name
from ..this_machine import read_this_machine

_MAX_FILE_BYTES = 2**18
_PYTHON_SECONDS = 10
# A driver that wakes up takes its time.
_COMMAND_SECONDS = 30
_LATE_EXIT_CODE = 124
_MAX_PARALLEL_PROBES = 8


def send_survey(question: dict[str, Any]) -> None:
    """Send the facts of this machine: its `paths`, `files` in base64 (256 KiB of each), `pythons` and other Pythons.

    `run` and `probe` are how a Python is asked (empty: none is). `hub` is the program that reads the Hub's cache. Of
    `commands` each is run until one does what it is for; where the first does, or with `only_named`, no other Pythons
    than those named are looked for. `processes` is the command that lists who computes on which GPU.
    """
    with ThreadPoolExecutor(1) as pool:
        # The driver takes its time for each of them.
        processes = pool.submit(_card_processes, question.get("processes", ()))
        said = _results_until_success(question.get("commands", ()))
    only_named = bool(question.get("only_named") or (said and said[0] and not said[0]["code"]))
    hub = str(question.get("hub") or "")
    config = str(_call_in_program(hub, "accelerate_config") or "")
    paths, files = question.get("paths", ()), question.get("files", ())
    answer = {
        "machine": read_this_machine(),
        "toolchains": _probe_toolchains(question, also_others=not only_named) if question.get("probe") else [],
        "paths": {name: path_state(name) for name in paths},
        "closed": {name: why_unwritable(name) for name in paths},
        "free": {name: free_bytes(name or runs_folder()) for name in ("", *paths)},
        "files": {name: _read_as_base64(name) for name in (*files, *filter(None, [config]))},
        "accelerate_config": config,
        "hub": _call_in_program(hub, "read"),
        "said": said,
        "processes": processes.result(),
        "clock": time.time(),
        "identity": _identity(),
        "submits": shutil.which("sbatch") is not None,
    }  # fmt: skip
    sys.stdout.write(json.dumps(answer) + "\n")


def send_names(question: dict[str, Any]) -> None:
    """Send the names in a `folder`."""
    sys.stdout.write(json.dumps(folder_names(question["folder"], question["most"])) + "\n")


def _identity() -> str:
    try:
        return machine_identity()
    except OSError:
        return ""


def _read_as_base64(name: str) -> str | None:
    """Return the beginning of a file in base64, None where it cannot be read."""
    if path_state(name) != "file":
        return None
    try:
        with Path(name).expanduser().open("rb") as file:
            return base64.b64encode(file.read(_MAX_FILE_BYTES)).decode("ascii")
    except OSError:
        return None


def python_candidates(named: Sequence[str], *, also_others: bool = True) -> dict[str, str]:
    """Return the paths of Pythons to ask, each with what it is; without `also_others` those that are named."""
    home = Path.home()
    data = os.environ.get("XDG_DATA_HOME") or str(home / ".local" / "share")
    found = {str(Path(name).expanduser()): "chosen" for name in named}
    if not also_others:
        return found
    for python in sorted(Path(data, "tui-train", "envs").glob("*/bin/python")):
        found.setdefault(str(python), "env " + python.parent.parent.name)
    kept = base64.b64decode(_read_as_base64(str(home / ".conda" / "environments.txt")) or "")
    for folder in filter(None, map(str.strip, kept.decode("utf-8", "replace").splitlines())):
        if Path(folder, "bin", "python").exists():
            found.setdefault(str(Path(folder, "bin", "python")), "conda env (" + Path(folder).name + ")")
    for name in ("python3", "python"):
        where = shutil.which(name)
        if where:
            found.setdefault(where, "PATH")
    return found


def _probe_python(python: str, run_code: str, probe_text: str) -> dict[str, Any] | None:
    """Return what a Python says of itself, None where it says nothing."""
    command = [python, "-B", "-c", run_code, probe_text]
    try:
        out = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PYTHON_SECONDS, check=False
        ).stdout
        found = json.loads(out.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, dict) else None


def _probe_toolchains(question: dict[str, Any], *, also_others: bool) -> list[Any]:
    """Return what the Pythons have, those named and those found; of several that are one, the first."""
    of_prefix: dict[Any, Any] = {}
    candidates = python_candidates(question.get("pythons", ()), also_others=also_others)
    with ThreadPoolExecutor(_MAX_PARALLEL_PROBES) as pool:
        answers = pool.map(lambda python: _probe_python(python, question["run"], question["probe"]), candidates)
    for (python, label), found in zip(candidates.items(), answers):
        tool = found.get("toolchain") if found else None
        if found and isinstance(tool, dict):
            kept = found.get("executable") if label == "PATH" else python
            of_prefix.setdefault(found.get("prefix"), {**tool, "python": kept or python, "label": label})
    return list(of_prefix.values())


def _card_processes(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return who computes on which GPU, by the lines of a command of nvidia-smi: UUID, process, MiB."""
    result = _command_result(command) if command else None
    found = []
    for line in result["text"].splitlines() if result and not result["code"] else ():
        uuid, pid, mebibytes = ([cell.strip() for cell in line.split(",")] + ["", ""])[:3]
        if pid.isdigit():
            memory = int(mebibytes) * 2**20 if mebibytes.isdigit() else None
            found.append({"uuid": uuid, "pid": int(pid), **_process_names(pid), "memory": memory})
    return found


def _process_names(pid: str) -> dict[str, str]:
    """Return the name of a process and of its user, empty where they are not to be seen."""
    try:
        name = Path("/proc", pid, "comm").read_text(encoding="utf-8", errors="replace").strip()
        return {"name": name, "user": user_name(Path("/proc", pid).stat().st_uid)}
    except OSError:
        return {"name": "", "user": ""}


def _results_until_success(commands: Sequence[Sequence[str]]) -> list[dict[str, Any] | None]:
    """Run one command after the other until one ends with 0, and return what they say."""
    results: list[dict[str, Any] | None] = []
    for command in commands:
        results.append(_command_result(command))
        if results[-1] and not results[-1]["code"]:
            break
    return results


def _command_result(command: Sequence[str]) -> dict[str, Any] | None:
    """Return what a command prints and its exit code, None where there is none."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"code": _LATE_EXIT_CODE, "text": f"no answer in {_COMMAND_SECONDS} s"}
    except (OSError, subprocess.SubprocessError):
        return None
    return {"code": done.returncode, "text": done.stdout.decode("utf-8", "replace")}


def _call_in_program(program_text: str, function_name: str) -> Any:
    """Return what a function says of this environment, in a program on Hugging Face's folder that was sent along."""
    names: dict[str, Any] = {"__name__": "hub_cache"}
    exec(compile(program_text, "hub_cache.py", "exec"), names)  # noqa: S102  # sent by whoever sent this program
    function = names.get(function_name)
    return function(dict(os.environ)) if callable(function) else None

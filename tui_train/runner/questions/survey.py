"""Facts of this machine: memory, GPUs, Pythons, cached models, paths, contents of files, clock."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Sequence

from ..queue.listing import list_cards_in_queue
from ..system.environments import conda_labels_and_pythons, created_labels_and_pythons
from ..system.host_facts import read_machine_facts
from ..system.paths import free_bytes_for_path, names_in_folder, path_state, runs_folder, why_unwritable
from ..system.processes import machine_and_boot_identity

_MAX_FILE_BYTES = 2**18
_MAX_PYTHON_SECONDS, _MAX_NAMED_PYTHON_SECONDS = 10, 20
# A driver that wakes up takes its time.
_MAX_COMMAND_SECONDS = 30
# Of a script's folder: files, bytes in base64, and folders in each other.
_MAX_SOURCES, _MAX_SOURCES_BYTES, _MAX_SOURCES_DEPTH = 200, 2 << 20, 4
_TIMED_OUT_EXIT_CODE = 124
# Of the time for the driver; the rest is for reporting the cards that did answer.
_DRIVER_SHARE_OF_SECONDS = 0.8


def send_survey(question: dict[str, Any]) -> None:
    """Send the facts of this machine: its `paths`, `files` in base64 (256 KiB of each), `pythons` and other Pythons.

    `run` and `probe` are how a Python is asked (empty: none is). `hub` is the program that reads the Hub's cache, where
    this environment and the `hub_variables` of the profile put it. The names beside a `script` are listed, where there
    are no more than `most`, and the Python files below them sent. With `only_named` no other Pythons than those named
    are looked for. The driver's library is asked for `cards` seconds; where it knows none, the command `smi`, and
    `processes` lists who computes on which.
    """
    cards = _read_cards(question["cards"]) if question.get("cards") else None
    smi = _command_result(question["smi"]) if question.get("smi") and cards is None else None
    hub = str(question.get("hub") or ""), {**os.environ, **question.get("hub_variables", {})}
    config = str(_call_function_of_program(*hub, "accelerate_config_path") or "")
    cache = _call_function_of_program(*hub, "describe_hub_cache")
    if cache:
        folder = cache["folder"]
        cache = {**cache, "free": free_bytes_for_path(folder), "unwritable": why_unwritable(folder)}
    paths, files = question.get("paths", ()), question.get("files", ())
    answer = {
        "machine": read_machine_facts(),
        "toolchains": _probe_toolchains(question, with_others=not question.get("only_named"))
        if question.get("probe")
        else [],
        "paths": {name: path_state(name) for name in paths},
        "closed": {name: why_unwritable(name) for name in paths},
        "free": {name: free_bytes_for_path(name or runs_folder()) for name in ("", *paths)},
        "files": {name: _read_as_base64(name) for name in (*files, *filter(None, [config]))},
        "beside": _names_beside_script(question["script"], question["most"]) if question.get("script") else [],
        "sources": _sources_beside_script(question["script"]) if question.get("script") else {},
        "accelerate_config": config,
        "hub": cache,
        "cards": cards,
        "smi": smi,
        "processes": _query_card_processes(question["processes"])
        if question.get("processes") and smi and not smi["code"]
        else [],
        "cards_in_queue": list_cards_in_queue(),
        "clock": time.time(),
        "identity": _machine_identity_or_empty(),
        "submits": shutil.which("sbatch") is not None,
    }  # fmt: skip
    sys.stdout.write(json.dumps(answer) + "\n")


def send_names_in_folder(question: dict[str, Any]) -> None:
    """Send the names in a `folder`."""
    sys.stdout.write(json.dumps(names_in_folder(question["folder"], question["most"])) + "\n")


def _names_beside_script(script: str, max_names: int) -> list[str]:
    """Return the names in the folder from which a script imports; a link to it is followed."""
    return names_in_folder(os.path.dirname(os.path.realpath(script)), max_names)


def _sources_beside_script(script: str) -> dict[str, str]:
    """Return the Python files in a script's folder, in base64 by their names; none where there are too many."""
    folder = os.path.dirname(os.path.realpath(script))
    sources: dict[str, str] = {}
    left = _MAX_SOURCES_BYTES
    for top, folders, names in os.walk(folder):
        depth = os.path.relpath(top, folder).count("/")
        folders[:] = [name for name in folders if name.isidentifier() and depth < _MAX_SOURCES_DEPTH]
        for name in names:
            if not name.endswith(".py"):
                continue
            path = os.path.join(top, name)
            text = _read_as_base64(path) or ""
            left -= len(text)
            if left < 0 or len(sources) >= _MAX_SOURCES:
                return {}
            sources[os.path.relpath(path, folder)] = text
    return sources


def _machine_identity_or_empty() -> str:
    try:
        return machine_and_boot_identity()
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


def label_by_candidate_python(named_pythons: Sequence[str], *, with_others: bool = True) -> dict[str, str]:
    """Return the paths of Pythons to ask, each with what it is; without `with_others` those that are named."""
    found = {str(Path(name).expanduser()): "chosen" for name in named_pythons}
    for label, python in _other_labels_and_pythons() if with_others else ():
        found.setdefault(python, label)
    return found


def _other_labels_and_pythons() -> Iterator[tuple[str, str]]:
    yield from created_labels_and_pythons()
    for name in ("python3", "python"):
        where = shutil.which(name)
        if where:
            yield "PATH", where
    yield from conda_labels_and_pythons()
    own_program = shutil.which("tui-train")
    if own_program and os.path.exists(python := Path(os.path.realpath(own_program)).with_name("python")):
        yield "tui-train's environment", str(python)


def _probe_python(python: str, run_code: str, probe_text: str, max_seconds: float) -> dict[str, Any] | None:
    """Return what a Python says of itself, None where it says nothing."""
    command = [python, "-B", "-c", run_code, probe_text]
    try:
        out = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=max_seconds, check=False
        ).stdout
        found = json.loads(out.splitlines()[-1])
    except subprocess.TimeoutExpired:
        # It may be there, on a disk or a machine that is busy.
        return {"toolchain": {"problem": f"it did not answer within {max_seconds:g} s"}, "prefix": python}
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, dict) else None


def _probe_toolchains(question: dict[str, Any], *, with_others: bool) -> list[Any]:
    """Return what the Pythons have, those named and those found; of several that are one, the first."""
    of_prefix: dict[Any, Any] = {}
    for python, label in label_by_candidate_python(question.get("pythons", ()), with_others=with_others).items():
        found = _probe_python(
            python,
            question["run"],
            question["probe"],
            _MAX_PYTHON_SECONDS if with_others else _MAX_NAMED_PYTHON_SECONDS,
        )
        tool = found.get("toolchain") if found else None
        if found and isinstance(tool, dict):
            kept = found.get("executable") if label == "PATH" else python
            of_prefix.setdefault(found.get("prefix"), {**tool, "python": kept or python, "label": label})
    return list(of_prefix.values())


def _query_card_processes(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return who computes on which GPU, by the lines of nvidia-smi: UUID, process, MiB."""
    result = _command_result(command)
    from ..gpus.nvml_card import process_facts

    found = []
    for line in result["text"].splitlines() if result and not result["code"] else ():
        uuid, pid, mebibytes = ([cell.strip() for cell in line.split(",")] + ["", ""])[:3]
        if pid.isdigit():
            memory = int(mebibytes) * 2**20 if mebibytes.isdigit() else None
            found.append({"uuid": uuid, "pid": int(pid), **process_facts(int(pid)), "memory": memory})
    return found


def _read_cards(seconds: float) -> dict[str, Any] | None:
    """Return what the driver's library says of the cards; None where it knows none, or does not answer in time.

    It is asked in a child: a driver that hangs cannot be interrupted.
    """
    ready, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            from ..gpus.nvml import read_cards

            # It may outlive the answer, whose reader waits for all that could write to it.
            nothing = os.open(os.devnull, os.O_RDWR)
            for end in (0, 1, 2):
                os.dup2(nothing, end)
            with open(out, "wb") as pipe:
                pipe.write(json.dumps(read_cards(seconds * _DRIVER_SHARE_OF_SECONDS)).encode())
        finally:
            os._exit(0)
    os.close(out)
    try:
        answer = _read_pipe_until(ready, time.monotonic() + seconds)
    finally:
        os.close(ready)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        # One that hangs in the driver may not end: it is not waited for.
        os.waitpid(pid, os.WNOHANG)
    try:
        report: dict[str, Any] = json.loads(answer)
    except ValueError:
        return None
    return report if report["gpus"] else None


def _read_pipe_until(end: int, deadline: float) -> bytes:
    answer = b""
    while select.select([end], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(end, 1 << 16)
        if not piece:
            break
        answer += piece
    return answer


def _command_result(command: Sequence[str]) -> dict[str, Any] | None:
    """Return what a command prints and its exit code, None where there is none."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MAX_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"code": _TIMED_OUT_EXIT_CODE, "text": f"no answer in {_MAX_COMMAND_SECONDS} s"}
    except (OSError, subprocess.SubprocessError):
        return None
    return {"code": done.returncode, "text": done.stdout.decode("utf-8", "replace")}


def _call_function_of_program(program_text: str, environment: dict[str, str], function_name: str) -> Any:
    """Return what a function says of an environment, in a program on Hugging Face's folder that was sent along."""
    names: dict[str, Any] = {"__name__": "hub_cache"}
    exec(compile(program_text, "hub_cache.py", "exec"), names)  # noqa: S102  # sent by whoever sent this program
    function = names.get(function_name)
    return function(environment) if callable(function) else None

"""Reads the facts of this machine, its Pythons and paths; whatever may hang or crash runs in a child."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import cast

import msgspec

from tui_train.facts.gpus.reported_cards import CardReport, machine_with_cards
from tui_train.facts.machine import trusted_pythons
from tui_train.facts.machine.child_process import (
    RUN_PROGRAM_TEXT_CODE,
    own_module_command_and_environment,
    run_child,
)
from tui_train.facts.types import FactGap, Machine, PathState, Toolchain
from tui_train.runner.system.environments import conda_labels_and_pythons, created_labels_and_pythons
from tui_train.runner.system.other_programs import find_on_path
from tui_train.runner.system.paths import path_state

_OLD_PYTHON_ERRORS = (b"SyntaxError", b"ImportError: cannot import name 'metadata'")
_PATH_LABEL = "PATH"
_LABEL_BY_LOCAL_VENV = {".venv": ".venv here", "venv": "venv here"}
_MAX_PARALLEL_PROBES = 8
_CHILD_SHARE_OF_SECONDS = 0.75
_HANGING_REMEDY = "If `nvidia-smi` hangs too, find the GPU with `sudo dmesg | grep -i xid`, and reboot."


class _MachineAnswer(msgspec.Struct):
    """What machine_child.py prints."""

    machine: Machine
    cards: CardReport | None


def probe_machine(deadline: float = 8.0) -> Machine:
    """Return this host and its cards within about `deadline` seconds; anything unknown is a FactGap."""
    started, child_seconds = monotonic(), deadline * _CHILD_SHARE_OF_SECONDS
    command, changes = own_module_command_and_environment(
        "tui_train.facts.machine.machine_child", f"{child_seconds:.2f}"
    )
    answer = run_child(command, deadline, changes)
    if found := answer.last_answer(_MachineAnswer):
        why = f"no answer for {child_seconds:.0f} s"
        gap = FactGap("The NVIDIA driver does not respond", why, _HANGING_REMEDY, hides=True)
        return machine_with_cards(found.machine, found.cards or CardReport(gaps=(gap,)))
    gap = FactGap(
        "The NVIDIA GPUs cannot be read",
        answer.why_unusable(),
        "Check whether `nvidia-smi` works; if it does, please report this.",
        hides=True,
    )
    if answer.timed_out:
        why = f"the driver or this machine is too slow or hangs: no response for {monotonic() - started:.0f} s"
        gap = FactGap("The NVIDIA GPUs could not be read in time", why, _HANGING_REMEDY, hides=True)
    # In this process it imports what a command does not need otherwise.
    from tui_train.runner.system.host_facts import read_machine_facts

    return msgspec.convert(read_machine_facts() | {"gaps": (gap,)}, Machine)


def probe_toolchains(extra_pythons: Sequence[str] = (), deadline: float = 8.0) -> tuple[Toolchain, ...]:
    """Return the candidate Pythons, `extra_pythons` (paths of interpreters) and those on this machine, best first.

    Of several paths to the same environment the first is kept; an unusable Python has a `problem`.
    """
    end_time = monotonic() + deadline
    labels: dict[str, str] = {}
    for label, python in (*(("chosen", python) for python in extra_pythons), *_candidate_labels_and_pythons()):
        labels.setdefault(str(Path(python).expanduser().absolute()), label)
    with ThreadPoolExecutor(_MAX_PARALLEL_PROBES) as pool:
        probed = list(
            pool.map(lambda entry: _probe_if_trusted(entry[0], entry[1], end_time - monotonic()), labels.items())
        )
    by_prefix: dict[str, Toolchain] = {}
    for prefix, toolchain in probed:
        by_prefix.setdefault(prefix, toolchain)
    return tuple(sorted(by_prefix.values(), key=toolchain_incompleteness_rank))


def _probe_if_trusted(python: str, label: str, deadline: float) -> tuple[str, Toolchain]:
    """Return what probing gives; a Python of the current folder is started only after the user chose it."""
    if trusted_pythons.is_unchosen_local_python(Path(python)):
        contents = trusted_pythons.python_and_packages_text(Path(python))
        problem = f"lies in this folder and is not started until you choose it{f' ({contents})' if contents else ''}"
        return python, Toolchain(python=python, label=label, problem=problem, unchosen=True)
    if label in _LABEL_BY_LOCAL_VENV.values() and (
        problem := trusted_pythons.why_environment_distrusted(Path(python).parent.parent)
    ):
        return python, Toolchain(python=python, label=label, problem=problem)
    return _probe_prefix_and_toolchain(python, label, deadline)


def probe_toolchain(python: str, deadline: float = 5.0) -> Toolchain:
    """Return the toolchain of the interpreter `python`, a path or a name on PATH; started under the same conditions."""
    is_path = os.sep in python
    path = python if is_path else find_on_path(python) or python
    return _probe_if_trusted(str(Path(path).expanduser().absolute()), "" if is_path else _PATH_LABEL, deadline)[1]


def read_path_states(names: Iterable[str]) -> dict[str, PathState]:
    """Return the state of each path; `~` is expanded, relative paths are taken from the current folder."""
    return {name: cast("PathState", path_state(name)) for name in names}


def probe_program_text() -> str:
    """Return the text of the probe that runs in the training interpreter."""
    return (Path(__file__).parents[2] / "programs" / "probe.py").read_text(encoding="utf-8")


def _candidate_labels_and_pythons() -> Iterator[tuple[str, str]]:
    """Yield label and path of every candidate interpreter, the most likely first."""
    if sys.executable:
        yield "this environment", sys.executable
    for variable, kind in (("VIRTUAL_ENV", "active venv"), ("CONDA_PREFIX", "active conda env")):
        prefix = os.environ.get(variable)
        if prefix and Path(prefix).is_absolute():
            yield f"{kind} ({Path(prefix).name})", str(Path(prefix) / "bin" / "python")
    for name, label in _LABEL_BY_LOCAL_VENV.items():
        if Path(name, "pyvenv.cfg").exists() or Path(name, "bin", "python").exists():
            yield label, str(Path(name, "bin", "python"))
    yield from created_labels_and_pythons()
    for name in ("python3", "python"):
        if path := find_on_path(name):
            yield _PATH_LABEL, path
    yield from conda_labels_and_pythons()


def _probe_prefix_and_toolchain(python: str, label: str, deadline: float) -> tuple[str, Toolchain]:
    """Return the real path of the interpreter's `sys.prefix` (its own path if unknown) and its toolchain.

    A Python on PATH may be a shim that chooses by the current folder; so the child runs in that folder without
    importing from it, unless that names a Python by its path, and the interpreter behind the shim is returned.
    """
    if problem := _why_existing_path_not_executable(Path(python)):
        return python, Toolchain(python=python, label=label, problem=problem)
    folder = os.sep if label == _PATH_LABEL and trusted_pythons.shims_may_start_local_python() else None
    answer = run_child([python, "-B", "-c", RUN_PROGRAM_TEXT_CODE, probe_program_text()], deadline, folder=folder)
    if probe := answer.last_answer(ProbeAnswer):
        interpreter = probe.executable if label == _PATH_LABEL and probe.executable else python
        return probe.prefix, msgspec.structs.replace(probe.toolchain, python=interpreter, label=label)
    last_line = (answer.stderr.strip().splitlines() or [b""])[-1]
    problem = "it is older than Python 3.8" if last_line.startswith(_OLD_PYTHON_ERRORS) else answer.why_unusable()
    if RUN_PROGRAM_TEXT_CODE.encode()[:20] in answer.stderr or probe_program_text().encode()[:60] in answer.stderr:
        # It is another program, which printed its arguments.
        problem = "it is not a Python"
    return python, Toolchain(python=python, label=label, problem=problem)


def _why_existing_path_not_executable(python: Path) -> str:
    """Return why a path cannot be started as a program, empty if it can or does not exist."""
    try:
        if python.is_dir():
            return "is a folder: give the Python in it, such as bin/python"
        return "is not executable (chmod +x)" if python.is_file() and not os.access(python, os.X_OK) else ""
    except (OSError, ValueError):
        return ""


class ProbeAnswer(msgspec.Struct):
    """The output of the probe in the training interpreter."""

    prefix: str
    executable: str
    toolchain: Toolchain


def toolchain_incompleteness_rank(toolchain: Toolchain) -> int:
    """Return 0 for a Python with all libraries, higher ranks for incomplete ones."""
    if toolchain.problem:
        return 3
    if toolchain.torch is None:
        return 2
    return 0 if toolchain.accelerate and toolchain.transformers else 1

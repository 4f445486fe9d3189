"""A cgroup for each attempt, where the system grants one: who is in it belongs to the run, whatever else it changes."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator

from .mounts import mounted_file_systems

_MAX_READ_BYTES = 1 << 20


def make_cgroup_for_attempt(run_mark: str, attempt_number: int) -> str:
    """Make an empty cgroup (version 2) below this process's own, and return its folder; empty where that is refused."""
    for mount, root in _cgroup_mounts_and_roots():
        own = _own_cgroup_v2_path_from_root()
        inside = own if root == "/" else own[len(root) :] if own.startswith(root) else ""
        if not inside.startswith("/") or ".." in inside.split("/"):
            continue
        folder = os.path.join(mount, inside.lstrip("/"), f"{_cgroup_name_prefix(run_mark)}{attempt_number}")
        try:
            os.mkdir(folder)
        except OSError:
            continue
        return folder
    return ""


def try_to_move_process_into(cgroup_folder: str, pid: int) -> None:
    """Move a process into a cgroup; where that is refused, it stays where it is."""
    with contextlib.suppress(OSError), open(os.path.join(cgroup_folder, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write(str(pid))


def cgroup_member_pids(cgroup_folder: str, run_mark: str) -> set[int]:
    """Return the processes in a run's cgroup; none where a folder is no cgroup of that run."""
    if not _is_cgroup_of_run(cgroup_folder, run_mark):
        return set()
    pids: set[int] = set()
    for inner, _, _ in os.walk(cgroup_folder):
        pids.update(int(word) for word in _read_text(os.path.join(inner, "cgroup.procs")).split() if word.isdigit())
    return pids - {0}


def is_cgroup_empty(cgroup_folder: str, run_mark: str) -> bool:
    """Tell whether a run's cgroup is there, and nobody is in it."""
    return (
        _is_cgroup_of_run(cgroup_folder, run_mark)
        and os.path.isdir(cgroup_folder)
        and not cgroup_member_pids(cgroup_folder, run_mark)
    )


def remove_cgroup(cgroup_folder: str, run_mark: str) -> None:
    """Remove a run's cgroup that nobody is in; one with processes stays, and names them."""
    if not _is_cgroup_of_run(cgroup_folder, run_mark):
        return
    for inner, _, _ in os.walk(cgroup_folder, topdown=False):
        try:
            os.rmdir(inner)
        except OSError:
            return


def _is_cgroup_of_run(folder: str, run_mark: str) -> bool:
    """Tell whether a folder, which a file names, is a cgroup of this run: only its name and place say so."""
    parent, name = os.path.split(folder)
    if not run_mark or not name.startswith(_cgroup_name_prefix(run_mark)) or ".." in parent.split("/"):
        return False
    return any(os.path.join(parent, "").startswith(os.path.join(mount, "")) for mount, _ in _cgroup_mounts_and_roots())


def _cgroup_name_prefix(run_mark: str) -> str:
    return f"tui-train-{run_mark}-"


def _own_cgroup_v2_path_from_root() -> str:
    """Return this process's cgroup of version 2, empty where there is none."""
    lines = _read_text("/proc/self/cgroup").splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def _cgroup_mounts_and_roots() -> Iterator[tuple[str, str]]:
    """Yield where cgroups of version 2 are mounted, and which of them is the root there."""
    for mount in mounted_file_systems():
        if mount.kind == "cgroup2":
            yield mount.point, mount.root


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_READ_BYTES)
    except OSError:
        return ""

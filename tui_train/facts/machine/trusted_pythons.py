"""Pythons of the current folder that may be started: only those that the user chose."""

import grp
import os
import pwd
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from stat import S_ISLNK, S_IWGRP, S_IWOTH

import msgspec

from tui_train.base.app_paths import chosen_pythons_file
from tui_train.base.files import PRIVATE_FILE_MODE, read_regular_file, write_atomically
from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.base.text import visible
from tui_train.runner.system.environments import environments_folder
from tui_train.runner.system.other_programs import find_on_path
from tui_train.runner.system.safe_open import user_name

# Python runs these at startup.
_STARTUP_FILE_GLOBS = ("*.pth", "sitecustomize.py", "usercustomize.py")
_VERSION_MANAGER_FILES = (".python-version", ".tool-versions", ".mise.toml", "mise.toml")
_MAX_FILE_BYTES = 1 << 20
# So many chosen Pythons are remembered, the newest.
_MAX_CHOSEN_PYTHONS = 500
_MAX_SITE_ENTRIES = 5_000
_PYVENV_VERSION_PATTERN = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", re.MULTILINE)
_DISTRIBUTION_PATTERN = re.compile(r"(torch|transformers|trl|accelerate|nemo_toolkit)-(\d[\w.+]{0,30})\.dist-info")
# What a Python is known by: the inode of its environment, and inode, time in ns and owner of its file: the inode alone
# may be that of another file soon.
_PythonIdentity = tuple[int, int, int, int]


def _is_chosen_implicitly(python: Path) -> bool:
    """Return whether a Python runs this program, is activated or on PATH by its whole path, or is of `env create`."""
    active = [os.environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    folders = {*(Path(prefix, "bin") for prefix in (sys.prefix, *active)), *map(Path, os.get_exec_path())}
    own = python == Path(sys.executable) or python.is_relative_to(environments_folder())
    return own or (python.is_absolute() and python.parent in folders)


def _lies_in_current_folder(python: Path) -> bool:
    """Return whether a Python lies below the current folder, as part of what was cloned there; a home is no clone."""
    current, home = Path.cwd(), Path.home()
    inside = any(path.is_relative_to(current) for path in (python, _python_in_real_folder(python)))
    return inside and not home.is_relative_to(current)


def _python_in_real_folder(python: Path) -> Path:
    """Return the path of a Python without links to its folder, such as /proc/self/cwd; the Python itself may be one."""
    return Path(os.path.realpath(python.parent), python.name)


def is_unchosen_local_python(python: Path) -> bool:
    """Return whether a Python of the current folder is not started, as the user has not chosen it, or not this one."""
    if _is_chosen_implicitly(python) or not _lies_in_current_folder(python) or not os.path.lexists(python):
        return False
    return _load_chosen_pythons().get(str(_python_in_real_folder(python))) != _python_identity(python)


def remember_chosen_python(python: str) -> None:
    """Remember that the user chose a Python: it may be started until its environment or its file is another one.

    `python` is a path, or a name on PATH; empty for none.
    """
    path = _python_in_real_folder(Path(python if os.sep in python else find_on_path(python)).expanduser().absolute())
    identity = _python_identity(path)
    chosen = _load_chosen_pythons()
    if identity is None or chosen.get(str(path)) == identity or _is_chosen_implicitly(path):
        return
    chosen.pop(str(path), None)
    kept = dict([*chosen.items(), (str(path), identity)][-_MAX_CHOSEN_PYTHONS:])
    write_atomically(chosen_pythons_file(), msgspec.json.encode(kept), PRIVATE_FILE_MODE)


def shims_may_start_local_python() -> bool:
    """Return whether a file of version managers in the current folder or above names a Python by its path.

    A shim on PATH (asdf, mise, pyenv) would start that one.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        for name in _VERSION_MANAGER_FILES:
            try:
                if b"/" in read_regular_file(folder / name, _MAX_FILE_BYTES):
                    return True
            except FileNotFoundError:
                continue
            except OSError:
                return True
    return False


def python_and_packages_text(python: Path) -> str:
    """Return what an environment holds by the names of its files, as text; it is not started for that."""
    environment = python.parent.parent
    try:
        text = read_regular_file(environment / "pyvenv.cfg", _MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    version = [f"Python {found[1]}" for found in _PYVENV_VERSION_PATTERN.finditer(text)]
    sites = islice(environment.glob("lib/python3*/site-packages"), 4)
    names = sorted(entry.name for site in sites for entry in islice(_scan_folder(site), _MAX_SITE_ENTRIES))
    packages = [" ".join(found.groups()) for found in map(_DISTRIBUTION_PATTERN.fullmatch, names) if found]
    return ", ".join([*version[:1], *packages])


def _scan_folder(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _python_identity(python: Path) -> _PythonIdentity | None:
    try:
        file = python.lstat()
        return python.parent.parent.stat().st_ino, file.st_ino, file.st_mtime_ns, file.st_uid
    except OSError:
        return None


def _load_chosen_pythons() -> dict[str, _PythonIdentity]:
    try:
        return parse_json_as(read_regular_file(chosen_pythons_file(), _MAX_FILE_BYTES), dict[str, _PythonIdentity])
    except (OSError, Unparsable):
        return {}


def why_environment_distrusted(environment: Path) -> str:
    """Return why the Python of an environment is not started (its owner or permissions), empty if it may be."""
    try:
        return next(filter(None, map(_ownership_or_permission_problem, _startup_paths(environment))), "")
    except OSError as error:
        return visible(f"is not started: {error.strerror}")


def _startup_paths(environment: Path) -> Iterator[Path]:
    """Yield the existing paths that determine what runs when the Python of an environment starts."""
    python = environment / "bin" / "python"
    candidates = [environment, environment / "pyvenv.cfg", environment / "bin", python, environment / "lib"]
    for site in sorted(environment.glob("lib/python*/site-packages")):
        candidates += [
            site.parent,
            site,
            *(file for pattern in _STARTUP_FILE_GLOBS for file in sorted(site.glob(pattern))),
        ]
    for path in candidates:
        if os.path.lexists(path):
            yield path
            if path.is_symlink() and path.exists():
                yield path.resolve()


def _ownership_or_permission_problem(path: Path) -> str:
    status = path.lstat()
    remedy = "to use it anyway, set trainer.python"
    if status.st_uid not in {0, os.geteuid()}:
        return visible(f"is not started: {path} belongs to {user_name(status.st_uid)}; {remedy}")
    if S_ISLNK(status.st_mode):
        return ""
    if status.st_mode & S_IWOTH or (status.st_mode & S_IWGRP and not _is_own_or_root_group(status.st_gid)):
        return visible(f"is not started: other users may write to {path}; {remedy}")
    return ""


def _is_own_or_root_group(group_id: int) -> bool:
    """Return whether a group is that of root, or a private group of this user."""
    if group_id == 0:
        return True
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(group_id)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}

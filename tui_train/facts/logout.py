"""What systemd's logind does at a user's last logout, which may end a training that outlived its connection.

Source: logind.conf(5), whose file lists the defaults that it was built with as comments.
"""

import os
import pwd
import re
from pathlib import Path

from tui_train.facts.types import Logout
from tui_train.supervisor import regular

_MOST = 1 << 20
_FOLDERS = ("etc", "run", "usr/local/lib", "usr/lib")
_LINE = re.compile(r"^\s*#?\s*(KillUserProcesses|KillOnlyUsers|KillExcludeUsers|RemoveIPC)\s*=(.*)$")
_TRUE = frozenset({"1", "yes", "y", "true", "t", "on"})
_DEFAULTS = {"KillUserProcesses": "no", "RemoveIPC": "yes", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
# Those below are the system's own users, whose shared memory stays.
_FIRST_USER = 1000


def read(root: Path = Path("/"), uid: int | None = None) -> Logout | None:
    """Return what a logout does to this user; None where systemd does not run."""
    if not (root / "run/systemd/system").is_dir():
        return None
    uid = os.getuid() if uid is None else uid
    name = _name(uid)
    told = _settings(root)
    only, spared = told["KillOnlyUsers"].split(), told["KillExcludeUsers"].split()
    lingers = bool(name) and (root / "var/lib/systemd/linger" / name).exists()
    return Logout(
        kills=_true(told["KillUserProcesses"]) and name not in spared and (not only or name in only),
        removes_shared_memory=_true(told["RemoveIPC"]) and uid >= _FIRST_USER and not lingers,
    )


def _settings(root: Path) -> dict[str, str]:
    """Return the values as systemd puts its files together: the first main file, then the drop-ins by their names."""
    told = dict(_DEFAULTS)
    folders = [root / folder / "systemd" for folder in _FOLDERS]
    mains = (folder / "logind.conf" for folder in folders)
    main = next((file for file in mains if file.is_file()), None)
    more: dict[str, Path] = {}
    for folder in folders:
        for file in _listed(folder / "logind.conf.d"):
            more.setdefault(file.name, file)
    for file in (*([main] if main else []), *(more[name] for name in sorted(more))):
        told |= _values(file, defaults=file == main)
    return told


def _listed(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if file.suffix == ".conf"]
    except OSError:
        return []


def _values(file: Path, *, defaults: bool) -> dict[str, str]:
    try:
        lines = regular.read(file, _MOST).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = [(line.lstrip().startswith("#"), match) for line in lines if (match := _LINE.match(line))]
    # A comment gives way to a line that counts, wherever it stands.
    found.sort(key=lambda one: not one[0])
    return {match[1]: match[2].strip() for comment, match in found if defaults or not comment}


def _true(text: str) -> bool:
    return text.lower() in _TRUE


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""

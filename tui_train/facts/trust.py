"""Whether a Python in the current folder may be started automatically: only if no other user could change it."""

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISLNK, S_IWGRP, S_IWOTH

from tui_train.base.files import user
from tui_train.base.text import visible

# Python runs these at startup.
_RUN_AT_START = ("*.pth", "sitecustomize.py", "usercustomize.py")


def distrust(environment: Path) -> str:
    """Return why the Python of an environment is not started (its owner or permissions), empty if it may be."""
    try:
        return next(filter(None, map(_problem, _parts(environment))), "")
    except OSError as error:
        return visible(f"is not started: {error.strerror}")


def _parts(environment: Path) -> Iterator[Path]:
    """Yield the existing paths that determine what runs when the Python of an environment starts."""
    python = environment / "bin" / "python"
    candidates = [environment, environment / "pyvenv.cfg", environment / "bin", python, environment / "lib"]
    for site in sorted(environment.glob("lib/python*/site-packages")):
        candidates += [site.parent, site, *(file for pattern in _RUN_AT_START for file in sorted(site.glob(pattern)))]
    for path in candidates:
        if os.path.lexists(path):
            yield path
            if path.is_symlink() and path.exists():
                yield path.resolve()


def _problem(path: Path) -> str:
    status = path.lstat()
    remedy = "to use it anyway, set trainer.python"
    if status.st_uid not in {0, os.geteuid()}:
        return visible(f"is not started: {path} belongs to {user(status.st_uid)}; {remedy}")
    if S_ISLNK(status.st_mode):
        return ""
    if status.st_mode & S_IWOTH or (status.st_mode & S_IWGRP and not _own_group(status.st_gid)):
        return visible(f"is not started: other users may write to {path}; {remedy}")
    return ""


def _own_group(gid: int) -> bool:
    """Return whether a group is that of root, or a private group of this user."""
    if gid == 0:
        return True
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}

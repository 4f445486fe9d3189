"""Whether a Python that lies in the current folder may be started without being asked for: who could have made it."""

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISLNK, S_IWGRP, S_IWOTH

from tui_train.base.files import user
from tui_train.base.text import visible

# Python runs these at its start.
_RUN_AT_START = ("*.pth", "sitecustomize.py", "usercustomize.py")


def distrust(environment: Path) -> str:
    """Return why an environment's Python is not started: whose it is, or who may change it; empty where it may be."""
    try:
        return next(filter(None, map(_problem, _parts(environment))), "")
    except OSError as error:
        return visible(f"is not started: {error.strerror}")


def _parts(environment: Path) -> Iterator[Path]:
    """Yield what decides what runs when the Python of an environment is started, as far as it is there."""
    python = environment / "bin" / "python"
    wanted = [environment, environment / "pyvenv.cfg", environment / "bin", python, environment / "lib"]
    for site in sorted(environment.glob("lib/python*/site-packages")):
        wanted += [site.parent, site, *(file for pattern in _RUN_AT_START for file in sorted(site.glob(pattern)))]
    for path in wanted:
        if os.path.lexists(path):
            yield path
            if path.is_symlink() and path.exists():
                yield path.resolve()


def _problem(path: Path) -> str:
    told = path.lstat()
    remedy = "to start it all the same, name it (trainer.python)"
    if told.st_uid not in {0, os.geteuid()}:
        return visible(f"is not started: {path} belongs to {user(told.st_uid)}; {remedy}")
    if S_ISLNK(told.st_mode):
        return ""
    if told.st_mode & S_IWOTH or (told.st_mode & S_IWGRP and not _own_group(told.st_gid)):
        return visible(f"is not started: others may write {path}; {remedy}")
    return ""


def _own_group(gid: int) -> bool:
    """Tell whether a group is root's, or this user's alone, as many systems make one for each user."""
    if gid == 0:
        return True
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}

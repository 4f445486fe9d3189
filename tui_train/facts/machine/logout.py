"""Effect of the user's last logout under systemd-logind, which may kill a detached training.

Source: logind.conf(5), org.freedesktop.login1(5) for the effective settings, busctl(1) for how it is printed.
"""

import os
import pwd
import shlex
from pathlib import Path

from tui_train.facts.machine.child_process import run_child
from tui_train.facts.types import Logout

# Not --json, which RHEL 8 does not have.
_BUSCTL_QUERY = (
    "busctl",
    "get-property",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
)
_SETTINGS = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers", "RemoveIPC")
_TIMEOUT = 2.0
# Lower ids are system users, whose shared memory is not removed.
_FIRST_USER_ID = 1000


def read_logout(root: Path = Path("/"), uid: int | None = None) -> Logout | None:
    """Return what a logout does to this user, None if systemd does not run."""
    if not (root / "run/systemd/system").is_dir():
        return None
    uid = os.getuid() if uid is None else uid
    name = _user_name(uid)
    settings, why = _logind_settings()
    if settings is None:
        return Logout(unknown=why)
    kills, only_users, excluded, removes = settings
    lingers = bool(name) and (root / "var/lib/systemd/linger" / name).exists()
    return Logout(
        kills=kills == ["true"] and name not in excluded and (not only_users or name in only_users),
        removes_shared_memory=removes == ["true"] and uid >= _FIRST_USER_ID and not lingers,
    )


def _logind_settings() -> tuple[list[list[str]] | None, str]:
    """Return the effective values of _SETTINGS, or None and the reason as text."""
    answer = run_child([*_BUSCTL_QUERY, *_SETTINGS], _TIMEOUT)
    try:
        lines = [shlex.split(line) for line in answer.out.decode("utf-8", "replace").splitlines()]
    except ValueError:
        lines = []
    if answer.code != 0 or [line[:1] for line in lines] != [["b"], ["as"], ["as"], ["b"]]:
        return None, f"busctl could not read the settings of logind: {answer.why_unusable()}"
    return [line[2:] if line[0] == "as" else line[1:] for line in lines], ""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""

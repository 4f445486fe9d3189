"""Effect of the user's last logout under systemd-logind, which may kill a detached training.

Source: logind.conf(5), org.freedesktop.login1(5) for the effective settings, busctl(1) for how it is printed.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from . import other_programs, safe_open
from .safe_text import visible

# Not --json, which RHEL 8 does not have.
_BUSCTL_QUERY = (
    "busctl",
    "get-property",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
)
_LOGIND_SETTING_NAMES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers", "RemoveIPC")
_BUSCTL_TIMEOUT_SECONDS = 2.0
# Lower ids are system users, whose shared memory is not removed.
_FIRST_REGULAR_USER_ID = 1000


def read_logout_effect(root: Path = Path("/"), user_id: int | None = None) -> dict[str, Any] | None:
    """Return what a logout does to this user, or why that is `unknown`; None if systemd does not run."""
    if not (root / "run/systemd/system").is_dir():
        return None
    user_id = os.getuid() if user_id is None else user_id
    name = safe_open.user_name(user_id)
    settings, why = _query_logind_settings()
    if settings is None:
        return {"unknown": why}
    kills, only_users, excluded, removes = settings
    lingers = (root / "var/lib/systemd/linger" / name).exists()
    return {
        "kills": kills == ["true"] and name not in excluded and (not only_users or name in only_users),
        "removes_shared_memory": removes == ["true"] and user_id >= _FIRST_REGULAR_USER_ID and not lingers,
    }


def _query_logind_settings() -> tuple[list[list[str]] | None, str]:
    """Return the effective values of _LOGIND_SETTING_NAMES, or None and the reason as text."""
    program = other_programs.find_on_path(_BUSCTL_QUERY[0]) or _BUSCTL_QUERY[0]
    words = (program, *_BUSCTL_QUERY[1:], *_LOGIND_SETTING_NAMES)
    answer = other_programs.run_program(words, _BUSCTL_TIMEOUT_SECONDS)
    try:
        lines = [shlex.split(line) for line in answer.out.splitlines()]
    except ValueError:
        lines = []
    if answer.code != 0 or [line[:1] for line in lines] != [["b"], ["as"], ["as"], ["b"]]:
        last_line = (answer.err.strip().splitlines() or ["" if answer.code is None else "no usable answer"])[-1]
        return None, f"busctl could not read the settings of logind: {visible(last_line) or 'no answer in time'}"
    return [line[2:] if line[0] == "as" else line[1:] for line in lines], ""

"""Runs commands of Slurm on the host from which jobs are submitted."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

_NOT_FOUND_EXIT_CODE = 127
# What a login shell reads may set again what is left out.
_LOGIN_SHELL_SCRIPT = """
without=$1; shift
for name in $(compgen -e); do [[ $name =~ ^($without)$ ]] && unset -v "$name"; done
exec "$@"
"""


def send_command_results(question: dict[str, Any]) -> None:
    """Run commands one after the other, and send what each answered."""
    sys.stdout.write(json.dumps([_run_command(words, question) for words in question["commands"]]) + "\n")


def _run_command(words: list[str], question: dict[str, Any]) -> dict[str, Any]:
    """Return the output and the exit code of a command, or that it was late; `{user}` in it is the user's name here."""
    try:
        if "{user}" in "".join(words):
            words = [word.replace("{user}", getpass.getuser()) for word in words]
        if shutil.which(words[0]) is None:
            # Many clusters add the folder of Slurm's commands in what only a login shell reads.
            words = ["bash", "-lc", _LOGIN_SHELL_SCRIPT, "bash", question["without"], *words]
        done = subprocess.run(
            words, input=question["given"].encode(), cwd=question["folder"] or None,
            env=_environment_without(question["without"]), capture_output=True, timeout=question["patience"],
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"late": True}
    except (OSError, KeyError) as error:
        return {"code": _NOT_FOUND_EXIT_CODE, "error": str(error)}
    return {
        "code": done.returncode,
        "out": done.stdout.decode(errors="replace"),
        "error": done.stderr.decode(errors="replace"),
    }


def _environment_without(name_pattern: str) -> dict[str, str]:
    """Return the variables of this host but those whose whole names match an expression."""
    return {name: value for name, value in os.environ.items() if not re.fullmatch(name_pattern, name)}

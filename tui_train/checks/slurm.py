"""Checks of what is asked of Slurm."""

import re
from collections.abc import Iterator

from tui_train.base.text import visible
from tui_train.checks.finding import Finding
from tui_train.facts.types import Facts
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved

# sbatch reads its options from comments, which it splits at spaces and unquotes.
_VALUE = re.compile(r"[\w.,:@+/-]*", re.ASCII)
_OPTION = re.compile(r"--([a-z][a-z-]*)(=[\w.,:@+/%*&|\[\]()=-]+)?", re.ASCII)
_OURS = frozenset({
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "partition", "account", "time", "signal", "requeue",
    "no-requeue", "output", "error", "open-mode", "chdir", "array", "wrap", "parsable", "test-only", "job-name",
})  # fmt: skip


def job(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """Values that a job of Slurm can have, and a training that Slurm can start."""
    if facts.scheduler != "slurm":
        return
    for key in ("slurm.partition", "slurm.account", "slurm.time"):
        value = str(fields.get(profile, key))
        if not _VALUE.fullmatch(value):
            message = f"{visible(value)!r} cannot be an option of sbatch"
            yield Finding(level="error", key=key, message=message, remedy="Use letters, digits and ._:+/- only.")
    for word in profile.slurm.options:
        match = _OPTION.fullmatch(word)
        if match is None:
            message = f"{visible(word)!r} is not an option of sbatch with its value"
            yield Finding(level="error", key="slurm.options", message=message, remedy="Write --NAME=VALUE, no spaces.")
        elif match[1] in _OURS:
            message = f"--{match[1]} is set by the plan"
            remedy = "Leave it out; machines, time and partition have keys of their own (`tui-train keys slurm`)."
            yield Finding(level="error", key="slurm.options", message=message, remedy=remedy)
    if profile.container.engine != "none":
        message = "a container is not started by Slurm here"
        remedy = "Choose no container, and a Python on the shared disk (trainer.python)."
        yield Finding(level="error", key="container.engine", message=message, remedy=remedy)
    if resolved.device == "cpu" and profile.hardware.device != "cpu":
        message = "the job asks Slurm for no GPU: this machine has none that can train"
        remedy = "Plan for a compute node: run `tui-train facts --save node.json` there, then add --machine node.json."
        yield Finding(level="warning", key="hardware.device", message=message, remedy=remedy)

"""Checks of what is asked of Slurm."""

import re
from collections.abc import Iterator

from tui_train.checks.finding import Finding, error, warning
from tui_train.facts.other_machines.cluster import parse_gres_gpus, parse_time_limit
from tui_train.profile import fields
from tui_train.setup.machine.container import ISOLATING_ENGINES
from tui_train.setup.setup import Setup

# Slurm may send its signal so many seconds early, and a node may take some to notice that the supervisor has ended.
SIGNAL_MARGIN_SECONDS = 60
# sbatch reads its options from comments, which it splits at spaces and unquotes.
_SBATCH_VALUE_PATTERN = re.compile(r"[\w.,:@+/-]*", re.ASCII)
_SBATCH_OPTION_PATTERN = re.compile(r"--([a-z][a-z-]*)(=[\w.,:@+/%*&|\[\]()=-]+)?", re.ASCII)
SBATCH_OPTIONS_SET_BY_PLAN = frozenset({
    "nodes", "ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "cpus-per-task",
    "cpus-per-gpu", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task", "partition",
    "account", "time", "signal", "requeue", "no-requeue", "output", "error", "open-mode", "chdir", "array", "wrap",
    "parsable", "job-name",
})  # fmt: skip
# With these sbatch submits no job, or another one than is followed.
_SBATCH_OPTIONS_WITHOUT_FOLLOWED_JOB = frozenset({"test-only", "wait", "clusters", "help", "usage", "version"})


def invalid_slurm_job(setup: Setup) -> Iterator[Finding]:
    """Values that no job of Slurm can have, or a training that Slurm cannot start."""
    profile, facts = setup.profile, setup.facts
    if facts.scheduler != "slurm":
        return
    for key in ("slurm.partition", "slurm.account", "slurm.time"):
        value = str(fields.get_value(profile, key))
        if not _SBATCH_VALUE_PATTERN.fullmatch(value):
            message = f"{value!r} cannot be the value of {key}, an option of sbatch"
            yield error(key, message, f"Use only letters, digits and . , : @ _ + / - ({key}).")
    for word in profile.slurm.options:
        if refused := _why_option_refused_and_remedy(word, len(setup.gpus) if setup.device == "cuda" else 0):
            message, remedy = refused
            yield error("slurm.options", message, remedy)
    shortest = setup.preset.stop.grace + SIGNAL_MARGIN_SECONDS
    limit = rounded_up_time_limit_seconds(profile.slurm.time)
    if limit is not None and limit <= shortest:
        message = f"a time limit of {limit} s leaves no time to train: the run saves {shortest} s before it"
        remedy = "Make slurm.time longer, well above the time to the first checkpoint."
        yield error("slurm.time", message, remedy)
    if profile.container.engine in ISOLATING_ENGINES:
        message = f"containers of {profile.container.engine} run outside the job: Slurm neither limits nor ends them"
        remedy = "Use apptainer, with the image as a .sif file on the shared disk; or container.engine=none."
        yield error("container.engine", message, remedy)
    # Of cards that cannot train, another check says why.
    no_gpus_known = not (facts.cluster and (facts.cluster.problem or facts.machine.gpus))
    if setup.device == "cpu" and profile.hardware.device != "cpu" and no_gpus_known:
        cluster_known = facts.cluster is not None and not facts.cluster.problem
        asked_machine = facts.machine.hostname if cluster_known else "this machine"
        message = f"the job would get no GPU: {asked_machine} has none that can train"
        remedy = "Plan for a compute node: run `tui-train facts --save node.json` there, then add --machine node.json."
        if cluster_known:
            remedy = "Choose another partition (slurm.partition); `tui-train facts --slurm` lists the GPUs of each."
        yield warning("hardware.device", message, remedy)


def _why_option_refused_and_remedy(sbatch_option: str, gpu_count: int) -> tuple[str, str] | None:
    """Return why an option of sbatch cannot be passed and what to do, for a plan with so many GPUs on each node."""
    match = _SBATCH_OPTION_PATTERN.fullmatch(sbatch_option)
    if match is None:
        return (
            f"{sbatch_option!r} is not an option of sbatch with its value",
            "Write --NAME=VALUE without spaces (slurm.options).",
        )
    name = match[1]
    # sbatch takes the beginning of a name for the whole.
    if any(option.startswith(name) for option in _SBATCH_OPTIONS_WITHOUT_FOLLOWED_JOB):
        return f"--{name} cannot be used: tui-train follows the job in this cluster only", "Leave it out."
    if any(option.startswith(name) for option in SBATCH_OPTIONS_SET_BY_PLAN):
        remedy = "Leave it out; machines, time and partition have keys of their own (`tui-train keys slurm`)."
        return f"--{name} is set by the plan", remedy
    requested = (
        sum(count for _, count in parse_gres_gpus((match[2] or "")[1:])) if name in {"gre", "gres"} else gpu_count
    )
    if requested != gpu_count:
        remedy = f"Write gpu:{gpu_count} or gpu:TYPE:{gpu_count} in it, or change hardware.gpus."
        return f"--{name} asks for {requested} GPUs on each node, the plan for {gpu_count}", remedy
    return None


def rounded_up_time_limit_seconds(limit: str) -> int | None:
    """Return the seconds of a time limit as sbatch takes it, in whole minutes; None where it sets none."""
    return -(-(parse_time_limit(limit) or 0) // 60) * 60 or None

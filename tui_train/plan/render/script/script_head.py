"""The beginning of launch.sh: the head comment with the usage, the run folder, Python and GPUs."""

from tui_train.base.command import part_needs_checkpoint
from tui_train.base.text import visible, wrapped_lines
from tui_train.plan.render.quoting import quoted_with_home, quoted_word
from tui_train.plan.types import Plan
from tui_train.runner.machines.node_network import without_login_user

_COMMENT_WIDTH = 78  # characters after "# ", for a terminal of 80 columns
_USAGE_INDENT = " " * 29
_EXIT_CODE_LINES = (
    "Exit code: that of the training, or",
    "  64  wrong usage",
    "  69  something is missing",
    "  70  its processes were not connected",
    "  73  cannot write",
    "  75  already running",
)
_CHECK_BASH_AND_FIND_FOLDER_SCRIPT = """\
case ${BASH_VERSION-} in
  '' | [0-3].* | 4.[0-3].*) echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2; exit 69 ;;
esac
caller_env=$(declare -px) # your environment, passed on unchanged even where names are used in this script
set -u
refuse() { printf 'launch.sh: %s\\n' "$2" >&2; exit "$1"; }
[ -f "${BASH_SOURCE[0]-}" ] || refuse 64 'was read from a pipe: start it as "bash launch.sh"'
script=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69 # the dot keeps a newline at the end of its name
script=${script%??} run_dir=${script%/*}"""


def head_comment_lines(plan: Plan, outside_files: str) -> list[str]:
    """Return the head comment, which --help prints too."""
    outside = f"; not in this folder: {outside_files}" if outside_files else ""
    sizes = ", ".join((plan.attempts[0].batch, *plan.numbers))
    lines = [
        *(
            row
            for line in (f"{plan.name}: {plan.title}", sizes, *plan.notes)
            for row in wrapped_lines(line, _COMMENT_WIDTH)
        ),
        "",
        *(
            row
            for name, what in _usage_rows(plan)
            for row in wrapped_lines(f"  {name:<26} {what}", _COMMENT_WIDTH, _USAGE_INDENT)
        ),
        "",
        *_EXIT_CODE_LINES,
        *wrapped_lines(f"Needs bash, coreutils{_requirements_text(plan)}{outside}.", _COMMENT_WIDTH),
    ]
    return ["#!/usr/bin/env bash", *(f"# {line}".rstrip() for line in lines), ""]


def _usage_rows(plan: Plan) -> list[tuple[str, str]]:
    several, count, rule = plan.is_started_by_hand, len(plan.attempts), plan.attempts[0].checkpoints
    first = bool(plan.hosts) or several
    lines = [
        *([("sbatch slurm.sh", "submit it to Slurm, from this folder")] if plan.slurm else []),
        ("bash launch.sh", "run it within a job, as slurm.sh does" if plan.slurm else _usage_row_without_options(plan)),
        ("bash launch.sh --plain", "only run the command below, in the foreground"),
        ("bash launch.sh --dry-run", "only print what would be started"),
        ("python3 runner.pyz status", "show the state; also: stop, tail, follow"),
    ]
    if several:
        lines.append(("--node-rank=N", f"rank of this machine, from 0 to {plan.nodes - 1}; required"))
    if plan.hosts:
        lines.append(("--node-rank=N", f"with --plain: rank of this machine, from 0 to {plan.nodes - 1}"))
    if count > 1:
        lines.append(("--attempt=N", f"start with attempt N of {count}"))
    if plan.gpus:
        lines.append(("--gpus=UUID,…", "train on these GPUs, as listed by nvidia-smi -L"))
    if plan.may_wait:
        what = "GPUs are" if plan.gpus else "CPU cores are"
        lines.append(("--when-free", f"wait until its {what} free, first come, first served"))
    if plan.may_wait and plan.gpu_pool:
        count = len(plan.gpus)
        lines.append(("--when-free=any", f"wait for any {count} of the {len(plan.gpu_pool)} GPUs of this kind"))
    if several and rule:
        lines.append(("--resume", "resume from the newest complete checkpoint; give it on all machines"))
    if takes_checkpoint(plan):
        lines.append(("--checkpoint=PATH", "with --plain: resume from this checkpoint"))
    return [
        *lines,
        ("TUI_TRAIN_PYTHON=PATH", f"train with another Python{' of the image' if plan.container else ''}"),
        *([("TUI_TRAIN_ADDRESS=HOST", "address of the first machine, if not the one below")] if first else []),
        ("TUI_TRAIN_GRACE=SECONDS", f"time to save and exit after a stop; default {plan.grace}"),
    ]


def _usage_row_without_options(plan: Plan) -> str:
    if plan.is_started_by_hand:
        return "run the processes of this machine"
    can_resume = plan.attempts[0].checkpoints or plan.resumes_itself
    where = f" on all {plan.nodes} machines" if plan.hosts else ""
    second_start = "resumes from the newest complete checkpoint" if can_resume else "begins at step 0"
    return f"run it{where}; a second start {second_start}"


def takes_checkpoint(plan: Plan) -> bool:
    """Return whether the command or a file of the plan takes a checkpoint."""
    parts = (part for attempt in plan.attempts for part in attempt.command.parts)
    return any(attempt.fills for attempt in plan.attempts) or any(map(part_needs_checkpoint, parts))


def _requirements_text(plan: Plan) -> str:
    return f", {plan.container.engine} with the image, and python3" if plan.container else " and the Python below"


def folder_python_and_machine_lines(plan: Plan) -> list[str]:
    """Return the lines that set the run folder, Python and GPUs."""
    lines = [_CHECK_BASH_AND_FIND_FOLDER_SCRIPT, f"python=${{TUI_TRAIN_PYTHON:-{quoted_with_home(plan.python)}}}"]
    if plan.is_started_by_hand or plan.hosts:
        first = plan.address or without_login_user(plan.hosts[0])
        lines.append(f"address=${{TUI_TRAIN_ADDRESS:-{quoted_word(first)}}}")
    for number, uuid in enumerate(plan.gpus):
        name = plan.gpu_names[number] if number < len(plan.gpu_names) else ""
        words = f"gpus={quoted_word(uuid)}" if number == 0 else f"gpus+=,{quoted_word(uuid)}"
        lines.append(f"{words:<48} # {visible(name)}" if name else words)
    return [*lines, ""]

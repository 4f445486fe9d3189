"""The beginning of launch.sh: what it is and how it is used, where it lies, which Python and cards it takes."""

import textwrap

from tui_train.base.command import needs_checkpoint
from tui_train.base.text import visible
from tui_train.plan.types import Plan
from tui_train.render.quoting import quoted

_WIDTH = 116
_TOP = """\
case ${BASH_VERSION-} in
  '' | [0-3].* | 4.[0-3].*) echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2; exit 69 ;;
esac
yours=$(declare -px) # your variables, which reach the training as you set them, whatever has the same name here
set -u
refuse() { printf 'launch.sh: %s\\n' "$2" >&2; exit "$1"; }
[ -f "${BASH_SOURCE[0]-}" ] || refuse 64 'was read from a pipe and does not know its folder: start "bash launch.sh"'
script=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69 # the dot keeps a newline at the end of its name
script=${script%??} run_dir=${script%/*}"""


def comments(plan: Plan) -> list[str]:
    """Return the head comment, which --help prints as well."""
    sizes = ", ".join((plan.attempts[0].batch, *plan.numbers))
    lines = [
        *(row for line in (f"{plan.name}: {plan.title}", sizes, *plan.notes) for row in _wrapped(line)),
        "",
        *(f"  {name:<26} {what}" for name, what in _usage(plan)),
        "",
        "Exit code: the training's own; 64 wrong usage, 69 something is missing, 70 the processes trained apart,",
        f"73 cannot write, 75 already running. Needs bash, coreutils{_needs(plan)}.",
    ]
    return ["#!/usr/bin/env bash", *(f"# {line}".rstrip() for line in lines), ""]


def _wrapped(line: str) -> list[str]:
    """Return a line that is safe to show on as many as it needs; a long path stays whole."""
    return textwrap.wrap(visible(line), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _usage(plan: Plan) -> list[tuple[str, str]]:
    several, count, rule = plan.nodes > 1, len(plan.attempts), plan.attempts[0].checkpoints
    lines = [
        ("bash launch.sh", _start(plan)),
        ("bash launch.sh --plain", "only run the command below, in the foreground"),
        ("bash launch.sh --dry-run", "only print what would be started"),
        ("python3 supervisor status", "how it is; besides status: stop, tail, follow"),
    ]
    if several:
        lines.append(("--node-rank=N", f"which of the {plan.nodes} machines this is, 0 is the first: always needed"))
    if count > 1:
        lines.append(("--attempt=N", f"begin with attempt N of {count}"))
    if plan.gpus:
        lines.append(("--cards=UUID,…", "train on these cards, as nvidia-smi -L prints them"))
    if several and rule:
        lines.append(("--resume", "resume from the newest complete checkpoint: say it on all machines"))
    if resumes(plan):
        lines.append(("--checkpoint=PATH", "with --plain: resume from there"))
    return [
        *lines,
        ("TUI_TRAIN_PYTHON=PATH", f"train with another Python{' of the image' if plan.container else ''}"),
        ("TUI_TRAIN_GRACE=SECONDS", f"to save and end in, after a stop; else {plan.grace}"),
    ]


def _start(plan: Plan) -> str:
    if plan.nodes > 1:
        return "run the part of this machine"
    newest = plan.attempts[0].checkpoints or plan.resumes_itself
    return "run it; started again, it " + ("resumes from the newest complete checkpoint" if newest else "starts over")


def resumes(plan: Plan) -> bool:
    """Tell whether the command or a file of the plan takes a checkpoint."""
    parts = (part for attempt in plan.attempts for part in attempt.command.parts)
    return any(attempt.fills for attempt in plan.attempts) or any(map(needs_checkpoint, parts))


def _needs(plan: Plan) -> str:
    return f", {plan.container.engine} with the image, and python3" if plan.container else " and the Python below"


def top(plan: Plan) -> list[str]:
    """Return the lines that say where the script lies, which Python trains, and on which cards."""
    lines = [_TOP, f"python=${{TUI_TRAIN_PYTHON:-{_with_home(plan.python)}}}"]
    for number, uuid in enumerate(plan.gpus):
        name = plan.gpu_names[number] if number < len(plan.gpu_names) else ""
        words = f"cards={quoted(uuid)}" if number == 0 else f"cards+=,{quoted(uuid)}"
        lines.append(f"{words:<48} # {visible(name)}" if name else words)
    return [*lines, ""]


def _with_home(path: str) -> str:
    """Return a path quoted, with a home folder at its beginning that is known where the script runs."""
    return f"~/{quoted(path[2:])}" if path.startswith("~/") else quoted(path)

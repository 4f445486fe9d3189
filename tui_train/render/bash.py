"""launch.sh: the plan as a script that needs bash, coreutils and the training's Python; quoting happens only here."""

import shlex
from importlib import resources

from tui_train.plan.types import Attempt, Part, Plan, Setting, Variable, Word, Wrapping, needs_checkpoint
from tui_train.supervisor.fill import filled, yaml_value
from tui_train.supervisor.memory_words import OUT_OF_MEMORY, PHASES, WHERE
from tui_train.text import visible

_EXPANSIONS = {
    "RUN_DIR": '"$run_dir"',
    "CHECKPOINT": '"$checkpoint"',
    "PYTHONPATH": '"${PYTHONPATH:+:$PYTHONPATH}"',
    "NODE_RANK": '"$node_rank"',
    "CARDS": '"$card_list"',
    "CONTAINER": '"$container_name"',
    "USER": '"$user_word"',
    "MEMLOCK": '"$memlock"',
    "RUN_MOUNT": '"$run_mount"',
    "CACHE_MOUNT": '"$cache_mount"',
    "HUGGING_FACE_MOUNT": '"$hugging_face_mount"',
    "CARD_DEVICES": '"${cards[@]/#/--device=nvidia.com/gpu=}"',
}
_PARTS = ("processes.sh", "checkpoints.sh", "lock.sh", "outcome.sh", "fallback.sh", "supervisor.sh")
_WIDTH = 46
_LONGEST = 116
# What shellcheck would say of the user's words, which are meant as they stand, and of functions called by name.
_UNCHECKED = "# shellcheck disable=SC1003,SC2016,SC2034,SC2054,SC2191,SC2329"


def launch_script(plan: Plan) -> str:
    """Return the whole text of launch.sh."""
    shared = _shared(plan)
    sections = [
        _header(plan),
        _fixed(plan),
        _settings(shared),
        *(_attempt(number, attempt, shared) for number, attempt in enumerate(plan.attempts, start=1)),
        _order(plan),
        *((_container(plan.container), _library("container.sh")) if plan.container else ()),
        *((_machines(plan), _library("machines.sh"), _library("together.sh")) if plan.nodes > 1 else ()),
        *(_library(name) for name in _PARTS),
    ]
    return "\n".join(sections)


def _library(name: str) -> str:
    return resources.files("tui_train.render").joinpath(name).read_text(encoding="utf-8")


def quote(word: Word) -> str:
    """Return a word as bash reads it back, its variables expanded when the script runs."""
    if isinstance(word, str):
        return shlex.quote(word)
    pieces = word.pieces
    return "".join(_EXPANSIONS[item.variable] if isinstance(item, Variable) else shlex.quote(item) for item in pieces)


def _comment(text: str) -> str:
    return f"# {visible(text)}"


def _header(plan: Plan) -> str:
    needs = f"{plan.container.engine} and its image {plan.container.image}" if plan.container else "the Python below"
    can_resume = plan.attempts[0].checkpoints or plan.resumes_itself
    resumes = (
        "a second start resumes from the newest complete checkpoint" if can_resume else "a second start begins anew"
    )
    if plan.nodes > 1 and not _no_resume(plan):
        resumes = "with --resume from the newest complete checkpoint"
    lines = [
        f"{plan.name}: {plan.title}",
        ", ".join((plan.attempts[0].batch, *plan.numbers)),
        *plan.notes,
        f"Written by tui-train, without which it runs: it needs bash, coreutils and {needs}.",
        "",
        f"bash launch.sh             runs it; {resumes}"
        if plan.nodes == 1
        else f"bash launch.sh --node-rank=N   runs the part of machine N; {resumes}",
        "bash launch.sh --dry-run   prints what would be started",
        "bash launch.sh --help      says what else there is",
        "",
        "It writes beside itself: attempt-N.log (all output), events.jsonl (what happened).",
    ]
    return "\n".join(["#!/usr/bin/env bash", _UNCHECKED, *(_comment(line).rstrip() for line in lines)])


def _fixed(plan: Plan) -> str:
    secrets, cards = _list(plan.secrets), _list(plan.gpus)
    names = _list(tuple(visible(name) for name in plan.gpu_names))
    engine = plan.container.engine if plan.container else " # no container"
    return f"""
if [ -z "${{BASH_VERSINFO-}}" ] || [ "${{BASH_VERSINFO[0]}}${{BASH_VERSINFO[1]}}" -lt 44 ]; then
  echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2
  exit 69
fi
if [ ! -f "${{BASH_SOURCE[0]-}}" ]; then
  echo 'launch.sh: was read from a pipe and does not know its folder: start the file itself, "bash launch.sh"' >&2
  exit 64
fi
set -uo pipefail
# Variables of yours whose names this script uses as well reach the training as you set them.
mapfile -d '' -t yours < <(env -0)
for entry in "${{!yours[@]}}"; do
  [[ ${{yours[entry]}} =~ ^[a-z_]+= ]] || unset "yours[entry]"
done
# The folder of this script; the dot keeps a newline at the end of its name.
run_dir=$(readlink -f -- "${{BASH_SOURCE[0]}}" && echo .) || exit 69
run_dir=${{run_dir%/*}}
python={_with_home(plan.python)}
[ -z "${{TUI_TRAIN_PYTHON-}}" ] || python=$TUI_TRAIN_PYTHON
secrets=({secrets}) # taken from the environment of whoever starts this script, never written down
cards=({cards})
card_names=({names})
nodes={plan.nodes} processes={plan.processes} # machines, and the training processes of each
output={shlex.quote(plan.output)} # where it writes, empty for this folder
grace={plan.grace} # seconds to save and end in, after a stop
engine={engine}
"""


def _with_home(path: str) -> str:
    """Return a path quoted, with a home folder at its beginning that is known where the script runs."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _list(words: tuple[str, ...]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _shared(plan: Plan) -> tuple[Setting, ...]:
    return tuple(
        setting
        for setting in plan.attempts[0].command.env
        # What only a machine itself knows is not yet known where these stand.
        if isinstance(setting.value, str) and all(setting in attempt.command.env for attempt in plan.attempts)
    )


def _settings(settings: tuple[Setting, ...]) -> str:
    lines = [_setting(item, "  ") for item in settings]
    return "\n".join(["# The environment of every attempt.", "shared=(", *lines, ")", ""])


def _setting(item: Setting, indent: str) -> str:
    return _line(f"{item.name}={quote(item.value)}", item.why, indent)


def _line(words: str, why: str, indent: str) -> str:
    if not why:
        return f"{indent}{words}"
    line = f"{indent}{words:<{_WIDTH}} {_comment(why)}"
    return line if "\n" not in words and len(line) <= _LONGEST else f"{indent}{_comment(why)}\n{indent}{words}"


def _attempt(number: int, attempt: Attempt, shared: tuple[Setting, ...]) -> str:
    lines = [_comment(f"Attempt {number}, {attempt.title}: {attempt.batch}."), f"attempt_{number}() {{"]
    rule = attempt.checkpoints
    if rule:
        names = (rule.file,) if rule.file else (rule.prefix, rule.suffix, *rule.complete)
        words = " ".join(quote(word) for word in (rule.folder, *names))
        lines.append(f"  {'only_checkpoint' if rule.file else 'newest_checkpoint'} {words}")
    for path, otherwise in attempt.fills:
        lines.append(f"  fill {shlex.quote(path)} {shlex.quote(filled(path))} {shlex.quote(yaml_value(otherwise))}")
    own = [_setting(item, "    ") for item in attempt.command.env if item not in shared]
    lines += ["  local settings=(", '    "${shared[@]}"', *own, "  )"] if own else ['  local settings=("${shared[@]}")']
    parts = attempt.command.parts
    plain = [part for part in parts if not needs_checkpoint(part)]
    lines.append("  local command=(")
    lines += [_line(_quoted(part, python=part is parts[0]), part.why, "    ") for part in plain]
    lines.append("  )")
    lines += [f'  [ -z "$checkpoint" ] || command+=({_quoted(part)})' for part in parts if needs_checkpoint(part)]
    return "\n".join([*lines, f"  launch {quote(attempt.command.cwd)}", "}", ""])


def _quoted(part: Part, *, python: bool = False) -> str:
    words = [quote(word) for word in part.words]
    return " ".join(['"$python"', *words[1:]] if python else words)


def _container(around: Wrapping) -> str:
    lines = ["# The container around every attempt."]
    lines.append(f"image={shlex.quote(around.image)}")
    lines.append(f"folders=({' '.join(quote(folder) for folder in around.folders)}) # made first")
    lines += ["enter() { # what only this machine knows stands in variables", "  container=("]
    lines += [_line(_quoted(part), part.why, "    ") for part in around.parts]
    lines += ["  )", f"  before=({' '.join(quote(word) for word in around.before)})", "}", ""]
    return "\n".join(lines)


def _machines(plan: Plan) -> str:
    find = "yes # the one that leads to the first machine" if plan.find_interface else "no # one is named above"
    names = "NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME" if plan.backend == "nccl" else "GLOO_SOCKET_IFNAME"
    lines = [f"address={shlex.quote(plan.address)} port={plan.port} # of the first machine", f"find_interface={find}"]
    lines += ["interface=", f"interface_settings=({names}) # by what its name is told"]
    return "\n".join([*lines, f"no_resume={shlex.quote(_no_resume(plan))}", ""])


def _no_resume(plan: Plan) -> str:
    if plan.resumes_itself:
        return "finds its checkpoints by itself"
    return "" if plan.attempts[0].checkpoints else "cannot resume"


def _order(plan: Plan) -> str:
    numbers = range(1, len(plan.attempts) + 1)
    names = " ".join(f"attempt_{number}" for number in numbers)
    titles = " ".join(shlex.quote(attempt.title) for attempt in plan.attempts)
    lines = [f"attempts=({names})", f"titles=({titles})"]
    lines.append("# The number of the attempt after each, by where it ran out of GPU memory; 0 where nothing is left.")
    for phase in PHASES:
        following = " ".join(str(attempt.then.get(phase, 0)) for attempt in plan.attempts)
        lines.append(f"after_{phase}=({following}) # {WHERE[phase]}")
    lines.append("# What says that it ran out: extended regular expressions.")
    words = (f"  {shlex.quote(expression)}" for _, expression in OUT_OF_MEMORY)
    return "\n".join([*lines, "out_of_memory=(", *words, ")", ""])

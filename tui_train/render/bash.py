"""launch.sh: the plan as a script that needs bash, coreutils and the training's Python; quoting happens only here."""

import shlex
from importlib import resources

from tui_train.plan.types import Attempt, Part, Plan, Setting, Variable, Word, needs_checkpoint
from tui_train.text import visible

_EXPANSIONS = {"RUN_DIR": '"$run_dir"', "CHECKPOINT": '"$checkpoint"'}
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
        resources.files("tui_train.render").joinpath("supervisor.sh").read_text(encoding="utf-8"),
    ]
    return "\n".join(sections)


def quote(word: Word) -> str:
    """Return a word as bash reads it back, its variables expanded when the script runs."""
    if isinstance(word, str):
        return shlex.quote(word)
    pieces = word.pieces
    return "".join(_EXPANSIONS[item.variable] if isinstance(item, Variable) else shlex.quote(item) for item in pieces)


def _comment(text: str) -> str:
    return f"# {visible(text)}"


def _header(plan: Plan) -> str:
    can_resume = plan.attempts[0].checkpoints or plan.resumes_itself
    resumes = "resumes from the newest complete checkpoint" if can_resume else "begins anew"
    lines = [
        f"{plan.name}: {plan.title}",
        ", ".join((plan.attempts[0].batch, *plan.numbers)),
        *plan.notes,
        "Written by tui-train, without which it runs: it needs bash, coreutils and the Python below.",
        "",
        f"bash launch.sh             runs it; a second start {resumes}",
        "bash launch.sh --dry-run   prints what would be started",
        "bash launch.sh --help      says what else there is",
        "",
        "It writes beside itself: attempt-N.log (all output), events.jsonl (what happened).",
    ]
    return "\n".join(["#!/usr/bin/env bash", _UNCHECKED, *(_comment(line).rstrip() for line in lines)])


def _fixed(plan: Plan) -> str:
    secrets, cards = _list(plan.secrets), _list(plan.gpus)
    names = _list(tuple(visible(name) for name in plan.gpu_names))
    return f"""
if [ -z "${{BASH_VERSINFO-}}" ] || [ "${{BASH_VERSINFO[0]}}${{BASH_VERSINFO[1]}}" -lt 44 ]; then
  echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2
  exit 69
fi
set -uo pipefail
# The folder of this script; the dot keeps a newline at the end of its name.
run_dir=$(readlink -f -- "${{BASH_SOURCE[0]}}" && echo .) || exit 69
run_dir=${{run_dir%/*}}
python={shlex.quote(plan.python)}
[ -z "${{TUI_TRAIN_PYTHON-}}" ] || python=$TUI_TRAIN_PYTHON
secrets=({secrets}) # taken from the environment of whoever starts this script, never written down
cards=({cards})
card_names=({names})
"""


def _list(words: tuple[str, ...]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _shared(plan: Plan) -> tuple[Setting, ...]:
    return tuple(
        setting
        for setting in plan.attempts[0].command.env
        if all(setting in attempt.command.env for attempt in plan.attempts)
    )


def _settings(settings: tuple[Setting, ...]) -> str:
    lines = [_setting(item, "  ") for item in settings]
    return "\n".join(["# The environment of every attempt.", "shared=(", *lines, ")", ""])


def _setting(item: Setting, indent: str) -> str:
    return _line(f"{item.name}={shlex.quote(item.value)}", item.why, indent)


def _line(words: str, why: str, indent: str) -> str:
    if not why:
        return f"{indent}{words}"
    line = f"{indent}{words:<{_WIDTH}} {_comment(why)}"
    return line if "\n" not in words and len(line) <= _LONGEST else f"{indent}{_comment(why)}\n{indent}{words}"


def _attempt(number: int, attempt: Attempt, shared: tuple[Setting, ...]) -> str:
    lines = [_comment(f"Attempt {number}, {attempt.title}: {attempt.batch}."), f"attempt_{number}() {{"]
    rule = attempt.checkpoints
    if rule:
        words = " ".join(quote(word) for word in (rule.folder, rule.prefix, *rule.complete))
        lines.append(f"  newest_checkpoint {words}")
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


def _order(plan: Plan) -> str:
    names = " ".join(f"attempt_{number}" for number in range(1, len(plan.attempts) + 1))
    titles = " ".join(shlex.quote(attempt.title) for attempt in plan.attempts)
    why = "each only after the one before ran out of GPU memory" if len(plan.attempts) > 1 else "no fallback"
    return f"attempts=({names}) # {why}\ntitles=({titles})\n"

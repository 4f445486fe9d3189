"""Completion of profiles, runs, keys and files in a shell; it reads names only, and never fails."""

from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from tui_train.base.errors import TuiTrainError

_PROGRAM_NAME = "tui-train"
_COMPLETION_VARIABLE = "_TUI_TRAIN_COMPLETE"
# Unlike click's, it joins KEY=VALUE again, which bash takes apart at the =.
_BASH_COMPLETION_SCRIPT = r"""_tui_train_completion() {
    local word kind value prefix='' at=0 place=0
    local -a words=()
    for word in "${COMP_WORDS[@]}"; do
        if ((${#words[@]})) && [[ $word == = || ${words[-1]} == *= ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        if ((at++ == COMP_CWORD)); then place=$((${#words[@]} - 1)); fi
    done
    if [[ ${words[place]} == *=* ]]; then prefix=${words[place]%%=*}=; fi
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("${value#"$prefix"}")
                if [[ $value == *[=/] ]]; then compopt -o nospace; fi ;;
        esac
    done < <(COMP_WORDS=$(printf '%q ' "${words[@]}") COMP_CWORD=$place _TUI_TRAIN_COMPLETE=bash_complete "$1")
}
complete -o nosort -F _tui_train_completion tui-train
"""


def completion_script(shell: str, program: click.Command) -> str:
    """Return the text that a shell reads to complete a program's words."""
    if shell == "bash":
        return _BASH_COMPLETION_SCRIPT
    kind: type[ShellComplete] | None = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows the shells of the command
    return str(kind(program, {}, _PROGRAM_NAME, _COMPLETION_VARIABLE).source())


def complete_hosts(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return the hosts saved by name."""
    from tui_train.profile import hosts

    with suppress(TuiTrainError):
        return [CompletionItem(name) for name in hosts.address_by_saved_host() if name.startswith(text)]
    return []


def complete_profiles(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return saved profiles, and for what looks like a path its files."""
    if "/" in text or text.startswith((".", "~")):
        return [CompletionItem(text, type="file")]
    from tui_train.profile import store

    names = ("quickstart", *(name for name in store.saved_profile_names() if name != "quickstart"))
    return [CompletionItem(name) for name in names if name.startswith(text)]


def complete_runs(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return runs, newest first, and for what looks like a path its folders."""
    if "/" in text or text.startswith((".", "~")):
        return [CompletionItem(text, type="dir")]
    from tui_train.runs import run_folders

    names = ("last", *(run.name for run in run_folders.list_runs()))
    return [CompletionItem(name) for name in names if name.startswith(text)]


def complete_logs(context: click.Context, parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return runs, and files that begin so."""
    found = complete_runs(context, parameter, text)
    return found or [CompletionItem(text, type="file")]


def complete_edits(_context: click.Context, _parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """Return the keys of a profile, and behind the = the values of one."""
    from tui_train.profile import fields
    from tui_train.views import choices

    key, equals, value = text.partition("=")
    if not equals:
        rows = (row for row in fields.FIELDS.values() if row.key.startswith(text))
        return [CompletionItem(f"{row.key}=", help=row.label) for row in rows]
    with suppress(TuiTrainError):
        values = choices.enumerable_values(key)
        if not values and fields.get_field(key).kind in {"path", "paths", "rewards"}:
            return [CompletionItem(f"{key}={path}") for path in _complete_paths(value)]
        return [CompletionItem(f"{key}={name}") for name in values if name.startswith(value)]
    return []


def _complete_paths(prefix: str) -> list[str]:
    """Return the files and folders whose path begins so."""
    folder, slash, start = prefix.rpartition("/")
    with suppress(OSError, RuntimeError):
        there = Path(folder or slash or ".").expanduser()
        names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in there.iterdir())
        return [f"{folder}{slash}{name}" for name in names if name.startswith(start)]
    return []

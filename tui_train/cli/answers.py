"""What commands answer to programs: what they change, with --dry-run before they do, and errors as JSON."""

import sys
from typing import Any, get_args, get_type_hints

import click
import msgspec
from msgspec import UNSET, Struct, UnsetType

from tui_train.base.errors import TuiTrainError
from tui_train.base.own_command import with_runnable_commands
from tui_train.base.text import visible
from tui_train.checks.finding import Finding
from tui_train.cli.group import CHANGE_VERBS, DRY_RUN_KEY, JSON_KEY, MEANING_BY_EXIT_CODE
from tui_train.cli.printing import ANSWERED_KEY, print_json

_CHANGES_KEY, _FINDINGS_KEY = "tui_train.changes", "tui_train.findings"


class Changes(Struct, frozen=True, kw_only=True):
    """What a command has changed, or with --dry-run would change; without entries nothing was to be done.

    `writes` and `removes` are paths, also of keys in a file of ours; `starts` and `stops` are runs by their ids (in a
    dry run by the names that they begin with) and programs; `sends` names what goes to other machines. `findings` are
    those of the plan that is started.
    """

    dry_run: bool = False
    writes: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    """An error: what is wrong, why this exit code, and what to do; `findings` where a plan is refused for them."""

    error: str
    why: str
    fix: str
    exit_code: int
    findings: tuple[Finding, ...] = ()


def joined_type(name: str, *parts: type, **more: Any) -> type[Struct]:
    """Return the type of an object with the fields of other types, for the schema of an answer.

    All are there but those that may be UnsetType; one of None in `more` is left out.
    """
    hints = {key: hint for part in parts for key, hint in get_type_hints(part).items()} | more
    fields: list[Any] = [
        (key, hint, UNSET) if UnsetType in get_args(hint) else (key, hint)
        for key, hint in hints.items()
        if hint is not None
    ]
    return msgspec.defstruct(name, fields, kw_only=True)


def is_dry_run() -> bool:
    """Tell whether the command that runs is to change nothing."""
    return bool(_context_meta().get(DRY_RUN_KEY))


def answers_in_json() -> bool:
    """Tell whether the command that runs answers a program, which can be asked nothing."""
    return bool(_context_meta().get(JSON_KEY))


def confirm(question: str, refusal: TuiTrainError, *, yes: bool) -> None:
    """Ask before something is done, unless `yes`; the refusal is raised where there is nobody to ask."""
    if yes:
        return
    if answers_in_json() or not sys.stdin.isatty():
        raise refusal
    click.confirm(question, abort=True)


def announce_changes(**changes: tuple[str, ...]) -> None:
    """Note what is changed now, in place of what was noted before; in a dry run print it and end the command."""
    meta = _context_meta()
    noted = Changes(dry_run=is_dry_run(), findings=meta.get(_FINDINGS_KEY, ()), **changes)
    meta[_CHANGES_KEY] = noted
    if not noted.dry_run:
        return
    if not answers_in_json():
        click.echo("\n".join(_dry_run_lines(noted)))
    # The command itself prints JSON when it has ended.
    raise click.exceptions.Exit(0)


def note_findings(findings: tuple[Finding, ...]) -> None:
    """Note what was found in the plan that a command is about to start, for its answer."""
    _context_meta()[_FINDINGS_KEY] = findings


def were_changes_announced() -> bool:
    """Tell whether a command came as far as to change something."""
    return _CHANGES_KEY in _context_meta()


def print_changes() -> None:
    """Print as JSON what was changed, unless something else was answered."""
    if not _context_meta().get(ANSWERED_KEY):
        print_json(_context_meta().get(_CHANGES_KEY, Changes(dry_run=is_dry_run())))


def print_error(message: str, remedy: str, exit_code: int) -> None:
    """Print an error as JSON."""
    why = MEANING_BY_EXIT_CODE.get(exit_code, "what this exit code of the command means")
    findings = _context_meta().get(_FINDINGS_KEY, ())
    error, fix = (with_runnable_commands("\n".join(map(visible, text.split("\n")))) for text in (message, remedy))
    print_json(ErrorAnswer(error=error, why=why, fix=fix, exit_code=exit_code, findings=findings))


def print_refusal(exit_code: int) -> None:
    """Print as JSON why a command ended with an exit code and no other answer: for the findings of its plan."""
    first = next((each for each in _context_meta().get(_FINDINGS_KEY, ()) if each.level == "error"), None)
    message = first.message if first else MEANING_BY_EXIT_CODE.get(exit_code, f"ended with exit code {exit_code}")
    print_error(message, first.remedy if first else "See what was printed on stderr.", exit_code)


def _dry_run_lines(changes: Changes) -> list[str]:
    found = [f"would {verb[:-1]} {visible(name)}" for verb in CHANGE_VERBS for name in getattr(changes, verb)]
    return found or ["nothing would be changed"]


def _context_meta() -> dict[str, Any]:
    """Return what is noted of the command that runs; of none, when a function is called by itself, nothing is kept."""
    context = click.get_current_context(silent=True)
    return context.meta if context else {}

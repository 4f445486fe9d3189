"""`tui-train` and `python -m tui_train`: each way in imports only what it needs, for start-up is import time."""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tui_train.base.errors import BadInput, EndedBySignal, TuiTrainError
from tui_train.base.signal_handlers import install_handlers

_PROJECT_FOLDER = Path(__file__).absolute().parent.parent
# A shell sets it to ask how a word can end.
_COMPLETION_VARIABLE = "_TUI_TRAIN_COMPLETE"


def main() -> None:
    """Run the command line, or without arguments the wizard; an error becomes two lines on stderr, no traceback."""
    _remove_current_folder_from_import_path()
    _escape_unencodable_output()
    try:
        sys.exit(_run_command_line_or_wizard(sys.argv[1:]))
    except KeyboardInterrupt:
        # While modules are imported; a command that has begun does more about it.
        sys.exit(130)
    except TuiTrainError as error:
        _exit_with_error(error)
    except (OSError, UnicodeError) as error:
        _exit_with_error(_unforeseen_error(error))


def _remove_current_folder_from_import_path() -> None:
    """Take the current folder off the import path, where `python -m` and a relative PYTHONPATH have put it.

    In a clone its `json.py` would be run.
    """
    with contextlib.suppress(OSError):
        here, paths = Path.cwd(), [*map(Path, sys.path)]
        sys.path[:] = [str(path) for path in paths if path == _PROJECT_FOLDER or (path.is_absolute() and path != here)]


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    raise EndedBySignal(128 + number)


def _escape_unencodable_output() -> None:
    """Let output that the terminal's encoding lacks be escaped, not be an error."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _exit_with_error(error: TuiTrainError) -> NoReturn:
    from tui_train.base.own_command import with_runnable_commands
    from tui_train.base.text import visible

    # Words of another machine or of a file may be among them.
    lines = with_runnable_commands(f"tui-train: {error.message}\n  {error.remedy}").split("\n")
    sys.stderr.write("".join(f"{visible(line)}\n" for line in lines))
    _print_error_as_json_if_asked(error)
    sys.exit(error.exit_code)


def _print_error_as_json_if_asked(error: TuiTrainError) -> None:
    """Print the error as JSON as well, where JSON was asked for."""
    if "--json" not in sys.argv:
        return
    from tui_train.cli.answers import print_error
    from tui_train.cli.group import is_asked_for_json

    if is_asked_for_json(sys.argv[1:]):
        with contextlib.suppress(BrokenPipeError):
            print_error(error.message, error.remedy, error.exit_code)


def _unforeseen_error(error: OSError | UnicodeError) -> TuiTrainError:
    """Return what nobody has caught as an error with a remedy."""
    from tui_train.base.text import visible

    try:
        Path.cwd()
    except OSError:
        return BadInput("the current folder is not there any more", "Change to another one, with cd.")
    return TuiTrainError(visible(f"{type(error).__name__}: {error}"), "If you cannot fix that, report it.")


def _run_command_line_or_wizard(arguments: list[str]) -> int:
    if not arguments and _COMPLETION_VARIABLE not in os.environ:
        from tui_train.wizard import open_wizard

        return open_wizard()
    if arguments == ["--version"]:
        from tui_train import __version__

        sys.stdout.write(f"tui-train {__version__}\n")
        return 0
    from tui_train.cli.app import run_command_line

    # A command is to end what it has begun, a trial for one. Until here nothing has; and what a handler raises in the
    # middle of an import is lost where that is in a weak reference's callback.
    install_handlers((signal.SIGTERM, signal.SIGHUP), _exit_on_signal)
    return run_command_line(arguments)


if __name__ == "__main__":
    main()

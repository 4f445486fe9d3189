"""`tui-train` and `python -m tui_train`: each way in imports only what it needs, for start-up is import time."""

import sys

from tui_train.errors import TuiTrainError


def main() -> None:
    """Run the command line, or without arguments the wizard; an error becomes two lines on stderr, no traceback."""
    try:
        sys.exit(_start(sys.argv[1:]))
    except TuiTrainError as error:
        sys.stderr.write(f"tui-train: {error.message}\n  {error.remedy}\n")
        sys.exit(error.exit_code)


def _start(arguments: list[str]) -> int:
    if not arguments:
        from tui_train.wizard import open_wizard

        return open_wizard()
    if arguments == ["--version"]:
        from tui_train import __version__

        sys.stdout.write(f"tui-train {__version__}\n")
        return 0
    from tui_train.cli import cli

    return int(cli(standalone_mode=True) or 0)


if __name__ == "__main__":
    main()

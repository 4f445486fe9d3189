"""`tui-train` and `python -m tui_train`."""

import sys


def main() -> None:
    """Run the command line; `--version` alone answers before anything else is imported."""
    if sys.argv[1:] == ["--version"]:
        from tui_train import __version__

        sys.stdout.write(f"tui-train {__version__}\n")
        return
    from tui_train import cli

    cli.main()


if __name__ == "__main__":
    main()

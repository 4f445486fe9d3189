"""`tui-train` and `python -m tui_train`."""

import sys


def main() -> None:
    """Run the command line; `--version` alone answers before anything else is imported."""
    if sys.argv[1:] == ["--version"]:
        from tui_train import __version__  # noqa: PLC0415 - all imports wait until they are needed

        sys.stdout.write(f"tui-train {__version__}\n")
        return
    from tui_train import cli  # noqa: PLC0415

    cli.main()


if __name__ == "__main__":
    main()

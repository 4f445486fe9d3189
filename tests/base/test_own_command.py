"""Commands in texts can be typed as they stand, wherever the program is."""

from pathlib import Path

import click
import pytest

from tui_train.base import own_command
from tui_train.cli.app import cli


def test_the_commands_are_those_of_the_command_line():
    assert tuple(cli.list_commands(click.Context(cli))) == own_command.COMMAND_NAMES


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("Watch it: tui-train attach last", "Watch it: ./tt attach last"),
        ("Make one (tui-train env create hf).", "Make one (./tt env create hf)."),
        ("see `tui-train --help`", "see `./tt --help`"),
        ("tui-train: no run", "tui-train: no run"),
        (
            "tui-train starts no containers in /opt/tui-train run",
            "tui-train starts no containers in /opt/tui-train run",
        ),
    ],
)
def test_only_commands_are_replaced(monkeypatch, text, typed):
    monkeypatch.setattr(own_command, "own_command", lambda: "./tt")
    assert own_command.with_runnable_commands(text) == typed


def test_the_path_is_said_where_the_name_is_not_found(tmp_path, monkeypatch):
    clone = tmp_path / "my clone"
    script = clone / ".venv" / "bin" / "tui-train"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for search_path, folder, home, typed in (
        (f"/usr/bin:{script.parent}", clone, tmp_path, "tui-train"),
        ("/usr/bin", clone, tmp_path, ".venv/bin/tui-train"),
        ("/usr/bin", tmp_path, tmp_path, "'my clone/.venv/bin/tui-train'"),
        ("/usr/bin", Path("/usr"), tmp_path, f"'{script}'"),
        ("/usr/bin", Path("/usr"), clone, "~/.venv/bin/tui-train"),
    ):
        monkeypatch.setenv("HOME", str(home))
        assert own_command.command_starting_script(str(script), search_path, folder) == typed
    assert own_command.command_starting_script("/usr/bin/pytest", "/usr/bin", clone) == "tui-train"

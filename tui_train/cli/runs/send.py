"""`tui-train send`: copies the files of a profile to its host."""

import shlex

import click

from tui_train.actions.machine_facts import FactsSource, source_for_profile
from tui_train.actions.sending import files_to_send, rsync_commands
from tui_train.actions.sending import run_rsync as run
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.profile import hosts


def send_files(reference: str, edits: tuple[str, ...], source: FactsSource, *, dry_run: bool) -> None:
    """Copy the files of a profile to its host, or print the commands that would."""
    profile = apply_edits(load_profile(reference), edits)
    host = source_for_profile(profile, source).host
    if not host:
        raise BadInput("no host is named", "Name one: --on HOST, or --set hardware.host=HOST.")
    paths = files_to_send(profile)
    for path, words in zip(paths, rsync_commands(paths, hosts.host_address(host)), strict=True):
        click.echo(visible(shlex.join(words)) if dry_run else f"{visible(str(path))} to {visible(host)}")
        if not dry_run:
            run(words)

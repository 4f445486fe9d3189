"""`tui-train hosts`: lists the saved hosts, saves one, and logs in to one."""

import click

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.channel import ssh
from tui_train.cli.printing import description_list_text, print_json
from tui_train.profile import hosts


def print_hosts(*, as_json: bool) -> None:
    """Print the saved hosts with their addresses."""
    known = hosts.address_by_saved_host()
    if as_json:
        print_json([{"name": name, "address": address} for name, address in known.items()])
    elif known:
        click.echo(description_list_text([(visible(name), visible(address)) for name, address in known.items()]))
    else:
        click.echo("No host is saved: tui-train hosts add NAME USER@HOST")


def add_saved_host(name: str, address: str, *, force: bool) -> None:
    """Save a host, which is not asked for that."""
    hosts.save_host(name, address, may_replace=force)
    click.echo(f"saved {visible(name)}: tui-train facts --on {visible(name)} shows what it has")


def log_in_to_saved_host(name: str) -> None:
    """Log in by ssh on this terminal; Unavailable if that fails."""
    host = hosts.host_address(name)
    if code := ssh.log_in(host):
        raise Unavailable(f"ssh did not come in to {visible(host)} (exit code {code})", f"Try it: ssh {visible(host)}")
    click.echo(f"logged in to {visible(host)}: what is asked of it uses this connection for twelve hours")

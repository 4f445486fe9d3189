"""The commands about hosts that are saved by name."""

import click

from tui_train.cli.group import JSON_OPTION, cli, lazy_completer


@cli.group(invoke_without_command=True)
@JSON_OPTION
@click.pass_context
def hosts(context: click.Context, *, as_json: bool) -> None:
    """List the hosts saved by name, on which trainings run over ssh (`--on NAME`)."""
    from tui_train.cli.hosts import hosts

    if context.invoked_subcommand is None:
        hosts.print_hosts(as_json=as_json)


@hosts.command("add")
@click.argument("name")
@click.argument("address", default="")
@click.option("--force", is_flag=True, help="Replace a host of that name.")
def hosts_add(name: str, address: str, *, force: bool) -> None:
    """Save the host at ADDRESS, as ssh takes it, under NAME; without ADDRESS the name is the address."""
    from tui_train.cli.hosts import hosts

    hosts.add_saved_host(name, address, force=force)


@hosts.command("login")
@click.argument("name", shell_complete=lazy_completer("hosts"))
def hosts_login(name: str) -> None:
    """Log in to a host that asks for a password, a code or a key's touch; the connection stays for twelve hours."""
    from tui_train.cli.hosts import hosts

    hosts.log_in_to_saved_host(name)


@hosts.command("rm")
@click.argument("name", shell_complete=lazy_completer("hosts"))
def hosts_rm(name: str) -> None:
    """Forget a host; its runs stay, there and here."""
    from tui_train.profile import hosts

    hosts.remove_host(name)

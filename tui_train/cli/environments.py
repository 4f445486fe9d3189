"""What `tui-train env` and `tui-train recipes` do."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import click

from tui_train import environments
from tui_train.base.errors import Unavailable
from tui_train.base.places import environments_folder, expanded
from tui_train.base.text import counted, home, table, visible
from tui_train.environments import create as making
from tui_train.facts import probe
from tui_train.facts.gpus import judge
from tui_train.facts.recipes import recipes
from tui_train.facts.types import Machine, Toolchain
from tui_train.trainers import nemo


def show_all() -> None:
    """Print the sets that can be made, and every Python found with what it can train."""
    click.echo(table([("set", "what it is for", "on disk"), *((s.name, s.about, s.size) for s in _sets())]))
    click.echo("Make one: tui-train env create NAME\n")
    machine = probe.machine()
    rows: list[tuple[str, ...]] = [("Python", "version", "torch", "accelerate", "transformers", "cards", "NeMo", "")]
    for tool in probe.toolchains():
        versions = (tool.version or "?", tool.torch or "-", tool.accelerate or "-", tool.transformers or "-")
        last = visible(tool.problem or tool.label)
        rows.append((home(tool.python), *map(visible, versions), _cards(tool, machine), _nemo(tool), last))
    click.echo(table(rows))


def _sets() -> list[environments.Set]:
    return list(environments.SETS.values())


def _cards(tool: Toolchain, machine: Machine) -> str:
    """Return for how many of the machine's cards a Python's torch has code."""
    if tool.torch is None or not machine.gpus:
        return "-" if tool.torch is None else "none here"
    verdicts = judge(machine.gpus, tool, machine.driver_cuda)
    return f"{sum(verdict.kind != 'blocked' for verdict in verdicts)} of {len(verdicts)}"


def _nemo(tool: Toolchain) -> str:
    found = nemo.flavour(tool)
    if found == "recipes":
        return f"recipes ({visible(tool.packages['nemo_toolkit'])})"
    if found == "bridge":
        return f"Megatron-Bridge ({visible(tool.packages['megatron-bridge'])})"
    if found == "automodel":
        return f"AutoModel ({visible(tool.packages['nemo_automodel'])})"
    return visible(f"has {nemo.lacks(tool.packages)}") if set(nemo.packages()) & tool.packages.keys() else "-"


class Where(NamedTuple):
    """What the user said of a new environment: its folder, its Python, torch's index; empty is our choice."""

    path: Path | None
    python: str
    torch_index: str


def create(name: str, where: Where, *, dry_run: bool, yes: bool) -> None:
    """Show what will be installed and where, ask, install, and prove it."""
    wanted = environments.find(name)
    path, python, index = where
    place = expanded(str(path)).absolute() if path else environments_folder() / name
    making.refuse_to_overwrite(place)
    chosen = python or making.find_python(wanted)
    if not making.fits(wanted, chosen):
        message = f"{visible(chosen)} is no Python 3.{wanted.oldest} to 3.{wanted.newest}, which {name} needs"
        raise Unavailable(message, "Name another one: --python /path/to/python3")
    machine = probe.machine()
    plan = making.making(wanted, place, chosen, making.build_for(machine, index), making.find_uv())
    click.echo(f"{wanted.name}: {wanted.about}")
    click.echo(f"into    {visible(str(place))}, {wanted.size}")
    click.echo(f"torch   {making.build_for(machine, index).why}")
    click.echo(f"rest    {counted(_pins(wanted), 'exact version')} from {visible(str(wanted.lock))}\n")
    for command in plan.commands:
        click.echo(making.shown(command))
    if plan.variables:
        # Not their values: an address may hold a password.
        click.echo(f"uv gets pip's settings: {', '.join(plan.variables)}")
    if dry_run:
        return
    if not yes and not sys.stdin.isatty():
        raise Unavailable("there is no terminal to ask on", "Add --yes to install without a question.")
    if not yes:
        click.confirm("\nInstall it?", abort=True)
    making.create(plan, machine, lambda line: click.echo(visible(line)))
    click.echo(f"\nDone. It is listed on the Backend screen, or: --set trainer.python={visible(str(plan.python))}")


def _pins(wanted: environments.Set) -> int:
    return sum("==" in line and not line.startswith("#") for line in wanted.lock.read_text("utf-8").splitlines())


def list_recipes(python: str, *, as_json: bool) -> None:
    """Print the recipes of the NeMo of a Python: the named one, or the first that has any."""
    tools = [probe.toolchain(python)] if python else list(probe.toolchains())
    able = sorted((tool for tool in tools if nemo.flavour(tool) in {"recipes", "bridge"}), key=nemo.order)
    if not able:
        seen = [f"{home(tool.python)} has {nemo.lacks(tool.packages) or 'AutoModel only'}" for tool in tools]
        remedy = f"Make one: tui-train env create nemo. Or train in an image, {nemo.IMAGES}."
        raise Unavailable(f"no Python here has NeMo recipes: {'; '.join(map(visible, seen))}", remedy)
    asked = able[0].python
    if not as_json:
        click.echo(f"Asking {home(asked)} (about 15 s) …", err=True)
    told = recipes(asked, nemo.flavour(able[0]))
    if not told.tasks:
        raise Unavailable(
            f"{visible(asked)} cannot be asked: {visible(told.problem)}", "Make one: tui-train env create nemo"
        )
    if as_json:
        click.echo(json.dumps({"python": asked, "recipes": told.tasks}, indent=2))
    else:
        click.echo(table([("recipe", "tasks"), *((name, " ".join(tasks)) for name, tasks in told.tasks.items())]))

"""`tui-train env` and `tui-train recipes`."""

from pathlib import Path

import click
from msgspec import Struct

from tui_train.actions import environments
from tui_train.actions.environments import create as making
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import Unavailable
from tui_train.base.text import display_path, quantity, size_text, visible
from tui_train.cli import answers
from tui_train.cli.printing import aligned_table_text, description_list_text, print_json, terminal_width_or_none
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.machine import probe, trusted_pythons
from tui_train.facts.machine.torch_builds import TorchBuild
from tui_train.facts.models.nemo_models import probe_recipes
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.facts.types import Machine, Toolchain
from tui_train.places import place_of
from tui_train.profile import fields
from tui_train.trainers import nemo
from tui_train.trainers.finetune import supported_tuning_labels
from tui_train.views import plain_text


def print_package_sets_and_pythons(host: str = "") -> None:
    """Print the package sets, and every Python found on this machine or a host with what it can train."""
    sets = [(each.name, f"{each.about}; {each.size_text} on disk") for each in environments.PACKAGE_SETS.values()]
    click.echo(description_list_text(sets))
    click.echo(f"Create one: {text_for_host('tui-train env create NAME', host)}\n")
    facts = place_of(host=host).probe_machine_facts()
    rows: list[tuple[str, ...]] = [
        ("Python", "version", "torch", "accelerate", "transformers", "GPUs", "fine-tuning", "NeMo", "")
    ]
    for tool in facts.toolchains:
        versions = (tool.version or "?", tool.torch or "-", tool.accelerate or "-", tool.transformers or "-")
        tunes = ", ".join(supported_tuning_labels(tool)) or "-"
        uses = (_supported_card_count_text(tool, facts.machine), tunes, _nemo_support_text(tool))
        rows.append((display_path(tool.python), *map(visible, versions), *uses, visible(tool.problem or tool.label)))
    click.echo(plain_text.pythons_text(rows, terminal_width_or_none()))


def _supported_card_count_text(tool: Toolchain, machine: Machine) -> str:
    """Return how many of the machine's GPUs a Python's torch supports."""
    if tool.torch is None or not machine.gpus:
        return "-" if tool.torch is None else "none here"
    verdicts = gpu_verdicts(machine.gpus, tool, machine.driver_cuda)
    return f"{sum(verdict.kind != 'blocked' for verdict in verdicts)} of {len(verdicts)}"


def _nemo_support_text(tool: Toolchain) -> str:
    flavour = nemo.nemo_flavour(tool)
    if flavour == "recipes":
        return f"recipes ({visible(tool.packages['nemo_toolkit'])})"
    if flavour == "bridge":
        return f"Megatron-Bridge ({visible(tool.packages['megatron-bridge'])})"
    if flavour == "automodel":
        return f"AutoModel ({visible(tool.packages['nemo_automodel'])})"
    return (
        visible(f"has {nemo.why_nemo_unusable(tool.packages)}")
        if set(nemo.nemo_package_names()) & tool.packages.keys()
        else "-"
    )


def confirm_and_create_environment(  # noqa: PLR0913 - one for each option
    host: str, name: str, path: Path | None, python: str, torch_index: str, *, yes: bool
) -> None:
    """Show what will be installed and where, ask, install, and check that it works; empty options have a default.

    Paths are those of the host (empty: this machine). One that is being made there is followed.
    """
    package_set = environments.find_package_set(name)
    place = place_of(host=host)
    if not host:
        path = expand_home(str(path)).absolute() if path else None
        python = str(fields.value_with_absolute_paths(fields.get_field("trainer.python"), python))
    installers = making.ask_for_installers(place.address, package_set, str(path or ""), python)
    machine = place.probe_machine_facts().machine if host else probe.probe_machine()
    torch_build = making.choose_torch_build(machine, torch_index, place.address)
    plan = making.plan_install(place.address, package_set, installers, torch_build, python)
    where, on = (f"{host}:{plan.path}", f"--on {visible(host)} ") if host else (str(plan.path), "")
    if plan.is_under_way:
        click.echo(f"It is already being made in {visible(where)}.")
    else:
        _print_install_plan(plan, torch_build, where)
    answers.announce_changes(writes=(where,))
    if not plan.is_under_way:
        no_terminal = Unavailable("there is no terminal to ask on", "Add --yes to install without asking.")
        answers.confirm("\nInstall it?", no_terminal, yes=yes)
    lost = "the connection is lost" if host else "this terminal is closed"
    click.echo(f"It goes on{' there' if host else ''} if {lost}; Ctrl-C cancels it and removes what was made.")

    def print_line(line: str) -> None:
        click.echo(visible(line))

    making.create_environment(plan, machine, print_line, print_line)
    use = f"{on}--set trainer.python={visible(str(plan.python))}"
    click.echo(f"\nDone. Choose it on the Backend screen, or with {use}")


def _print_install_plan(plan: making.InstallPlan, torch_build: TorchBuild, place: str) -> None:
    package_set = plan.package_set
    room = "" if plan.free is None else f"; {size_text(plan.free)} are free there"
    click.echo(f"{package_set.name}: {package_set.about}")
    click.echo(f"into    {visible(place)}, {package_set.size_text}{room}")
    click.echo(f"torch   {torch_build.why}")
    pins = quantity(_pinned_package_count(package_set), "exact version")
    click.echo(f"rest    {pins} from {visible(str(package_set.requirements_file))}\n")
    for command in plan.commands[:-1]:
        click.echo(making.install_command_text(command))
    if plan.variables:
        # Without their values: an address may contain a password.
        click.echo(f"uv gets pip's settings: {', '.join(map(visible, plan.variables))}")


def _pinned_package_count(package_set: environments.PackageSet) -> int:
    return sum(
        "==" in line and not line.startswith("#")
        for line in package_set.requirements_file.read_text("utf-8").splitlines()
    )


class Recipes(Struct, frozen=True):
    """The tasks of each NeMo recipe that a Python has."""

    python: str
    recipes: dict[str, tuple[str, ...]]


def print_nemo_recipes(python: str, *, as_json: bool) -> None:
    """Print the NeMo recipes of a Python: the given one, or the first that has any."""
    trusted_pythons.remember_chosen_python(python)
    tools = [probe.probe_toolchain(python)] if python else list(probe.probe_toolchains())
    able = sorted(
        (tool for tool in tools if nemo.nemo_flavour(tool) in {"recipes", "bridge"}), key=nemo.flavour_preference_rank
    )
    if not able:
        lacking = [
            f"{display_path(tool.python)} has {nemo.why_nemo_unusable(tool.packages) or 'AutoModel only'}"
            for tool in tools
        ]
        remedy = f"Create one: tui-train env create nemo. Or train in an image, {nemo.RECOMMENDED_IMAGES_TEXT}."
        raise Unavailable(f"no Python here has NeMo recipes: {'; '.join(map(visible, lacking))}", remedy)
    interpreter = able[0].python
    if not as_json:
        click.echo(f"Reading the recipes of {display_path(interpreter)} (about 15 s) …", err=True)
    listing = probe_recipes(interpreter, nemo.nemo_flavour(able[0]))
    if not listing.tasks:
        raise Unavailable(
            f"the recipes of {visible(interpreter)} cannot be read: {visible(listing.problem)}",
            "Create one: tui-train env create nemo",
        )
    if as_json:
        print_json(Recipes(interpreter, listing.tasks))
    else:
        click.echo(
            aligned_table_text(
                [("recipe", "tasks"), *((name, " ".join(tasks)) for name, tasks in listing.tasks.items())]
            )
        )

"""What the command line's commands do; each prints its result and ends with the exit code in cli.EXIT_CODES."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from tui_train.base.command import VARIABLES, argv
from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.places import expanded
from tui_train.base.text import visible
from tui_train.checks import Finding, check
from tui_train.cli import columns
from tui_train.facts import images, probe, saved
from tui_train.facts.gpus import judge, recommended
from tui_train.facts.types import Facts
from tui_train.plan.types import Attempt, Plan
from tui_train.presets import presets
from tui_train.profile import fields, store
from tui_train.profile.changes import Change, apply
from tui_train.profile.types import Profile
from tui_train.render import listed
from tui_train.render.prepare import Prepared, prepare
from tui_train.resolve import container
from tui_train.runs import rundir
from tui_train.workflow import machines, show
from tui_train.workflow.machines import Source
from tui_train.workflow.validate import shown, validate

_MOST_CHANGES = 5
# JSON may carry these as they are, and a terminal would obey them; a line break only ever stands between values.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Mended(NamedTuple):
    """An error, and the change that was made for it."""

    finding: Finding
    change: Change


def facts(*, as_json: bool, source: Source, save: Path | None) -> None:
    """Print the facts, and save them where that is wanted."""
    if save:
        saved.refuse_to_overwrite(save)
    found, toolchain = machines.facts_from(source)
    if as_json:
        print_json(machines.as_data(found, toolchain))
    else:
        verdicts = judge(found.machine.gpus, toolchain, found.machine.driver_cuda)
        click.echo(show.facts(found, toolchain, recommended(found.machine.gpus, verdicts)))
    if save:
        saved.save(save, found)
        click.echo(f"saved {visible(str(save))}, without names of users, hosts and home folders", err=as_json)


def plan(reference: str, edits: tuple[str, ...], source: Source, *, as_json: bool) -> None:
    """Print the plan of a profile and its findings; errors among them go to stderr and end it."""
    prepared = prepare(profile := edited(load(reference), edits), machines.facts_for(profile, source))
    if as_json:
        print_json(_plan_data(prepared))
        if prepared.plan is None:
            sys.exit(_refusal(prepared))
        return
    click.echo(show.plan(require(prepared)))
    click.echo("\nfiles: " + ", ".join(file.path for file in listed(prepared.files)))


def export(reference: str, folder: Path, edits: tuple[str, ...], source: Source, *, force: bool) -> None:
    """Write the files of a profile's plan to a folder."""
    prepared = prepare(profile := edited(load(reference), edits), machines.facts_for(profile, source))
    made = require(prepared)
    target = expanded(str(folder)).absolute()
    paths = rundir.export(target, prepared.files, overwrite=force)
    for file in listed(prepared.files):
        click.echo(visible(f"{target}/{file.path}"))
    script = visible(shlex.quote(str(paths[0])))
    if source.machine or source.host:
        click.echo(f"Copy {visible(str(target))} to {visible(source.host or 'that machine')}.")
        script = "launch.sh"
    click.echo(f"Run it with: bash {script}" + (" --node-rank=N" if made.nodes > 1 else ""))
    show_machines(made)


def show_machines(made: Plan) -> None:
    """Say what has to be done on the other machines, where there are any."""
    if made.nodes > 1:
        click.echo("\n".join(made.notes))


def image(name: str, engine: str, recipe: str, *, as_json: bool) -> None:
    """Print what an image holds, and end with an error where it cannot train."""
    engine = engine or images.engine_of(name, images.engines())
    machine = probe.machine()
    known = images.image(engine, name)
    verdicts = judge(machine.gpus, known.toolchain, machine.driver_cuda)
    found = validate(engine, name, recommended(machine.gpus, verdicts), recipe)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        click.echo(shown(found))
    if found.wrong:
        sys.exit(Unavailable.exit_code)


def profiles(*, as_json: bool) -> None:
    """List the saved profiles."""
    known = [{"name": name, "path": str(store.path_of(name))} for name in store.names()]
    if as_json:
        print_json(known)
    else:
        click.echo(
            "\n".join(f"{visible(row['name'])}  {visible(row['path'])}" for row in known)
            or "No profiles yet: tui-train new NAME"
        )


def new(name: str, like: str, edits: tuple[str, ...], *, force: bool) -> None:
    """Save a profile."""
    profile = edited(fields.put(load(like), "name", name), edits)
    click.echo(f"saved {visible(str(store.save(profile, overwrite=force)))}")


def keys() -> None:
    """List the keys."""
    default, ours = Profile(), presets()["builtin"].own
    rows = []
    for row in fields.FIELDS.values():
        value = fields.show(fields.get(default, row.key)) or row.empty or "none"
        if row.optional:
            value = f"the trainer's own; built-in trainer: {ours[row.key.removeprefix('recipe.')]}"
        rows.append((row.key, f"{row.help} [{value}]"))
    click.echo("The keys of a profile, what they mean, and [their default]:\n\n" + columns.listed(rows))


def load(reference: str) -> Profile:
    """Return a profile by name or path; `quickstart` is there without being saved."""
    if reference == "quickstart" and reference not in store.names():
        return Profile()
    return store.load(reference)


def edited(profile: Profile, edits: tuple[str, ...]) -> Profile:
    """Return the profile with `KEY=VALUE` edits made."""
    for edit in edits:
        key, equals, text = edit.partition("=")
        if not equals:
            raise BadInput(f"--set {visible(edit)} is not KEY=VALUE", "Write it as --set recipe.steps=100.")
        row = fields.field(key)
        value = fields.parse(row, text)
        before = fields.get(profile, key)
        if isinstance(value, dict) and isinstance(before, dict) and value:
            # Each NAME=VALUE is a value of its own; an empty text takes all of them away.
            value = {**before, **value}
        profile = fields.put(profile, key, value)
    store.check_preset(profile)
    return profile


def require(prepared: Prepared, *, starts: bool = False) -> Plan:
    """Return the plan, after printing the findings to stderr; ends where one forbids it, or its start if wanted."""
    for finding in prepared.findings:
        click.echo(show.finding(finding), err=True)
    if prepared.plan is None or (starts and any(finding.level == "error" for finding in prepared.findings)):
        sys.exit(_refusal(prepared))
    return prepared.plan


def mended(profile: Profile, found: Facts, edits: tuple[str, ...]) -> tuple[Profile, tuple[Mended, ...]]:
    """Make the changes that errors offer, and return them: defaults that do not fit this machine are our own.

    What the user's `edits` set is never changed.
    """
    chosen = {edit.partition("=")[0] for edit in edits}
    made: list[Mended] = []
    for _ in range(_MOST_CHANGES):
        offers = (Mended(finding, finding.change) for finding in check(profile, found) if finding.change)
        ours = (one for one in offers if one.finding.level == "error" and chosen.isdisjoint(dict(one.change.edits)))
        one = next(ours, None)
        if one is None:
            break
        made.append(one)
        profile = apply(one.change, profile)
    return profile, tuple(made)


def _refusal(prepared: Prepared) -> int:
    machine = all(finding.machine for finding in prepared.findings if finding.level == "error")
    return Unavailable.exit_code if machine else BadInput.exit_code


def _plan_data(prepared: Prepared) -> dict[str, Any]:
    made = prepared.plan
    data: dict[str, Any] = {"findings": msgspec.to_builtins(prepared.findings), "plan": None, "files": {}}
    if made:
        data["plan"] = msgspec.to_builtins(made)
        for attempt, told in zip(made.attempts, data["plan"]["attempts"], strict=True):
            told["argv"] = _words(made, attempt)
        # The supervisor is the same in every run, and long; its modules are told by what they are for.
        data["files"] = {file.path: file.text for file in listed(prepared.files)}
    return data


def _words(made: Plan, attempt: Attempt) -> list[str]:
    """Return an attempt's words; what only the running script knows stands as $NAME."""
    if made.container is None:
        return argv(attempt.command, "$RUN_DIR")
    return container.words(made.container, attempt.command, {name: f"${name}" for name in VARIABLES})


def print_json(value: Any) -> None:
    """Print a value as JSON that a terminal shows as it is."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError as error:
        raise TuiTrainError(f"a value cannot be written as UTF-8: {error.reason}", "Rename what holds it.") from None
    click.echo(_CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text))

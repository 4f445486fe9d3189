"""What the command line's commands do; each prints its result and ends with the exit code in cli.EXIT_CODES."""

import re
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from tui_train import report, show
from tui_train.changes import apply
from tui_train.checks import check
from tui_train.errors import BadInput, TuiTrainError, Unavailable
from tui_train.facts import images, probe, saved
from tui_train.facts.gpus import judge, recommended
from tui_train.facts.types import Facts
from tui_train.places import expanded
from tui_train.plan import container
from tui_train.plan.resolve import pick_toolchain
from tui_train.plan.types import VARIABLES, Attempt, Plan, argv
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.report import Source
from tui_train.runs import rundir
from tui_train.runs.follow import follow, ranks, wait
from tui_train.runs.progress import Progress, advance
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import start
from tui_train.runs.status import AttemptStatus, Status, status
from tui_train.runs.stop import stop as end
from tui_train.runs.tail import Tail
from tui_train.text import duration, table, visible
from tui_train.validate import shown, validate
from tui_train.wizard import open_wizard, terminal
from tui_train.workflow import Prepared, begin, look, prepare

_MOST_CHANGES = 5
# JSON may carry these as they are, and a terminal would obey them; a line break only ever stands between values.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def facts(*, as_json: bool, source: Source, save: Path | None) -> None:
    """Print the facts, and save them where that is wanted."""
    if save:
        saved.refuse_to_overwrite(save)
    found, toolchain = report.facts_from(source)
    if as_json:
        _print_json(report.as_data(found, toolchain))
    else:
        verdicts = judge(found.machine.gpus, toolchain, found.machine.driver_cuda)
        click.echo(show.facts(found, toolchain, recommended(found.machine.gpus, verdicts)))
    if save:
        saved.save(save, found)
        click.echo(f"saved {visible(str(save))}, without names of users, hosts and home folders", err=as_json)


def plan(reference: str, edits: tuple[str, ...], *, as_json: bool) -> None:
    """Print the plan of a profile and its findings; errors among them go to stderr and end it."""
    prepared = prepare(profile := edited(load(reference), edits), look(profile))
    if as_json:
        _print_json(_plan_data(prepared))
        if prepared.plan is None:
            sys.exit(_refusal(prepared))
        return
    click.echo(show.plan(require(prepared)))
    click.echo("\nfiles: " + ", ".join(file.path for file in prepared.files))


def export(reference: str, folder: Path, edits: tuple[str, ...], *, force: bool) -> None:
    """Write the files of a profile's plan to a folder."""
    prepared = prepare(profile := edited(load(reference), edits), look(profile))
    require(prepared)
    for path in rundir.export(expanded(str(folder)).absolute(), prepared.files, overwrite=force):
        click.echo(visible(str(path)))
    click.echo("Run it with: bash launch.sh")


def run(reference: str, edits: tuple[str, ...], *, detach: bool) -> None:
    """Start a profile's run, and follow it unless detached."""
    prepared = prepare(profile := edited(load(reference), edits), look(profile))
    started = begin(prepared, require(prepared))
    _watch(started, detach=detach)


def resume(reference: str, *, detach: bool) -> None:
    """Start a run's script again."""
    found = _find(reference)
    if status(found).live:
        raise Unavailable(f"{visible(found.name)} is running", f"Watch it: tui-train attach {visible(found.name)}")
    start(found)
    _watch(found, detach=detach)


def quickstart(edits: tuple[str, ...]) -> None:
    """Go the whole way with defaults, and say what came of it."""
    profile = edited(Profile(), edits)
    click.echo("1 Looking at this machine …")
    found = look(profile)
    click.echo(show.facts(found, pick_toolchain(profile, found), ()).rstrip())
    profile = _mended(profile, found)
    prepared = prepare(profile, found)
    made = require(prepared)
    click.echo(f"\n2 The plan\n{show.plan(made)}\n")
    begun = begin(prepared, made)
    click.echo(f"3 Running in {visible(str(begun.path))}")
    progress, now = _stream(begun, ours=True)
    took = f" after {duration(now.ended - now.started)}" if now.ended and now.started else ""
    click.echo(f"\n4 {show.state(now)}{took}")
    if progress.first and progress.last:
        rate = f", {progress.tokens_per_second:,.0f} tokens/s" if progress.tokens_per_second else ""
        click.echo(
            f"loss from {progress.first.loss:.3f} to {progress.last.loss:.3f} in {progress.last.step} steps{rate}"
        )
    name = visible(begun.name)
    click.echo(f"look again:  tui-train logs {name}   or   tui-train attach {name}")
    click.echo(f"run again:   bash {visible(str(begun.script))}")
    sys.exit(_code(now))


def image(name: str, engine: str, recipe: str, *, as_json: bool) -> None:
    """Print what an image holds, and end with an error where it cannot train."""
    engine = engine or images.engine_of(name, images.engines())
    machine = probe.machine()
    known = images.image(engine, name)
    verdicts = judge(machine.gpus, known.toolchain, machine.driver_cuda)
    found = validate(engine, name, recommended(machine.gpus, verdicts), recipe)
    if as_json:
        _print_json(msgspec.to_builtins(found))
    else:
        click.echo(shown(found))
    if found.wrong:
        sys.exit(Unavailable.exit_code)


def runs(*, as_json: bool) -> None:
    """List the runs."""
    known = [(found, status(found)) for found in rundir.all_runs()]
    if as_json:
        _print_json([{"run": found.name, "path": str(found.path), **msgspec.to_builtins(now)} for found, now in known])
    elif known:
        rows = [("run", "state", "started", "took", "attempts"), *(show.run_row(found, now) for found, now in known)]
        click.echo(table(rows))
    else:
        click.echo("No runs yet: tui-train quickstart makes one.")


def logs(reference: str, attempt: int | None, *, follow: bool) -> None:
    """Print the attempts' logs, lines safe to show."""
    found = _find(reference)
    now = status(found)
    if not now.attempts and not now.live:
        remedy = f"Start it: bash {visible(str(found.script))}"
        raise BadInput(f"{visible(found.name)} has no attempts yet, so nothing is logged", remedy)
    if follow:
        sys.exit(_code(_stream(found)[1]))
    numbers = [known.number for known in now.attempts if attempt in {None, known.number}]
    if not numbers:
        raise BadInput(f"{visible(found.name)} has no such attempt", "See `tui-train runs`.")
    for number in numbers:
        tail = Tail(found.attempt_log(number))
        for line in tail.lines():
            click.echo(line)
        if tail.unfinished:
            click.echo(tail.unfinished)
    if not now.live:
        _warn(found, numbers[-1])


def attach(reference: str) -> None:
    """Open a run in the wizard, or follow its log where there is no terminal."""
    found = _find(reference)
    if terminal():
        sys.exit(open_wizard(str(found.path)))
    sys.exit(_code(_stream(found)[1]))


def stop(reference: str) -> None:
    """End a run."""
    found = _find(reference)
    before = status(found)
    if not before.live and not before.leftover and not before.container:
        click.echo(f"{visible(found.name)} is not running: {show.state(before)}")
        return
    click.echo(f"stopping {visible(found.name)} …")
    click.echo(f"{show.state(end(found))}; no process of it is left")


def profiles(*, as_json: bool) -> None:
    """List the saved profiles."""
    known = [{"name": name, "path": str(store.path_of(name))} for name in store.names()]
    if as_json:
        _print_json(known)
    else:
        click.echo("\n".join(f"{row['name']}  {row['path']}" for row in known) or "No profiles yet: tui-train new NAME")


def new(name: str, like: str, edits: tuple[str, ...], *, force: bool) -> None:
    """Save a profile."""
    profile = edited(fields.put(load(like), "name", name), edits)
    click.echo(f"saved {visible(str(store.save(profile, overwrite=force)))}")


def keys() -> None:
    """List the keys."""
    default = Profile()
    rows = [
        (row.key, fields.show(fields.get(default, row.key)) or f"({row.empty or 'none'})", row.help)
        for row in fields.FIELDS.values()
    ]
    click.echo(table([("key", "default", "meaning"), *rows]))


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
        profile = fields.put(profile, key, fields.parse(row, text))
    store.check_preset(profile)
    return profile


def require(prepared: Prepared) -> Plan:
    """Return the plan, after printing the findings to stderr; ends where one is an error."""
    for finding in prepared.findings:
        click.echo(show.finding(finding), err=True)
    if prepared.plan is None:
        sys.exit(_refusal(prepared))
    return prepared.plan


def _mended(profile: Profile, found: Facts) -> Profile:
    """Make the changes that errors offer, and say them: defaults that do not fit this machine are our own."""
    for _ in range(_MOST_CHANGES):
        errors = (finding.change for finding in check(profile, found) if finding.level == "error")
        change = next(filter(None, errors), None)
        if change is None:
            break
        click.echo(f"changed: {change.title} ({change.why})")
        profile = apply(change, profile)
    return profile


def _refusal(prepared: Prepared) -> int:
    machine = all(finding.machine for finding in prepared.findings if finding.level == "error")
    return Unavailable.exit_code if machine else BadInput.exit_code


def _watch(started: RunDir, *, detach: bool) -> None:
    name = visible(started.name)
    if detach:
        click.echo(f"{name} runs. Watch it: tui-train attach {name}; end it: tui-train stop {name}")
        return
    click.echo(f"{name} runs in {visible(str(started.path))}; a lost connection does not end it.")
    now = _stream(started, ours=True)[1]
    click.echo(f"{name}: {show.state(now)}")
    sys.exit(_code(now))


def _stream(found: RunDir, *, ours: bool = False) -> tuple[Progress, Status]:
    """Print a run's lines until it ends; Ctrl-C leaves it running, unless it is `ours`: then it may stop it."""
    titles, reading = found.titles(), found.reading()
    progress, number = Progress(), 0

    def begun(attempt: AttemptStatus) -> None:
        nonlocal number
        number = attempt.number
        if attempt.number > 1:
            title = titles[attempt.position - 1] if 0 < attempt.position <= len(titles) else ""
            click.echo(f"— attempt {attempt.number}: {visible(title)}")

    try:
        for line in follow(found, on_attempt=begun):
            click.echo(line)
            progress = _ends(advance(progress, [line], reading))
    except KeyboardInterrupt:
        if not ours:
            raise
        _interrupted(found)
    ended = wait(found)
    _warn(found, number)
    return progress, ended


def _warn(found: RunDir, attempt: int) -> None:
    """Say on stderr where an attempt's processes did not compute as planned."""
    for sentence in ranks(found, attempt).mismatch:
        click.echo(f"warning: {sentence}", err=True)


def _ends(progress: Progress) -> Progress:
    """Return the progress with its first and last point only: however long the run, a line costs the same."""
    if len(progress.points) <= 2:
        return progress
    return msgspec.structs.replace(progress, points=(progress.points[0], progress.points[-1]))


def _find(reference: str) -> RunDir:
    """Return a run as rundir.find does, and where no id begins so, that of a folder of this name."""
    known = (run.name for run in rundir.all_runs())
    is_folder = reference and RunDir(Path(reference)).script.is_file()
    if is_folder and reference != "last" and not any(name.startswith(reference) for name in known):
        return rundir.find(f"./{reference}" if "/" not in reference else reference)
    return rundir.find(reference)


def _code(now: Status) -> int:
    """Return what a viewer that waited for a run ends with: the training's own code; see EXIT_CODES."""
    return 137 if now.state == "lost" else now.exit_code or 0


def _interrupted(found: RunDir) -> None:
    name = visible(found.name)
    if sys.stdin.isatty():
        answer = click.prompt("\n[d]etach (it goes on) or [s]top it?", default="d", type=click.Choice(["d", "s"]))
        if answer == "d":
            click.echo(f"{name} goes on. Watch it: tui-train attach {name}")
            sys.exit(0)
    end(found)


def _plan_data(prepared: Prepared) -> dict[str, Any]:
    made = prepared.plan
    data: dict[str, Any] = {"findings": msgspec.to_builtins(prepared.findings), "plan": None, "files": {}}
    if made:
        data["plan"] = msgspec.to_builtins(made)
        for attempt, told in zip(made.attempts, data["plan"]["attempts"], strict=True):
            told["argv"] = _words(made, attempt)
        data["files"] = {file.path: file.text for file in prepared.files}
    return data


def _words(made: Plan, attempt: Attempt) -> list[str]:
    """Return an attempt's words; what only the running script knows stands as $NAME."""
    if made.container is None:
        return argv(attempt.command, "$RUN_DIR")
    return container.words(made.container, attempt.command, {name: f"${name}" for name in VARIABLES})


def _print_json(value: Any) -> None:
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError as error:
        raise TuiTrainError(f"a value cannot be written as UTF-8: {error.reason}", "Rename what holds it.") from None
    click.echo(_CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text))

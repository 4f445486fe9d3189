"""What the commands that start, list, watch and end runs do; they may end with the training's code."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from tui_train.base.errors import BadInput, LeftBySignal, TuiTrainError, Unavailable
from tui_train.base.files import unreadable
from tui_train.base.text import duration, size, table, visible
from tui_train.cli.diagnose import words
from tui_train.cli.plans import edited, load, mended, print_json, require, show_machines
from tui_train.diagnose import of_run
from tui_train.facts import saved
from tui_train.plan.types import Plan
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared, prepare
from tui_train.resolve.resolve import pick_toolchain
from tui_train.runs import archive, rundir
from tui_train.runs.follow import follow, ranks, wait
from tui_train.runs.interrupts import Interrupts, deferred
from tui_train.runs.listing import Listed, read_run, read_runs
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import another_start, nothing_left, start
from tui_train.runs.status import status
from tui_train.runs.stop import stop as end
from tui_train.runs.tail import Tail
from tui_train.supervisor import curve
from tui_train.supervisor.progress import Progress, advance
from tui_train.supervisor.state import AttemptStatus, Status
from tui_train.targets.here import look, submit
from tui_train.wizard import open_wizard, terminal
from tui_train.workflow import show


def run(reference: str, edits: tuple[str, ...], *, detach: bool) -> None:
    """Start a profile's run, and follow it unless detached."""
    with _before_a_start():
        prepared = prepare(profile := edited(load(reference), edits), look(profile))
        made = require(prepared, starts=True)
    with deferred(click.echo) as interrupts:
        started = submit(prepared, made, interrupts)
        with _lost_terminal(interrupts):
            show_machines(made)
        _watch(started, interrupts, detach=detach)


def resume(reference: str, *, detach: bool) -> None:
    """Start a run's script again."""
    found = _find(reference)
    if status(found).live:
        raise Unavailable(f"{visible(found.name)} is running", f"Watch it: tui-train attach {visible(found.name)}")
    if nothing_left(found):
        again = f"tui-train run {visible(shlex.quote(str(found.profile)))}"
        click.echo(f"{visible(found.name)} has finished: nothing is left to train. Train again: {again}")
        return
    with deferred(click.echo) as interrupts:
        start(found, resume=True, interrupts=interrupts)
        with _lost_terminal(interrupts):
            if words := another_start(found):
                click.echo(f"{visible(found.name)}: {words}")
        _watch(found, interrupts, detach=detach)


def quickstart(edits: tuple[str, ...]) -> None:
    """Go the whole way with defaults, and say what came of it."""
    with _before_a_start():
        prepared, made, on_cpu = _planned(edits)
    with deferred(click.echo) as interrupts:
        begun = submit(prepared, made, interrupts)
        with _lost_terminal(interrupts):
            click.echo(f"3 Running in {visible(str(begun.path))}")
        progress, now = _keep(begun, interrupts)
    took = "" if now.seconds is None else f" after {duration(now.seconds)}"
    click.echo(f"\n4 {show.state(now)}{took}")
    if progress.first and progress.last:
        rate = f", {progress.tokens_per_second:,.0f} tokens/s" if progress.tokens_per_second else ""
        click.echo(
            f"loss from {progress.first.loss:.3f} to {progress.last.loss:.3f} in {progress.last.step} steps{rate}"
        )
    name = visible(begun.name)
    click.echo(f"look again:  tui-train logs {name}   or   tui-train attach {name}")
    if now.state != "finished":
        click.echo(f"go on:       tui-train resume {name}")
    if on_cpu:
        click.echo(on_cpu)
    sys.exit(_code(now))


def _planned(edits: tuple[str, ...]) -> tuple[Prepared, Plan, str]:
    """Print the first two steps of a quickstart; return what it starts, and what to warn of where that is no GPU."""
    profile = edited(Profile(), edits)
    click.echo("1 Looking at this machine …")
    found = look(profile)
    profile, faults = mended(profile, found, edits)
    idle = next((fault.finding for fault in faults if ("hardware.device", "cpu") in fault.change.edits), None)
    on_cpu = f"! This trains on the CPU, not on a card: {idle.message}.\n  {idle.remedy}" if idle else ""
    if on_cpu:
        click.echo(on_cpu)
    for fault in faults:
        click.echo(f"changed: {fault.change.title} ({fault.change.why})")
    click.echo(show.facts(found, pick_toolchain(profile, found), ()).rstrip())
    prepared = prepare(profile, found)
    made = require(prepared, starts=True)
    click.echo(f"\n2 The plan\n{show.plan(made)}\n")
    return prepared, made, on_cpu


def runs(*, as_json: bool) -> None:
    """List the runs."""
    known = read_runs()
    if as_json:
        print_json([_run_data(listed) for listed in known])
    elif known:
        click.echo(table([("run", "state", "started", "took", "attempts"), *map(show.run_row, known)]))
        for listed in known:
            if listed.damage:
                where = visible(str(listed.run.path))
                click.echo(f"! {visible(listed.run.name)} is damaged: {listed.damage}\n  See {where}.", err=True)
    else:
        click.echo("No runs yet: tui-train quickstart makes one.")


def _run_data(listed: Listed) -> dict[str, Any]:
    told = listed.status.data() if listed.status else {"state": "damaged"}
    return {"run": listed.run.name, "path": str(listed.run.path), **told, "damage": listed.damage}


def logs(reference: str, attempt: int | None, *, follow: bool) -> None:
    """Print the attempts' logs, lines safe to show."""
    found = _find(reference)
    now = status(found)
    if not now.attempts and (damage := read_run(found).damage):
        raise BadInput(f"{visible(found.name)} is damaged: {damage}", f"See {visible(str(found.path))}.")
    if not now.attempts and not now.live:
        remedy = f"Start it: bash {visible(str(found.script))}"
        raise BadInput(f"{visible(found.name)} has no attempts yet, so nothing is logged", remedy)
    if follow:
        sys.exit(_code(_stream(found)[1]))
    numbers = [known.number for known in now.attempts if attempt in {None, known.number}]
    if not numbers:
        raise BadInput(f"{visible(found.name)} has no such attempt", "See `tui-train runs`.")
    for number in numbers:
        _print(Tail(found.attempt_log(number)))
    if not now.live:
        _warn(found, numbers[-1])
    _require_readable(found, *numbers)


def _print(tail: Tail) -> None:
    while tail.behind:
        if whole := tail.read():
            click.echo("\n".join(whole))
    if tail.unfinished:
        click.echo(tail.unfinished)


def _require_readable(found: RunDir, *attempts: int) -> None:
    """Raise BadInput where the log of an attempt cannot be read."""
    for number in attempts:
        log = found.attempt_log(number)
        if problem := unreadable(log):
            raise BadInput(f"cannot read {visible(str(log))}: {problem}", f"See its rights: ls -ld {visible(str(log))}")


def attach(reference: str) -> None:
    """Open a run in the wizard, or follow its log where there is no terminal."""
    found = _find(reference)
    if terminal():
        sys.exit(open_wizard(str(found.path)))
    sys.exit(_code(_stream(found)[1]))


def stop(reference: str, *, at_once: bool) -> None:
    """End a run; `at_once` without time to save."""
    found = _find(reference)
    before = status(found)
    if not before.live and not before.leftover and not before.container:
        click.echo(f"{visible(found.name)} is not running: {show.state(before)}")
        return
    ended = end(found, at_once=True) if at_once else _end(found, before)
    click.echo(show.after_stop(ended))
    nodes = found.plan().get("nodes")
    if isinstance(nodes, int) and nodes > 1:
        click.echo(f"It was one of {nodes} machines: stop launch.sh on the others as well.")


def report(reference: str, file: Path | None, *, force: bool) -> None:
    """Write a run's archive, and say what is in it."""
    found = _find(reference)
    name = archive.name_of(found)
    path = file or Path(f"{name}.tar.gz")
    if path.is_dir():
        path /= f"{name}.tar.gz"
    if not force and os.path.lexists(path):
        raise archive.exists(path)
    click.echo("Looking at this machine …")
    machine = saved.machine_file(look(_profile_of(found)))
    files = archive.entries(found, machine)
    archive.write(path, name, files, replace=force)
    rows = [(visible(entry.name), _amount(entry.text), str(sum(entry.masked.values()) or "-")) for entry in files]
    click.echo(table([("file", "size", "masked"), *rows]))
    kinds = archive.counted_kinds(files)
    told = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())) or "no secret was found"
    click.echo(f"masked: {told}; and names of users, hosts and home folders")
    click.echo(f"Written to {visible(str(path))}. Look through it before you send it: no rule knows every secret.")


def _amount(text: str) -> str:
    return size(len(text)) if len(text) >= 1 << 20 else f"{len(text) / 1024:.1f} KiB"


def _profile_of(found: RunDir) -> Profile:
    try:
        return store.load(str(found.profile))
    except TuiTrainError:
        return Profile()


@contextmanager
def _before_a_start() -> Iterator[None]:
    """Say that nothing was started where a signal ends the command in here."""
    try:
        yield
    except (KeyboardInterrupt, LeftBySignal):
        # A lost terminal takes no words.
        with suppress(OSError):
            click.echo("\nthe run was not started", err=True)
        raise


@contextmanager
def _lost_terminal(interrupts: Interrupts) -> Iterator[None]:
    """Print about a run that was started; where the terminal is lost, end as the noted signal says."""
    try:
        yield
    except OSError:
        if not interrupts.number:
            raise
        sys.exit(interrupts.exit_code)


def _watch(started: RunDir, interrupts: Interrupts, *, detach: bool) -> None:
    name = visible(started.name)
    if detach:
        with suppress(OSError):
            click.echo(f"{name} runs. {_remote(name)}")
        if interrupts.number:
            # It came when the run had started, which only whoever sent it can want to end.
            sys.exit(interrupts.exit_code)
        return
    with _lost_terminal(interrupts):
        click.echo(f"{name} runs in {visible(str(started.path))}; a lost connection does not end it.")
    now = _keep(started, interrupts)[1]
    click.echo(f"{name}: {show.state(now)}")
    sys.exit(_code(now))


def _remote(name: str) -> str:
    return f"Watch it: tui-train attach {name}; end it: tui-train stop {name}"


def _keep(started: RunDir, interrupts: Interrupts) -> tuple[Progress, Status]:
    """Print the lines of a run that was started here until it ends; whoever leaves before is told what goes on."""
    try:
        # From here on signals mean what they say; one that came meanwhile comes now.
        try:
            interrupts.release()
        except KeyboardInterrupt:
            _interrupted(started)
        return _stream(started, ours=True)
    except (KeyboardInterrupt, LeftBySignal):
        now, name = status(started), visible(started.name)
        words = f"{name} goes on. {_remote(name)}" if now.state == "running" else f"{name}: {show.state(now)}"
        with suppress(OSError):
            click.echo(words, err=True)
        raise


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
    if number and (problem := unreadable(found.attempt_log(number))):
        click.echo(f"the log of attempt {number} cannot be read: {problem}", err=True)
    else:
        _warn(found, number)
        _explain(found)
    return progress, ended


def _warn(found: RunDir, attempt: int) -> None:
    """Say on stderr where an attempt's processes did not compute as planned."""
    for sentence in ranks(found, attempt).mismatch:
        click.echo(f"error: {sentence}", err=True)


def _explain(found: RunDir) -> None:
    """Say on stderr why a run failed, and what to do."""
    try:
        diagnosis = of_run(found)
    except TuiTrainError as error:
        click.echo(f"why it ended is not known: {error}", err=True)
        return
    if diagnosis:
        click.echo(words(diagnosis, found), err=True)


def _ends(progress: Progress) -> Progress:
    """Return the progress with its first and last point only: however long the run, a line costs the same."""
    first, last = progress.first, progress.last
    return progress._replace(curve=curve.of((first, last))) if first and last and first != last else progress


def _find(reference: str) -> RunDir:
    """Return a run as rundir.find does, and where no id begins so, that of a folder of this name."""
    known = (run.name for run in rundir.all_runs())
    is_folder = reference and rundir.is_run(Path(reference))
    if is_folder and reference != "last" and not any(name.startswith(reference) for name in known):
        return rundir.find(f"./{reference}" if "/" not in reference else reference)
    return rundir.find(reference)


def _code(now: Status) -> int:
    """Return what a viewer that waited for a run ends with: the training's own code; see EXIT_CODES."""
    return 137 if now.state == "lost" else now.exit_code or 0


def _interrupted(found: RunDir) -> None:
    name = visible(found.name)
    if sys.stdin.isatty():
        question = "\n[d]etach (it goes on) or [s]top it?"
        try:
            answer = click.prompt(question, default="d", type=click.Choice(["d", "s"]))
        except click.Abort:
            # Ctrl-C once more, or the end of the input: nobody said that it is to stop.
            answer = "d"
            click.echo()
        if answer == "d":
            click.echo(f"{name} goes on. Watch it: tui-train attach {name}")
            sys.exit(0)
    _end(found, status(found))


def _end(found: RunDir, now: Status) -> Status:
    """End a run; Ctrl-C meanwhile takes its grace away."""
    click.echo(f"stopping {visible(found.name)}: it gets {now.grace} s to save and end; Ctrl-C ends it at once")
    try:
        return end(found)
    except KeyboardInterrupt:
        click.echo("\nending it at once …")
        return end(found, at_once=True)

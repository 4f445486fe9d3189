"""`tui-train runs`, `stop` and `report`: list runs, end one, write its archive."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import click
from msgspec import UnsetType

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.own_command import own_command
from tui_train.base.text import loss_text, size_text, text_table, truncated_text, visible
from tui_train.cli import answers
from tui_train.cli.printing import aligned_table_text, print_json, terminal_width_or_none
from tui_train.facts.other_machines import machine_files
from tui_train.places import fetched_results, place_of_run
from tui_train.places.host_questions import StartUnderWay, list_runs_on_host
from tui_train.places.jobs import refresh_jobs
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runs import archive, run_folders
from tui_train.runs.follow import read_progress
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import queue_reason_text, read_queued_job
from tui_train.runs.status import ListedRun, made_step_count, read_listed_runs, read_status
from tui_train.views import plain_text
from tui_train.views.run_digest import ENDED_LOG_TAIL_BYTES
from tui_train.views.run_ends import next_commands_text

# Left out in this order where there is no room: an id begins with the time of the start.
_COLUMNS_LEFT_OUT = ("started", "attempts", "loss", "step", "took")
_STATE_COLUMN, _MIN_STATE_WIDTH = 1, 14  # more than the numbers have: of the columns the widest is cut


def runs_answer_type() -> object:
    """Return the type of what `print_runs` prints as JSON: of a damaged run, the state alone."""
    attempt = answers.joined_type("AttemptStatus", AttemptStatus)
    known = {name: hint | UnsetType for name, hint in get_type_hints(RunStatus).items() if name != "state"}
    known["attempts"] = tuple[attempt, ...] | UnsetType  # type: ignore[valid-type]
    run = answers.joined_type("RunAnswer", run=str, path=str | None, state=str, **known, damage=str, note=str)
    return tuple[run, ...]  # type: ignore[valid-type]


def print_runs(host: str, *, as_json: bool) -> None:
    """List the runs of this machine, or those on a host, newest first."""
    listing = list_runs_on_host(hosts.host_address(host)) if host else _refresh_and_list_runs()
    if as_json:
        print_json([_listed_run_data(listed, is_here=not host) for listed in listing])
    elif listing:
        click.echo(run_table_text(_run_rows(listing, are_here=not host), terminal_width_or_none()))
        for listed in listing:
            if listed.damage:
                where = visible(host or str(listed.run.path))
                click.echo(f"! {visible(listed.run.name)} is damaged: {listed.damage}\n  See {where}.", err=True)
    else:
        click.echo(f"No runs on {visible(host)}." if host else f"No runs yet. Start one: {own_command()} quickstart")


def run_table_text(rows: Sequence[tuple[str, ...]], width: int | None) -> str:
    """Return the runs as a table; where there is no room for the notes, each stands in a line below its run."""
    notes = [""] * len(rows)
    if rows[0][-1] == "note" and not _fits(rows, width):
        notes = ["", *(row[-1] for row in rows[1:])]
        rows = [row[:-1] for row in rows]
    for name in _COLUMNS_LEFT_OUT:
        if name in rows[0] and not _fits([_with_short_state(row) for row in rows], width):
            column = rows[0].index(name)
            rows = [(*row[:column], *row[column + 1 :]) for row in rows]
    # An id that is cut names no run.
    lines = text_table(rows, width, keeps_names=True).splitlines()
    indent = "  "
    below = [indent + truncated_text(note, (width or 0) - len(indent)) if note else "" for note in notes]
    return "\n".join(text for pair in zip(lines, below, strict=True) for text in pair if text)


def _fits(rows: Sequence[tuple[str, ...]], width: int | None) -> bool:
    return width is None or max(map(len, text_table(rows).splitlines())) <= width


def _with_short_state(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row whose state has lost what may be cut of it, the reason in brackets at its end."""
    state = row[_STATE_COLUMN]
    kept = state[: max(_MIN_STATE_WIDTH, len(state.partition(" (")[0]))]
    return (*row[:_STATE_COLUMN], kept, *row[_STATE_COLUMN + 1 :])


def _refresh_and_list_runs() -> tuple[ListedRun, ...]:
    try:
        refresh_jobs(run_folders.list_runs())
    except TuiTrainError as error:
        click.echo(f"this list may be out of date: {error.message}", err=True)
    return read_listed_runs()


def _run_rows(listing: tuple[ListedRun, ...], *, are_here: bool) -> list[tuple[str, ...]]:
    """Return the runs as a table; attempts are in it where a run had several, the others where there are any."""
    read = [_newest_progress(listed) if are_here else Progress() for listed in listing]
    columns = (
        ("attempts", [plain_text.attempt_count_text(listed) for listed in listing], {"0", "1", "-"}),
        ("step", [_step_text(*each) for each in zip(listing, read, strict=True)], {""}),
        ("loss", [_newest_loss_text(progress) for progress in read], {""}),
        ("note", [visible(listed.run.note()) for listed in listing], {""}),
    )
    more = [(name, *cells) for name, cells, usual in columns if not usual.issuperset(cells)]
    rows = [("run", "state", "started", "took"), *map(plain_text.listed_run_row, listing, read)]
    return [(*row, *cells) for row, *cells in zip(rows, *more, strict=True)]


def _newest_progress(listed: ListedRun) -> Progress:
    attempts = listed.status.attempts[-1:] if listed.status else ()
    return read_progress(listed.run, attempts, last_bytes=ENDED_LOG_TAIL_BYTES)


def _step_text(listed: ListedRun, progress: Progress) -> str:
    """Return how far a run is as `40/150`, or `epoch 3/10`; empty where its log does not say."""
    step = progress.step or (progress.last.step if progress.last else 0)
    step = made_step_count(step, progress.steps, listed.status.state) if listed.status else step
    words = "epoch " if progress.position_word == "epoch" else ""
    return f"{words}{step}" + (f"/{progress.steps}" if progress.steps else "") if step else ""


def _newest_loss_text(progress: Progress) -> str:
    """Return the newest loss, that of an evaluation where no other is reported; empty without one."""
    if progress.last:
        return loss_text(progress.last.loss)
    return f"{loss_text(progress.evaluations.last.loss)} (eval)" if progress.evaluations.last else ""


def _listed_run_data(listed: ListedRun, *, is_here: bool) -> dict[str, Any]:
    state = listed.status.as_plain_data() if listed.status else {"state": "damaged"}
    return {
        "run": listed.run.name,
        "path": str(listed.run.path) if is_here else None,
        **state,
        "damage": listed.damage,
        "note": listed.run.note(),
    }


def stop_runs_and_report(references: tuple[str, ...], *, now: bool) -> None:
    """End runs; `now` without time to save."""
    runs = [_find_run_to_stop(reference) for reference in references]
    if answers.is_dry_run() or answers.answers_in_json():
        at_work = (run for run in runs if _is_at_work(run, _ask_state_before_stop(run)))
        answers.announce_changes(stops=tuple(run.name for run in at_work))
    # What waits for the end of one before it is not to begin meanwhile.
    for run in sorted(runs, key=lambda each: each.name, reverse=True):
        _stop_run_and_report(run, at_once=now)


def _find_run_to_stop(reference: str) -> RunFolder:
    run = next((each.run for each in read_listed_runs() if each.is_stoppable), None) if reference == "last" else None
    return run or run_folders.find_run(reference)


def _ask_state_before_stop(run: RunFolder) -> RunStatus:
    try:
        return place_of_run(run).ask_state(run, with_log=False)
    except StartUnderWay:
        return read_status(run)
    except Unavailable as error:
        raise type(error)(f"{visible(run.name)} was not stopped: {error.message}", error.remedy) from None


def _is_at_work(run: RunFolder, status: RunStatus) -> bool:
    # The job of a run that is lost may be queued again.
    return bool(status.is_live or status.leftover or status.container or read_queued_job(run.path))


def _stop_run_and_report(run: RunFolder, *, at_once: bool) -> None:
    before = _ask_state_before_stop(run)
    if not _is_at_work(run, before):
        click.echo(f"{visible(run.name)} is not running: {plain_text.run_state_text(before)}")
        return
    ended = place_of_run(run).stop(run, at_once=True) if at_once else stop_run_with_grace(run, before)
    click.echo(plain_text.stop_result_text(ended))
    if commands := next_commands_text(run, ended):
        click.echo(commands)
    nodes = run.plan().get("nodes")
    if isinstance(nodes, int) and nodes > 1 and not run.plan().get("slurm"):
        click.echo(f"It trained on {nodes} machines: stop launch.sh on the others as well.")


def stop_run_with_grace(run: RunFolder, status: RunStatus) -> RunStatus:
    """End a run; Ctrl-C meanwhile ends it without its grace period."""
    click.echo(f"stopping {visible(run.name)}: it gets {status.grace} s to save and end; Ctrl-C ends it at once")
    place = place_of_run(run)
    try:
        return place.stop(run)
    except KeyboardInterrupt:
        click.echo("\nending it at once …")
        return place.stop(run, at_once=True)


def started_run_state_text(run: RunFolder) -> str:
    """Return what a run does that was just started, as the end of a sentence."""
    if words := queue_reason_text(run.path):
        return f"is {words}"
    # Whether it has to wait is known only once its machine was looked at.
    return "starts as soon as its GPUs or CPU cores are free" if read_status(run).state == "waiting" else "runs"


def fetch_results_and_report(reference: str, *, checkpoints: bool) -> None:
    """Copy the output folder of a run from its host; without its checkpoints unless they are asked for."""
    run = run_folders.find_run(reference)
    fetched_results.require_place_to_fetch_from(run)
    answers.announce_changes(writes=(str(run.path),))
    result = fetched_results.fetch_results(run, with_checkpoints=checkpoints)
    status = read_status(run)
    what = f"{size_text(result.size)} fetched" if result.size else "nothing new was fetched"
    click.echo(f"{what} from {visible(status.host)} into {visible(str(run.path))}")
    if result.left_out:
        click.echo(f"Not fetched (not plain files): {result.left_out}")
    if status.is_live:
        click.echo(f"{visible(run.name)} still trains: fetch again when it has ended.")


def write_run_archive(reference: str, file: Path | None, *, force: bool) -> None:
    """Write a run's archive, and list what is in it."""
    run = run_folders.find_run(reference)
    name = archive.archive_stem(run)
    path = file or Path(f"{name}.tar.gz")
    if path.is_dir():
        path /= f"{name}.tar.gz"
    if not force and os.path.lexists(path):
        raise archive.already_exists_error(path)
    answers.announce_changes(writes=(str(path.absolute()),))
    files = archive.masked_archive_entries(run, _probe_machine_file_text(run))
    archive.write_archive(path, name, files, replace=force)
    rows = [
        (visible(entry.name), size_text(len(entry.text)), str(sum(entry.masked.values()) or "-")) for entry in files
    ]
    click.echo(aligned_table_text([("file", "size", "masked"), *rows]))
    kinds = archive.count_masked_by_kind(files)
    masked = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())) or "no secret was found"
    click.echo(f"masked: {masked}; and names of users, hosts and home folders")
    click.echo(
        f"Written to {visible(str(path))}. Read it before you send it: some secrets may not have been recognized."
    )


def _probe_machine_file_text(run: RunFolder) -> str:
    """Return the machine file of where a run is; empty where that does not answer."""
    place = read_remote_location(run.path)
    click.echo(f"Looking at {visible(place.host) if place else 'this machine'} …")
    try:
        return machine_files.machine_file_text(place_of_run(run).probe_facts_for(run.read_profile() or Profile()))
    except Unavailable as error:
        click.echo(f"Left out what it is: {error}", err=True)
        return ""

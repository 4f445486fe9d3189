"""`tui-train queue`: the runs of all users that wait for GPUs or CPU cores of a machine, in order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from tui_train.base.app_paths import trials_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import read_error_reason
from tui_train.base.text import duration_text, quantity, visible
from tui_train.cli import answers
from tui_train.cli.printing import aligned_table_text, print_json
from tui_train.places.host_questions import ask_queue, ask_queue_move
from tui_train.profile import hosts
from tui_train.runner.queue.listing import WaitingStart, list_waiting_starts, move_in_queue
from tui_train.runner.queue.tickets import queue_folder_path
from tui_train.runner.system.safe_open import user_name
from tui_train.runs import run_folders
from tui_train.runs.remote_run import read_remote_location


def queue_answer_type() -> object:
    """Return the type of what `print_queue` prints as JSON."""
    return tuple[answers.joined_type("WaitingStart", WaitingStart), ...]  # type: ignore[misc]


def print_queue(host: str, *, as_json: bool) -> None:
    """List what waits on this machine or a host, the next one first."""
    with _raising_unusable_queue():
        waiting = ask_queue(hosts.host_address(host)) if host else list_waiting_starts()
    if as_json:
        print_json([start._asdict() for start in waiting])
    elif waiting:
        # What another user's run of the same name is noted with is not known here.
        here = {run.name: run for run in run_folders.list_runs()}
        own = [here.get(start.run) if host or start.user == user_name(os.geteuid()) else None for start in waiting]
        notes = [visible(run.note()) if run else "" for run in own]
        # The first column, by which a run is moved, is the last to be cut.
        rows = [
            (f"{number}  {visible(start.run)}", *([note] if any(notes) else []), *_queue_cells(start))
            for number, (start, note) in enumerate(zip(waiting, notes, strict=True), start=1)
        ]
        heads = ("   run", *(["note"] if any(notes) else []), "user", "waits", "for", "why")
        click.echo(aligned_table_text([heads, *rows]))
    else:
        click.echo("Nothing waits. Let a run wait for its GPUs: tui-train run PROFILE --when-free")


def move_run(reference: str, *, to_front: bool) -> None:
    """Move a run or tune that waits before or after all others of this user, and list what waits there."""
    host = ""
    with _raising_unusable_queue():
        _require_waiting(reference)
        answers.announce_changes(writes=(f"{queue_folder_path()}: the place of {reference}",))
        if not move_in_queue(str(trials_folder() / reference), to_front=to_front):
            run = run_folders.find_run(reference)
            if place := read_remote_location(run.path):
                host = place.host
                ask_queue_move(place, to_front=to_front)
            elif not move_in_queue(str(run.path), to_front=to_front):
                raise _does_not_wait_error(run)
    print_queue(host, as_json=False)


def _require_waiting(reference: str) -> None:
    """Raise BadInput where a run of this machine does not wait; of one on a host, that is told by its queue."""
    waiting = {start.run for start in list_waiting_starts()}
    if reference in waiting:
        return
    run = run_folders.find_run(reference)
    if not read_remote_location(run.path) and visible(run.name) not in waiting:
        raise _does_not_wait_error(run)


def _does_not_wait_error(run: run_folders.RunFolder) -> BadInput:
    return BadInput(f"{visible(run.name)} does not wait", "See `tui-train queue`.")


@contextmanager
def _raising_unusable_queue() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        words = f"cannot use the queue {visible(queue_folder_path())}: {read_error_reason(error)}"
        raise Unavailable(words, "See docs/queue.md.") from None


def _queue_cells(start: WaitingStart) -> tuple[str, ...]:
    return (
        visible(start.user),
        duration_text(start.seconds),
        _requested_resources_text(start),
        visible(start.why),
    )


def _requested_resources_text(start: WaitingStart) -> str:
    if start.cores:
        return quantity(start.cores, "CPU core")
    if start.gpus < start.gpus_to_choose_from:
        return f"{start.gpus} of {start.gpus_to_choose_from} GPUs"
    return quantity(start.gpus, "GPU")

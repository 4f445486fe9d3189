"""`tui-train runs rm|mv|note` and `tui-train profiles rm|mv|cp`."""

from collections.abc import Sequence

import click

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.text import quantity, size_text, visible
from tui_train.cli import answers
from tui_train.places import place_of_run
from tui_train.places.host_questions import ask_removable_size, ask_removal, find_runs_on_host
from tui_train.profile import store
from tui_train.profile.hosts import host_address
from tui_train.runner.system.folder_usage import folder_usage
from tui_train.runs import folders, run_folders
from tui_train.runs.folders import other_hosts_of_run
from tui_train.runs.remote_run import read_remote_location, read_run_location
from tui_train.runs.run_folders import RunFolder


def remove_runs(references: Sequence[str], *, yes: bool, only_here: bool = False) -> None:
    """Remove runs after a question, of one on a host its folder there as well, unless `only_here`.

    Nothing is removed where one of them is unknown or at work, or a host does not answer.
    """
    # A profile's name would remove its newest run, which is not what was named.
    runs = tuple(dict.fromkeys(run_folders.find_run(reference, by_profile=False) for reference in references))
    for run in runs:
        place_of_run(run).refuse_if_active_or_outside(run)
    elsewhere = {} if only_here else {run: _removable_size_elsewhere(run) for run in runs}
    sizes = {run: folder_usage(str(run.path)).size for run in runs}
    for run, taken in sizes.items():
        host = read_run_location(run.path).host if elsewhere.get(run) else ""
        there = f", and {size_text(elsewhere[run])} on {visible(host)}" if host else ""
        copies = () if only_here else other_hosts_of_run(run)
        others = f", and its copies on {visible(', '.join(copies))}" if copies else ""
        click.echo(f"{visible(run.name)}  {size_text(taken)}{there}{others}")
    total = sum(sizes.values()) + sum(elsewhere.values())
    answers.announce_changes(
        removes=tuple(path for run in runs for path in _folders_to_remove(run, only_here=only_here))
    )
    _confirm_removal(f"Remove {quantity(len(runs), 'run')}, {size_text(total)}?", yes=yes)
    freed, removed = 0, 0
    try:
        for run in runs:
            freed += folders.remove_run(run) if only_here else place_of_run(run).remove(run) + elsewhere[run]
            removed += 1
    finally:
        click.echo(f"removed {quantity(removed, 'run')}, freed {size_text(freed)}")


def _folders_to_remove(run: RunFolder, *, only_here: bool) -> tuple[str, ...]:
    """Return a run's folder here, and those on hosts as HOST:FOLDER."""
    there = None if only_here else read_remote_location(run.path)
    copies = () if only_here else other_hosts_of_run(run)
    on_host = (f"{there.host}:{there.folder}",) if there and not there.shared else ()
    return (str(run.path), *on_host, *(f"{host}:{read_run_location(run.path).folder}" for host in copies))


def _removable_size_elsewhere(run: RunFolder) -> int:
    try:
        return place_of_run(run).removable_size_elsewhere(run)
    except NoAnswer as error:
        error.remedy = f"{error.remedy} `runs rm --here` removes only what is here."
        raise


def remove_runs_on_host(references: Sequence[str], host: str, *, yes: bool) -> None:
    """Remove runs on a host after a question, whoever started them; copies of them here stay."""
    places = find_runs_on_host(host_address(host), references)
    sizes = {place: ask_removable_size(place) for place in places}
    for place, taken in sizes.items():
        click.echo(f"{visible(place.folder)}  {size_text(taken)}")
    total = size_text(sum(sizes.values()))
    answers.announce_changes(removes=tuple(f"{host}:{place.folder}" for place in places))
    _confirm_removal(f"Remove {quantity(len(places), 'run')} on {visible(host)}, {total}?", yes=yes)
    for place in places:
        ask_removal(place, ended=True)
        click.echo(f"removed {visible(place.folder)} on {visible(host)}, freed {size_text(sizes[place])}")


def rename_run(reference: str, new_name: str) -> None:
    """Rename a run and print its new id."""
    run = run_folders.find_run(reference, by_profile=False)
    place_of_run(run).refuse_if_active_or_outside(run)
    answers.announce_changes(writes=(str(folders.renamed_run_folder(run, new_name)),), removes=(str(run.path),))
    renamed = folders.rename_run(run, new_name)
    click.echo(f"renamed to {visible(renamed.name)}")


def print_or_write_note(reference: str, text: str | None) -> None:
    """Print a run's note, or keep another one."""
    run = run_folders.find_run(reference)
    if text is None:
        click.echo(visible(run.note()) or f"{visible(run.name)} has no note")
        return
    folders.require_short_note(text)
    where = (str(run.note_file),)
    answers.announce_changes(writes=where if text.strip() else (), removes=() if text.strip() else where)
    folders.write_note(run, text)
    click.echo(f"{'noted' if text.strip() else 'note removed'}: {visible(run.name)}")


def remove_profiles(names: Sequence[str], *, yes: bool) -> None:
    """Remove saved profiles after a question; nothing is removed where one of them is unknown."""
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        store.saved_profile_path(name)
    answers.announce_changes(removes=tuple(str(store.saved_profile_path(name)) for name in wanted))
    _confirm_removal(f"Remove {quantity(len(wanted), 'profile')}: {visible(', '.join(wanted))}?", yes=yes)
    for name in wanted:
        store.remove_profile(name)
    click.echo(f"removed {quantity(len(wanted), 'profile')}")


def rename_profile(name: str, new_name: str) -> None:
    """Rename a saved profile."""
    old = str(store.saved_profile_path(name))
    answers.announce_changes(writes=(str(store.path_for_copy(name, new_name)),), removes=(old,))
    click.echo(f"renamed to {visible(str(store.rename_profile(name, new_name)))}")


def duplicate_profile(name: str, new_name: str) -> None:
    """Save a profile once more."""
    answers.announce_changes(writes=(str(store.path_for_copy(name, new_name)),))
    click.echo(f"saved {visible(str(store.duplicate_profile(name, new_name)))}")


def _confirm_removal(question: str, *, yes: bool) -> None:
    why = "no terminal to confirm on, so nothing was removed"
    answers.confirm(question, Unavailable(why, "Add --yes to remove without asking."), yes=yes)

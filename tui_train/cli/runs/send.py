"""`tui-train send`: copies the project, data and model of a profile to its hosts, to the same paths."""

import time
from pathlib import Path

import click

from tui_train.base.errors import BadInput
from tui_train.base.text import display_path, names_text, percent, quantity, size_text, visible
from tui_train.cli import answers
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.cli.printing import clear_progress_line, print_progress
from tui_train.facts.data.image_files import image_files_of_data
from tui_train.facts.scripts.project_files import (
    FileSet,
    data_or_model_file_set,
    file_sets_of_single_files,
    project_file_set,
)
from tui_train.places.sent_files import FilesToSend, HostToSendTo, find_files_to_send, send_files
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.trainers import profile_paths_to_check, trainer_has_own_field, trainer_of

_MAX_NAMES = 8
_PROGRESS_SECONDS = 1.0


def send_profile_files(reference: str, *, edits: tuple[str, ...], host: str, yes: bool) -> None:
    """Copy the project and the other files of a profile to its hosts, after showing and asking what is sent."""
    profile = apply_edits(load_profile(reference), edits)
    targets = _hosts_to_send_to(profile, host or profile.hardware.host)
    file_sets = _file_sets(profile)
    for file_set in file_sets:
        _print_file_set(file_set)
    missing = [(target, _find_and_print_missing_files(target, file_sets)) for target in targets]
    answers.announce_changes(
        sends=tuple(
            f"{target.name}:{each.folder}/{file.name}"
            for target, sets in missing
            for each in sets
            for file, _ in each.files
        )
    )
    if not any(each for _, each in missing):
        return
    why = "nothing was sent: there is no terminal to ask on"
    answers.confirm("Send?", BadInput(why, "Look at the list, then send it: --yes"), yes=yes)
    for index, (target, files) in enumerate(missing):
        # What was just sent is there as well where several hosts share a disk.
        for each in _missing_files_on_host(target, file_sets) if index and files else files:
            _send_and_report(target, each)


def _hosts_to_send_to(profile: Profile, host: str) -> list[HostToSendTo]:
    """Return the other machines of a profile: the first by its name here, the rest as that one reaches them."""
    address = hosts.host_address(host)
    targets = [HostToSendTo(host, address)] if host else []
    targets += [HostToSendTo(name, name, address or None) for name in profile.nodes.hosts[1:]]
    if not targets:
        raise BadInput("no host is named", "Name the host: --on HOST, or --set hardware.host=HOST.")
    return targets


def _file_sets(profile: Profile) -> list[FileSet]:
    """Return the project of the script, and what else the profile names and is on this machine; BadInput for nothing.

    Its output and working folders are none of that, nor are what a container mounts and its image.
    """
    trainer = profile.trainer
    container = {profile.container.image, *(mount.partition(":")[0] for mount in profile.container.mounts)}
    left_out = {trainer.output, trainer.working_directory, *container}
    named = [path for path in profile_paths_to_check(profile) if path not in left_out]
    existing = [path for path in named if Path(path).exists()]
    if not existing:
        names = ", ".join(map(visible, named))
        why = f"none of {names} is on this machine" if named else "it names none"
        raise BadInput(f"there are no files to send: {why}", "Name its script, data or model by paths of this machine.")
    file_sets = []
    if trainer.script in existing and trainer_has_own_field(profile, "trainer.script"):
        own_paths = {trainer.output, *existing} - {trainer.script}
        file_sets.append(project_file_set(trainer.script, trainer.working_directory, own_paths))
    sent = {f"{file_set.folder}/{file.name}" for file_set in file_sets for file in file_set.files}
    others = [path for path in existing if path not in sent and path != trainer.script]
    file_sets += (data_or_model_file_set(path) for path in others if not any(_is_below(path, at) for at in others))
    if trainer_of(profile).requires_user_data:
        # Rows that name images are of no use without them.
        named = image_files_of_data(
            tuple(path for path in existing if path in {*trainer.data, *trainer.validation_data})
        )
        file_sets += file_sets_of_single_files(
            path for path in named if path not in sent and not any(_is_below(path, at) for at in others)
        )
    return file_sets


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _print_file_set(file_set: FileSet) -> None:
    kind = " (git: tracked, and not ignored)" if file_set.is_git else ""
    files = f"{quantity(len(file_set.files), 'file')}, {size_text(file_set.size)}"
    click.echo(f"{display_path(file_set.folder)}{kind}: {files}")
    if file_set.git_problem:
        click.echo(f"  including what git ignores: {visible(file_set.git_problem)}")
    if file_set.left_out:
        named = [f"{visible(name)} ({visible(why)})" for name, why in file_set.left_out]
        click.echo(f"  left out: {names_text(named, _MAX_NAMES)}")


def _find_and_print_missing_files(host: HostToSendTo, file_sets: list[FileSet]) -> list[FilesToSend]:
    """Return what a host lacks, and print how much that is."""
    missing = _missing_files_on_host(host, file_sets)
    count, size = sum(len(each.files) for each in missing), sum(each.size for each in missing)
    words = f"{quantity(count, 'file')} to send, {size_text(size)}" if count else "all files are there"
    click.echo(f"{visible(host.name)}: {words}")
    for label, names in (
        ("replaced there", [name for each in missing for name in each.replaced if name not in each.newer]),
        ("replaced there, though NEWER than here", [name for each in missing for name in each.newer]),
    ):
        if names:
            click.echo(f"  {label}: {names_text([*map(visible, names)], _MAX_NAMES)}")
    return missing


def _missing_files_on_host(host: HostToSendTo, file_sets: list[FileSet]) -> list[FilesToSend]:
    return [each for each in (find_files_to_send(host, file_set) for file_set in file_sets) if each.files]


def _send_and_report(host: HostToSendTo, missing: FilesToSend) -> None:
    """Send files, with their share on a terminal."""
    total, shown_at = missing.size, time.monotonic()
    label = f"{visible(host.name)}: {display_path(missing.folder)}"

    def show(sent: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > _PROGRESS_SECONDS:
            shown_at = time.monotonic()
            print_progress(f"{label}  {percent(sent / total)} of {size_text(total)}", only_on_terminal=True)

    try:
        send_files(host, missing, show)
    finally:
        clear_progress_line()
    click.echo(f"{label}: {quantity(len(missing.files), 'file')} sent")

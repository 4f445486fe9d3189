"""`tui-train send`: copies the files of a profile to its host, by rsync, to the same paths."""

import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

import click

from tui_train.actions.machine_facts import FactsSource, source_for_profile
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.text import visible
from tui_train.channel import ssh
from tui_train.cli.plans.plans import apply_edits, load_profile
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.trainers import profile_paths_to_check

_INSTALL_RSYNC_REMEDY = "Install it on both machines (apt install rsync), or copy the files yourself."
# The exit codes of rsync by which the other side has none, and by which ssh failed.
_NO_RSYNC_EXIT_CODE, _HOST_LOST_EXIT_CODE = 127, 255
_MAX_LINE_BYTES, _PRINTER_JOIN_SECONDS = 4096, 2.0  # bytes of a line, seconds


def send_profile_files(reference: str, edits: tuple[str, ...], source: FactsSource, *, dry_run: bool) -> None:
    """Copy the files of a profile to its host, or print the commands that would."""
    profile = apply_edits(load_profile(reference), edits)
    host = source_for_profile(profile, source).host
    if not host:
        raise BadInput("no host is named", "Name the host: --on HOST, or --set hardware.host=HOST.")
    paths = _files_to_send(profile)
    for path, words in zip(paths, _rsync_commands(paths, hosts.host_address(host)), strict=True):
        click.echo(visible(shlex.join(words)) if dry_run else f"{visible(str(path))} to {visible(host)}")
        if not dry_run:
            _run_rsync(words)


def _files_to_send(profile: Profile) -> tuple[Path, ...]:
    """Return the files and folders of this machine that a profile names; what lies in a folder among them is left out.

    Its output and working folders are none of them, nor are what a container mounts and its image.
    BadInput where there is none.
    """
    container = {profile.container.image, *(mount.partition(":")[0] for mount in profile.container.mounts)}
    # A working folder may hold anything: secrets, other data, the results of earlier runs.
    left_out = {profile.trainer.output, profile.trainer.working_directory, *container}
    named = [Path(path) for path in profile_paths_to_check(profile) if path not in left_out]
    existing = [path for path in named if path.exists()]
    if not existing:
        why = (
            f"none of {', '.join(visible(str(path)) for path in named)} is on this machine"
            if named
            else "it names none"
        )
        raise BadInput(f"there are no files to send: {why}", "Name its script, data or model by paths of this machine.")
    return tuple(path for path in existing if not any(other in path.parents for other in existing))


def _rsync_commands(paths: tuple[Path, ...], host: str) -> Iterator[list[str]]:
    """Yield the rsync that brings each of some paths to a host; nothing there is deleted."""
    if ":" in host:
        raise BadInput(f"rsync cannot use the host name {visible(host)}", "Give the host a name in ~/.ssh/config.")
    shell = shlex.join(ssh.ssh_command_prefix(host)[:-2])
    for path in paths:
        end = "/" if path.is_dir() else ""
        folder = str(path) if end else str(PurePosixPath(path).parent)
        there = f"mkdir -p -- {shlex.quote(folder)} && rsync"
        # -s: a name is no word of the shell there. -L: a model of the Hub's cache is links to files elsewhere.
        options = ["-a", "-L", "-s", "--partial", "--info=progress2", f"--rsync-path={there}", "-e", shell]
        yield ["rsync", *options, "--", f"{path}{end}", f"{host}:{path}{end}"]


def _print_stderr_lines(stderr: IO[bytes]) -> None:
    """Print what rsync, ssh and the host say, without what would change the terminal."""
    with suppress(ValueError, OSError):
        while line := stderr.readline(_MAX_LINE_BYTES):
            sys.stderr.write(f"{visible(line.decode(errors='replace').rstrip())}\n")


def _run_rsync(words: list[str]) -> None:
    """Run one of these commands, its progress on the terminal; Unavailable where it fails: it can be repeated."""
    if not shutil.which("rsync"):
        raise Unavailable("rsync is not on this machine", _INSTALL_RSYNC_REMEDY)
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        printer = threading.Thread(target=_print_stderr_lines, args=(child.stderr,), daemon=True)
        printer.start()
        code = child.wait()
        # A connection that stays for the next command may keep it open.
        printer.join(_PRINTER_JOIN_SECONDS)
    if code == _NO_RSYNC_EXIT_CODE:
        raise Unavailable("rsync is not on that host", _INSTALL_RSYNC_REMEDY)
    if code:
        why = "the host was not reached" if code == _HOST_LOST_EXIT_CODE else f"rsync ended with exit code {code}"
        raise Unavailable(
            f"not all was sent: {why}", ("Fix that, and run the command again: it sends only what is missing.")
        )

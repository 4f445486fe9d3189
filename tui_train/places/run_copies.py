"""The copies of a run's folder on the other hosts that trained it."""

from contextlib import suppress

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.places.host_questions import RunFolderGone, ask_removable_size, ask_removal
from tui_train.profile.hosts import host_address
from tui_train.runs.folders import other_hosts_of_run, refuse_if_active
from tui_train.runs.remote_run import RunLocation, read_run_location
from tui_train.runs.run_folders import RunFolder


def remove_copies_on_hosts(run: RunFolder) -> None:
    """Remove the copies of a run that has ended; Unavailable names the hosts on which they are left, and why.

    A host that sees the very folder of the first one has none: something was started in it.
    """
    if not (hosts := other_hosts_of_run(run)):
        return
    place = read_run_location(run.path)
    if place.host and not place.shared:
        with suppress(RunFolderGone):
            ask_removable_size(place)
    else:
        refuse_if_active(run)
    asking_host = host_address(place.host) if place.host else None
    left: list[str] = []
    for host in hosts:
        try:
            ask_removal(RunLocation(host, place.folder), asking_host=asking_host)
        except RunFolderGone:
            continue
        except Unavailable as error:
            left.append(f"{visible(host)} ({error.message.rstrip('.')})")
    if left:
        why = f"{visible(place.folder)} is left on {', '.join(left)}, and on {visible(place.host) or 'this machine'}"
        remedy = f"Try again, or remove it there by hand and then: tui-train runs rm --here {visible(run.name)}"
        raise Unavailable(why, remedy)

"""Entries of `container.mounts` as data: HOST:INSIDE or HOST:INSIDE:ro."""

from typing import NamedTuple


class Mount(NamedTuple):
    """A file or folder of the machine, where it is seen in the container, and whether it may be written there."""

    host: str
    inside: str
    read_only: bool = False


def parse_mount(text: str) -> Mount | None:
    """Return what a mount says, None where it is not HOST:INSIDE with two absolute paths, or ends unknown."""
    read_only = text.endswith(":ro")
    paths = text[:-3] if read_only or text.endswith(":rw") else text
    # A path may hold colons; the last one before a slash is the one between the two.
    host, colon, inside = paths.rpartition(":/")
    if not colon or not host.startswith("/"):
        return None
    return Mount(host, f"/{inside}", read_only)

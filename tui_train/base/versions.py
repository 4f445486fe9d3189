"""Versions of libraries, as they are installed: "2.13.0+cpu", "2.9.0a0+50eac811a6.nv25.09".

One before a release counts as that release: the builds of NVIDIA's containers are named so, and have what it has.
"""

import functools

from packaging.version import Version


def at_least(version: str | None, wanted: str) -> bool:
    """Tell whether a version is `wanted` or newer; one that cannot be read is taken to be new."""
    found = _release(version or "")
    return found is None or found >= Version(wanted)


def older(version: str | None, than: str) -> bool:
    """Tell whether a version is known to be older than another."""
    return not at_least(version, than)


def known_since(version: str | None, wanted: str) -> bool:
    """Tell whether a version is known, and is `wanted` or newer."""
    return _release(version or "") is not None and at_least(version, wanted)


def major(version: str | None) -> int | None:
    """Return the first number of a version; None where it cannot be read."""
    found = _release(version or "")
    return found.major if found else None


@functools.lru_cache(maxsize=256)
def _release(version: str) -> Version | None:
    """Return a version without what makes it a build of its own or one before its release."""
    try:
        return Version(Version(version).base_version)
    except ValueError:  # the texts are from outside, and a number may be too long for int
        return None

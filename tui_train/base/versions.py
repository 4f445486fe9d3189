"""Versions of installed libraries, such as "2.13.0+cpu" and "2.9.0a0+50eac811a6.nv25.09".

A pre-release counts as the release: NVIDIA's containers have such builds, with the features of the release.
"""

import functools

from packaging.version import Version


def is_at_least_or_unknown(version: str | None, minimum: str) -> bool:
    """Return whether a version is `minimum` or newer; an unreadable one counts as new."""
    release = _release_version(version or "")
    return release is None or release >= Version(minimum)


def is_known_older(version: str | None, minimum: str) -> bool:
    """Return whether a version is known to be older than another."""
    return not is_at_least_or_unknown(version, minimum)


def is_known_at_least(version: str | None, minimum: str) -> bool:
    """Return whether a version is known and is `minimum` or newer."""
    return _release_version(version or "") is not None and is_at_least_or_unknown(version, minimum)


def major_version(version: str | None) -> int | None:
    """Return the first number of a version, None if unreadable."""
    release = _release_version(version or "")
    return release.major if release else None


@functools.lru_cache(maxsize=256)
def _release_version(version: str) -> Version | None:
    """Return the release numbers of a version, without pre-release and build parts."""
    try:
        return Version(Version(version).base_version)
    except ValueError:  # untrusted text: a number may be too long for int
        return None

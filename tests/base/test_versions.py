"""Versions are compared as they are installed, and what cannot be read hides nothing."""

import pytest

from tui_train.base.versions import is_at_least_or_unknown, is_known_at_least, is_known_older, major_version

NVIDIA = "2.9.0a0+50eac811a6.nv25.09"


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("2.13.0+cpu", "2.13"), ("2.13", "2.13.0"), ("2.10", "2.9"), (NVIDIA, "2.9"), ("1.15.0.dev0", "1.15"),
        ("5.0.0rc1", "5"), ("2.7.0.post1", "2.7"), ("v2.8", "2.8"),
    ],
)  # fmt: skip
def test_a_version_and_its_builds_are_as_new_as_its_release(version, wanted):
    assert is_at_least_or_unknown(version, wanted)
    assert is_known_at_least(version, wanted)
    assert not is_known_older(version, wanted)


@pytest.mark.parametrize(
    ("version", "wanted"), [("2.9.1", "2.10"), (NVIDIA, "2.9.1"), ("4.57.6", "5"), ("0.4", "0.26")]
)
def test_an_older_one_is_older(version, wanted):
    assert is_known_older(version, wanted)
    assert not is_known_at_least(version, wanted)


@pytest.mark.parametrize("version", [None, "", "main", "git-1234", "1" * 9999, "2.8\n\x1b[31m", "٢.٨"])
def test_what_cannot_be_read_is_neither_old_nor_known(version):
    assert is_at_least_or_unknown(version, "2.8")
    assert not is_known_at_least(version, "2.8")
    assert major_version(version) is None


@pytest.mark.parametrize(("version", "number"), [("12.8", 12), ("13", 13), ("0.4.1", 0)])
def test_the_major_version(version, number):
    assert major_version(version) == number

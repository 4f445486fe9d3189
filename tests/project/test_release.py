"""A version is cut: CHANGELOG, the one place of the version, a commit and a tag."""

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELEASE = runpy.run_path(str(ROOT / "assets" / "release.py"))
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- It flies.\n\n## [0.1.0] - 2026-01-01\n\n- It walks.\n"


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a person")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "person@example.org")
    (tmp_path / "tui_train").mkdir()
    (tmp_path / "tui_train/__init__.py").write_text('"""A program."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def test_a_version_is_cut_once(checkout):
    RELEASE["release"](checkout, "0.2.0")
    assert '__version__ = "0.2.0"\n' in (checkout / "tui_train/__init__.py").read_text()
    before, _, rest = (checkout / "CHANGELOG.md").read_text().partition("## [0.2.0] - ")
    assert before.endswith("## [Unreleased]\n\n")
    assert "- It flies.\n\n## [0.1.0]" in rest
    assert git(checkout, "describe", "HEAD") == "v0.2.0"
    assert git(checkout, "status", "--porcelain") == ""
    with pytest.raises(SystemExit, match="there already"):
        RELEASE["release"](checkout, "0.2.0")
    with pytest.raises(SystemExit, match="nothing under Unreleased"):
        RELEASE["release"](checkout, "0.3.0")


@pytest.mark.parametrize(("version", "why"), [("0.0.9", "a later one"), ("1", "three numbers"), ("", "three numbers")])
def test_a_version_that_is_none_is_refused(checkout, version, why):
    with pytest.raises(SystemExit, match=why):
        RELEASE["release"](checkout, version)
    assert (checkout / "CHANGELOG.md").read_text() == CHANGELOG


def test_a_checkout_with_changes_is_refused(checkout):
    (checkout / "CHANGELOG.md").write_text(CHANGELOG + "more\n")
    with pytest.raises(SystemExit, match="commit them first"):
        RELEASE["release"](checkout, "0.2.0")


def test_the_changelog_of_this_project_can_be_cut():
    text = RELEASE["cut_changelog"]((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "9.9.9", "2026-01-01")
    assert "## [Unreleased]\n\n## [9.9.9] - 2026-01-01\n\n### " in text

"""Cuts a version: `python assets/release.py 0.2.0` moves what is unreleased in CHANGELOG, commits and tags; no push."""

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

_UNRELEASED = "## [Unreleased]\n"


def cut_changelog(text: str, version: str, day: str) -> str:
    """Return the changelog with all that is unreleased under a version; SystemExit where there is nothing."""
    before, heading, after = text.partition(_UNRELEASED)
    entries = re.split(r"^## \[", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not heading or not entries.strip():
        sys.exit("CHANGELOG.md has nothing under Unreleased: write what users get.")
    return f"{before}{_UNRELEASED}\n## [{version}] - {day}\n{after}"


def with_version(text: str, version: str) -> str:
    """Return tui_train/__init__.py with a version; SystemExit where it is no later one."""
    found = re.search(r'^__version__ = "([\d.]+)"$', text, re.MULTILINE)
    if not found or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit("A version has three numbers: make release VERSION=0.2.0")
    if _numbers(version) < _numbers(found[1]):
        sys.exit(f"The version is {found[1]} already: take a later one than that.")
    return text[: found.start(1)] + version + text[found.end(1) :]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def release(root: Path, version: str) -> None:
    """Cut a version in a checkout; SystemExit says why it cannot be."""
    package, changelog = root / "tui_train" / "__init__.py", root / "CHANGELOG.md"
    if _git(root, "status", "--porcelain"):
        sys.exit("The checkout has changes: commit them first.")
    if _git(root, "tag", "--list", f"v{version}"):
        sys.exit(f"The tag v{version} is there already.")
    texts = {
        package: with_version(package.read_text(encoding="utf-8"), version),
        changelog: cut_changelog(
            changelog.read_text(encoding="utf-8"), version, f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"
        ),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    _git(root, "commit", "--quiet", "--all", "--message", f"Release {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"tui-train {version}")


if __name__ == "__main__":
    _version = sys.argv[1] if len(sys.argv) == 2 else ""
    release(Path(__file__).parents[1], _version)
    sys.stdout.write(f"Tagged v{_version}. To publish it, after `make test`: git push --follow-tags\n")

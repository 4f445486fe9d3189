"""What every test gets: folders of its own for profiles and runs."""

import signal

import pytest

# Whoever starts tests in the background leaves Ctrl-C ignored, in every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Keep the developer's own profiles and runs out of the tests, and the tests out of them."""
    home = tmp_path_factory.mktemp("xdg")
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))


def pytest_terminal_summary(terminalreporter):
    """Say aloud what could not be tested, which a mere "s" would hide."""
    for report in terminalreporter.stats.get("skipped", []):
        if "NOT TESTED" in str(report.longrepr):
            terminalreporter.write_sep("!", "NOT TESTED", red=True, bold=True)
            terminalreporter.write_line(f"{report.nodeid}: {report.longrepr[-1]}")

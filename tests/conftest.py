"""What every test gets: folders of its own for profiles and runs."""

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Keep the developer's own profiles and runs out of the tests, and the tests out of them."""
    home = tmp_path_factory.mktemp("xdg")
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))

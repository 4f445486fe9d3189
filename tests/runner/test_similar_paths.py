"""Tests of what is named near a missing path."""

import os
from pathlib import Path

from tui_train.runner.system.paths import similar_existing_path


def test_no_name_is_offered_that_no_profile_could_hold(tmp_path: Path) -> None:
    """A name that is not UTF-8 ended plan --json with a fault where it was the nearest."""
    wanted = str(tmp_path / "train.py")
    os.close(os.open(os.fsencode(tmp_path) + b"/tra\xffin.py", os.O_CREAT, 0o600))
    assert similar_existing_path(wanted) == f"{tmp_path}/"
    (tmp_path / "trains.py").touch()
    assert similar_existing_path(wanted) == str(tmp_path / "trains.py")

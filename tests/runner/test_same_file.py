"""A file that is sent is the same as the one there by its size and time, as exactly as both disks keep it."""

import json
import os

import pytest

from tui_train.runner.questions.project_files import send_which_files_are_missing

AT = 1_800_000_000_123_456_789


@pytest.mark.parametrize(
    ("here", "there", "is_same"),
    [
        (AT, AT, True),
        (AT, AT // 1000 * 1000, True),
        (AT, AT // 10**9 * 10**9, True),
        (AT // 10**9 * 10**9, AT, True),
        # It was changed within the second in which it was sent.
        (AT + 200_000_000, AT, False),
        (AT + 10**9, AT // 10**9 * 10**9, False),
    ],
)
def test_a_file_is_the_same_by_a_time_that_a_disk_may_keep_less_exactly(tmp_path, capsys, here, there, is_same):
    file = tmp_path / "train.py"
    file.write_text("rate = 1\n")
    os.utime(file, ns=(there, there))
    send_which_files_are_missing(
        {"folder": str(tmp_path), "files": [["train.py", file.stat().st_size, here, 0o644, ""]]}
    )
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert missing == ([] if is_same else [[0, 0, there]])

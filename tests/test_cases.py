"""Each folder of cases/ is a profile, a machine, and the files that they become; a changed script is a change to read.

To write the expected files anew: TUI_TRAIN_UPDATE_CASES=1 pytest tests/test_cases.py
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tui_train.facts.types import Facts
from tui_train.profile import store
from tui_train.workflow import prepare

CASES = sorted(path.parent for path in (Path(__file__).parent / "cases").glob("*/profile.toml"))
UPDATE = os.environ.get("TUI_TRAIN_UPDATE_CASES") == "1"


def rendered(case):
    """The files of a case, but for those that are copied as they are."""
    profile = store.load(str(case / "profile.toml"))
    found = msgspec.json.decode((case / "facts.json").read_bytes(), type=Facts)
    prepared = prepare(profile, found)
    assert prepared.plan is not None, prepared.findings
    copied = {program.path for program in prepared.plan.programs}
    return {file.path: file.text for file in prepared.files if file.path not in copied}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_becomes_what_is_expected(case):
    files = rendered(case)
    if UPDATE:
        for path, text in files.items():
            (case / path).write_text(text)
    assert {path.name for path in case.iterdir()} == {*files, "facts.json"}
    for path, text in files.items():
        assert (case / path).read_text() == text, f"{case.name}/{path}: see the head of this file"


def test_the_expected_scripts_are_clean():
    scripts = [case / "launch.sh" for case in CASES]
    assert len(scripts) >= 5
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    checked = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "--norc", *scripts], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout[:3000]


def test_an_update_must_be_asked_for():
    assert not UPDATE, "the expected files were written anew: read the difference"

"""What the tests of the runner share."""

import json
import subprocess

import pytest
from support import SCRIPTS

from tui_train.plan.render import runner_file
from tui_train.runner.system import runner_command


@pytest.fixture(scope="session")
def tracebacks(warm_python):
    """What torch prints when its memory runs out in each phase."""
    done = subprocess.run([warm_python, SCRIPTS / "out_of_memory.py"], capture_output=True, check=True, timeout=120)
    return json.loads(done.stdout)


@pytest.fixture
def zipped_runner(tmp_path, monkeypatch):
    """The runner as a run folder has it: what is called in this process starts that one again."""
    path = tmp_path / runner_command.RUNNER_ZIP_NAME
    path.write_bytes(runner_file().content)
    monkeypatch.setattr(runner_command, "RUNNER_ZIP_PATH", str(path))

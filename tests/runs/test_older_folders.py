"""A run folder of an earlier version, as that left it: it is listed, started, stopped and resumed as any other."""

import sys
import tarfile
from pathlib import Path

import pytest
from support import run_cli, wait_until

from tui_train.base.app_paths import runs_folder
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

pytestmark = pytest.mark.training

# By what each has beside launch.sh: modules in a folder.
FOLDERS = sorted(Path(__file__).with_name("folders").glob("*.tar.xz"))
SLEEPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
for tick in range(int(sys.argv[1])):
    print(f"tick {tick}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name.partition(".")[0])
def run(request, tmp_path):
    """The folder among the runs, whose script and Python are where this machine has them."""
    (tmp_path / "train.py").write_text(SLEEPER)
    (tmp_path / "python3").symlink_to(sys.executable)
    folder = runs_folder() / "20260101-120000-old"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    (tmp_path / "run").rename(folder)
    for name in ("launch.sh", "plan.json", "profile.toml"):
        (folder / name).write_text((folder / name).read_text().replace("/SCRIPT", str(tmp_path)))
    return RunFolder(folder)


@pytest.mark.whole
def test_a_folder_of_an_earlier_version_is_a_run_like_any_other(run):
    assert "20260101-120000-old  new" in " ".join(run_cli("runs").stdout.split("\n")).replace("   ", "  ")
    run_cli("resume", run.name, "--detach")
    wait_until(lambda: "tick 3" in run.attempt_log(1).read_text())
    assert "running" in run_cli("runs").stdout
    assert "no process of it is left" in run_cli("stop", run.name).stdout
    assert read_status(run).state == "stopped"
    run_cli("resume", run.name, "--force", "--detach")
    wait_until(lambda: run.attempt_log(2).exists() and "tick 3" in run.attempt_log(2).read_text())
    assert "no process of it is left" in run_cli("stop", run.name, "--now").stdout
    assert len(read_status(run).attempts) == 2

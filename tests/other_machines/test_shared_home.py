"""A home that two machines share, as on most clusters: a run that one starts on the other is one run, shown once."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import netns
import pytest
from support import sleeper_profile, wait_until

from tui_train.profile.store import profile_to_toml

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("netns")]

SLEEPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
for tick in range(int(sys.argv[1])):
    print(f"tick {tick}", flush=True)
    time.sleep(0.1)
os.makedirs("output", exist_ok=True)
open("output/made.txt", "w").write("made")
"""


@pytest.fixture
def machines():
    """A laptop and a GPU machine with one home, and what runs `tui-train` on either."""
    home = Path(tempfile.mkdtemp(prefix="tt"))
    (home / "train.py").write_text(SLEEPER)
    try:
        with netns.run_hosts(home, "laptop", "box") as (environment, hosts):

            def tui(host, *words):
                command = [sys.executable, "-m", "tui_train", *words]
                return hosts[host].run(*command, env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])})

            yield home, tui
    finally:
        shutil.rmtree(home, ignore_errors=True)


def saved(home, ticks):
    chosen = sleeper_profile(str(ticks), name="far", **{"trainer.script": f"{home}/train.py"})
    (home / "far.toml").write_text(profile_to_toml(chosen))
    return str(home / "far.toml")


def test_a_run_on_a_machine_with_the_same_home_is_one_run(machines):
    home, tui = machines
    said = tui(0, "run", saved(home, 3), "--on", "box")
    assert "tick 2" in said
    assert "finished on box" in said
    (run,) = (home / ".local/state/tui-train/runs").glob("[!.]*")
    assert [line for line in (run / "attempt-1.log").read_text().splitlines() if "tick" in line] == [
        "tick 0", "tick 1", "tick 2",
    ]  # fmt: skip
    assert not [path.name for path in run.iterdir() if path.name.startswith(".sent")]
    assert [one["host"] for one in json.loads(tui(0, "runs", "--json"))] == ["box"]
    assert [one["host"] for one in json.loads(tui(1, "runs", "--json"))] == [""], "there it is a run of its own"
    assert "on this very disk" in tui(0, "fetch", "last")


@pytest.mark.whole
def test_it_is_stopped_and_resumed_from_either(machines):
    home, tui = machines
    tui(0, "run", saved(home, 600), "--on", "box", "--detach")
    assert "running on box" in tui(0, "runs")
    (run,) = (home / ".local/state/tui-train/runs").glob("[!.]*")
    wait_until(lambda: "tick 3" in (run / "attempt-1.log").read_text())
    assert "no process of it is left" in tui(0, "stop", "last")
    tui(1, "resume", "last", "--force", "--detach")
    assert "running on box" in tui(0, "runs")
    assert "no process of it is left" in tui(1, "stop", "last")
    assert "stopped" in tui(0, "runs")

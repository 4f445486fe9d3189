"""Several hosts over ssh that one start trains on: real sshds in network namespaces, real trainings on the CPU."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import netns
import pytest
from support import exported, facts, profile, taken, until
from test_training import TINY

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("netns")]

VALUES = {
    **TINY,
    "trainer.python": sys.executable,
    "trainer.launcher": "torchrun",
    "hardware.device": "cpu",
    "hardware.processes": 1,
    "recipe.micro_batch": 4,
}


@pytest.fixture
def folder():
    """A folder with a short path, which all hosts see at the same place."""
    made = Path(tempfile.mkdtemp(prefix="tt"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def exported_for(folder, hosts, **values):
    """A run folder for these hosts, and its plan."""
    names = tuple(host.name for host in hosts)
    chosen = profile(taken({**VALUES, "nodes.hosts": names, **values}))
    return exported(folder / "runs" / "my run", chosen, facts())


def start(host, run, environment, *words, **more):
    """Start a run on a host, and return the process."""
    return subprocess.Popen(
        host.words("bash", str(run.script), *words), env={**environment, **more}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def ended(started, seconds=240):
    said, _ = started.communicate(timeout=seconds)
    return started.returncode, said


def state(host, run):
    """What the supervisor in a run folder says of it, on that host."""
    said = host.run(sys.executable, "-I", "-S", str(run.path / "supervisor"), "status", "--json")
    return json.loads(said)


def log_of(run, number=1):
    return run.attempt_log(number).read_text(errors="replace") if run.attempt_log(number).exists() else ""


def losses(run, number=1):
    return [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", log_of(run, number))]


def test_two_hosts_train_together(folder):
    with netns.network(folder, "gpu-a", "gpu-b", hidden=(folder / "runs",)) as (environment, hosts):
        run, plan = exported_for(folder, hosts)
        assert (plan.nodes, plan.world_size, len(plan.attempts) > 1) == (2, 2, True)
        code, said = ended(start(hosts[0], run, environment))
        assert code == 0, said + log_of(run)
        text = log_of(run)
        assert set(re.findall(r"rank (\d/\d) \| host (\S+)", text)) == {("0/2", "gpu-a"), ("1/2", "gpu-b")}
        assert losses(run)[-1] < losses(run)[0]
        assert "gpu-b" in said


LONG = {"recipe.steps": 400, "recipe.checkpoint_every": 5}


def copied(folder, *names):
    """Hosts of which only the first sees the run folders."""
    return netns.network(folder, *(names or ("gpu-a", "gpu-b")), hidden=(folder / "runs",))


def stop(host, run, *words):
    return host.run(sys.executable, "-I", "-S", str(run.path / "supervisor"), "stop", *words)


@pytest.mark.whole
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_stop_saves_on_all_and_a_second_start_resumes_on_all(folder, launcher):
    with copied(folder) as (environment, hosts):
        run, _ = exported_for(folder, hosts, **LONG, **{"trainer.launcher": launcher})
        started = start(hosts[0], run, environment)
        until(lambda: len(losses(run)) > 6, 120)
        stop(hosts[0], run)
        code, said = ended(started)
        assert (code, state(hosts[0], run)["state"]) == (143, "stopped"), said + log_of(run)
        for host in hosts:
            assert not host.processes("launch.sh")
            assert not host.processes("distributed.run") + host.processes("accelerate")
        saved = len(losses(run))
        run2 = start(hosts[0], run, environment)
        until(lambda: len(losses(run, 2)) > 3, 120)
        stop(hosts[0], run, "--now")
        code, said = ended(run2)
        assert state(hosts[0], run)["attempts"][1]["resumed"] >= saved - 1, said
        assert "gpu-b" in said
        assert not any(host.processes("launch.sh") for host in hosts)

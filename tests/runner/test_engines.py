"""Trainings in real containers: they learn, climb, end as they should, and leave nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import container_engines
import msgspec
import pytest
from support import (
    SCRIPTS,
    UUIDS,
    gpu,
    inside,
    living_run_pids,
    machine,
    newest_attempt_log,
    plain_environment,
    prepare,
    profile,
    running_training,
    sample,
    start_training,
    wait_until,
)

from tui_train.base.command import CommandPart
from tui_train.base.errors import Unavailable
from tui_train.facts.machine import container_images, probe
from tui_train.places.profile_facts import probe_profile_facts
from tui_train.runs import run_folders
from tui_train.runs.follow import wait_for_end
from tui_train.runs.local_start import start_run
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.trainers.script import ScriptTrainer
from tui_train.trainers.trainer import PreparationStep

pytestmark = [pytest.mark.engine, pytest.mark.training, pytest.mark.xdist_group("engines")]
LIBRARIES = sysconfig.get_path("purelib")
NOBODY = 65534


def made(folder, engine, values):
    """Export a profile that trains in the test image."""
    chosen = profile(inside(engine, container_engines.IMAGE_NAME) | values)
    found = probe_profile_facts(chosen)
    prepared = prepare(chosen, found)
    assert prepared.plan is not None, prepared.findings
    run_folders.export_plan_files(folder, prepared.files)
    return RunFolder(folder)


def sleeping(folder, engine, *arguments, **more):
    """A training that sleeps, in a folder of its own."""
    (folder / "mine").mkdir(parents=True)
    shutil.copy(SCRIPTS / "sleeper.py", folder / "mine")
    script = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(folder / "mine/sleeper.py")}
    return made(folder / "run, 中", engine, script | {"trainer.arguments": arguments} | more)


def gone(run, containers):
    """Nothing of the run is left: no container, no process, no lock."""
    assert containers() == []
    assert not any(living_run_pids(event.mark) for event in run.events() if event.mark)
    wait_until(lambda: not (run.path / ".lock").exists())
    return True


@pytest.mark.parametrize("launcher", sample(["python", "torchrun"], 2))
def test_a_training_learns_and_climbs_down(tmp_path, engine, containers, launcher):
    values = {
        "trainer.launcher": launcher,
        "hardware.device": "cpu",
        "hardware.processes": 1 if launcher == "python" else 2,
        "trainer.environment": {
            "PYTHONPATH": f"{LIBRARIES}:{SCRIPTS / 'faults'}",
            "FAULTS": json.dumps([{"in": "forward", "step": 3, "above": 2}]),
            "NOTES": str(tmp_path / "run"),
        },
        "container.mounts": (f"{LIBRARIES}:{LIBRARIES}:ro", f"{SCRIPTS / 'faults'}:{SCRIPTS / 'faults'}:ro"),
        "recipe.layers": 1,
        "recipe.hidden_size": 16,
        "recipe.heads": 2,
        "recipe.sequence_length": 16,
        "recipe.micro_batch": 4,
        "recipe.global_batch": 8,
        "recipe.steps": 4,
        "recipe.checkpoint_every": 2,
        "ladder.rungs": ("micro_batch",),
    }
    run = made(tmp_path / "run", engine, values)
    start_run(run)
    now = wait_for_end(run)
    log = "\n".join(
        line for attempt in now.attempts for line in LogTail(run.attempt_log(attempt.number)).remaining_lines()
    )
    assert now.state == "finished", log
    assert [attempt.out_of_memory for attempt in now.attempts] == [True, False]
    # Two steps before it, and two from its checkpoint on.
    assert log.count("{'loss'") == 4
    assert (run.path / "output/model.safetensors").is_file()
    assert gone(run, containers)


def prepared_by(monkeypatch, *words):
    """Have the script run once before the training, with other words."""
    monkeypatch.setattr(
        ScriptTrainer,
        "preparation_steps",
        lambda self: (PreparationStep("nap", "sleeps", (CommandPart((self.profile.trainer.script, *words)),)),),
    )


def test_what_comes_before_runs_in_the_container_too(tmp_path, engine, containers, monkeypatch):
    prepared_by(monkeypatch, "--seconds=0.1")
    run = sleeping(tmp_path, engine, "--seconds=0.2")
    start_run(run)
    assert wait_for_end(run).state == "finished"
    assert newest_attempt_log(run).count(b"tick") >= 2
    assert gone(run, containers)
    prepared_by(monkeypatch, "--seconds=0.1", "--code=7")
    failing = sleeping(tmp_path / "failing", engine, "--seconds=60")
    start_run(failing)
    assert wait_for_end(failing).exit_code == 7
    assert gone(failing, containers)


@pytest.mark.whole
def test_what_comes_before_is_stopped(tmp_path, engine, containers, monkeypatch):
    prepared_by(monkeypatch, "--seconds=300")
    run = sleeping(tmp_path, engine, "--seconds=0.1")
    start_training(run)
    stop_local_run(run)
    assert read_status(run).state == "stopped"
    assert gone(run, containers)


def test_stopping_lets_it_save_and_leaves_nothing(tmp_path, engine, containers):
    run = sleeping(tmp_path, engine, f"--save-on-term={tmp_path}/mine/saved")
    assert len(start_training(run)) >= 3
    assert containers() == [run.events()[1].container]
    assert stop_local_run(run).state == "stopped"
    assert (tmp_path / "mine/saved").read_text() == "saved\n"
    assert gone(run, containers)


@pytest.mark.whole
def test_a_second_interrupt_kills_at_once(tmp_path, engine, containers, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "600")
    run = sleeping(tmp_path, engine, "--ignore-signals")
    start_training(run)
    pid = read_status(run).pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: read_status(run).state == "stopping")
    os.kill(pid, signal.SIGINT)
    assert wait_for_end(run).state == "stopped"
    assert gone(run, containers)


@pytest.mark.whole
def test_a_stop_before_it_has_begun(tmp_path, engine, containers):
    """The engine may still be making the container: it must not train on unseen."""
    run = sleeping(tmp_path, engine)
    start_run(run)
    wait_until(lambda: any(event.event == "attempt_started" for event in run.events()))
    assert stop_local_run(run).state == "stopped"
    time.sleep(1)
    assert gone(run, containers)


def client_of(run):
    """The process of the engine's client."""
    return run.events()[1].leader


def ticks(run):
    """The numbers that the newest attempt has told, in order."""
    return [int(number) for number in re.findall(rb"tick (\d+)\n", newest_attempt_log(run))]


def test_it_trains_on_without_its_client(tmp_path, engine, containers):
    """The run goes on, its log without a gap, and it ends with the training's own code."""
    run = sleeping(tmp_path, engine, "--seconds=5", "--code=7")
    start_training(run)
    os.kill(client_of(run), signal.SIGKILL)
    before = len(ticks(run))
    wait_until(lambda: len(ticks(run)) > before + 10)
    assert read_status(run).state == "running"
    now = wait_for_end(run)
    assert (now.state, now.exit_code, len(now.attempts)) == ("failed", 7, 1)
    told = ticks(run)
    assert told == list(range(told[0], told[0] + len(told)))
    assert gone(run, containers)


@pytest.mark.whole
def test_it_is_stopped_without_its_client(tmp_path, engine, containers):
    run = sleeping(tmp_path, engine)
    start_training(run)
    os.kill(client_of(run), signal.SIGKILL)
    time.sleep(1)
    assert stop_local_run(run).state == "stopped"
    assert gone(run, containers)


@pytest.mark.parametrize("client_too", sample([True, False], 2))
def test_it_is_stopped_without_its_supervisor(tmp_path, engine, containers, client_too):
    run = sleeping(tmp_path, engine, f"--save-on-term={tmp_path}/mine/saved")
    start_training(run)
    os.kill(read_status(run).pid, signal.SIGKILL)
    if client_too:
        os.kill(client_of(run), signal.SIGKILL)
    now = wait_until(lambda: read_status(run).state == "lost" and read_status(run))
    assert now.container in containers()
    with pytest.raises(Unavailable, match="earlier start still train"):
        start_run(run)
    again = subprocess.run(["bash", run.launch_script], capture_output=True, text=True, check=False)
    assert again.returncode == 75
    assert f"{engine} stop {now.container}" in again.stderr
    assert stop_local_run(run).leftover == ()
    assert (tmp_path / "mine/saved").read_text() == "saved\n"
    assert containers() == []
    assert not living_run_pids(now.mark)


@pytest.mark.whole
def test_a_container_that_nobody_watched_to_its_end_is_removed_by_the_next_start(tmp_path, engine, containers):
    run = sleeping(tmp_path, engine, "--seconds=3")
    start_training(run)
    now = read_status(run)
    os.kill(now.pid, signal.SIGKILL)
    os.kill(client_of(run), signal.SIGKILL)
    wait_until(lambda: not living_run_pids(now.mark))
    assert wait_until(containers) == [now.container]
    start_run(run)
    assert wait_for_end(run).state == "finished"
    assert gone(run, containers)


def test_what_it_writes_belongs_to_whoever_starts_it(engine, containers, tmp_path_factory):
    """As another user than root, as people are; rootless podman would need that user's own storage."""
    if engine == "podman":
        pytest.skip("NOT TESTED: rootless podman, which needs a user with numbers of its own in /etc/subuid")
    folder = Path(tempfile.mkdtemp(prefix="tui-train-"))
    try:
        run = sleeping(folder, engine, f"--save-on-term={folder}/mine/saved")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        environment = plain_environment(HOME=str(folder), DOCKER_HOST=os.environ["DOCKER_HOST"], TUI_TRAIN_GRACE="5")
        process = subprocess.Popen(
            ["bash", run.launch_script], user=NOBODY, group=NOBODY, extra_groups=[], env=environment, cwd="/"
        )
        with process:
            running_training(run)
            process.terminate()
        assert read_status(run).state == "stopped"
        assert (folder / "mine/saved").read_text() == "saved\n"
        assert {path.stat().st_uid for path in folder.rglob("*")} == {NOBODY}
        assert gone(run, containers)
    finally:
        shutil.rmtree(folder)


def test_the_chosen_cards_are_asked_for(tmp_path, engine, monkeypatch):
    """What stands in for NVIDIA's part of the engine sees them by their UUIDs, each for itself."""
    if engine == "podman":
        pytest.skip("NOT TESTED: GPUs in podman, which needs a description of them in /etc/cdi")
    monkeypatch.setattr(probe, "probe_machine", lambda: machine(2, (gpu(0), gpu(1), gpu(2, "GPU-other"))))
    monkeypatch.setattr(container_images, "_NVIDIA_HOOK_PROGRAMS", ("bash",))
    (tmp_path / "train.py").write_text("import json, os; print(json.dumps(dict(os.environ)))\n")
    asked = container_images.probe_image

    def machine_with_cards(*words):
        found = asked(*words)
        tool = found.toolchain
        return msgspec.structs.replace(
            found, toolchain=msgspec.structs.replace(tool, cuda="12.8", arch_list=("sm_86",))
        )

    monkeypatch.setattr(container_images, "probe_image", machine_with_cards)
    values = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(tmp_path / "train.py")}
    run = made(tmp_path / "run", engine, values | {"trainer.launcher": "python", "hardware.gpus": UUIDS[:1]})
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    start_run(run)
    assert wait_for_end(run).state == "finished", newest_attempt_log(run)
    told = json.loads(newest_attempt_log(run).splitlines()[-1])
    assert told["NVIDIA_VISIBLE_DEVICES"] == UUIDS[0]
    assert told["CUDA_VISIBLE_DEVICES"] == UUIDS[0]
    assert told["HOME"] == "/cache"
    assert "HF_TOKEN" not in told


def test_an_image_is_asked_what_it_holds(engine):
    (found,) = [known for known in container_images.read_engines() if known.name == engine]
    assert found.problem == ""
    assert any(name.endswith(container_engines.IMAGE_NAME) for name in found.images)
    known = container_images.probe_image(engine, container_engines.IMAGE_NAME)
    assert known.problem == ""
    assert known.toolchain.torch == "2.13.0"
    assert container_images.probe_image(engine, "not-there:1").missing

"""Containers of a training on several hosts, whose ssh and docker are stubs: all are stopped and removed."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from support import (
    boxed,
    inside,
    living_run_pids,
    make_executable,
    plain_environment,
    prepare_without_errors,
    profile,
    wait_until,
)

from tui_train.runner.containers.container import CONTAINER_NAME_VARIABLE, running_containers_of_folder
from tui_train.runner.system.processes import MARK_VARIABLE
from tui_train.runs import run_folders

MARK = f"20260101-000000-{os.getpid()}-abcdef"
NAMES = {f"tui-train-{MARK}-1", f"tui-train-{MARK}-1-1"}
# Runs here what it is to run on a host, where the processes of the first one are not seen.
OWN_PROCESSES = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
SSH = f"""#!/bin/sh
while [ "$1" != -- ]; do shift; done
# Of what a signal ended, ssh gives 255.
exec {" ".join(OWN_PROCESSES)} sh -c 'sh -c "$0"; code=$?; [ $code -lt 128 ] || exit 255; exit $code' "$3"
"""
# A container outlives its client, as those of a daemon do, and is a process that waits to be told how to end.
DOCKER = """#!/bin/sh
echo "$*" >> "$DOCKER_NOTES"
for word; do case $word in --name=*) name=${word#--name=} ;; esac; done
last=$word
alive() { [ -e "$DOCKER_STATE/$last" ]; }
case $1 in
  image) echo sha256:abc ;;
  run)
    setsid "$DOCKER_INSIDE" "$name" > /dev/null 2>&1 &
    while [ ! -e "$DOCKER_STATE/$name.ended" ]; do sleep 0.05; done
    exit "$(cat "$DOCKER_STATE/$name.ended")" ;;
  stop) alive || exit 1
    echo 0 > "$DOCKER_STATE/$last.asked" ;;
  rm) alive || exit 0
    echo 137 > "$DOCKER_STATE/$last.asked"; rm "$DOCKER_STATE/$last" ;;
  container) alive ;;
esac
"""
INSIDE = """#!/bin/sh
echo > "$DOCKER_STATE/$1"
while [ ! -e "$DOCKER_STATE/$1.asked" ]; do sleep 0.05; done
cp "$DOCKER_STATE/$1.asked" "$DOCKER_STATE/$1.ended"
"""


def has_own_processes():
    try:
        return subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = [
    pytest.mark.skipif(not has_own_processes(), reason="NOT TESTED: hosts need namespaces of their own"),
    # They are known by one mark.
    pytest.mark.xdist_group("containers-together"),
]


@pytest.fixture
def fan(tmp_path):
    """An attempt on two hosts, and the folder in which a container has a file of its name as long as it is there."""
    state, run = tmp_path / "containers", tmp_path / "run"
    state.mkdir()
    make_executable(tmp_path / "bin" / "ssh", SSH)
    make_executable(tmp_path / "bin" / "docker", DOCKER)
    chosen = inside() | {"nodes.hosts": ("a", "b"), "trainer.launcher": "torchrun", "hardware.device": "cpu"}
    run_folders.export_plan_files(run, prepare_without_errors(profile(chosen), boxed()).files)
    environment = plain_environment(
        DOCKER_NOTES=str(tmp_path / "notes"), DOCKER_STATE=str(state),
        DOCKER_INSIDE=str(make_executable(tmp_path / "inside", INSIDE)),
        TUI_TRAIN_ADDRESS="10.0.0.1", **{MARK_VARIABLE: MARK, CONTAINER_NAME_VARIABLE: f"tui-train-{MARK}-1"},
    )  # fmt: skip
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    hosts = [{"host": "a"}, {"host": "b", "address": "10.0.0.1", "shared": True, "connection": "none"}]
    request = json.dumps({"hosts": hosts, "python": sys.executable, "grace": 10, "engine": "docker"})
    words = [sys.executable, "-I", "-S", str(run / "runner.pyz"), "fan", request]
    words += ["bash", str(run / "launch.sh"), "--plain", "--attempt=1"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: {path.name for path in state.iterdir()} == NAMES, 60)
            yield process, state, tmp_path / "notes"
        finally:
            process.kill()
            wait_until(lambda: not living_run_pids(MARK), 60)


def removed(state):
    """Wait until there is no container; return how each was ended."""
    wait_until(lambda: not NAMES & {path.name for path in state.iterdir()}, 60)
    return {path.stem: path.read_text().strip() for path in state.glob("*.ended")}


def test_a_stop_lets_each_save_and_leaves_none(fan):
    process, state, notes = fan
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    asked = [line.split()[-1] for line in notes.read_text().splitlines() if line.startswith("stop")]
    assert {*asked} == NAMES
    # That of the first machine is removed by the start that made the attempt.
    wait_until(lambda: not (state / f"tui-train-{MARK}-1-1").exists(), 60)
    assert {path.stem: path.read_text().strip() for path in state.glob("*.ended")} == dict.fromkeys(NAMES, "0")


def test_one_that_fails_ends_the_other(fan):
    process, state, _ = fan
    (state / f"tui-train-{MARK}-1-1.asked").write_text("3\n")
    assert process.wait(60) == 3
    assert "machine 1 (b) ended with exit code 3" in process.stdout.read()
    assert (state / f"tui-train-{MARK}-1.ended").read_text().strip() == "0"
    wait_until(lambda: not (state / f"tui-train-{MARK}-1-1").exists(), 60)


def test_a_container_whose_keeper_was_killed_is_named_with_what_removes_it(fan):
    process, state, notes = fan
    words = {str(notes.with_name("run") / "runner.pyz"), "keep"}
    (keeper,) = (each for each in psutil.process_iter(["cmdline"]) if words <= {*(each.info["cmdline"] or ())})
    keeper.kill()
    assert process.wait(60) == 255
    said = process.stdout.read()
    assert "machine 1 (b) was lost" in said
    name = f"tui-train-{MARK}-1-1"
    assert f"may train on; where it is there after two minutes: ssh b docker rm -f {name}" in said
    assert (state / name).exists()


def test_the_next_start_names_a_container_that_is_left(tmp_path, monkeypatch):
    make_executable(
        tmp_path / "docker",
        """#!/bin/sh
[ "$*" = "ps --filter volume=/run/one --format {{.Names}}" ] && echo tui-train-x-1-1 other
""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert running_containers_of_folder("docker", "/run/one") == ("tui-train-x-1-1",)
    assert running_containers_of_folder("docker", "/run/two") == ()
    assert running_containers_of_folder("apptainer", "/run/one") == ()


def test_where_the_first_machine_is_lost_the_other_removes_its_own(fan):
    process, state, _ = fan
    process.kill()
    wait_until(lambda: not (state / f"tui-train-{MARK}-1-1").exists(), 60)
    # It is this machine's, whose next start finds it.
    (state / f"tui-train-{MARK}-1.asked").write_text("0\n")

"""Processes that escape: named where the supervisor or a cgroup shows them, and not denied where nothing does."""

import os
import signal
import subprocess
import threading
import uuid
from itertools import pairwise
from pathlib import Path

import pytest
from support import export_run, facts, patch_runner_module, pids_with_argument, sleeper_profile, wait_until
from tui_train.screens.run.run_state import run_state_lines
from tui_train.screens.run.screen import RunScreen

from tui_train.base.app_paths import runs_folder
from tui_train.runner.run_folder import lock_owner
from tui_train.runner.system import cgroup
from tui_train.runner.system.processes import process_with_pid
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.follow import follow_snapshots
from tui_train.runs.local_start import start_run
from tui_train.runs.status import read_listed_run, read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views import plain_text

pytestmark = pytest.mark.training

# A process in a session of its own, whose parent is gone and which has no environment; then the training itself.
DAEMON = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {word!r}], {{}})
    os._exit(0)
os.wait()
print("tick", flush=True)
time.sleep({seconds})
"""


@pytest.fixture
def word():
    """Names the daemon among all processes; what is left of it is ended."""
    word = f"--word={uuid.uuid4().hex}"
    yield word
    for pid in pids_with_argument(word):
        os.kill(pid, signal.SIGKILL)


def training(folder, word, seconds, into=None):
    script = folder / "daemon.py"
    script.write_text(DAEMON.format(word=word, seconds=seconds))
    return export_run(into or folder / "run", sleeper_profile(**{"trainer.script": str(script)}), facts())[0]


@pytest.fixture
def own_cgroup():
    """Skip where the system grants no cgroup."""
    folder = cgroup.make_cgroup_for_attempt("test", os.getpid())
    with subprocess.Popen(["sleep", "60"]) as child:
        cgroup.try_to_move_process_into(folder, child.pid)
        granted = cgroup.cgroup_member_pids(folder, "test") == {child.pid}
        child.kill()
    cgroup.remove_cgroup(folder, "test")
    if not granted:
        pytest.skip("NOT TESTED: no cgroup of version 2 may be made here")


@pytest.mark.whole
def test_a_daemon_that_outlives_a_finished_training_is_named_and_can_be_stopped(tmp_path, word):
    run = training(tmp_path, word, 0, runs_folder() / "run")
    start_run(run)
    wait_until(lambda: not read_status(run).is_live)
    now = read_status(run)
    assert (now.state, now.leftover) == ("finished", tuple(pids_with_argument(word)))
    assert plain_text.run_state_text(now) == "finished, 1 process left"
    assert read_listed_run(run).is_stoppable
    # It trains no more, and so keeps no other run from anything.
    assert not now.trains_unsupervised
    assert not resources_in_use()
    assert [*follow_snapshots(run, lambda: False)][-1].status == now
    ended = stop_local_run(run)
    assert (ended.state, ended.leftover, pids_with_argument(word)) == ("finished", (), [])
    assert plain_text.stop_result_text(ended).startswith("finished; no process")


def lost(run, word):
    """Kill the supervisor of a run without a word."""
    start_run(run)
    wait_until(lambda: pids_with_argument(word))
    wait_until(lambda: b"tick" in run.attempt_log(1).read_bytes())
    supervisor = process_with_pid(read_status(run).pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: not supervisor.is_alive)


def test_a_cgroup_shows_what_escaped_a_killed_supervisor(own_cgroup, tmp_path, word):
    run = training(tmp_path, word, 600)
    lost(run, word)
    # It may still be starting what escapes.
    wait_until(lambda: set(pids_with_argument(word)) < set(read_status(run).leftover))
    now = read_status(run)
    assert now.state == "lost"
    assert now.cgroup
    ended = stop_local_run(run, at_once=True)
    assert not pids_with_argument(word)
    assert not Path(now.cgroup).exists()
    assert plain_text.stop_result_text(ended).startswith("lost; no process of it is left")


def test_without_a_cgroup_nothing_is_claimed_of_what_cannot_be_seen(tmp_path, word):
    run = training(tmp_path, word, 600)
    patch_runner_module(
        run,
        "cgroup.py",
        "    for mount, root in _cgroup_mounts_and_roots():\n        own",
        "    for mount, root in ():\n        own",
    )
    lost(run, word)
    escaped = set(pids_with_argument(word))
    assert not escaped & set(read_status(run).leftover)
    ended = stop_local_run(run, at_once=True)
    assert escaped == set(pids_with_argument(word))
    assert "is left" not in plain_text.stop_result_text(ended)
    assert plain_text.stop_result_text(ended).startswith("lost; ")


def test_the_cgroup_of_a_run_is_gone_with_it(own_cgroup, tmp_path, word):
    run = training(tmp_path, word, 600)
    start_run(run)
    wait_until(lambda: pids_with_argument(word))
    folder = wait_until(lambda: read_status(run).cgroup)
    assert set(pids_with_argument(word)) < cgroup.cgroup_member_pids(folder, read_status(run).mark)
    assert plain_text.stop_result_text(stop_local_run(run, at_once=True)).startswith("stopped; no process")
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "folder", ["", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/..", "/proc/tui-train-m-1", "tui-train-m-1"]
)
def test_a_folder_that_a_file_names_is_not_believed(folder, tmp_path):
    assert cgroup.cgroup_member_pids(folder, "m") == set()
    mine = tmp_path / "tui-train-m-1"
    mine.mkdir()
    (mine / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert cgroup.cgroup_member_pids(str(mine), "m") == set()
    cgroup.remove_cgroup(str(mine), "m")
    assert mine.is_dir()


@pytest.mark.whole
def test_a_stop_after_a_finished_training_does_not_make_it_a_stopped_one(tmp_path, word):
    run = training(tmp_path, word, 0)
    ended = "    asked = stopped or"
    patch_runner_module(run, "attempt.py", ended, f"    os.kill(os.getpid(), signal.SIGTERM)\n{ended}")
    start_run(run)
    wait_until(lambda: not read_status(run).is_live)
    assert (read_status(run).state, read_status(run).exit_code) == ("finished", 0)


def shown_of(run, told):
    return "\n".join(line.plain for line in run_state_lines(run.name, told, (), 120))


@pytest.mark.whole
def test_the_run_screen_follows_what_a_killed_supervisor_left(tmp_path, word):
    run = training(tmp_path, word, 600)
    lost(run, word)
    told = []
    watching = threading.Thread(target=lambda: told.extend(follow_snapshots(run, lambda: False)), daemon=True)
    watching.start()
    screen = RunScreen(run)
    try:
        wait_until(lambda: len(told) >= 2, 30)
        screen.view.snapshot = told[-1]
        assert [bool(screen.check_action(name, ())) for name in ("stop", "resume")] == [True, False]
        shown = shown_of(run, told[-1])
        assert f"{len(told[-1].status.leftover)} process" in shown
        assert "s ends" in shown
        assert shown.startswith("●")
    finally:
        stop_local_run(run, at_once=True)
    watching.join(30)
    assert not watching.is_alive()
    # It went on: the time that it shows did.
    seconds = [one.status.seconds for one in told if one.status.trains_unsupervised]
    assert len(seconds) >= 2
    assert all(one <= another for one, another in pairwise(seconds))
    shown = shown_of(run, told[-1])
    assert not shown.startswith("●")
    assert "s ends" not in shown
    screen.view.snapshot = told[-1]
    assert [bool(screen.check_action(name, ())) for name in ("stop", "resume")] == [False, False]


def test_to_look_at_a_lock_changes_nothing_in_it(tmp_path):
    at = tmp_path / lock_owner.LOCK_FOLDER_NAME
    at.mkdir()
    (at / "owner").write_text("{}")
    before = at.stat().st_mtime_ns
    elsewhere = lock_owner.LockOwner(pid=1, ticks=1, boot="b", machine="m", host="h", mark="m")
    assert lock_owner.is_owner_working(str(at), elsewhere)
    assert at.stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [lock_owner.LOCK_FOLDER_NAME]


@pytest.mark.whole
@pytest.mark.parametrize("foreign", [True, False])
def test_processes_that_a_folder_of_another_user_names_are_not_ended(foreign, tmp_path, word):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can give a file away")
    run = training(tmp_path, word, 0.1)
    subprocess.run(["bash", run.launch_script], check=True, stdout=subprocess.DEVNULL)
    (pid,) = pids_with_argument(word)
    assert read_status(run).leftover == (pid,)
    if foreign:
        os.chown(run.path, 65534, 65534)
    assert (read_status(run).leftover == ()) == foreign
    stop_local_run(run)
    assert (pids_with_argument(word) == [pid]) == foreign


@pytest.mark.whole
def test_a_run_that_left_a_process_can_be_started_again(tmp_path, word):
    run = training(tmp_path, word, 0.1)
    for count in (1, 2):
        subprocess.run(["bash", run.launch_script], check=True, stdout=subprocess.DEVNULL)
        assert (read_status(run).state, len(pids_with_argument(word))) == ("finished", count)
    ended = stop_local_run(run)
    assert ended.has_surely_ended == bool(ended.cgroup)

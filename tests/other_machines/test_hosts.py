"""A run folder on a disk that hosts share: who holds it is known by name, and only near processes are judged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from psutil import process_iter
from support import (
    SCRIPTS,
    export_run,
    facts,
    living_run_pids,
    old_python,
    patch_runner_module,
    plain_environment,
    run_launch_script,
    sleeper_profile,
    wait_until,
)

from tui_train.base.errors import Unavailable
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.runner.run_folder import lock, lock_owner
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views.plain_text import run_state_text

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can make namespaces, or be another user")
OTHER = ("unshare", "--uts", "--pid", "--net", "--mount-proc", "--fork", "--kill-child", "sh", "-c")


@pytest.fixture
def run(tmp_path):
    return export_run(tmp_path / "run", sleeper_profile("--seconds=120"), facts())[0]


@pytest.fixture
def elsewhere():
    """Start bash programs on "other hosts": a host name, process numbers and a network of their own."""
    started = []

    def start(program, name="node7"):
        words = [*OTHER, f'hostname {name}; exec bash -c "$0"', program]
        child = subprocess.Popen(words, env=plain_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


def trains(folder):
    return wait_until(
        lambda: RunFolder(folder).attempt_log(1).exists() and b"tick" in RunFolder(folder).attempt_log(1).read_bytes()
    )


@contextmanager
def training(run, **environment):
    """Start a run of this host, wait until it trains, and in the end for its end."""
    given = plain_environment(**environment)
    with subprocess.Popen(["bash", run.launch_script], env=given, stdout=subprocess.DEVNULL) as child:
        trains(run.path)
        yield child


@pytest.mark.whole
@ROOT
def test_a_run_of_another_host_is_named_and_never_lost(run, elsewhere):
    elsewhere(f"bash '{run.launch_script}'")
    trains(run.path)
    now = read_status(run)
    assert (now.state, now.host, run_state_text(now)) == ("running", "node7", "running on node7")
    refused = run_launch_script(run)
    assert refused.returncode == 75
    assert "runs in this folder already, on node7" in refused.stderr.decode()
    with pytest.raises(Unavailable, match="it runs on node7"):
        stop_local_run(run)
    assert read_status(run).state == "running"
    assert len(read_status(run).attempts) == 1


@ROOT
@pytest.mark.whole
def test_a_host_that_is_gone_loses_its_lock_in_the_end(run, elsewhere):
    other = elsewhere(f"bash '{run.launch_script}'")
    trains(run.path)
    other.kill()
    other.wait()
    # The kernel ends the processes of that host one by one, and its supervisor may touch the lock until then.
    wait_until(
        lambda: not any(str(run.path) in str(process.info["cmdline"]) for process in process_iter(["cmdline"])), 60
    )
    assert read_status(run).state == "running", "nobody here can know yet"
    long_ago = time.time() - lock_owner.LOCK_LEASE_SECONDS - 1
    for owner in (run.path / ".lock" / "owner", *run.path.glob(".tui-train-*/owner")):
        os.utime(owner, (long_ago, long_ago))
    assert read_status(run).state == "lost"
    again = subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
    with again:
        wait_until(lambda: len(read_status(run).attempts) == 2, seconds=120)
        assert read_status(run).host == ""
        again.terminate()
    assert read_status(run).state == "stopped"


def test_the_beat_keeps_a_lock_and_a_machine_that_booted_again_loses_it(tmp_path, monkeypatch):
    me = lock_owner.this_process_as_owner("mark", str(tmp_path))
    at = tmp_path / ".lock"
    held = lock.FolderLock(str(at), me, "words", lambda dead: "")
    held.take()
    other = me._replace(boot="another", machine="another", host="node7")
    (at / "owner").write_text(json.dumps(other._asdict()))
    assert lock_owner.is_owner_working(str(at), other)
    assert not held.renew(), "another one has taken it"
    assert not lock_owner.is_owner_working(str(at), other._replace(machine=me.machine, host=me.host)), "it booted since"
    monkeypatch.setattr(lock_owner, "LOCK_LEASE_SECONDS", -1.0)
    assert not lock_owner.is_owner_working(str(at), other)
    (at / "owner").write_text(json.dumps(me._asdict()))
    assert held.renew()
    held.release()
    assert not at.exists()


@pytest.mark.parametrize("ticks", ["another start", "its own"])
def test_a_stranger_with_a_number_of_the_run_is_left_alone(run, ticks):
    """events.jsonl may be of last week, or of somebody else who names your processes."""
    stranger = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        started = lock_owner.process_with_pid(stranger.pid).ticks
        lines = [
            {
                "event": "run_started", "mark": "m-1", "pid": 2**22 - 1, "start_ticks": 5,
                "boot_id": lock_owner.machine_boot_id(),
            },
            {
                "event": "attempt_started", "attempt": 1, "position": 1,
                "leader": stranger.pid, "leader_ticks": started if ticks == "its own" else started - 1,
            },
        ]  # fmt: skip
        run.events_file.write_text("".join(json.dumps({"time": 1.0, **line}) + "\n" for line in lines))
        now = read_status(run)
        assert (now.state, now.leftover) == ("lost", ())
        stop_local_run(run)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("gone", ["truncated", "removed"])
def test_events_that_are_lost_under_a_live_run(run, gone):
    with training(run):
        if gone == "removed":
            run.events_file.unlink()
        else:
            run.events_file.write_bytes(b"")
        now = read_status(run)
        assert (now.state, now.host) == ("running", "")
        assert living_run_pids(now.mark)
        assert stop_local_run(run).state == "stopped"
        assert not living_run_pids(now.mark)


def test_a_double_fork_with_a_cleared_environment_does_not_escape(tmp_path):
    """The supervisor is the parent of every orphan of its training."""
    script = tmp_path / "daemons.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.execve('/bin/sleep', ['sleep', '654.25'], {})\n"
        "    os._exit(0)\n"
        "print('tick', flush=True)\n"
        "time.sleep(600)\n"
    )
    run, _ = export_run(tmp_path / "run", sleeper_profile(**{"trainer.script": str(script)}), facts())
    with training(run, TUI_TRAIN_GRACE="2") as child:
        wait_until(escaped)
        child.terminate()
    assert child.returncode == 143
    assert not escaped()


def escaped():
    listed = subprocess.run(["pgrep", "-f", "^sleep 654.25"], capture_output=True, check=False)
    return listed.stdout.split()


def test_the_oldest_python_is_remote_control_and_supervisor(run):
    old = old_python() or pytest.skip("NOT TESTED: no Python 3.8")
    with training(run, TUI_TRAIN_PYTHON=old) as child:
        assert "3.8" in str(Path(f"/proc/{read_status(run).pid}/exe").readlink())
        followed = subprocess.Popen(
            [old, run.path / RUNNER_ZIP_FILE_NAME, "follow", "--json"], stdout=subprocess.PIPE, text=True
        )
        with followed:
            assert json.loads(followed.stdout.readline()) == {"attempt": 1, "line": "tick 1"}
            words = [old, "-I", "-S", run.path / RUNNER_ZIP_FILE_NAME, "stop", "--now", "--json"]
            stopped = subprocess.run(words, capture_output=True, check=True, timeout=60)
            assert json.loads(stopped.stdout)["exit_code"] == 143
            assert json.loads(followed.stdout.read().splitlines()[-1])["state"] == "stopped"
    assert child.returncode == 143


@ROOT
def test_another_user_runs_an_exported_folder(tmp_path):
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=0.2"), facts())
    own = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        theirs = Path(shutil.copytree(run.path, own / "run"))
        script = Path(shutil.copy(SCRIPTS / "sleeper.py", own))
        text = (theirs / "launch.sh").read_text().replace(str(SCRIPTS / "sleeper.py"), str(script))
        (theirs / "launch.sh").write_text(text)
        subprocess.run(["chown", "-R", "65534:65534", own], check=True)
        # The Python of the tests may lie in a home folder that others may not look into.
        (own / "python").mkdir()
        mount = f"mount --bind {sys.base_prefix} {own}/python && exec setpriv --reuid=65534 --regid=65534"
        words = ["unshare", "--mount", "sh", "-c", f'{mount} --clear-groups bash "$0"', theirs / "launch.sh"]
        python = str(own / "python/bin" / Path(os.path.realpath(sys.executable)).name)
        environment = plain_environment(HOME="/", TUI_TRAIN_PYTHON=python)
        done = subprocess.run(words, env=environment, cwd="/", capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert read_status(RunFolder(theirs)).state == "finished"
    finally:
        shutil.rmtree(own)


@pytest.mark.parametrize("locale", ["C", "nothing_of_the_kind"])
def test_any_locale_will_do(tmp_path, locale):
    run, _ = export_run(tmp_path / "模型 é", sleeper_profile("--seconds=0.1", "--word=模型", name="模型"), facts())
    done = run_launch_script(run, env=plain_environment(LC_ALL=locale, LANG=locale))
    assert done.returncode == 0, done.stderr
    assert read_status(run).state == "finished"


@pytest.mark.parametrize("ends", ["stopped", "failed"])
def test_a_folder_that_is_moved_under_a_live_run(tmp_path, ends):
    go = tmp_path / "go"
    run, _ = export_run(tmp_path / "run", sleeper_profile(f"--until={go}", "--code=7"), facts())
    child = subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
    with child:
        wait_until(lambda: living_run_pids(read_status(run).mark) if read_status(run).mark else ())
        mark = read_status(run).mark
        # Before that, launch.sh itself is on its way through the folder.
        wait_until(
            lambda: [pid for pid in living_run_pids(mark) if b"sleeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        )
        moved = RunFolder(Path(shutil.move(run.path, tmp_path / "moved")))
        assert read_status(moved).state == "running"
        if ends == "stopped":
            child.terminate()
        else:
            go.touch()
    assert child.returncode == (143 if ends == "stopped" else 7)
    assert (read_status(moved).state, read_status(moved).exit_code) == (ends, child.returncode)
    assert not living_run_pids(mark)


def test_a_copy_of_a_live_folder_has_no_power_over_it(run, tmp_path):
    compiled = shutil.ignore_patterns("__pycache__")  # files that may just be written
    with training(run):
        copy = RunFolder(Path(shutil.copytree(run.path, tmp_path / "copy", ignore=compiled)))
        assert (read_status(copy).state, read_status(copy).leftover) == ("lost", ())
        stop_local_run(copy, at_once=True)
        assert read_status(run).state == "running"
        assert stop_local_run(run).state == "stopped"


@pytest.mark.whole
def test_a_lock_that_is_removed_under_a_live_run_is_made_again(run):
    patch_runner_module(run, "lock.py", "RENEW_INTERVAL_SECONDS = 10.0", "RENEW_INTERVAL_SECONDS = 0.2")
    with training(run):
        shutil.rmtree(run.path / ".lock")
        wait_until((run.path / ".lock" / "owner").exists)
        assert run_launch_script(run).returncode == 75
        assert stop_local_run(run).state == "stopped"


@pytest.mark.whole
@pytest.mark.parametrize("lock_is", ["removed", "garbled"])
def test_what_a_killed_supervisor_left_is_seen_without_its_lock(run, lock_is):
    with training(run) as child:
        child.kill()
    if lock_is == "removed":
        shutil.rmtree(run.path / ".lock")
    else:
        (run.path / ".lock" / "owner").write_text("garbage")
    refused = run_launch_script(run)
    assert (refused.returncode, b"still train" in refused.stderr) == (75, True)
    assert stop_local_run(run).leftover == ()


def test_an_owner_of_a_later_version_is_believed(run):
    me = lock_owner.this_process_as_owner("m", str(run.path))
    (run.path / ".lock").mkdir()
    (run.path / ".lock" / "owner").write_text(json.dumps(me._asdict() | {"more": [1]}))
    refused = run_launch_script(run)
    assert (refused.returncode, f"already (process {me.pid})" in refused.stderr.decode()) == (75, True)


def test_the_script_that_is_started_is_what_runs(run):
    edited = run.path / "train\n.sh"
    edited.write_text(run.launch_script.read_text().replace("--seconds=120", "--seconds=0.1"))
    run.launch_script.unlink()
    done = subprocess.run(["bash", edited], env=plain_environment(), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert read_status(run).state == "finished"


@pytest.mark.whole
def test_a_stop_while_it_starts_is_heard(run, tmp_path):
    """nvidia-smi may take its time before the run reports itself."""
    patch_runner_module(
        run,
        "supervisor.py",
        "    training_cards.require_cards_present(",
        "    import time; time.sleep(3); training_cards.require_cards_present(",
    )
    child = subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
    with child:
        wait_until(lambda: read_status(run).is_live)
        stop_local_run(run)
    assert child.returncode == 143
    assert not run.attempt_log(1).exists()


def test_a_suspended_supervisor_is_stopped_as_any(run):
    with training(run) as child:
        child.send_signal(signal.SIGSTOP)
        assert stop_local_run(run).state == "stopped"
    assert child.returncode == 143

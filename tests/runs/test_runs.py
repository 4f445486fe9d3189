"""Runs: they outlive whoever started them, end wholly when told to, and always say how they stand."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pexpect
import pytest
from pilot import finished_run
from support import (
    create_run,
    export_run,
    facts,
    living_run_pids,
    newest_attempt_log,
    patch_runner_module,
    plain_environment,
    prepare_without_errors,
    profile,
    run_cli,
    run_launch_script,
    running_training,
    sleeper_profile,
    start_training,
    wait_until,
)

from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import BadInput, CannotWrite, NotFound, Unavailable
from tui_train.places.place import Place
from tui_train.runner.run_folder import lock_owner
from tui_train.runner.run_folder.events import Journal
from tui_train.runner.system.processes import process_start_ticks
from tui_train.runs import run_folders
from tui_train.runs.follow import follow_lines, follow_snapshots, wait_for_end
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views.run_ends import stop_consequence_text

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or be another user")


TWO_ATTEMPTS = {"recipe.micro_batch": 2, "recipe.global_batch": 2}
CLIMBING = ("--batch={micro_batch}", "--accumulation={accumulation}")


@pytest.fixture
def made(tmp_path):
    """Export a sleeper into a run folder; whatever is left of its runs is ended afterwards."""
    runs = []

    def make(*arguments, name="run", **more):
        run, _ = export_run(tmp_path / name, sleeper_profile(*arguments, **more), facts())
        runs.append(run)
        return run

    yield make
    for run in runs:
        for mark in {event.mark for event in run.events() if event.mark}:
            for pid in living_run_pids(mark):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            if read_status(run).is_live:
                os.kill(read_status(run).pid, signal.SIGKILL)


def gone(run):
    """Nothing of the run is left: neither a process nor the lock."""
    assert not any(living_run_pids(event.mark) for event in run.events() if event.mark)
    wait_until(lambda: process_start_ticks(read_status(run).pid) is None)
    assert not (run.path / ".lock").exists()
    return True


def events(run):
    return [event.event for event in run.events()]


# ---- a run from begin to end


def test_a_run_is_started_followed_and_ends():
    chosen = sleeper_profile("--seconds=0.4")
    prepared = prepare_without_errors(chosen, facts())
    run = Place().submit(prepared, prepared.plan)
    assert read_status(run).state == "running"
    assert run.path.parent == runs_folder()
    assert re.fullmatch(r"\d{8}-\d{6}-sleeper", run.name)
    lines = [*follow_lines(run)]
    assert lines[0] == "tick 1"
    now = wait_for_end(run)
    assert (now.state, now.exit_code, len(now.attempts), now.leftover) == ("finished", 0, 1, ())
    assert 0 < now.started < now.attempts[0].started < now.attempts[0].ended < now.ended < time.time()
    assert events(run) == ["run_started", "attempt_started", "attempt_ended", "run_ended"]
    assert gone(run)
    assert "finished" in run.launch_log.read_text()
    assert run_folders.list_runs() == (run,)
    assert run.attempt_titles()[0] == "as planned"


def test_it_climbs_after_out_of_memory_only(made):
    run = made("--out-of-memory=0.1", *CLIMBING, **TWO_ATTEMPTS)
    start_run(run)
    titles = []
    lines = [*follow_lines(run, on_attempt=lambda attempt: titles.append(attempt.number))]
    now = wait_for_end(run)
    assert (now.state, now.exit_code) == ("failed", 1)
    assert [(a.number, a.position, a.exit_code, a.out_of_memory) for a in now.attempts] == [
        (1, 1, 1, True),
        (2, 2, 1, True),
    ]
    assert titles == [1, 2]
    assert sum("CUDA out of memory" in line for line in lines) == 2
    assert gone(run)
    # Where every attempt ran out of memory, a second start begins with the first.
    assert run_launch_script(run).returncode == 1
    assert positions(run) == [1, 2, 1, 2]


def positions(run):
    return [attempt.position for attempt in read_status(run).attempts]


@pytest.mark.whole
def test_a_second_start_begins_where_the_first_was(made):
    run = made("--seconds=0.1", "--memory-for=1", *CLIMBING, **TWO_ATTEMPTS)
    assert run_launch_script(run).returncode == 0
    assert positions(run) == [1, 2]
    again = run_launch_script(run)
    assert again.returncode == 0
    assert b"begins with attempt 2 of 2" in again.stdout
    assert positions(run) == [1, 2, 2]
    assert run_launch_script(run, "--attempt=1").returncode == 0
    assert positions(run)[3:] == [1, 2]
    with run.launch_script.open("a") as file:
        file.write("# another script has another ladder\n")
    assert run_launch_script(run).returncode == 0
    assert positions(run)[5:] == [1, 2]
    for word in ("--attempt=0", "--attempt=3", "--attempt=1$(touch pwned)"):
        assert run_launch_script(run, word).returncode == 64
    assert len(positions(run)) == 7
    assert not Path("pwned").exists()


def test_a_viewer_is_told_of_the_newest_attempt_until_the_run_ends(made):
    run = made("--seconds=0.5")
    start_run(run)
    told = [*follow_snapshots(run, lambda: False)]
    assert told[-1].status.state == "finished"
    assert told[-1].attempt_number == 1
    assert len(told) == len(set(map(repr, told))), "nothing is told twice"


# ---- what must not end a run


def test_a_lost_terminal_does_not_end_it(made):
    """launch.sh as the command of the connection, as in `ssh -t box bash launch.sh`."""
    run = made("--seconds=1")
    connection = pexpect.spawn("bash", [str(run.launch_script)], env=plain_environment())
    running_training(run)
    os.close(connection.child_fd)
    connection.closed = True
    # It has its time to arrive.
    time.sleep(0.2)
    assert read_status(run).state == "running"
    os.waitpid(connection.pid, 0)
    assert read_status(run).state == "finished"
    assert gone(run)


def test_it_runs_in_the_background_of_a_shell(made):
    run = made("--seconds=0.5")
    shell = pexpect.spawn("bash", ["--norc", "-i"], env=plain_environment(TERM="dumb"), timeout=20)
    shell.sendline(f"bash '{run.launch_script}' &")
    shell.expect("finished")
    shell.close(force=True)
    assert read_status(run).state == "finished"


def test_a_reader_that_leaves_does_not_end_it(made):
    run = made("--seconds=0.5")
    subprocess.run(
        ["bash", "-c", f"bash '{run.launch_script}' | head -1"],
        env=plain_environment(),
        check=True,
        capture_output=True,
    )
    assert wait_for_end(run).state == "finished"


# ---- what must end it wholly


def by_hand(run, **environment):
    """launch.sh on a terminal of its own."""
    terminal = pexpect.spawn(
        "bash", [str(run.launch_script)], env=plain_environment(TERM="dumb", **environment), timeout=30
    )
    running_training(run)
    return terminal


def test_ctrl_c_ends_everything_that_may_save_before(made, tmp_path):
    run = made("--children-apart=2", f"--save-on-term={tmp_path / 'saved'}")
    terminal = by_hand(run, TUI_TRAIN_GRACE="08")
    wait_until(lambda: len(living_run_pids(read_status(run).mark)) == 3)
    terminal.sendintr()
    wait_until(lambda: read_status(run).state == "stopping")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert (terminal.exitstatus, (tmp_path / "saved").read_text()) == (130, "saved\n")
    assert b"a second Ctrl-C ends it at once" in terminal.before
    now = read_status(run)
    assert (now.state, now.exit_code) == ("stopped", 130)
    assert gone(run)
    assert "stopping" in events(run)


def test_a_second_ctrl_c_kills_at_once(made):
    run = made("--ignore-signals")
    terminal = by_hand(run, TUI_TRAIN_GRACE="600")
    terminal.sendintr()
    wait_until(lambda: read_status(run).state == "stopping")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    assert read_status(run).state == "stopped"
    assert gone(run)


def test_children_that_went_apart_are_asked_too(made, tmp_path):
    """They may save what they hold, and are not killed at once."""
    run = made("--children-apart=1", f"--children-save={tmp_path / 'saved'}")
    start_run(run)
    wait_until(lambda: newest_attempt_log(run).count(b"tick 1\n") == 2)
    assert stop_local_run(run).state == "stopped"
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert gone(run)


def test_a_started_run_can_be_interrupted(made):
    """It is a session of its own, and does not begin with the keyboard's signals ignored."""
    run = made()
    start_training(run)
    assert os.getsid(read_status(run).pid) != os.getsid(0)
    os.kill(read_status(run).pid, signal.SIGINT)
    now = wait_for_end(run)
    assert (now.state, now.exit_code) == ("stopped", 130)
    assert gone(run)


def test_a_stop_between_two_attempts_is_not_missed(made):
    """While the log of the first is read, there is no training to end: the second must not begin."""
    run = made("--out-of-memory=0.1", "--lines=200000", *CLIMBING, **TWO_ATTEMPTS)
    start_run(run)
    pid = read_status(run).pid
    wait_until(
        lambda: b"CUDA out of memory" in newest_attempt_log(run)[-200:] and not living_run_pids(read_status(run).mark)
    )
    os.kill(pid, signal.SIGTERM)
    now = wait_for_end(run)
    assert (now.state, now.exit_code, len(now.attempts)) == ("stopped", 143, 1)
    assert gone(run)


@pytest.mark.parametrize("output", ["of its own", "elsewhere"])
def test_a_run_whose_folder_is_deleted_ends_and_frees_what_it_took(made, tmp_path, output):
    """Nobody can name it any more; it may save only where that is not in the deleted folder."""
    saved, notices = tmp_path / "saved", tmp_path / "notices"
    elsewhere = {"trainer.output": str(tmp_path / "output")} if output == "elsewhere" else {}
    notice = ("sh", "-c", f"echo $TUI_TRAIN_STATE $TUI_TRAIN_EXIT_CODE > '{notices}'")
    run = made(f"--save-on-term={saved}", **{"notify.command": notice}, **elsewhere)
    terminal = by_hand(run)
    mark, launcher = read_status(run).mark, read_status(run).pid
    program = [sys.executable, "-m", "tui_train", "logs", "--follow", str(run.path)]
    viewer = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        snapshots = follow_snapshots(run, lambda: False)
        next(snapshots)
        viewer.stdout.readline()
        shutil.rmtree(run.path)
        assert [*snapshots][-1].was_folder_deleted
        lines = viewer.communicate(timeout=60)[0].splitlines()
        assert (lines[-2], viewer.returncode) == ("tui-train: the folder of run was deleted", 66)
        terminal.expect("its folder was deleted: the training ends")
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert (terminal.exitstatus, saved.exists()) == (143, output == "elsewhere")
        assert notices.read_text() == "stopped 143\n"
        assert not living_run_pids(mark)
        assert not run.path.exists()
        assert not [*tmp_path.glob(".tui-train-*")], "the lock of its output is left"
    finally:
        viewer.kill()
        for pid in (*living_run_pids(mark), launcher):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("links_at_start", [0, 2])
def test_a_folder_is_deleted_only_where_its_file_system_counts_links(tmp_path, monkeypatch, links_at_start):
    """Some in user space count none of any folder, and a training there is not to be ended for that."""
    journal, links = Journal(str(tmp_path)), [links_at_start]
    monkeypatch.setattr(os, "fstat", lambda _descriptor: SimpleNamespace(st_nlink=links[0]))
    journal.hold_folder_open()
    links[0] = 0
    assert journal.is_folder_deleted() == bool(links_at_start)


@ROOT
def test_stopping_the_run_of_another_user_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run, _ = export_run(Path(folder) / "run", sleeper_profile("--seconds=20"), facts())
        start_run(run)
        running_training(run)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            try:
                stop_local_run(run)
            except Unavailable as error:
                os.write(writer, error.message.encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        assert "another user" in os.read(reader, 1000).decode()
        assert read_status(run).state == "running"
        assert stop_local_run(run).state == "stopped"


# ---- what is left of a run whose launch.sh is gone


def test_without_its_launch_script_it_is_lost_and_what_is_left_may_save(made, tmp_path):
    run = made("--children-apart=1", f"--save-on-term={tmp_path / 'saved'}")
    before = start_training(run)
    os.kill(read_status(run).pid, signal.SIGKILL)
    now = wait_until(lambda: read_status(run).state == "lost" and read_status(run))
    assert set(before) <= set(now.leftover)
    assert not now.is_live
    assert stop_local_run(run).leftover == ()
    assert read_status(run).state == "lost"
    assert not living_run_pids(now.mark)
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_what_is_left_and_does_not_listen_is_killed(made, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "1")
    run = made("--children-apart=1", "--ignore-signals")
    start_training(run)
    os.kill(read_status(run).pid, signal.SIGKILL)
    assert wait_until(lambda: read_status(run).leftover)
    assert stop_local_run(run).leftover == ()


def told(run, **changes):
    """Change what the newest run_started says."""
    lines = run.events_file.read_text().splitlines()
    index = max(number for number, line in enumerate(lines) if '"run_started"' in line)
    lines[index] = json.dumps(json.loads(lines[index]) | changes)
    run.events_file.write_text("\n".join(lines) + "\n")


def test_a_number_alone_is_no_process(made):
    run = made("--seconds=20")
    start_run(run)
    assert read_status(run).state == "running"
    pid = read_status(run).pid
    before = run.events_file.read_text()
    another_boot = {"boot_id": "00000000-0000-0000-0000-000000000000"}
    for changes in (another_boot, {"start_ticks": 1}, {"pid": 2**22 + 1}, {"boot_id": ""}):
        # It would make its lock again.
        os.kill(pid, signal.SIGSTOP)
        aside = (run.path / ".lock").rename(run.path / "aside")
        told(run, **changes)
        assert read_status(run).state == "lost", changes
        aside.rename(run.path / ".lock")
        os.kill(pid, signal.SIGCONT)
        assert (read_status(run).state, read_status(run).pid) == ("running", pid), "the lock names it as well"
        run.events_file.write_text(before)
    assert read_status(run).pid == pid
    assert stop_local_run(run).state == "stopped"


# ---- one start at a time


DEAD = {
    "another process": {"ticks": 1},
    "another boot": {"boot": "00000000-0000-0000-0000-000000000000"},
    "rubbish": "rubbish",
    "deep": "[" * 5000,
    "none": None,
}


@pytest.mark.parametrize("owner", DEAD.values(), ids=DEAD)
def test_the_lock_of_a_dead_one_is_taken_over(made, owner):
    run = made("--seconds=0.1")
    (run.path / ".lock").mkdir()
    if isinstance(owner, dict):
        owner = json.dumps(lock_owner.this_process_as_owner("m", str(run.path))._asdict() | owner)
    if owner is not None:
        (run.path / ".lock" / "owner").write_text(owner)
    assert run_launch_script(run).returncode == 0
    assert gone(run)


def test_the_lock_of_a_zombie_is_taken_over(made):
    """A killed launch.sh may wait for long to be collected, where nobody does."""
    run = made("--seconds=20")
    process = subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
    with process:
        running_training(run)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        stop_local_run(run)
        (run.path / "profile.toml").touch()
        again = subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
        with again:
            wait_until(lambda: len(read_status(run).attempts) == 2)
            again.terminate()
    assert read_status(run).state == "stopped"


@pytest.mark.whole
def test_a_lock_that_nobody_can_take_is_said(made):
    run = made("--seconds=0.1")
    at = run.path / ".lock"
    at.mkdir()
    (at / "owner").mkdir()
    (at / "heir").write_text("")
    # As it is, but for how long it waits in all.
    patch_runner_module(run, "lock.py", "\n_MAX_LOCK_WAIT_SECONDS = 30.0\n", "\n_MAX_LOCK_WAIT_SECONDS = 2.0\n")
    done = run_launch_script(run)
    assert done.returncode in {73, 75}, done.stderr
    assert str(run.path).encode() in done.stderr
    assert not run.events_file.exists()


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_starts_at_once_one_wins(made, stale):
    run = made()
    if stale:
        dead = lock_owner.this_process_as_owner("m", str(run.path))._replace(pid=4000000)
        (run.path / ".lock").mkdir()
        (run.path / ".lock" / "owner").write_text(json.dumps(dead._asdict()))
    several = [
        subprocess.Popen(["bash", run.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL)
        for _ in range(6)
    ]
    wait_until(lambda: [process.poll() for process in several].count(75) == 5, 60)
    assert stop_local_run(run).state == "stopped"
    assert sorted(process.wait(30) for process in several) == [*[75] * 5, 143]
    assert events(run).count("run_started") == 1


def test_a_second_start_keeps_the_logs_of_the_first(made):
    run = made("--seconds=0.2", *CLIMBING, **TWO_ATTEMPTS)
    assert run_launch_script(run).returncode == 0
    first = run.attempt_log(1).read_bytes()
    assert run_launch_script(run).returncode == 0
    assert run.attempt_log(1).read_bytes() == first
    assert b"tick" in run.attempt_log(2).read_bytes()
    now = read_status(run)
    assert [(attempt.number, attempt.position) for attempt in now.attempts] == [(1, 1), (2, 1)]
    assert now.state == "finished"
    assert len([*follow_lines(run)]) == first.count(b"\n") + run.attempt_log(2).read_bytes().count(b"\n")


# ---- where it cannot write


def test_a_folder_that_is_a_file(made, tmp_path, monkeypatch):
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(CannotWrite) as caught:
        create_run(sleeper_profile(), name="x")
    assert caught.value.remedy == "A part of the path is a file: choose another path."
    with pytest.raises(CannotWrite):
        run_folders.export_plan_files(
            tmp_path / "state" / "x", prepare_without_errors(sleeper_profile(), facts()).files
        )


@ROOT
def test_a_full_disk(mounted, monkeypatch):
    folder = mounted("-t", "tmpfs", "-o", "size=64k", "tmpfs")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    with pytest.raises(CannotWrite) as caught:
        create_run(profile(), name="x")
    assert caught.value.remedy.startswith("The disk is full")
    assert [*runs_folder().iterdir()] == []


def fill_disk(file, piece):
    """Add pieces to a file until it takes no more."""
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as opened:
        while True:
            opened.write(piece)


@ROOT
def test_a_disk_that_is_full_when_the_script_starts(mounted):
    folder = mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs")
    run, _ = export_run(folder / "run", sleeper_profile("--seconds=0.1"), facts())
    fill_disk(folder / "filler", b"x" * 4096)
    done = run_launch_script(run)
    assert done.returncode == 73
    assert b"launch.sh: cannot write" in done.stderr
    assert not run.attempt_log(1).exists()
    with pytest.raises(Unavailable, match="cannot write"):
        start_run(run)
    (folder / "filler").unlink()
    assert run_launch_script(run).returncode == 0
    assert read_status(run).state == "finished"


@ROOT
def test_a_disk_that_fills_up_meanwhile(mounted, tmp_path):
    """How it ended is known all the same."""
    folder = mounted("-t", "tmpfs", "-o", "size=2m", "tmpfs")
    go = tmp_path / "go on"
    run, _ = export_run(folder / "run", sleeper_profile(f"--until={go}", "--code=3"), facts())
    start_training(run)
    fill_disk(folder / "filler", b"x" * 4096)
    # A file may have room left in its last page.
    fill_disk(run.events_file, b"\n")
    go.touch()
    wait_until(lambda: not read_status(run).is_live)
    now = read_status(run)
    assert (now.state, now.exit_code) == ("failed", 3)


@ROOT
def test_a_folder_that_may_not_be_written(mounted, made):
    run = made("--seconds=0.1")
    before = sorted(run.path.iterdir())
    subprocess.run(["mount", "--bind", run.path, run.path.parent / "mounted"], check=True)
    folder = mounted("-o", "remount,ro,bind")
    read_only = RunFolder(folder)
    done = run_launch_script(read_only)
    assert done.returncode == 73
    assert done.stderr.decode().startswith(f"launch.sh: cannot write in {folder}")
    with pytest.raises(CannotWrite) as caught:
        start_run(read_only)
    assert caught.value.remedy == "That disk is read-only: choose another folder."
    with pytest.raises(CannotWrite):
        run_folders.export_plan_files(folder / "more", prepare_without_errors(sleeper_profile(), facts()).files)
    assert sorted(run.path.iterdir()) == before
    assert run_launch_script(read_only, "--dry-run").returncode == 0


def test_a_script_that_cannot_start_says_why(made):
    run = made("--seconds=0.1", **{"trainer.secrets": ("NO_SUCH_VARIABLE",)})
    with pytest.raises(Unavailable) as caught:
        start_run(run)
    assert "NO_SUCH_VARIABLE is not set" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("grace", ["-1", "1.5", "a[$(touch pwned)]"])
def test_a_grace_that_is_no_number_is_refused(made, grace):
    run = made()
    done = run_launch_script(run, env=plain_environment(TUI_TRAIN_GRACE=grace))
    assert done.returncode == 64
    assert b"TUI_TRAIN_GRACE" in done.stderr
    assert not Path("pwned").exists()


# ---- finding runs


def test_runs_are_found_by_id_beginning_last_and_folder(tmp_path, monkeypatch):
    files = prepare_without_errors(sleeper_profile(), facts()).files

    def created(stamp, name):
        monkeypatch.setattr(run_folders.time, "strftime", lambda _: stamp)
        return run_folders.create_run_folder(name, files)

    first, second = created("20260101-000000", "Ä b/c"), created("20260101-000000", "Ä b/c")
    third = created("20260102-000000", "中文")
    assert [run.name for run in (first, third)] == ["20260101-000000-b-c", "20260102-000000-run"]
    assert second.name == "20260101-000000-b-c-2"
    assert run_folders.list_runs() == (third, second, first)
    assert run_folders.find_run("last") == third
    assert run_folders.find_run("20260102") == third
    assert run_folders.find_run(first.name) == first
    assert run_folders.find_run(str(second.path)) == second
    (runs_folder() / ".new-x").mkdir()
    (runs_folder() / "no script").mkdir()
    assert len(run_folders.list_runs()) == 3
    for wrong in ("20260101", "nope", "", str(tmp_path), "./x", "~nobody-of-that-name/x"):
        with pytest.raises(NotFound if "~" not in wrong else BadInput) as caught:
            run_folders.find_run(wrong)
        assert caught.value.remedy


def test_export_never_overwrites_unasked(tmp_path):
    files = prepare_without_errors(sleeper_profile(), facts()).files
    (tmp_path / "profile.toml").write_text("mine")
    with pytest.raises(CannotWrite, match="already exists"):
        run_folders.export_plan_files(tmp_path, files)
    assert [path.name for path in tmp_path.iterdir()] == ["profile.toml"]
    assert (tmp_path / "profile.toml").read_text() == "mine"
    written = run_folders.export_plan_files(tmp_path, files, overwrite=True)
    assert sorted(written) == sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert os.access(tmp_path / "launch.sh", os.X_OK)


@pytest.mark.whole
@pytest.mark.parametrize("killed", [False, True])
def test_a_training_that_writes_over_its_mark_is_ended_all_the_same(made, monkeypatch, killed):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "1")
    run = made("--seconds=60", "--hide", "--ignore-signals")
    start_training(run)
    now = read_status(run)
    assert not living_run_pids(now.mark), "the test must hide the mark"
    assert living_run_pids(now.mark, now.leader)
    if killed:
        os.kill(now.pid, signal.SIGKILL)
        wait_until(lambda: read_status(run).state == "lost")
    stop_local_run(run)
    assert living_run_pids(now.mark, now.leader) == ()
    assert process_start_ticks(now.leader) is None


def test_nothing_is_started_beside_what_an_earlier_start_left(made):
    run = made("--seconds=60")
    start_training(run)
    now = read_status(run)
    os.kill(now.pid, signal.SIGKILL)
    left = wait_until(lambda: read_status(run).leftover)
    with pytest.raises(Unavailable, match="still train"):
        start_run(run)
    done = run_launch_script(run)
    assert done.returncode == 75
    assert str(left[0]) in done.stderr.decode()
    stop_local_run(run)


def test_a_torn_line_does_not_swallow_the_next_start_and_what_does_not_run_can_be_stopped(made):
    run = made("--seconds=0.1")
    assert stop_local_run(run).state == "new"
    run.events_file.write_text('{"time":1.0,"event":"run_st')
    assert run_launch_script(run).returncode == 0
    assert stop_local_run(run).state == read_status(run).state == "finished"


def test_steps_without_a_checkpoint_are_not_made_again_unasked(tmp_path):
    """As the dialog of a stop says; what ended before its first step, as a download did, starts again."""
    run = finished_run(tmp_path, state="stopped", code=143)
    assert stop_consequence_text(run).endswith("if it saves none, there will be nothing to resume from.")
    said = run_cli("resume", "last", "--dry-run", code=69).stderr
    assert "has no complete checkpoint" in said
    assert f"Train again: tui-train run {run.profile_file}" in said
    assert f"tui-train resume {run.name} --force" in said
    assert f"would start {run.name}" in run_cli("resume", "last", "--force", "--dry-run").stdout
    run.attempt_log(2).write_text("downloading the model\n")
    assert f"would start {run.name}" in run_cli("resume", "last", "--dry-run").stdout

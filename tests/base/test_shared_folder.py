"""A folder in which other users may write: what they put there at our names is neither followed, taken nor removed."""

import contextlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from support import SCRIPTS, export_run, facts, plain_environment, sleeper_profile, wait_until

from tui_train.actions import nemo_files
from tui_train.base.app_paths import connections_folder, runs_folder
from tui_train.base.errors import CannotWrite
from tui_train.channel import ssh
from tui_train.runner.machines import receive
from tui_train.runner.machines.ssh import login_control_path_pattern
from tui_train.runner.run_folder import events, lock, lock_owner
from tui_train.runner.system import safe_open
from tui_train.runner.system.new_folder import _apply_umask
from tui_train.runner.system.refused import BUSY_RESOURCE_EXIT_CODE, Refused
from tui_train.runs.conflicts import lock_run_starts

# Numbers without a name, in reach of neither sudo nor a login.
MINE, OTHERS = 61001, 61002
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can be two users")
CHAPTERS = {"chapter": "thesis", "owner": "the author"}


def lock_of(output):
    """The lock beside an output folder."""
    return output.parent / f".tui-train-{zlib.crc32(output.name.encode()):08x}"


@pytest.fixture
def precious(tmp_path):
    """A folder that nobody may touch."""
    folder = tmp_path / "precious"
    folder.mkdir()
    for name, text in CHAPTERS.items():
        (folder / name).write_text(text)
    return folder


def kept(folder):
    return {path.name: path.read_text() for path in folder.iterdir()} == CHAPTERS


def held_at(at):
    """A lock that this process takes."""
    held = lock.FolderLock(
        str(at), lock_owner.this_process_as_owner("m", str(at.parent)), "a training runs", lambda _dead: ""
    )
    held.take()
    return held


def start(run, **more):
    return subprocess.run(
        ["bash", str(run.launch_script)], env=plain_environment(), capture_output=True, text=True, check=False, **more
    )


# ---- two users


def two_pythons():
    """A Python that any user can start; skips where there is none."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        with contextlib.suppress(OSError):
            if python and subprocess.run([python, "-c", ""], user=OTHERS, group=OTHERS, check=False).returncode == 0:
                return python
    pytest.skip("NOT TESTED: no Python here can be started by another user")


@pytest.fixture
def shared(request):
    """A folder for all users, and what makes a run of one of them whose output goes there; the mode is a parameter."""
    python, folder = two_pythons(), Path(tempfile.mkdtemp(prefix="tui-train-"))
    try:
        folder.chmod(0o755)
        (folder / "all").mkdir()
        (folder / "all").chmod(request.param)
        shutil.copy(SCRIPTS / "sleeper.py", folder)

        def make(user, *words):
            values = {
                "trainer.output": str(folder / "all/out"),
                "trainer.arguments": (*words, "{output}"),
                "trainer.script": str(folder / "sleeper.py"),
                "trainer.python": python,
            }
            run, _ = export_run(folder / f"run-{user}", sleeper_profile(**values), facts(python=python))
            for path in (run.path, *run.path.rglob("*")):
                os.chown(path, user, user)
            return run

        yield folder, make
    finally:
        shutil.rmtree(folder)


def as_user(user):
    return {"user": user, "group": user, "extra_groups": [], "cwd": "/", "umask": 0o002}


def modes(first, second):
    """Modes of a folder for all users, the second one only where whole matrices are tried."""
    return pytest.mark.parametrize(
        "shared", [first, pytest.param(second, marks=pytest.mark.whole)], indirect=True, ids=oct
    )


@ROOT
@modes(0o777, 0o1777)
def test_what_another_user_links_to_at_the_name_of_a_lock_is_kept(shared):
    folder, make = shared
    run, precious = make(MINE, "--seconds=0.1"), folder / "precious"
    precious.mkdir()
    (precious / "chapter").write_text("thesis")
    for path in (precious, precious / "chapter"):
        os.chown(path, MINE, MINE)
    at = lock_of(folder / "all/out")
    subprocess.run(["ln", "-s", precious, at], check=True, **as_user(OTHERS))
    refused = start(run, **as_user(MINE))
    assert (refused.returncode, list(precious.iterdir())) == (BUSY_RESOURCE_EXIT_CODE, [precious / "chapter"])
    assert f"{at} is a link of user {OTHERS}, not a lock" in refused.stderr
    assert at.is_symlink()


@ROOT
@modes(0o1777, 0o777)
def test_another_users_lock_is_respected_and_his_dead_one_is_left_to_him(shared):
    folder, make = shared
    run, at = make(MINE, "--seconds=0.1"), lock_of(folder / "all/out")
    sticky = bool(at.parent.stat().st_mode & stat.S_ISVTX)
    of_others = make(OTHERS, "--seconds=60")
    process = subprocess.Popen(
        ["bash", of_others.launch_script], env=plain_environment(), stdout=subprocess.DEVNULL, start_new_session=True,
        **as_user(OTHERS),
    )  # fmt: skip
    with process:
        trains = wait_until(lambda: [event.leader for event in of_others.events() if event.leader])
        refused = start(run, **as_user(MINE))
        assert refused.returncode == BUSY_RESOURCE_EXIT_CODE
        assert f"already (process {process.pid} of user {OTHERS})" in refused.stderr
        assert stat.S_IMODE(at.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH) == 0
        process.kill()
        for pid in trains:
            os.killpg(pid, 9)
    left = {path: path.read_bytes() for path in at.iterdir()}
    refused = start(run, **as_user(MINE))
    assert refused.returncode == BUSY_RESOURCE_EXIT_CODE
    remedy = f"have user {OTHERS} remove it" if sticky else "move it away"
    assert f"is a lock of user {OTHERS}: if nothing trains there, {remedy}" in refused.stderr
    assert {path: path.read_bytes() for path in at.iterdir()} == left
    # As he is told.
    subprocess.run(["mv", at, f"{at}.old"], check=True, **as_user(OTHERS if sticky else MINE))
    assert start(run, **as_user(MINE)).returncode == 0
    assert not at.exists()


@ROOT
@pytest.mark.parametrize("names", ["us", "a dead one", pytest.param("nobody", marks=pytest.mark.whole)])
def test_a_folder_of_another_user_that_says_to_be_our_lock_is_none_of_ours(tmp_path, names):
    at, me = tmp_path / ".lock", lock_owner.this_process_as_owner("m", str(tmp_path))
    at.mkdir()
    (at / "chapter").write_text("thesis")
    if names != "nobody":
        (at / "owner").write_text(json.dumps((me if names == "us" else me._replace(pid=2**22 + 1))._asdict()))
    for path in (at, *at.iterdir()):
        os.chown(path, OTHERS, OTHERS)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in at.iterdir()}
    held = lock.FolderLock(str(at), me, "a training runs", lambda _dead: pytest.fail("it asks what another user names"))
    with pytest.raises(Refused) as refused:
        held.take()
    assert (refused.value.code, f"user {OTHERS}" in refused.value.why) == (BUSY_RESOURCE_EXIT_CODE, True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in at.iterdir()} == before


@ROOT
def test_a_lock_that_became_another_users_is_not_touched_any_more(tmp_path):
    at = tmp_path / ".lock"
    held = held_at(at)
    shutil.copytree(at, tmp_path / "copy")
    at.rename(tmp_path / "aside")
    (tmp_path / "copy").rename(at)
    for path in (at, at / "owner"):
        os.chown(path, OTHERS, OTHERS)
    held.release()
    assert (at / "owner").exists()


# ---- what lies at the name of a lock


def test_a_training_leaves_the_folder_that_a_link_at_its_locks_name_leads_to(tmp_path, precious):
    values = {"trainer.output": str(tmp_path / "all/out"), "trainer.arguments": ("--seconds=0.1", "{output}")}
    run, _ = export_run(tmp_path / "run", sleeper_profile(**values), facts())
    at = lock_of(tmp_path / "all/out")
    at.parent.mkdir()
    at.symlink_to(precious)
    refused = start(run)
    assert (refused.returncode, f"{at} is a link, not a lock: move it away" in refused.stderr) == (
        BUSY_RESOURCE_EXIT_CODE,
        True,
    )
    assert kept(precious)
    assert not run.events_file.exists()


@pytest.mark.parametrize("kind", ["link to nothing", "file", "pipe", "folder"])
def test_what_is_not_a_lock_is_named_and_stays(tmp_path, precious, kind):
    at = tmp_path / ".lock"
    make = {"link to nothing": lambda: at.symlink_to("nothing"), "file": at.touch, "pipe": lambda: os.mkfifo(at)}
    make.get(kind, lambda: precious.rename(at))()
    with pytest.raises(Refused) as refused:
        held_at(at)
    why = "is not a lock, it holds chapter" if kind == "folder" else f"is a {kind.split()[0]}, not a lock"
    assert refused.value.why == f"{at} {why}: move it away, or choose another folder"
    assert kept(at if kind == "folder" else precious)
    assert os.path.lexists(at)


@pytest.mark.parametrize("then", ["release", "beat", "keep_reserve", "drop_disk_reserve"])
def test_a_lock_whose_place_a_link_takes_is_not_followed(tmp_path, precious, then):
    at = tmp_path / ".lock"
    held = held_at(at)
    shutil.copy(at / "owner", precious / "owner")
    (precious / "reserve").write_text("")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in precious.iterdir()}
    at.rename(tmp_path / "aside")
    at.symlink_to(precious)
    if then == "drop_disk_reserve":
        with safe_open.open_folder(tmp_path) as folder:
            lock.drop_disk_reserve(folder)
    else:
        {"release": held.release, "beat": held.renew, "keep_reserve": lambda: held.keep_disk_reserve(16)}[then]()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in precious.iterdir()} == before


def test_only_the_names_of_a_lock_are_removed(tmp_path):
    at = tmp_path / ".lock"
    held = held_at(at)
    held.keep_disk_reserve(16)
    (at / f"owner{safe_open.TEMPORARY_INFIX}left by a power cut").write_text("")
    (at / "chapter").write_text("thesis")
    held.release()
    assert {path.name for path in at.iterdir()} == {"chapter", "owner"}
    held_at(at).release()
    assert (at / "chapter").read_text() == "thesis"


@pytest.mark.parametrize("names", ["a dead one", "nobody"])
def test_a_lock_in_which_a_disk_left_something_is_taken_over_again_and_again(tmp_path, names):
    at, me = tmp_path / ".lock", lock_owner.this_process_as_owner("m", str(tmp_path))
    at.mkdir()
    if names == "a dead one":
        (at / "owner").write_text(json.dumps(me._replace(pid=2**22 + 1)._asdict()))
    for left in (".nfs000000000a1b2c3d00000001", ".DS_Store"):
        (at / left).write_text("open")
    for _ in range(2):
        held = held_at(at)
        assert lock_owner.read_lock_owner(str(at)) == me
        held.release()
    assert {path.name for path in at.iterdir()} == {".nfs000000000a1b2c3d00000001", ".DS_Store", "owner"}


def test_a_lock_follows_its_folder_and_a_link_of_the_owner_names_nobody(tmp_path):
    at = tmp_path / "here" / ".lock"
    at.parent.mkdir()
    held = held_at(at)
    at.parent.rename(tmp_path / "there")
    assert held.renew()
    held.release()
    assert list((tmp_path / "there").iterdir()) == []
    at = tmp_path / ".lock"
    at.mkdir()
    (tmp_path / "owner").write_text(json.dumps(lock_owner.this_process_as_owner("m", "")._asdict()))
    (at / "owner").symlink_to(tmp_path / "owner")
    assert lock_owner.read_lock_owner(str(at)) is None


# ---- other names


def test_no_link_at_the_name_of_a_file_being_written_is_followed(tmp_path, precious):
    (tmp_path / f"owner.new.{os.getpid()}").symlink_to(precious / "chapter")
    safe_open.write_atomically(str(tmp_path / "owner"), b"new")
    assert kept(precious)
    assert (tmp_path / "owner").read_text() == "new"


def test_a_full_disk_frees_nothing_behind_a_link(tmp_path, precious):
    (precious / "reserve").write_text("")
    (tmp_path / ".lock").symlink_to(precious)
    (tmp_path / events.JOURNAL_FILE_NAME).mkdir()
    journal = events.Journal(str(tmp_path))
    journal.hold_folder_open()
    with pytest.raises(OSError, match="directory"):
        journal.append("run_started")
    assert (precious / "reserve").exists()


def test_a_connection_whose_socket_could_not_be_opened_is_not_named():
    assert login_control_path_pattern({"HOME": "/home/ada"}) == "/home/ada/.cache/tui-train/ssh/%C"
    assert login_control_path_pattern({"XDG_CACHE_HOME": f"/scratch/{'a' * 40}"}) == "none"


def test_no_connection_is_shared_where_others_could_answer_it():
    os.environ["XDG_CACHE_HOME"] = short = tempfile.mkdtemp(prefix="t")
    try:
        assert any("ControlPath=" in word for word in ssh.ssh_command_prefix("box"))
        connections_folder().chmod(0o777)
        assert not any("ControlPath=" in word for word in ssh.ssh_command_prefix("box"))
    finally:
        shutil.rmtree(short)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_start_makes_nothing_behind_a_link_in_the_runs_folder_and_waits_for_no_pipe(tmp_path, kind):
    at = runs_folder() / ".starting"
    at.parent.mkdir(parents=True)
    if kind == "link":
        at.symlink_to(tmp_path / "made")
    else:
        os.mkfifo(at)
    with lock_run_starts():
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("whose", ["link", pytest.param("another user", marks=ROOT)])
def test_text_is_prepared_only_in_a_folder_of_ones_own(tmp_path, precious, whose):
    text, tokenizer, work = tmp_path / "text.txt", tmp_path / "tokenizer", tmp_path / "out.preparing"
    text.write_text("text")
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    data = nemo_files.NemoTextToPrepare(splits={"train": (text,)}, tokenizer=tokenizer, out=tmp_path / "out")
    if whose == "link":
        work.symlink_to(precious)
    else:
        work.mkdir()
        os.chown(work, OTHERS, OTHERS)
    # As one who reads the text and the tokenizer as well can.
    (work / "question.json").write_bytes(nemo_files._preparation_request(data))
    with pytest.raises(CannotWrite):
        nemo_files.prepare_nemo_data(data, "/bin/false", lambda _progress: None)
    assert (work / "question.json").exists()


@ROOT
def test_a_machine_takes_no_run_into_another_users_folder(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    os.chown(folder, OTHERS, OTHERS)
    asked = {"what": "run", "folder": str(folder), "mark": "m", "only_look": True}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(asked).encode() + b"\n")))
    assert receive.main() == 0
    assert "belongs to another user" in json.loads(capfd.readouterr().out)["problem"]
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_merged_model_is_opened_to_others_when_nothing_in_it_changes_any_more(tmp_path):
    made = tmp_path / "made"
    made.mkdir(0o700)
    (made / "link").symlink_to("nothing")
    with pytest.raises(FileNotFoundError):
        _apply_umask(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700

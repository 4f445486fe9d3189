"""A host that answers what it likes, or nothing: an `ssh` that does what a test says, or runs here what it is sent."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path

import pytest
import warm
from msgspec import structs
from support import run_cli, sample, wait_until

from tui_train.base.errors import AlreadyExists, CannotWrite, NoAnswer, TuiTrainError, Unavailable
from tui_train.channel import session, ssh
from tui_train.channel.session import PYTHON_COMMAND
from tui_train.places import fetched_results, host_questions, place_of_run
from tui_train.places import place as place_module
from tui_train.places.fetched_results import fetch_results
from tui_train.places.run_mirror import RunMirror, update_local_copy
from tui_train.plan.render import runner_file
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME, RenderedFile
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.runner.questions import answer_lines, run_output
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs import incomplete_runs, run_folders
from tui_train.runs.remote_run import (
    HostReport,
    RunLocation,
    UnconfirmedStart,
    local_output_folder,
    read_host_report,
    read_run_location,
    write_host_report,
    write_run_location,
)
from tui_train.runs.results.resuming import are_results_here
from tui_train.runs.status import read_status

# The input begins with the text that finds the runner, and the line with the question.
STUB = """\
#!{python} -IS
import base64, json, os, subprocess, sys, time, zlib
sent = [sys.stdin.buffer.readline(), sys.stdin.buffer.readline()]
do = json.loads(sent[1])["question"]["do"]
def say(**line):
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\\n")
    sys.stdout.buffer.flush()
def named(name, data, size=None):
    say(name=base64.b64encode(name).decode(), size=len(data) if size is None else size)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def honest():
    words = [{python!r}, *{words!r}]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, env={{**os.environ, "HOME": {home!r}}})
    child.stdin.writelines(sent)
    child.stdin.flush()
    while piece := sys.stdin.buffer.read1():
        child.stdin.write(piece)
        child.stdin.flush()
    child.stdin.close()
    sys.exit(child.wait())
path = {answers!r} + "/" + do
if os.path.exists(path):
    text = open(path).read()
    if "honest()" not in text:
        say(runner="ready")
    exec(text)
else:
    honest()
"""
STANDING = ["finished", [], 1.0, 2.0, 0]


class Stub:
    """What it answers to a question, in Python; honestly where it was told nothing."""

    def __init__(self, folder):
        self.folder = folder
        self.home, self.answers = folder / "home", folder / "answers"
        for made in (self.home, self.answers, folder / "bin"):
            made.mkdir()
        (folder / "bin" / "ssh").write_text(
            STUB.format(python=sys.executable, home=str(self.home), answers=str(self.answers), words=PYTHON_COMMAND[1:])
        )
        (folder / "bin" / "ssh").chmod(0o755)

    def __setitem__(self, question, code):
        (self.answers / question).write_text(code)

    def __delitem__(self, question):
        (self.answers / question).unlink()


@pytest.fixture
def box(tmp_path, monkeypatch):
    stub = Stub(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    return stub


@pytest.fixture
def run(box, tmp_path):
    """A run that has ended on the host, with an output folder there of a file and a checkpoint."""
    there = tmp_path / "there"
    (there / "output" / "checkpoint-5").mkdir(parents=True)
    (there / "launch.sh").write_text("#!/bin/bash\n")
    (there / "output" / "model.txt").write_text("first")
    (there / "output" / "checkpoint-5" / "weights").write_bytes(bytes(5000))
    (there / RUNNER_ZIP_FILE_NAME).write_bytes(runner_file().content)
    made = run_folders.create_run_folder(
        "far", [RenderedFile("launch.sh", "#!/bin/bash\n"), RenderedFile("plan.json", "{}")]
    )
    (made.path / "place.json").write_text(json.dumps({"host": "box", "folder": str(there)}))
    write_host_report(made.path, HostReport(at=time.time(), status=RunStatus("finished")))
    box["feed"] = f"say(status={STANDING}); say(end=True)"
    return made


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "heard.json"
    }


# Fetching


def test_what_a_host_sends_takes_the_place_of_nothing_but_fetched_files(box, run, tmp_path):
    before = snapshot(run.path)
    own = ("launch.sh", "plan.json", "place.json", RUNNER_ZIP_FILE_NAME)
    box["fetch"] = (
        "say(files=4, total=8)\n" + "\n".join(f"named({name.encode()!r}, b'xx')" for name in own) + "\nsay(end=True)"
    )
    assert fetch_results(run).size == 8
    after = snapshot(run.path)
    assert {name: after[name] for name in before} == before
    assert sorted(
        path.relative_to(run.path / "output").as_posix() for path in (run.path / "output").rglob("*.*")
    ) == sorted(own)
    assert not list((run.path / fetched_results._FETCH_FOLDER_NAME).iterdir())


# What a host sends for an output folder, and why nothing is taken.
REFUSED = [
    ("say(files=1, total=1); named(b'../launch.sh', b'x')", "names a file"),
    ("say(files=1, total=1); named(b'a/../../launch.sh', b'x')", "names a file"),
    ("say(files=1, total=1); named(b'/tmp/x', b'x')", "names a file"),
    ("say(files=1, total=1); named(b'', b'x')", "names a file"),
    ("say(files=1, total=1); named(b'a//b', b'x')", "names a file"),
    (r"say(files=1, total=1); named(b'a\0b', b'x')", "names a file"),
    ("say(files=1, total=1); named(b'/'.join([b'd'] * 65), b'x')", "names a file"),
    ("say(files=1, total=1); named(b'd' * 300, b'x')", "cannot write"),
    (r"say(files=1, total=1); named(b'\x1b[31m\n/..', b'x')", r"names a file '\\\\x1b"),
    ("say(files=2, total=2); named(b'a', b'x'); named(b'a/b', b'y')", "cannot write"),
    ("say(files=2, total=2); named(b'a', b'x'); named(b'a', b'y')", "twice"),
    ("say(files=1, total=2); named(b'a', b'x'); named(b'b', b'y')", "more than"),
    ("say(files=2, total=3); named(b'a', b'xx'); named(b'b', b'yy')", "more than"),
    ("say(files=1, total=1); named(b'a', b'', size=1 << 62)", "more than"),
    ("say(files=1, total=1); named(b'a', b'', size=-1)", "more than"),
    ("say(files=1, total=9); named(b'a', b'xx', size=9)", "was lost"),
    ("say(files=1, total=1, kept=True); say(name='YQ==', size=1, kept=True)", "more than"),
    ("say(files=-1, total=1)", "announces"),
    ("say(files=1 << 40, total=1)", "announces"),
    ("say(files=1, total=-1)", "announces"),
    ("say(files=1, total=1 << 60)", r"take 1073741824\.0 GiB, and this disk has [\d.]+ GiB free"),
    ("say(started=True)", "announces no files"),
    ("say(files=1, total=1); sys.stdout.write('launch.sh' + chr(0) * 503)", "something else"),
    ("sys.stdout.write('{' * (9 << 20))", "without end"),
    ("say(error='\\x1b]0;title\\x07 \\x1b[2J')", r"\\x1b\]0;title"),
    ("sys.exit('Connection \\x1b[2J closed')", r"\\x1b\[2J"),
]


@pytest.mark.parametrize(("sent", "why"), sample(REFUSED, 5))
def test_what_no_honest_host_sends_is_refused_and_changes_nothing(box, run, sent, why):
    (run.path / "output").mkdir()
    (run.path / "output" / "model.txt").write_text("first")
    (run.path / "fetched").write_text("1")
    (run.path / ".fetched-files").write_text("")
    before = snapshot(run.path)
    box["fetch"] = sent
    with pytest.raises(TuiTrainError, match=why) as raised:
        fetch_results(run)
    assert "\x1b" not in raised.value.message + raised.value.remedy
    assert snapshot(run.path) == before
    assert not list((run.path / fetched_results._FETCH_FOLDER_NAME).iterdir())


def test_a_second_fetch_brings_what_is_new_and_keeps_what_is_not_there_any_more(run, tmp_path):
    output, here = tmp_path / "there" / "output", local_output_folder(run.path, "")
    assert fetch_results(run).size == 5
    assert are_results_here(run)
    assert not (here / "checkpoint-5").exists()
    (output / "model.txt").write_text("second")
    (output / "more.txt").write_text("more")
    (output / "link").symlink_to("/etc/passwd")
    os.mkfifo(output / "pipe")
    assert fetch_results(run, with_checkpoints=True).size == 5010
    (output / "model.txt").write_text("third")
    shutil.rmtree(output / "checkpoint-5")
    (here / "mine.txt").write_text("mine")
    fetch_results(run)
    assert {path.name: path.stat().st_size for path in here.rglob("*") if path.is_file()} == {
        "model.txt": 5, "more.txt": 4, "mine.txt": 4, "weights": 5000,
    }  # fmt: skip
    assert (here / "model.txt").read_text() == "third"


def test_what_was_changed_or_made_here_is_not_replaced(run, tmp_path):
    here = local_output_folder(run.path, "")
    fetch_results(run)
    (here / "model.txt").write_text("changed here")
    with pytest.raises(AlreadyExists, match=r"model\.txt was not fetched, or was changed") as raised:
        fetch_results(run)
    assert "Move that file or folder away" in raised.value.remedy
    assert (here / "model.txt").read_text() == "changed here"
    (here / "model.txt").unlink()
    (here / "model.txt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        fetch_results(run)
    here.rename(tmp_path / "kept")
    here.symlink_to(tmp_path / "kept")
    with pytest.raises(AlreadyExists, match="output was not fetched"):
        fetch_results(run)
    here.unlink()
    fetch_results(run)
    assert (here / "model.txt").read_text() == "first"


@pytest.mark.parametrize("name", ["launch.sh", RUNNER_ZIP_FILE_NAME, "notes"])
def test_an_output_folder_of_a_name_that_is_taken_here_is_refused(run, tmp_path, name):
    (run.path / "notes").mkdir()
    (run.path / "plan.json").write_text(json.dumps({"output": f"{tmp_path}/data/{name}"}))
    before = snapshot(run.path)
    with pytest.raises(AlreadyExists, match="is there already"):
        fetch_results(run)
    assert snapshot(run.path) == before


def test_what_an_earlier_version_fetched_is_named_so_and_fetched_again_once_it_is_moved(run, tmp_path):
    fetch_results(run)
    (run.path / ".fetched-files").unlink()
    with pytest.raises(AlreadyExists, match="output was fetched by an earlier version") as raised:
        fetch_results(run)
    assert "Move that file or folder away" in raised.value.remedy
    assert (local_output_folder(run.path, "") / "model.txt").read_text() == "first"
    local_output_folder(run.path, "").rename(tmp_path / "earlier")
    assert [fetch_results(run).size, fetch_results(run).size] == [5, 0], "what is here does not come again"


def test_fetches_at_once_are_refused_because_of_each_other_and_for_nothing_else(run):
    failed = []

    def ask():
        for _ in range(150):
            try:
                with fetched_results._lock_fetch_folder(run.path):
                    pass
            except Unavailable:
                pass
            except TuiTrainError as error:
                failed.append(error)

    asks = [threading.Thread(target=ask) for _ in range(6)]
    for each in asks:
        each.start()
    for each in asks:
        each.join()
    assert failed == []


def test_a_fetch_says_what_it_leaves_out(run, tmp_path):
    output = tmp_path / "there" / "output"
    for name in ("link", "checkpoint-7"):
        (output / name).symlink_to("model.txt")
    (output / "folder").symlink_to(tmp_path)
    (output / "logs" / "old").mkdir(parents=True)
    os.mkfifo(output / "pipe")
    assert "Not fetched (not plain files): 2 links, 1 empty folder, 1 special file" in run_cli("fetch", "last").stdout


def test_a_host_says_that_it_still_lists_a_large_folder(box, run, tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setattr(answer_lines, "HEARTBEAT_SECONDS", 0.0)
    run_output.send_output_files({"folder": str(tmp_path / "there"), "output": "output", "without": "", "have": {}})
    assert json.loads(capsysbinary.readouterr().out.splitlines()[0]) == {"beat": True}
    box["fetch"] = "say(beat=True); say(files=1, total=1); named(b'a', b'x'); say(end=True)"
    assert fetch_results(run).size == 1


def test_a_fetch_whose_link_is_lost_goes_on_where_it_was(box, run, tmp_path):
    output = tmp_path / "there" / "output"
    (output / "gone.txt").write_text("gone")
    for name in "abc":
        (output / name).write_bytes(name.encode() * 1000)
    times = {name: (output / name).stat().st_mtime_ns for name in ("a", "b", "gone.txt")}
    box["fetch"] = f"""\
times = {times!r}
def one(name, data, size):
    say(name=base64.b64encode(name.encode()).decode(), size=size, mtime=times[name])
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
say(files=4, total=3009)
one("a", b"a" * 1000, 1000); one("gone.txt", b"gone", 4); one("b", b"b" * 500, 1000)"""
    with pytest.raises(NoAnswer, match="was lost"):
        fetch_results(run)
    del box["fetch"]
    (output / "gone.txt").unlink()
    told = []
    assert fetch_results(run, on_progress=told.append).size == 2005, "b whole, c and model.txt"
    here = local_output_folder(run.path, "")
    assert {path.name: path.stat().st_size for path in here.iterdir()} == {
        "a": 1000, "b": 1000, "c": 1000, "model.txt": 5,
    }  # fmt: skip
    assert fetch_results(run).size == 0
    assert not (run.path / fetched_results._PART_FILE_NAME).exists()


@pytest.mark.whole
def test_a_fetch_that_is_killed_leaves_the_earlier_results_and_room_for_the_next(box, run, tmp_path):
    fetch_results(run)
    before = snapshot(run.path)
    box["fetch"] = "say(files=1, total=9); named(b'model.txt', b'xx', size=9); time.sleep(60)"
    child = subprocess.Popen(warm.cli_command("fetch", "last"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until((run.path / fetched_results._PART_FILE_NAME).exists)
    with pytest.raises(Unavailable, match="is being fetched"):
        fetch_results(run)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    left = {
        name: data
        for name, data in snapshot(run.path).items()
        if not name.startswith(fetched_results._FETCH_FOLDER_NAME)
    }
    assert left == before
    del box["fetch"]
    (tmp_path / "there" / "output" / "model.txt").write_text("again")
    assert wait_until(lambda: _fetches(run)) == 5
    assert snapshot(local_output_folder(run.path, "")) == {"model.txt": b"again"}


def _fetches(run):
    try:
        return fetch_results(run).size
    except Unavailable:
        return 0


# Logs and states


def piece(data, **line):
    return f"say(file='attempt-1.log', at=0, data={base64.b64encode(data).decode()!r}, **{line})"


@pytest.mark.whole
def test_a_piece_of_a_log_that_grows_without_end_is_not_inflated(box, run):
    pack = zlib.compressobj(9)
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(256)) + pack.flush()
    (box.folder / "bomb").write_bytes(bomb)
    box["feed"] = f"""
say(file='attempt-1.log', at=0, data=base64.b64encode(open({str(box.folder / "bomb")!r}, 'rb').read()).decode())
say(end=True)"""
    done = subprocess.run(
        ["prlimit", f"--as={400 << 20}", sys.executable, "-m", "tui_train", "logs", "last"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "box sends a piece of a log that is larger than 1 MiB" in done.stderr
    assert not run.attempt_log(1).exists()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (piece(zlib.compress(bytes(2 << 20))), "that is larger than 1 MiB"),
        (piece(b"no zlib"), "that is damaged"),
        ("say(error='\\x1b[2J gone \\x07')", r"\x1b[2J gone"),
        ("sys.exit('\\x1b[2J')", r"\x1b[2J"),
        ("sys.stdout.write('{' * (9 << 20))", "without end"),
        ("sys.stdout.write('[' * 100000)", "ssh said nothing"),
        ("say(beat=True, status=5)", "ssh said nothing"),
    ],
)
def test_why_nothing_came_is_said_without_control_bytes(box, run, sent, why):
    box["feed"] = sent
    said = update_local_copy(run)
    assert why in said
    assert "\x1b" not in said


def test_a_piece_that_cannot_be_written_is_an_error(box, run):
    run.attempt_log(1).symlink_to("/etc/passwd")
    box["feed"] = f"{piece(zlib.compress(b'line'))}; say(end=True)"
    with pytest.raises(CannotWrite, match=r"attempt-1\.log"):
        update_local_copy(run)
    told = []
    mirror = RunMirror(run, told.append)
    wait_until(lambda: any(told))
    mirror.close()
    assert "cannot write" in told[-1]
    assert "may be out of date: cannot write" in run_cli("logs", "last", code=65).stderr


@pytest.mark.parametrize(
    "standing",
    sample([["\x1b[2J"], ["running", [], 1e300], ["running", [], 1.0, None, 1 << 70], ["queued-up"], 5, [[]]], 3),
)
def test_a_state_that_no_supervisor_writes_is_not_kept(box, run, standing):
    before = read_host_report(run.path)
    box["feed"] = f"say(status={standing!r}); say(end=True)"
    update_local_copy(run)
    assert read_host_report(run.path) == before


def test_words_in_a_state_are_made_visible_and_its_grace_has_an_end(box, run):
    sent = RunStatus("stopped", grace=10**9, why="\x1b[2J")
    box["feed"] = f"say(status={list(sent)!r}, checkpoint='/x\\x1b', starts=-3); say(end=True)"
    assert update_local_copy(run) == ""
    heard = read_host_report(run.path)
    assert (heard.status.why, heard.status.grace, heard.checkpoint, heard.starts) == (r"\x1b[2J", 3600, r"/x\x1b", 0)


# Starts


@pytest.fixture
def new(box):
    """A run whose folder is on the host, not started, and trains until it is stopped."""
    started = """printf '{"event":"run_started","pid":%d}\\n' $$ >> events.jsonl"""
    script = f'#!/bin/bash\ncd "${{0%/*}}"; echo $$ >> pids\n{started}\nexec sleep 60\n'
    place = host_questions.create_run_folder_on_host(
        "box", run_folders.create_run_folder("there", []), [RenderedFile("launch.sh", script)]
    )
    (Path(place.folder) / RUNNER_ZIP_FILE_NAME).write_bytes(runner_file().content)
    yield place
    for pid in pids(place):
        os.kill(pid, signal.SIGKILL)


def test_a_folder_of_an_earlier_version_says_how_it_stands(new):
    """Its runner was a folder of modules."""
    folder = Path(new.folder)
    with zipfile.ZipFile(folder / RUNNER_ZIP_FILE_NAME) as packed:
        packed.extractall(folder)
    (folder / "runner").rename(folder / "supervisor")
    (folder / RUNNER_ZIP_FILE_NAME).unlink()
    assert host_questions.ask_report(new).status.state == "new"


def pids(place):
    path = Path(place.folder) / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_start_that_is_asked_for_several_times_is_made_once(new):
    start = UnconfirmedStart("0a" * 8)
    asks = [threading.Thread(target=host_questions.ask_start, args=(new, start)) for _ in range(4)]
    for ask in asks:
        ask.start()
    for ask in asks:
        ask.join()
    assert len(pids(new)) == 1
    assert [host_questions.ask_start(new, start, only_look=look).started for look in (False, True)] == [True, True]
    assert len(pids(new)) == 1
    assert host_questions.ask_report(new).starts == 1


def submitted(box, monkeypatch, new):
    """Submit a run to the folder that is there already."""
    monkeypatch.setattr(place_module, "create_run_folder_on_host", lambda *_: new)

    class Prepared:
        profile = Profile()
        files = (RenderedFile("launch.sh", "#!/bin/bash\n"), RenderedFile("plan.json", '{"output": "/data/out"}'))

    class Plan:
        name = "far"

    return place_module.Place("box").submit(Prepared, Plan)


# It starts, in a session of its own as sshd would have it, and what it says is lost after some seconds.
LOST = """
look = json.loads(sent[1])["question"]["look"]
if look:
    {2}
if not os.fork():
    os.setsid()
    time.sleep({0})
    os.dup2(os.open("/dev/null", 1), 1)
    honest()
time.sleep({1})
os._exit(255)
"""


@pytest.mark.whole
def test_a_start_without_an_answer_stays_a_run_that_is_found_out_about(box, new, monkeypatch):
    box["start"], box["status"], box["feed"] = LOST.format(1.5, 0, "os._exit(255)"), "os._exit(255)", "os._exit(255)"
    with pytest.raises(NoAnswer, match=r"did not confirm that .*-far has started") as raised:
        submitted(box, monkeypatch, new)
    run = run_folders.find_run("last")
    assert run.name in raised.value.remedy
    assert read_status(run).state == "unconfirmed"
    assert "unconfirmed on box" in run_cli("runs").stdout
    for word in ("stop", "resume"):
        assert f"it is not known whether {run.name} trains" in run_cli(word, "last", code=69).stderr
    with pytest.raises(Unavailable, match="already writing to /data/out"):
        submitted(box, monkeypatch, RunLocation("box", "/nowhere"))
    assert run_folders.list_runs() == (run,)
    os.utime(run.path, (1, 1))
    monkeypatch.setattr(incomplete_runs.time, "time", lambda: time.monotonic() + 10**10)
    incomplete_runs.remove_abandoned_runs(run.path.parent)
    assert run.path.exists()
    wait_until(lambda: pids(new))
    for question in ("start", "status", "feed"):
        del box[question]
    assert place_of_run(run).ask_state(run, with_log=False).state != "new"
    assert len(pids(new)) == 1


def test_a_start_whose_answer_alone_is_lost_has_started(box, new, monkeypatch):
    box["start"] = LOST.format(0, 1, "honest()")
    run = submitted(box, monkeypatch, new)
    assert read_host_report(run.path).starts == 1
    assert len(pids(new)) == 1


def test_a_start_that_did_not_arrive_is_made_no_more(box, new):
    start = UnconfirmedStart("0b" * 8)
    assert not host_questions.ask_start(new, start, only_look=True).started
    assert not host_questions.ask_start(new, start).started
    assert host_questions.ask_start(new, UnconfirmedStart("0c" * 8)).started
    assert len(pids(new)) == 1


# Names of hosts


def test_a_host_that_was_renamed_is_found_by_its_new_name(box, run):
    for question in ("status", "feed", "fetch"):
        box[question] = 'if "lab" not in sys.argv: sys.exit("ssh: Could not resolve hostname box")\nhonest()'
    for ask in (place_of_run(run).ask_state, fetch_results):
        with pytest.raises(Unavailable, match="name is unknown") as raised:
            ask(run)
        assert "tui-train hosts add box" in raised.value.remedy
    hosts.save_host("box", "lab")
    assert place_of_run(run).ask_state(run).state == "new"
    assert fetch_results(run).size == 5


def test_two_names_of_a_machine_are_one(box, new, run, monkeypatch):
    """A second run with the same output is refused under either, and the earlier one is found by the newer name."""
    box["feed"] = "say(status=['running']); say(end=True)"
    first = submitted(box, monkeypatch, new)
    with pytest.raises(Unavailable, match="already writing to /data/out"):
        submitted(box, monkeypatch, structs.replace(new, host="lab", folder="/nowhere"))
    assert {each.path for each in run_folders.list_runs()} == {run.path, first.path}
    write_run_location(run.path, structs.replace(read_run_location(run.path), host="earlier", node=new.node))
    box["feed"] = 'sys.exit("ssh: Could not resolve hostname earlier")  # before honest()'
    with pytest.raises(Unavailable, match="name is unknown") as raised:
        place_of_run(run).ask_state(run)
    assert "tui-train hosts add earlier box" in raised.value.remedy
    assert read_status(run).state == "finished", "what was heard of it stays"


def test_a_name_that_leads_to_another_machine_is_refused(run):
    write_run_location(run.path, RunLocation("box", "/nowhere", node="another one"))
    with pytest.raises(Unavailable, match="box is another machine than the one on which"):
        place_of_run(run).ask_state(run, with_log=False)


def test_a_run_that_its_host_has_as_well_is_removed_once_that_was_asked(box, run):
    write_run_location(run.path, RunLocation("box", str(run.path), shared=True, node="another one"))
    rm = ("runs", "rm", "-y", run.name)
    for said, why in (("os._exit(255)", "it is not known how"), ("say(status=['running'])", "runs on box")):
        box["status"] = said
        assert why in run_cli(*rm, code=69).stderr
        assert run.path.exists()
    box["status"] = "say(status=['finished'])"
    run_cli(*rm)
    assert not run.path.exists()


def test_a_key_that_another_machine_does_not_know_is_not_said_to_be_unknown_here(box):
    box["status"] = "sys.exit('Host key verification failed.')  # before honest()"
    with pytest.raises(NoAnswer, match="not known on a yet") as raised:
        session.ask_host("b", {"do": "status", "folder": "/"}, dict, 20.0, asking_host="a")
    assert "hosts login" not in raised.value.message


def test_a_run_that_waits_for_slurm_or_its_host_is_no_leftover(box, monkeypatch):
    run = run_folders.create_run_folder("far", [RenderedFile("launch.sh", "#!/bin/bash\n")])
    other = run_folders.create_run_folder("other", [RenderedFile("launch.sh", "#!/bin/bash\n")])
    (run.path / "slurm.json").write_text('{"number": "7", "starts": 0}')
    sent = run_folders.create_run_folder("sent", [RenderedFile("launch.sh", "#!/bin/bash\n")])
    write_host_report(sent.path, HostReport(at=0.0, status=RunStatus("unconfirmed")))
    monkeypatch.setattr(incomplete_runs.time, "time", lambda: time.monotonic() + 10**10)
    incomplete_runs.remove_abandoned_runs(run.path.parent)
    assert [each.path.exists() for each in (run, sent, other)] == [True, True, False]


# Stopping


def test_a_stop_does_not_wait_for_the_log(box, run):
    write_host_report(run.path, HostReport(at=time.time(), status=RunStatus("running")))
    box["status"] = "say(status=['running'])"
    box["feed"] = "say(beat=True); time.sleep(120); open(path + '.ended', 'w')"
    box["stop"] = "os._exit(255)"
    assert re.search(r"it is not known how.*running \d+ s ago", run_cli("stop", "last", code=69).stderr)
    assert not (box.answers / "feed.ended").exists()


def test_a_stop_that_is_done_waits_some_seconds_for_the_log_and_is_kept(box, run, monkeypatch):
    monkeypatch.setattr(place_module, "_MAX_LAST_LOG_SECONDS", 0.5)
    write_host_report(run.path, HostReport(at=time.time(), status=RunStatus("running")))
    box["stop"] = "open(path + '.done', 'w'); say(stopped=True)"
    box["status"] = "say(status=['stopped' if os.path.exists(path[:-6] + 'stop.done') else 'running'])"
    box["feed"] = "say(beat=True); time.sleep(120); open(path + '.ended', 'w')"
    target = place_of_run(run)
    assert (target.ask_state(run, with_log=False).state, target.stop(run).state) == ("running", "stopped")
    assert not (box.answers / "feed.ended").exists()
    assert read_status(run).state == "stopped"


def test_what_a_stop_learns_of_a_run_is_kept(box, run):
    write_host_report(run.path, HostReport(at=time.time(), status=RunStatus("running")))
    box["status"] = "say(status=['stopped'])"
    assert "is not running: stopped on box" in run_cli("stop", "last").stdout
    assert "stopped on box" in run_cli("runs").stdout


@pytest.mark.parametrize("now", [True, False])
def test_a_stop_on_a_host_that_does_not_answer_ends(box, run, monkeypatch, now):
    monkeypatch.setattr(host_questions, "_STATUS_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(host_questions, "_ANSWER_TIMEOUT_SECONDS", 0.5)
    write_host_report(run.path, HostReport(at=time.time() - 65, status=RunStatus("running", grace=0)))
    box["status"] = box["stop"] = "time.sleep(1000)"
    target = place_of_run(run)
    ask = (lambda: target.stop(run, at_once=True)) if now else (lambda: target.ask_state(run, with_log=False))
    with pytest.raises(
        NoAnswer, match=r"not known how .* stands \(running 1 min 0\d s ago\): box gave no answer"
    ) as raised:
        ask()
    assert "runner.pyz stop" in raised.value.remedy


def test_an_answer_may_take_longer_than_a_stream_is_silent(box, monkeypatch):
    monkeypatch.setattr(session, "MAX_SILENCE_SECONDS", 0.2)
    box["stop"] = "time.sleep(1); say(stopped=True)"
    assert session.ask_host("box", {"do": "stop"}, dict, 30.0) == {"stopped": True}


def test_a_log_that_does_not_come_is_given_up(box, run, monkeypatch):
    monkeypatch.setattr(session, "MAX_SILENCE_SECONDS", 0.3)
    box["feed"] = "time.sleep(1000)"
    assert update_local_copy(run).startswith("box gave no answer in")
    box["feed"] = f"say(status={STANDING}); say(end=True)"
    box["fetch"] = "say(files=1, total=9); named(b'a', b'x', size=9); time.sleep(1000)"
    with pytest.raises(NoAnswer, match="gave no answer"):
        fetch_results(run)


# The connection

# What a machine says that is asked for the first time, before any answer.
BEGINNINGS = [
    ("time.sleep(1000)", "gave no answer in"),
    ("say(runner='missing'); time.sleep(1000)", "gave no answer in"),
    ("while True: say(runner='missing'); sys.stdin.buffer.read1()", "asks for the runner again"),
    ("while True: sys.stdout.write('Welcome' * 100 + chr(10))", "gave no answer in 2 s"),
    ("while True: sys.stdout.write('Welcome' * 100)", "without end"),
    ("sys.exit('\\x1b]0;owned\\x07')", r"did not answer: \\x1b\]0;owned"),
]


@pytest.mark.whole
@pytest.mark.parametrize(("said", "why"), BEGINNINGS)
def test_a_machine_that_never_begins_to_answer_is_given_up(box, tmp_path, monkeypatch, said, why):
    monkeypatch.setattr(session, "MAX_SILENCE_SECONDS", 0.3)
    box["status"] = f"{said}  # before honest()"
    with pytest.raises(NoAnswer, match=why) as raised:
        session.ask_host("box", {"do": "status", "folder": "/"}, dict, 2.0)
    assert "\x1b" not in raised.value.message


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Permission denied (publickey,password).", "Log in once"),
        ("Host key verification failed.", "Log in once"),
        ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", "Check `ssh box"),
        ("Connection refused", "ssh box true"),
    ],
)
def test_what_ssh_wants_is_said_with_what_to_do(box, said, remedy):
    box["status"] = f"sys.exit({said!r})  # before honest()"
    with pytest.raises(NoAnswer) as raised:
        session.ask_host("box", {"do": "status", "folder": "/"}, dict, 20.0)
    assert remedy in raised.value.remedy


@pytest.mark.whole
def test_the_runner_is_sent_once_and_kept_where_it_can_be(box, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    kept, write, sent = box.home / ".cache" / "tui-train" / "runner", session.Session._write, []
    monkeypatch.setattr(session.Session, "_write", lambda self, data: sent.append(data) or write(self, data))

    def ask():
        sent.clear()
        assert "bin/" in session.ask_host("box", {"do": "names", "folder": str(tmp_path), "most": 100}, list[str], 30.0)
        return runner_file().content in sent

    assert [ask(), ask()] == [True, False]
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert [ask(), ask()] == [True, False], "a torn file is made again"
    shutil.rmtree(kept.parent)
    kept.parent.write_text("no folder can be made here")
    assert [ask(), ask()] == [True, True]


@pytest.mark.parametrize("shell", ["bash", "dash", "fish", "tcsh", "zsh"])
def test_any_login_shell_will_do(box, tmp_path, shell):
    if not (program := shutil.which(shell)):
        pytest.skip(f"NOT TESTED, for want of {shell}: a login shell on a host")
    there = f"HOME={box.home} PATH={Path(sys.executable).parent}:$PATH"
    (tmp_path / "bin" / "ssh").write_text(f'#!/bin/bash\nexport {there}\nexec {program} -c "${{@: -1}}"\n')
    assert "bin/" in session.ask_host("box", {"do": "names", "folder": str(tmp_path), "most": 100}, list[str], 30.0)


def test_a_question_takes_nothing_of_a_login_from_the_users_configuration(tmp_path):
    (tmp_path / "config").write_text("""\
Host box
  HostName 192.0.2.7
  Port 2222
  ProxyJump gate
  IdentityFile /keys/id
  RemoteCommand tmux attach
  RequestTTY force
  ForwardAgent yes
  ForwardX11 yes
  Tunnel yes
  PermitLocalCommand yes
  LocalCommand touch /tmp/x
  LocalForward 8080 localhost:80
  RemoteForward 9090 localhost:22
  DynamicForward 1080
  ServerAliveCountMax 1000
""")
    if shutil.which("ssh") is None:
        pytest.skip("NOT TESTED, for want of ssh (openssh-client): the user's configuration")
    command, *words = ssh.ssh_command_prefix("box")
    # As to a client that does not know it yet, nor what the user's configuration has it ignore.
    old = [word.replace("RemoteCommand", "RemoteCommandOfLater") for word in words]
    (tmp_path / "old").write_text(
        (tmp_path / "config").read_text() + "  IgnoreUnknown UseKeychain\n  UseKeychain yes\n"
    )
    asked = [command, "-G", "-F", tmp_path / "old", *old]
    options = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"serveralivecountmax 3", "port 2222", "proxyjump gate", "forwardagent no"} <= set(options)
    done = subprocess.run(
        [command, "-G", "-F", tmp_path / "config", *words], capture_output=True, text=True, check=True
    )
    options = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    off = {"forwardagent", "forwardx11", "tunnel", "permitlocalcommand", "requesttty"}
    assert {name: options.get(name) for name in off} == dict.fromkeys(off, "no") | {
        "tunnel": "false", "requesttty": options["requesttty"],
    }  # fmt: skip
    assert options["requesttty"] in {"no", "false"}
    assert options["clearallforwardings"] == "yes"
    assert options.get("remotecommand", "none") == "none"
    assert options["serveralivecountmax"] == "3"
    kept = {"port": "2222", "proxyjump": "gate", "identityfile": "/keys/id", "hostname": "192.0.2.7"}
    assert {name: options[name] for name in kept} == kept

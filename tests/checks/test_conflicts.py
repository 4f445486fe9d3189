"""Two trainings that want one card, folder or port: found before the second starts, also when both start at once."""

import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fake_driver import MACHINES_FOLDER, driver_environment
from ssh import survey_this_machine
from support import (
    SCRIPTS,
    UUIDS,
    create_run,
    facts,
    findings_of,
    gpu,
    make_executable,
    prepare_without_errors,
    profile,
    run_cli,
    run_launch_script,
    set_variables,
    wait_until,
    write_attempt_events,
)

from tui_train.base.app_paths import runs_folder, trials_folder
from tui_train.base.errors import Unavailable
from tui_train.facts.machine import probe
from tui_train.facts.machine.exclusive_resources import is_port_in_use, resource_conflict_text
from tui_train.facts.types import FactGap, Machine, ResourcesInUse
from tui_train.places.place import Place
from tui_train.places.profile_facts import read_script_sources
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.system import logout
from tui_train.runner.system.host_facts import read_machine_facts
from tui_train.runs import run_folders
from tui_train.runs import stop as stopping
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.local_start import start_run
from tui_train.runs.remote_run import HostReport, RunLocation, write_host_report, write_run_location
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views.plain_text import stop_result_text


@pytest.fixture
def begun():
    """Begin sleepers from values; end all of them afterwards."""

    def make(where, **values):
        chosen = {
            "name": "sleeper", "trainer.kind": "script", "trainer.preset": "custom", "trainer.python": sys.executable,
            "trainer.script": str(SCRIPTS / "sleeper.py"),
        }  # fmt: skip
        prepared = prepare_without_errors(profile(chosen, **values), where)
        return Place().submit(prepared, prepared.plan)

    yield make
    for run in list_runs():
        stop_local_run(run)


CARDS = facts(gpus=(gpu(0), gpu(1)))


def test_a_card_is_had_by_one_run_at_a_time(begun):
    first = begun(CARDS, hardware__gpus=UUIDS[:1])
    assert [(one.run, one.gpus) for one in resources_in_use()] == [(first.name, UUIDS[:1])]
    with pytest.raises(Unavailable, match=f"the run {first.name} is already training on 1 GPU") as caught:
        begun(CARDS, hardware__gpus=UUIDS[:1])
    assert f"tui-train stop {first.name}" in caught.value.remedy
    second = begun(CARDS, hardware__gpus=UUIDS[1:])
    assert {one.run for one in resources_in_use()} == {first.name, second.name}
    stop_local_run(first)
    third = begun(CARDS, hardware__gpus=UUIDS[:1])
    with pytest.raises(Unavailable, match=third.name):
        start_run(first)
    assert read_status(first).state == "stopped"


def test_a_trial_has_its_card_as_well(begun):
    """It lies in a folder of its own, in which every first trial has the same name."""
    run = begun(CARDS, hardware__gpus=UUIDS[:1])
    wait_until(lambda: read_status(run).leader)
    moved = run.path
    trial = trials_folder() / "20260101-120000-x" / "trial-1"
    trial.parent.mkdir(parents=True)
    moved.rename(trial)
    try:
        assert [(one.run, one.gpus) for one in resources_in_use()] == [(str(trial), UUIDS[:1])]
        with pytest.raises(Unavailable, match="is already training on 1 GPU"):
            begun(CARDS, hardware__gpus=UUIDS[:1])
    finally:
        stop_local_run(RunFolder(trial))
    assert not resources_in_use()


def test_trainings_on_the_cpu_may_run_side_by_side(begun):
    begun(facts())
    begun(facts())
    assert len(resources_in_use()) == 2


def test_an_output_folder_is_had_by_one_run_at_a_time_however_it_is_spelled(begun, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    begun(facts(), trainer__output=str(tmp_path / "out"))
    for spelling in (tmp_path / "out", tmp_path / "link", f"{tmp_path}//out/", tmp_path / "link" / ".." / "out"):
        with pytest.raises(Unavailable, match="is already writing to"):
            begun(facts(), trainer__output=str(spelling))
    begun(facts(), trainer__output=str(tmp_path / "out2"))


def test_a_path_of_the_scripts_own_that_a_live_run_writes_is_warned_of(begun, tmp_path):
    """By the name of its argument, or of one that is not given."""
    script = tmp_path / "own.py"
    script.write_text(
        "import argparse, time\np = argparse.ArgumentParser()\np.add_argument('--out', default='made')\n"
        "p.add_argument('--data', default='data')\np.parse_args()\ntime.sleep(600)\n"
    )
    begun(facts(), trainer__script=str(script))
    for words, expected in (((), 1), (("--out=made",), 1), ((f"--out={tmp_path}/made/",), 1), (("--out=other",), 0)):
        chosen = profile({
            "trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(script),
            "trainer.arguments": words,
        })  # fmt: skip
        where = msgspec.structs.replace(
            facts(), resources_in_use=resources_in_use(), sources=read_script_sources(chosen)
        )
        found = [each for each in findings_of(chosen, where) if "is already writing to" in each.message]
        assert [(each.level, each.key) for each in found] == [("warning", "trainer.arguments")] * expected


def test_what_an_ended_run_saved_is_told_before_another_one_writes_it(tmp_path):
    """By the same arguments or the same path, as long as the file is the one that the run left."""
    script = tmp_path / "own.py"
    script.write_text(
        "import argparse, pathlib\np = argparse.ArgumentParser()\np.add_argument('--out', default='named.pt')\n"
        "p.add_argument('--lr')\npathlib.Path(p.parse_args().out).write_text('x')\n"
        "pathlib.Path('fixed.pt').write_text('x')\n"
    )

    def found(*words):
        chosen = profile({
            "trainer.kind": "script", "trainer.preset": "auto", "trainer.script": str(script),
            "trainer.python": sys.executable, "trainer.launcher": "python", "trainer.arguments": words,
        })  # fmt: skip
        where = msgspec.structs.replace(
            facts(), resources_in_use=resources_in_use(), sources=read_script_sources(chosen)
        )
        said = [each for each in findings_of(chosen, where) if "would be written over" in each.message]
        return chosen, [(each.level, each.message.partition(",")[0].rpartition("/")[2]) for each in said]

    chosen, before = found()
    assert before == []
    run_launch_script(create_run(chosen, name="own"))
    assert found()[1] == [("warning", "fixed.pt and 1 more")]
    assert found("--lr=1")[1] == found(f"--out={tmp_path}/named.pt")[1] == [("warning", "named.pt")]
    assert found("--out=other.pt")[1] == []
    later = time.time() + 3600
    os.utime(tmp_path / "named.pt", (later, later))
    assert found("--lr=1")[1] == []


def test_of_two_that_start_at_once_one_is_refused(begun):
    def attempt(_):
        try:
            return begun(CARDS, hardware__gpus=UUIDS[:1])
        except Unavailable as error:
            return error.message

    with ThreadPoolExecutor(4) as several:
        ended = [*several.map(attempt, range(4))]
    assert sum(isinstance(one, str) and "already training on 1 GPU" in one for one in ended) == 3


def test_what_is_left_of_a_lost_run_still_has_its_card(begun):
    first = begun(CARDS, hardware__gpus=UUIDS[:1])
    wait_until(lambda: b"tick" in first.attempt_log(1).read_bytes())
    os.kill(read_status(first).pid, signal.SIGKILL)
    wait_until(lambda: read_status(first).state == "lost")
    with pytest.raises(Unavailable, match="is already training on 1 GPU"):
        begun(CARDS, hardware__gpus=UUIDS[:1])


def test_a_port_is_tried(begun):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_port_in_use(port)
        assert resources_in_use(port) == (ResourcesInUse(port=port),)
        with pytest.raises(Unavailable, match=f"another program uses port {port}"):
            begun(facts(), nodes__count=2, nodes__address="10.0.0.1", nodes__port=port, trainer__launcher="torchrun")
    assert not is_port_in_use(port)
    assert resources_in_use(port) == ()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert is_port_in_use(server.getsockname()[1])


def test_the_port_of_a_run_on_a_host_is_offered_another_there(tmp_path):
    run = RunFolder(runs_folder() / "20260101-000000-far")
    run.path.mkdir(parents=True)
    run.launch_script.touch()
    run.plan_file.write_text('{"port": 29500}')
    write_run_location(run.path, RunLocation("box", "/there/far"))
    write_host_report(run.path, HostReport(at=time.time(), status=RunStatus("running")))
    there = resources_in_use(place=RunLocation("box", ""))
    assert [(each.run, each.port) for each in there] == [(run.name, 29500)]
    assert resources_in_use(place=RunLocation("other", "")) == ()
    where = facts(gpus=(gpu(0),))
    where = msgspec.structs.replace(
        where,
        machine=msgspec.structs.replace(where.machine, hostname="box"),
        other_machine="box",
        resources_in_use=there,
    )
    several = profile({"hardware.host": "box", "nodes.hosts": ("box", "bay"), "recipe.global_batch": 16})
    (found,) = (each for each in findings_of(several, where) if each.key == "nodes.port")
    assert found.message == f"the run {run.name} uses port 29500 already"
    assert found.fix.edits == (("nodes.port", 29501),)


@pytest.mark.whole
def test_the_command_line_tells_it_and_plans_all_the_same(begun, tmp_path):
    output = f"--set=trainer.output={tmp_path / 'out'}"
    begun(facts(), trainer__output=str(tmp_path / "out"))
    for command, code in (("plan", 0), ("run", 69)):
        said = run_cli(command, "quickstart", output, "--set=hardware.device=cpu", code=code).stderr
        assert "error: the run" in said
        assert "is already writing to" in said
    assert len(list_runs()) == 1


def test_a_plan_that_is_none_of_ours_has_nothing(begun):
    run = begun(CARDS, hardware__gpus=UUIDS[:1])
    for text in "[]", '{"gpus": 5, "output": [], "port": "x"}', '{"port": 99999999, "output": "a\\u0000b"}', "\x00":
        run.plan_file.write_text(text)
        assert [(one.gpus, one.outputs, one.port) for one in resources_in_use()] == [((), (), 0)]


def test_nothing_clashes_with_nothing():
    assert resource_conflict_text(ResourcesInUse(), ResourcesInUse(run="x", gpus=UUIDS, outputs=("/a",), port=5)) == ""
    assert resource_conflict_text(ResourcesInUse(gpus=UUIDS, outputs=("/a",), port=5), ResourcesInUse()) == ""


IN_FORCE = {
    "KillUserProcesses": "b false", "KillOnlyUsers": "as 0", "KillExcludeUsers": 'as 1 "root"', "RemoveIPC": "b true",
}  # fmt: skip
KILLS = {"KillUserProcesses": "b true"}
BOB_AND_ROOT = {"KillOnlyUsers": 'as 2 "bob" "root"'}
USER = 12345


@pytest.fixture
def logind(tmp_path, monkeypatch):
    """Make a machine with systemd, whose busctl is a program that prints the properties that it is asked for."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def answers(script=None, **settings):
        lines = [f"{name}) echo '{value}' ;;" for name, value in {**IN_FORCE, **settings}.items()]
        body = script or "\n".join(["for name; do case $name in", *lines, "esac; done"])
        make_executable(tmp_path / "bin/busctl", f"#!/bin/bash\n{body}\n")
        return tmp_path

    return answers


@pytest.mark.parametrize(
    ("settings", "uid", "kills", "removes"),
    [
        ({}, USER, False, True),
        ({}, 0, False, False),
        (KILLS, USER, True, True),
        (KILLS, 0, False, False),
        (KILLS | {"KillExcludeUsers": "as 0"}, 0, True, False),
        (KILLS | BOB_AND_ROOT, USER, False, True),
        (KILLS | BOB_AND_ROOT | {"KillExcludeUsers": "as 0"}, 0, True, False),
        ({"RemoveIPC": "b false"}, USER, False, False),
    ],
)
def test_what_a_logout_does(logind, settings, uid, kills, removes):
    assert logout.read_logout_effect(logind(**settings), uid) == {"kills": kills, "removes_shared_memory": removes}


def test_who_lingers_keeps_the_shared_memory(logind, monkeypatch):
    monkeypatch.setattr(logout.safe_open, "user_name", lambda _: "bob")
    root = logind()
    assert logout.read_logout_effect(root, USER)["removes_shared_memory"]
    (root / "var/lib/systemd/linger").mkdir(parents=True)
    (root / "var/lib/systemd/linger/bob").touch()
    assert not logout.read_logout_effect(root, USER)["removes_shared_memory"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Failed to connect to bus' >&2; exit 1", "Failed to connect to bus"),
        ("echo b true", "no usable answer"),
        ("echo b true; echo as 0; echo as 1 '\"'; echo b true", "no usable answer"),
        ("exec sleep 60", "in time"),
        ("printf '\\377\\376='", "no usable answer"),
    ],
)
def test_where_logind_does_not_answer_it_is_unknown(logind, monkeypatch, script, why):
    monkeypatch.setattr(logout, "_BUSCTL_TIMEOUT_SECONDS", 0.5)
    found = logout.read_logout_effect(logind(script), USER)
    assert found.keys() == {"unknown"}
    assert why in found["unknown"]


def test_without_busctl_it_is_unknown_and_without_systemd_it_is_no_question(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert logout.read_logout_effect(tmp_path, USER) is None
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert logout.read_logout_effect(tmp_path, USER)["unknown"]


def test_this_machine_and_a_host_are_asked():
    found = msgspec.convert(read_machine_facts(), Machine).logout
    assert (found is None) == (not Path("/run/systemd/system").is_dir())
    assert survey_this_machine({"probe": "", "hub": ""}).machine.logout == found


SILENT = Machine(hostname="box", gaps=(FactGap("The NVIDIA driver does not respond", "", "", hides=True),))


@pytest.mark.whole
@pytest.mark.parametrize("holds", [True, False])
def test_a_stop_tells_of_memory_that_stays_taken(begun, tmp_path, monkeypatch, holds):
    run = begun(CARDS, hardware__gpus=UUIDS[:1])
    wait_until(lambda: b"tick" in run.attempt_log(1).read_bytes())
    now = read_status(run)
    file = tmp_path / "machine.txt"
    text = (MACHINES_FOLDER / "two-3090-one-busy.txt").read_text()
    file.write_text(text.replace("5000010", str(now.leader)) if holds else text)
    set_variables(monkeypatch, driver_environment(file))
    monkeypatch.setattr(stopping, "_MAX_MEMORY_RELEASE_SECONDS", 0.5)
    # A driver that does not answer at first, as on a busy machine, is asked again.
    monkeypatch.setattr(stopping, "_MAX_UNANSWERED_MEMORY_QUERIES", 20)
    silent, answer = iter([SILENT]), probe.probe_machine
    monkeypatch.setattr(probe, "probe_machine", lambda: next(silent, None) or answer())
    if holds:
        with pytest.raises(Unavailable, match=f"GPU 1 still holds 21.0 GiB for process {now.leader}"):
            stop_local_run(run)
    else:
        assert not stop_local_run(run).driver_silent
    assert read_status(run).state == "stopped"


def test_a_stop_says_that_the_driver_does_not_answer(begun, monkeypatch):
    run = begun(CARDS, hardware__gpus=UUIDS[:1])
    wait_until(lambda: read_status(run).leader)
    asked = []
    monkeypatch.setattr(probe, "probe_machine", lambda: asked.append(SILENT) or SILENT)
    words = "stopped; no process of it is left; the NVIDIA driver does not answer"
    assert stop_result_text(stop_local_run(run)) == f"{words}, so its GPU memory may still be in use"
    assert len(asked) == 2


@pytest.mark.whole
def test_what_has_finished_is_not_started_again_to_do_nothing(tmp_path):
    prepared = prepare_without_errors(profile(), facts())
    run = run_folders.create_run_folder("done", prepared.files)
    write_attempt_events(run, 1.0)
    with pytest.raises(Unavailable, match="nothing left to train"):
        start_run(run)
    assert f"tui-train run {run.profile_file}" in run_cli("resume", run.name).stdout
    assert (read_status(run).state, read_status(run).ended) == ("finished", 1001.0)

"""Runs that wait for GPUs or CPU cores, as their viewers and the command line see them."""

import json
import os
import pwd
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import click
import fake_driver
import msgspec
import pytest
from click.testing import CliRunner
from support import (
    GIB,
    UUIDS,
    create_run,
    facts,
    findings_of,
    gpu,
    patch_runner_module,
    prepare_without_errors,
    profile,
    sleeper_profile,
    wait_until,
)

from tui_train.base.errors import BadInput, Unavailable
from tui_train.cli.app import cli
from tui_train.cli.runs.queue import move_run
from tui_train.facts.gpus.gpu_sets import facts_as_if_gpus_idle, is_busy
from tui_train.facts.other_machines.remote import survey_host
from tui_train.facts.types import GpuProcess, ResourcesInUse
from tui_train.places.place import Place
from tui_train.runner.queue.listing import CardInQueue
from tui_train.runner.queue.reasons import HAS_CARD_TEXT, run_and_user_text
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder.lock_owner import LockOwner
from tui_train.runs import folders, run_folders
from tui_train.runs.archive import masked_archive_entries
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.follow import follow_lines
from tui_train.runs.local_start import StartOptions, start_run, unfinished_wait_mode
from tui_train.runs.status import read_listed_run, read_status, training_seconds, waiting_or_end_reason
from tui_train.runs.stop import stop_local_run
from tui_train.views.plain_text import finding_text, listed_run_row
from tui_train.views.run_digest import DigestCache, run_outcome_text

ALL_CORES = {"trainer.environment": {"OMP_NUM_THREADS": "9999"}}


@pytest.fixture
def made():
    """Make runs that sleep on all CPU cores; they are ended after the test."""

    def make(name):
        run = create_run(sleeper_profile(**ALL_CORES, name=name))
        patch_runner_module(
            run, "card_watch.py", "CARD_WATCH_INTERVAL_SECONDS = 4.0", "CARD_WATCH_INTERVAL_SECONDS = 0.2"
        )
        return run

    yield make
    for run in run_folders.list_runs():
        if read_status(run).is_live:
            stop_local_run(run, at_once=True)


def waits(run):
    wait_until(lambda: read_status(run).waits_for, 60)
    return read_status(run)


def queue(*words):
    done = CliRunner().invoke(cli, ["queue", *words])
    assert done.exit_code == 0, done.output
    return done.output


def listed_order():
    return [ticket["run"] for ticket in json.loads(queue("--json"))]


def test_waiting_runs_are_listed_moved_stopped_and_wait_again(made):
    assert "Nothing waits" in queue()
    trains, second, third = made("trains"), made("second"), made("third")
    start_run(trains)
    wait_until(lambda: read_status(trains).attempts, 60)
    for run in (second, third):
        start_run(run, when_free="chosen")
        assert waits(run).state == "waiting"
    assert f"waiting ({waits(second).waits_for})" in CliRunner().invoke(cli, ["logs", second.name]).output
    assert listed_order() == [second.name, third.name]
    assert f"{trains.name} (" in queue()
    folders.write_note(third, "seed=7")
    assert [line.split()[2] for line in queue().splitlines()[1:]] == [pwd.getpwuid(os.geteuid()).pw_name, "seed=7"]
    assert training_seconds(read_status(third)) is None, "it has not begun to train"
    assert listed_run_row(read_listed_run(second))[1].startswith("waiting (")
    queue("first", third.name)
    assert listed_order() == [third.name, second.name]
    queue("last", third.name)
    assert listed_order() == [second.name, third.name]
    with pytest.raises(BadInput, match="does not wait"):
        move_run(trains.name, to_front=True)

    stopped = stop_local_run(third)
    assert (stopped.state, stopped.exit_code, stopped.never_had_turn) == ("stopped", 143, True)
    assert listed_order() == [second.name]
    assert waiting_or_end_reason(third, read_status(third)) == "while it waited"
    assert "while it waited" in run_outcome_text(DigestCache().read_digest(third))
    tui_resume = CliRunner().invoke(cli, ["resume", third.name, "--detach"])
    assert "starts as soon as its GPUs or CPU cores are free" in tui_resume.output
    assert waits(third).state == "waiting"
    stop_local_run(trains, at_once=True)
    wait_until(lambda: read_status(second).attempts, 60)
    assert read_status(second).state == "running"
    assert unfinished_wait_mode(second) == ""


def test_a_wait_that_a_kill_or_a_restart_ended_is_told_and_begins_again(made):
    trains, killed = made("trains"), made("killed")
    start_run(trains)
    wait_until(lambda: read_status(trains).attempts, 60)
    start_run(killed, when_free="any")
    said = []
    with ThreadPoolExecutor(1) as viewer:
        lines = viewer.submit(lambda: [*follow_lines(killed, on_wait=said.append)])
        wait_until(lambda: said, 60)
        os.kill(waits(killed).pid, signal.SIGKILL)
        assert lines.result(60) == []
    assert f"{trains.name} (" in said[0]
    wait_until(lambda: read_status(killed).state == "lost", 60)
    assert "while it waited" in listed_run_row(read_listed_run(killed))[1]
    assert unfinished_wait_mode(killed) == "any"
    assert listed_order() == []


def test_a_run_that_waits_keeps_its_output_but_no_gpu():
    run = create_run(profile(), facts(gpus=(gpu(0),)), "waits")
    with run.events_file.open("w") as events:
        for event in ({"event": "run_started", "waits": "any"}, {"event": "waiting", "why": "GPU 0: pid 812"}):
            events.write(json.dumps(event) + "\n")
    assert not resources_in_use(), "it has ended: nobody holds its folder"
    assert read_status(run).waits_for == "GPU 0: pid 812"


def test_the_plan_names_all_gpus_of_the_kind_that_can_train_and_the_memory_that_each_needs():
    display = gpu(2, "GPU-display", name="NVIDIA GeForce GT 1030", compute_capability="6.1", memory_total=2 * GIB)
    found = facts(gpus=(gpu(0), gpu(1), display))
    one = prepare_without_errors(profile({"hardware.gpus": (UUIDS[0],)}), found).plan
    assert (one.gpus, one.gpu_pool) == (UUIDS[:1], UUIDS)
    assert 0 < one.gpu_memory < 20 * GIB
    both = prepare_without_errors(profile(), found).plan
    assert (both.gpus, both.gpu_pool) == (UUIDS, ())
    assert prepare_without_errors(profile({"hardware.device": "cpu"}), found).plan.gpu_memory == 0


def test_a_report_names_no_other_user_and_none_of_their_runs(made):
    run = made("waits")
    ticket = Ticket("", os.geteuid(), LockOwner(folder="/runs/tulip (zoe): crocus; iris"), ResourceRequest())
    why = "GPU 1: pid 812, annette, python train.py, since 11:05; GPU 0: a-дx (bobby); GPU 3: train (dora) is before it"
    why += f"; GPU 2: {run_and_user_text(ticket)}"
    events = ({"event": "run_started", "waits": "chosen"}, {"event": "waiting", "why": why})
    run.events_file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    began = f"11:05:00 launch.sh: hidden (zoe) {HAS_CARD_TEXT}\n"
    run.launch_log.write_text(f"{began}11:06:00 launch.sh: waits: {why}\n")
    told = "".join(entry.text for entry in masked_archive_entries(run, ""))
    assert "python train.py" in told
    others = ("annette", "bobby", "dora", "zoe", "дx", "\\u0434x", "hidden (", "tulip", "crocus", "iris")
    assert not [name for name in others if name in told]
    assert "GPU 0: run1 (user2); GPU 3: run2 (user3) is before it" in told


def test_what_uses_the_gpus_is_no_obstacle_for_a_start_that_waits():
    busy = gpu(0, processes=(GpuProcess(pid=812, user="ann", name="python", memory=20 * 2**30),))
    found = facts(gpus=(busy, gpu(1)))
    assert [is_busy(card) for card in found.machine.gpus] == [True, False]
    waits_for = facts_as_if_gpus_idle(found)
    assert not any(map(is_busy, waits_for.machine.gpus))
    assert waits_for.machine.gpus[0].memory_free == busy.memory_total
    chosen = profile({"hardware.gpus": (UUIDS[0],)})
    assert [each.key for each in findings_of(chosen, found) if "--when-free" in each.remedy] == ["hardware.gpus"]
    assert not [each for each in findings_of(chosen, waits_for) if "--when-free" in each.remedy]
    used = (ResourcesInUse(run="other", gpus=(UUIDS[0],)),)
    found = msgspec.structs.replace(facts(gpus=(gpu(0),)), resources_in_use=used)
    assert ["--when-free" in each.remedy for each in findings_of(chosen, found) if each.level == "error"] == [True]
    assert not [each for each in findings_of(chosen, facts_as_if_gpus_idle(found)) if each.level == "error"]


def test_a_card_that_a_run_has_taken_without_memory_on_it_yet_is_named_by_facts_here_and_of_a_host(queued):
    queued("mine", UUIDS[0])
    for name in ("next", "last"):
        queued(name, UUIDS[0], waits=True)
    printed = " ".join(fake_driver.run_cli_on_machine("facts").stdout.split())
    assert re.search(r", busy .*mine \(\w+\) trains; 2 runs wait for it, next \(\w+\) first", printed)
    first, second = json.loads(fake_driver.run_cli_on_machine("facts", "--json").stdout)["gpus"]
    assert (first["queue"]["waiting"], second["queue"]) == (2, {"holder": "", "waiting": 0, "first_waiting": ""})
    survey = survey_host("", {}, 60)
    assert [(card.uuid, card.waiting) for card in survey.cards_in_queue] == [(UUIDS[0], 2)]


@pytest.mark.parametrize(("values", "can_wait"), [({}, True), ({"nodes.count": 2, "nodes.address": "10.0.0.1"}, False)])
def test_a_card_in_use_is_waited_for_or_changed_and_only_one_machine_can_wait(values, can_wait):
    taken = (CardInQueue(UUIDS[0], "mine (ann)"),)
    found = msgspec.structs.replace(facts(gpus=(gpu(0), gpu(1), gpu(2, "GPU-c"))), cards_in_queue=taken)
    (busy,) = (
        each for each in findings_of(profile({"hardware.gpus": UUIDS[:1], **values}), found) if "mine" in each.message
    )
    assert ("--when-free" in busy.remedy, "w on Preview" in busy.keys) == (can_wait, can_wait)
    assert f"Fix: --set hardware.gpus={UUIDS[1]}" in finding_text(busy), "as many as were chosen"
    assert not [each for each in findings_of(profile(), facts_as_if_gpus_idle(found)) if "mine" in each.message]


def test_what_cannot_wait_is_refused_before_anything_is_written():
    prepared = prepare_without_errors(profile({"nodes.count": 2, "nodes.address": "10.0.0.1"}), facts(gpus=(gpu(0),)))
    with pytest.raises(Unavailable, match="several machines"):
        Place().submit(prepared, prepared.plan, options=StartOptions("chosen"))
    assert not run_folders.list_runs()
    run = run_folders.create_run_folder("two", prepared.files)
    with pytest.raises(Unavailable, match="several machines"):
        Place().resume(run, when_free="chosen")
    assert read_status(run).state == "new"


@pytest.mark.parametrize("words", [("--any-gpus",), ("--when-free", "--slurm")])
def test_a_way_to_wait_that_is_none_is_a_usage_error(words):
    with pytest.raises(click.UsageError):
        CliRunner().invoke(cli, ["run", "quickstart", *words], standalone_mode=False, catch_exceptions=False)

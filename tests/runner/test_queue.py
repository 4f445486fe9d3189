"""The queue of a machine: tickets of real processes and users, and runs that wait for cards and CPU cores."""

import itertools
import json
import os
import pwd
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fake_driver import driver_environment
from support import UUIDS, export_run, facts, gpu, patch_runner_module, plain_environment, profile, wait_until

from tui_train.runner.queue import tickets
from tui_train.runner.queue.listing import CardInQueue, list_cards_in_queue
from tui_train.runner.queue.tickets import OwnTicket, QueueFolder, ticket_name
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder import events
from tui_train.runner.run_folder.lock_owner import this_process_as_owner
from tui_train.runs.status import read_status

ROOT = Path(__file__).parents[2]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: files of two users need root")
STRANGER = 1234
# Has a ticket, and the lock of a card, until it is killed.
HOLDS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tui_train.runner.queue.tickets import OwnTicket, QueueFolder, ticket_name
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder.lock_owner import this_process_as_owner
owner = this_process_as_owner(sys.argv[2], "/runs/" + sys.argv[2])
# Python itself may lie where that user cannot read it.
os.setuid(int(sys.argv[3]))
folder = QueueFolder(make=True)
request = ResourceRequest(("GPU-a",), 1)
own = OwnTicket(folder, Ticket(ticket_name(sys.argv[2]), os.geteuid(), owner, request, waits=True))
print(folder.lock_cards_or_cores(["GPU-a"]) is not None, flush=True)
for word in sys.stdin:
    own.change(why=word.strip())
    print("changed", flush=True)
"""
# Stands in for the interpreter that trains: an attempt ends when it is told to, or where it is not alone on its cards.
TRAINS = """
import fcntl, os, sys, time
if sys.argv[1:5] == ["-I", "-S", "-X", "utf8"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
cards = os.environ["CUDA_VISIBLE_DEVICES"].split(",") if os.environ["ALONE"] else []
held = [open(f"{os.path.dirname(os.environ['END'])}/card-{card}", "w") for card in cards]
for file in held:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("cards:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
while not os.path.exists(os.environ["END"]):
    time.sleep(0.02)
"""


@pytest.fixture
def folder():
    opened = QueueFolder(make=True)
    yield opened
    opened.close()


@pytest.fixture
def holder():
    """Start processes that have tickets; they end with the test."""
    started = []

    def start(mark, uid=None):
        words = [sys.executable, "-c", HOLDS, str(ROOT), mark, str(os.geteuid() if uid is None else uid)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        process.got_card = process.stdout.readline().strip()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def marks(folder):
    return sorted(ticket.owner.mark for ticket in folder.tickets())


def own_ticket(mark, **fields):
    owner = this_process_as_owner(mark, f"/runs/{mark}")
    return Ticket(ticket_name(mark), os.geteuid(), owner, ResourceRequest(("GPU-a",), 1))._replace(**fields)


def test_a_ticket_counts_as_long_as_its_process_lives(folder, holder):
    first, second = holder("first"), holder("second")
    assert (first.got_card, second.got_card) == ("True", "False"), "a card is locked for one alone"
    assert marks(folder) == ["first", "second"]
    first.kill()
    first.wait()
    assert marks(folder) == ["second"]
    assert holder("third").got_card == "True"
    left = sorted(path.name for path in Path(folder.path).iterdir())
    assert left == ["lock-GPU-a", "run-second", "run-third"], "what was left is removed"


def test_of_a_card_is_told_who_has_it_and_how_many_wait_for_it_the_first_of_them_by_name(folder, holder):
    assert list_cards_in_queue() == ()
    user = pwd.getpwuid(os.geteuid()).pw_name
    owner = this_process_as_owner("own", "/runs/\x1b[2J" + 300 * "x")
    own = OwnTicket(QueueFolder(make=False), own_ticket("own", owner=owner, cards=("GPU-a",)))
    for mark in ("first", "second"):
        holder(mark)
    (card,) = list_cards_in_queue()
    assert card[2:] == (2, f"first ({user})")
    assert card.holder.startswith("\\x1b[2Jxxx")
    assert card.holder.endswith(f"xxx ({user})")
    assert len(card.holder) < 150
    own.release()
    assert list_cards_in_queue() == (CardInQueue("GPU-a", "", 2, f"first ({user})"),)


def test_all_users_may_add_and_none_may_remove_what_is_anothers(folder):
    path = Path(folder.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o1777
    path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 1777"):
        QueueFolder(make=False)


def test_a_folder_that_machines_share_is_refused(folder, monkeypatch):
    monkeypatch.setattr(tickets, "file_system_of", lambda path: "nfs4" if path == folder.path else "")
    with pytest.raises(OSError, match="on a disk that machines share"):
        QueueFolder(make=False)


def test_others_can_read_what_a_user_with_a_strict_mask_leaves(folder):
    before = os.umask(0o077)
    try:
        own = OwnTicket(QueueFolder(make=True), own_ticket("own"))
        own.keep_locks(folder.lock_cards_or_cores(["GPU-a"]))
        folder.write_wished_order(["run-own"])
    finally:
        os.umask(before)
    modes = {path.name.partition("-")[0]: stat.S_IMODE(path.stat().st_mode) for path in Path(folder.path).iterdir()}
    assert modes == {"run": 0o644, "lock": 0o644, "order": 0o644}
    own.release()


def test_a_live_ticket_of_another_version_is_passed_over_and_stays(folder):
    own = OwnTicket(QueueFolder(make=False), own_ticket("own"))
    path = Path(folder.path) / own.ticket.name
    path.write_text('{"form": "of a later version"}')
    assert marks(folder) == []
    other = OwnTicket(QueueFolder(make=False), own_ticket("other"))
    assert path.exists()
    other.release()
    own.release()


def test_a_ticket_is_whole_and_locked_while_it_is_written_again(folder, holder):
    process = holder("busy")
    for number in range(300):
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        assert marks(folder) == ["busy"]
        assert process.stdout.readline() == "changed\n"
    assert [ticket.why for ticket in folder.tickets()] == ["299"]


def test_what_no_living_process_of_its_owner_holds_is_passed_over(folder, holder, tmp_path):
    kept = OwnTicket(QueueFolder(make=False), own_ticket("kept"))
    text = (Path(folder.path) / kept.ticket.name).read_text()
    (Path(folder.path) / "run-unlocked").write_text(text)
    (Path(folder.path) / "run-link").symlink_to(kept.ticket.name)
    os.mkfifo(Path(folder.path) / "run-pipe")
    (Path(folder.path) / "run-folder").mkdir()
    assert marks(folder) == ["kept"]
    kept.release()
    assert marks(folder) == []


def test_a_ticket_that_was_removed_is_written_again(folder):
    own = OwnTicket(QueueFolder(make=False), own_ticket("own"))
    shutil.rmtree(folder.path)
    own.renew()
    again = QueueFolder(make=False)
    assert marks(again) == ["own"]
    own.renew()
    own.release()
    assert marks(again) == []
    again.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: {**data, "owner": {**data["owner"], "ticks": 1}},
        lambda data: {**data, "owner": {**data["owner"], "boot": "another"}},
        lambda data: {**data, "owner": {**data["owner"], "pid": 1}},
        lambda data: {**data, "cards": "GPU-a"},
        lambda data: {**data, "cores": -1},
        lambda data: {**data, "request": None},
        lambda data: [data],
    ],
)
def test_a_ticket_with_other_words_than_its_process_is_passed_over(folder, spoil):
    own = OwnTicket(QueueFolder(make=False), own_ticket("own"))
    path = Path(folder.path) / own.ticket.name
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data))
    assert marks(folder) == ["own"]
    # Written in place, it is still locked.
    path.write_text(json.dumps(spoil(data)))
    assert marks(folder) == []
    own.release()


@AS_ROOT
def test_two_users_share_the_queue_and_order_only_their_own(folder, holder):
    for parent in Path(folder.path).parents:
        parent.chmod(stat.S_IMODE(parent.stat().st_mode) | 0o111)
    other = holder("theirs", STRANGER)
    assert other.got_card == "True"
    own = OwnTicket(QueueFolder(make=False), own_ticket("own"))
    assert {ticket.owner.mark: ticket.uid for ticket in folder.tickets()} == {"theirs": STRANGER, "own": 0}
    folder.write_wished_order(["run-own"])
    forged = Path(folder.path) / f"order-{STRANGER}"
    forged.write_text(json.dumps({"names": ["run-theirs"]}))
    assert folder.wished_order_by_uid() == {0: ("run-own",)}, "a user's order is in a file of that user"
    os.chown(Path(folder.path) / own.ticket.name, STRANGER, -1)
    assert marks(folder) == ["theirs"], "its process is not its owner's"
    own.release()


class Box:
    """A machine with two cards and runs that wait for them."""

    def __init__(self, folder):
        self.folder, self.machine, self.runs, self.processes = folder, folder / "machine.txt", {}, []
        tools = folder / "bin"
        tools.mkdir()
        listed = "".join(f"echo 'GPU {number}: RTX (UUID: {uuid})'\n" for number, uuid in enumerate(UUIDS))
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\ncase $1 in -L) {listed} ;; esac\n")
        (tools / "python").write_text(f"#!{Path(sys.executable).resolve()} -IS\n{TRAINS}")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        self.tools = tools
        self.strangers()

    def strangers(self, *cards):
        """Say on which cards other programs compute from now on."""
        text = "".join(
            f"[card]\nuuid = {uuid}\nname = RTX\nbus = 00000000:0{number}:00.0\nmemory = 24576 MiB\nused = 2 MiB\n"
            + "process = 5000001 compute 9000 MiB python train.py\n" * (number in cards)
            for number, uuid in enumerate(UUIDS)
        )
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.machine)

    def export(self, name, cards=(0,), **more):
        python = str(self.tools / "python")
        cards = tuple(map(gpu, cards))
        chosen = profile({"trainer.kind": "builtin", "recipe.global_batch": 16, "ladder.rungs": ()} | more)
        self.runs[name], _ = export_run(
            self.folder / name, chosen, facts(gpus=cards, python=python, torch="2.7.1", transformers="4.57.6")
        )
        patch_runner_module(
            self.runs[name], "card_watch.py", "CARD_WATCH_INTERVAL_SECONDS = 4.0", "CARD_WATCH_INTERVAL_SECONDS = 0.2"
        )
        # A look is as old as this machine is busy.
        age = "MAX_CARD_USAGE_AGE_SECONDS = "
        patch_runner_module(self.runs[name], "card_watch.py", f"{age}3 * CARD_WATCH_INTERVAL_SECONDS", f"{age}60.0")
        patch_runner_module(self.runs[name], "waiting.py", "_MIN_RECORD_SECONDS = 60.0", "_MIN_RECORD_SECONDS = 0.0")

    def start(self, name, *options):
        environment = plain_environment(END=str(self.folder / f"end-{name}"), **driver_environment(str(self.machine)))
        environment["ALONE"] = "yes" if options else ""
        environment["PATH"] = f"{self.tools}:{environment['PATH']}"
        with (self.folder / f"{name}.out").open("w") as out:
            words = ["bash", str(self.runs[name].launch_script), *options]
            self.processes.append(subprocess.Popen(words, env=environment, stdout=out, stderr=out))
        return self.processes[-1]

    def end(self, name):
        (self.folder / f"end-{name}").touch()

    def state(self, name):
        return read_status(self.runs[name]).state

    def kill_if_waiting(self, name):
        """Kill a run that waits; one that has begun to train since it was looked at would train on alone."""
        pid = read_status(self.runs[name]).pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 60)
        waits = self.state(name) == "waiting"
        os.kill(pid, signal.SIGKILL if waits else signal.SIGCONT)
        return waits

    def trains(self, name):
        log = self.runs[name].attempt_log(1)
        return wait_until(lambda: re.search("cards: (.*)\n", log.read_text()), 120, self.said(name))[1].split(",")

    def training(self):
        """Return the runs that train now; a training that is not alone on its cards fails."""
        states = {name: self.state(name) for name in self.runs}
        assert "failed" not in states.values(), [self.said(name) for name in states]
        return [name for name, state in states.items() if state == "running" and self.trains(name)]

    def waits(self, name, why=""):
        wait_until(
            lambda: self.state(name) == "waiting" and why in read_status(self.runs[name]).waits_for,
            120,
            self.said(name),
        )
        return read_status(self.runs[name]).waits_for

    def said(self, name):
        return (self.folder / f"{name}.out").read_text()

    def names(self, name):
        return [event.event for event in events.read_events(str(self.runs[name].path))]

    def close(self):
        for name in self.runs:
            self.end(name)
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(60)


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    yield made
    made.close()


def test_runs_on_one_card_wait_for_each_other_and_for_strangers(box):
    box.strangers(0)
    notice = ("sh", "-c", f"echo $TUI_TRAIN_STATE >> '{box.folder}/notices'")
    box.export("first", **{"notify.command": notice})
    box.export("second")
    box.start("first", "--when-free")
    assert "GPU 0: pid 5000001, python train.py" in box.waits("first", "pid 5000001")
    box.start("second", "--when-free")
    box.waits("second", "pid 5000001")
    box.strangers()
    assert box.trains("first") == [UUIDS[0]]
    box.waits("second", "GPU 0: first (")
    box.end("first")
    assert box.trains("second") == [UUIDS[0]]
    assert box.state("first") == "finished"
    wait_until(lambda: (box.folder / "notices").read_text().split() == ["running", "finished"], 60)
    happened = [name for name in box.names("first") if name != "waiting"]
    assert happened == ["run_started", "wait_ended", "attempt_started", "attempt_ended", "run_ended"]


def test_a_card_that_is_held_for_trials_is_waited_for_until_their_program_ends(box):
    box.strangers(0)
    box.export("trials")
    box.export("run")
    environment = plain_environment(**driver_environment(str(box.machine)))
    program = [sys.executable, "-IS", str(box.runs["trials"].path / "runner.pyz"), "hold", "/trials/mine"]
    holds = subprocess.Popen(
        program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    box.processes.append(holds)
    assert "GPU 0: pid 5000001" in json.loads(holds.stdout.readline())["why"]
    box.strangers()
    assert next(line for line in map(json.loads, holds.stdout) if "why" not in line) == {"turn": True}
    box.start("run", "--when-free")
    box.waits("run", "GPU 0: mine (")
    holds.communicate(timeout=60)
    assert box.trains("run") == [UUIDS[0]]


def test_any_of_several_cards_is_the_one_that_is_free(box):
    box.strangers(0)
    box.export("run", (0, 1), **{"hardware.gpus": (UUIDS[0],)})
    box.start("run", "--when-free=any")
    assert box.trains("run") == [UUIDS[1]]
    assert read_status(box.runs["run"]).gpus == (UUIDS[1],)


@pytest.mark.whole
def test_a_card_that_an_ordinary_start_has_is_waited_for(box):
    for name in ("ordinary", "waits", "careless"):
        box.export(name)
    box.start("ordinary")
    box.trains("ordinary")
    box.start("waits", "--when-free")
    box.waits("waits", "GPU 0: ordinary (")
    box.start("careless")
    box.trains("careless")
    assert "ordinary (" in box.said("careless"), "it starts, as it always did, and is told who has the card"
    box.end("ordinary")
    box.waits("waits", "GPU 0: careless (")
    box.end("careless")
    box.trains("waits")


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(3))
def test_of_many_that_wait_each_trains_alone_on_its_cards_in_the_order_of_asking(box, seed):
    chance, names = random.Random(seed), [f"run-{number}" for number in range(8)]
    for name in names:
        cards = chance.choice(((0,), (1,), (0, 1)))
        box.export(name, (0, 1), **{"hardware.gpus": tuple(UUIDS[card] for card in cards)})
    for name in names:
        box.start(name, chance.choice(("--when-free", "--when-free=any")))
        wait_until(lambda run=box.runs[name]: read_status(run).state in {"waiting", "running"}, 120)
    for name in itertools.islice(filter(box.kill_if_waiting, chance.sample(names, len(names))), 2):
        names.remove(name)
    for _ in names:
        (name,) = chance.sample(wait_until(box.training, 120), 1)
        box.end(name)
        wait_until(lambda run=box.runs[name]: read_status(run).state == "finished", 120, box.said(name))
    assert {box.state(name) for name in names} == {"finished"}


@pytest.mark.parametrize("option", ["--when-free=2", "--when-free="])
def test_an_unknown_way_to_wait_is_refused(box, option):
    box.export("run")
    assert box.start("run", option).wait(60) == 64


def test_a_queue_that_others_could_spoil_is_refused_only_by_who_waits(box, tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("TUI_TRAIN_QUEUE", str(tmp_path / "open"))
    for name in ("waits", "ordinary"):
        box.export(name)
    assert box.start("waits", "--when-free").wait(120) == 69
    box.start("ordinary")
    box.trains("ordinary")
    assert "chmod 1777 it; other users do not see what this training takes" in box.said("ordinary")

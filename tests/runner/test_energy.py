"""What cards draw in a run, as their driver meters it: the real supervisor over a driver library that is a fake."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_driver import driver_environment
from psutil import Process, process_iter
from support import export_run, facts, gpu, plain_environment, profile, set_variables, wait_until
from tui_train.screens.result.result_lines import result_lines

from tui_train.base.text import energy_text as words
from tui_train.cli.results.result import labelled_result_texts, print_result
from tui_train.runner.gpus import energy
from tui_train.runner.run_folder import events
from tui_train.runs.results.result import read_result
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

CARDS = (gpu(0), gpu(1))
UUIDS = [card.uuid for card in CARDS]
OLD = {"energy": "!NOT_SUPPORTED", "power": "250"}
# Stands in for the interpreter that trains: an attempt ends when it is told how.
WAITS = """
import glob, os, sys, time
if sys.argv[1:5] == ["-I", "-S", "-X", "utf8"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
told = f"{os.environ['TOLD']}-{len(glob.glob(os.environ['TOLD'] + '/../run/attempt-*.log'))}"
while not os.path.exists(told):
    time.sleep(0.02)
print(open(told).read())
sys.exit(1 if os.path.getsize(told) else 0)
"""
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


class Box:
    """A machine with two cards, and a run on them."""

    def __init__(self, folder):
        self.folder = folder
        self.machine = folder / "machine.txt"
        self.run = None

    def cards(self, *cards, head=""):
        """Say what the driver answers from now on, with one dict for each card."""
        text = head + "".join(
            f"[card]\nuuid = {uuid}\nname = RTX\nbus = 00000000:0{at}:00.0\n"
            + "".join(f"{key} = {value}\n" for key, value in card.items())
            for at, (uuid, card) in enumerate(zip(UUIDS, cards, strict=True), 1)
        )
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.machine)

    def begin(self, **more):
        """Start the run, and wait until its cards are metered."""
        python = self.folder / "python"
        python.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{WAITS}")
        python.chmod(0o755)
        chosen = profile({"trainer.kind": "builtin", "recipe.global_batch": 16, "ladder.rungs": ()} | more)
        found = facts(gpus=CARDS, python=str(python), torch="2.7.1", transformers="4.57.6")
        self.run, _ = export_run(self.folder / "run", chosen, found)
        told = str(self.folder / "told")
        (self.folder / "told").mkdir()
        environment = plain_environment(TOLD=told, **driver_environment(str(self.machine)))
        self.process = subprocess.Popen(
            ["bash", str(self.run.launch_script)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def metered(self, cards=2):
        """Wait until so many cards are metered, and return the meter."""
        wait_until(lambda: any(each.num_threads() == 1 + cards for each in self.meters()), 60)
        time.sleep(0.3)
        return self.meters()[0]

    def meters(self):
        found = [
            each for each in process_iter(["cmdline"]) if str(self.run.path) in " ".join(each.info["cmdline"] or [])
        ]
        return [each for each in found if "meter" in each.info["cmdline"]]

    def end(self, attempt=1, says=""):
        (self.folder / f"told-{attempt}.new").write_text(says)
        (self.folder / f"told-{attempt}.new").rename(self.folder / f"told-{attempt}")

    def ended(self):
        self.end()
        assert self.process.wait(60) == 0, self.run.attempt_log(1).read_text()
        return read_result(self.run)


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    yield made
    if made.run:
        stop_local_run(made.run)
        made.process.wait(60)
        assert made.meters() == []


def drawn(run):
    return [event for event in events.read_events(str(run.path)) if event.event == "energy"]


def test_the_cards_own_counters_are_read_at_both_ends(box, capsys):
    box.cards({"energy": "1000"}, {"energy": "9000000"})
    box.begin()
    box.metered()
    # The driver of the second one was loaded again, and counts from nothing.
    box.cards({"energy": "361000"}, {"energy": "720000"})
    found = box.ended()
    assert (found.joules, found.all_metered, found.energy_text) == (1080.0, True, words(1080))
    assert dict(labelled_result_texts(found))["energy"] == words(1080)
    shown = [line.plain.split() for line in result_lines(found, 80)]
    assert ["Energy", *words(1080).split()] in shown
    print_result(f"{box.run.path}/", as_json=True)
    assert json.loads(capsys.readouterr().out)["energy"] == words(1080)
    (event,) = drawn(box.run)
    assert (event.attempt, event.metered, event.cards) == (1, 2, 2)


@pytest.mark.whole
def test_cards_that_do_not_count_are_metered_by_their_power(box):
    began = time.monotonic()
    box.cards(OLD, {"energy": "!FUNCTION_NOT_FOUND", "power": "50"})
    box.begin()
    box.metered()
    time.sleep(1.0)
    found = box.ended()
    assert 300 <= found.joules <= 300 * (time.monotonic() - began)
    assert found.all_metered


WHOLE = pytest.mark.whole


@pytest.mark.parametrize(
    "hangs",
    [
        {"energy": "!HANG"},
        pytest.param({"handle": "!HANG"}, marks=WHOLE),
        pytest.param({"energy": "!UNKNOWN"}, marks=WHOLE),
    ],
)
def test_a_card_that_is_not_metered_is_said_and_holds_nothing_up(box, hangs):
    box.cards({"energy": "0"}, hangs)
    box.begin()
    box.metered()
    box.cards({"energy": "7200"}, hangs)
    found = box.ended()
    assert (found.joules, found.energy_text) == (7.2, f"at least {words(7.2)}")


@pytest.mark.parametrize(
    "head",
    ["init = !HANG\n", *(pytest.param(f"{line}\n", marks=WHOLE) for line in ("load = !HANG", "init = !UNKNOWN"))],
)
def test_a_driver_that_does_not_answer_holds_nothing_up(box, head):
    box.cards({}, {}, head=head)
    box.begin()
    wait_until(lambda: read_status(box.run).attempts, 60)
    found = box.ended()
    assert (found.state, found.joules, found.energy_text, drawn(box.run)) == ("finished", None, "", [])
    assert "energy" not in dict(labelled_result_texts(found))


def test_a_stopped_run_is_metered_to_its_end(box):
    box.cards({"energy": "0"}, {"energy": "0"})
    box.begin()
    box.metered()
    box.cards({"energy": "3600"}, {"energy": "3600"})
    stop_local_run(box.run)
    found = read_result(box.run)
    assert (found.state, found.joules, found.all_metered) == ("stopped", 7.2, True)


def test_all_attempts_of_a_ladder_count(box):
    box.cards({"energy": "0"}, {"energy": "0"})
    rungs = {"ladder.rungs": ("expandable_segments",)}
    box.begin(**rungs)
    box.metered()
    box.cards({"energy": "10000"}, {"energy": "0"})
    box.end(1, OUT_OF_MEMORY)
    wait_until(lambda: len(read_status(box.run).attempts) == 2, 90)
    box.metered()
    box.cards({"energy": "12000"}, {"energy": "3000"})
    box.end(2)
    assert box.process.wait(60) == 0
    assert [event.joules for event in drawn(box.run)] == [10.0, 5.0]
    assert read_result(box.run).joules == 15.0
    # What is written of another machine counts as well.
    node = box.run.path / "node-1"
    node.mkdir()
    (node / events.JOURNAL_FILE_NAME).write_bytes(Path(box.run.path, events.JOURNAL_FILE_NAME).read_bytes())
    assert read_result(box.run).joules == 30.0


@pytest.mark.whole
def test_a_meter_ends_with_its_supervisor(box):
    box.cards({"energy": "0"}, {"energy": "0"})
    box.begin()
    meter = box.metered()
    Process(read_status(box.run).pid).kill()
    meter.wait(30)


def test_without_a_whole_card_there_is_no_meter():
    for cards in ((), ("MIG-1234",)):
        made = energy.start_energy_metering(cards)
        assert (made.answer_descriptor, made.finish()) == (-1, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.usefixtures("zipped_runner")
def test_a_meter_that_does_not_answer_is_left_behind(number, monkeypatch):
    set_variables(monkeypatch, driver_environment("two-3090"))
    made = energy.start_energy_metering(UUIDS)
    os.kill(made.child.pid, number)
    assert made.finish() is None
    assert not made.child.is_alive


@pytest.mark.parametrize(
    ("joules", "shown"),
    [(0, "0 Wh"), (100, "0.028 Wh"), (36_000, "10 Wh"), (1_260_000, "350 Wh"), (4_320_000, "1.2 kWh")],
)
def test_an_energy_in_words(joules, shown):
    assert words(joules) == shown


def test_events_that_are_damaged_meter_nothing(tmp_path):
    bad = [{"joules": -1}, {"joules": "x"}, {"joules": 1e300}, {"joules": 1.0, "cards": True}]
    text = "".join(json.dumps({"event": "energy", "attempt": 1, **more}) + "\n" for more in bad)
    (tmp_path / events.JOURNAL_FILE_NAME).write_text(text)
    assert events.read_events(str(tmp_path)) == ()

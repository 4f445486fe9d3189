"""What the cards do right now: real samplers on fake machines that change, hang and crash under them."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from support import sample, set_variables, wait_until

from tests.fake_driver import MACHINES_FOLDER, driver_environment
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import NO_RESPONSE_PROBLEM, CardSample
from tui_train.facts.machine.child_process import set_children_cancelled

MIB = 2**20
TWO = (MACHINES_FOLDER / "two-3090-display-and-busy.txt").read_text()
BUSY, IDLE = (f"GPU-00003090-0000-4000-8000-00000000000{number}" for number in (1, 2))
# A test waits this long for what has to come; a loaded machine may need it.
SOON = 60.0


class Sampling:
    """Samples of a machine whose description can be replaced, and the process they come from."""

    def __init__(self, folder):
        self._path = folder / "machine.txt"
        self._ends = time.monotonic() + SOON
        self._samples = live_samples.yield_changed_samples(lambda: time.monotonic() > self._ends)

    def put(self, text):
        beside = self._path.with_suffix(".next")
        beside.write_text(text)
        beside.rename(self._path)

    def within(self, seconds):
        """Return what comes in this time, after which the sampling is over."""
        self._ends = time.monotonic() + seconds
        return list(self._samples)

    def until(self, wanted):
        """Return the first cards, by uuid, of which `wanted` is true."""
        self._ends = time.monotonic() + SOON
        seen = []
        for cards in self._samples:
            seen.append({card.uuid: card for card in cards})
            if wanted(seen[-1]):
                return seen[-1]
        pytest.fail(f"only these came: {seen}")

    def close(self):
        self._samples.close()


@pytest.fixture
def on(monkeypatch, tmp_path):
    """Return a function that samples a machine, given by its name or by its text."""
    made = []

    def begin(machine):
        text = machine if "=" in machine else (MACHINES_FOLDER / f"{machine}.txt").read_text()
        made.append(Sampling(tmp_path))
        made[-1].put(text)
        set_variables(monkeypatch, driver_environment(tmp_path / "machine.txt"))
        return made[-1]

    yield begin
    for sampling in made:
        sampling.close()


def children(of=None):
    """The samplers that a process has started, without those that only wait to be reaped."""
    found = psutil.Process(of).children(recursive=True)
    return [
        child
        for child in found
        if child.status() != psutil.STATUS_ZOMBIE and "tui_train.facts.gpus.sampler" in child.cmdline()
    ]


def whole(*uuids):
    """A condition: these cards are there, and the driver told of each."""
    return lambda cards: set(cards) == set(uuids) and all(card.memory_total for card in cards.values())


def changed(text, uuid, **values):
    """The text of a machine with other values for one card."""
    head, *cards = text.split("[card]\n")
    for number, card in enumerate(cards):
        if f"uuid = {uuid}\n" in card:
            kept = [line for line in card.splitlines() if line.partition(" =")[0] not in values]
            cards[number] = "\n".join([*kept, *(f"{key} = {value}" for key, value in values.items()), ""])
    return "[card]\n".join([head, *cards])


def lost(text, uuid):
    head, *cards = text.split("[card]\n")
    for number, card in enumerate(cards):
        if f"uuid = {uuid}\n" in card:
            keys = [line.partition(" =")[0] for line in card.splitlines() if " = " in line]
            cards[number] = "".join(f"{key} = !GPU_IS_LOST\n" for key in ["handle", "mig", *keys])
    return "[card]\n".join([head, *cards])


def test_all_values_are_told(on):
    cards = on("seed-3090-gt1030-3090").until(lambda cards: len(cards) == 3)
    free = (24576 - 325 - 2) * MIB
    assert [
        (one.memory_free, one.memory_total, one.utilization, one.temperature, one.power) for one in cards.values()
    ] == [
        (free, 24576 * MIB, 0, 31, 14),
        ((2048 - 60 - 310) * MIB, 2048 * MIB, 3, 38, None),
        (free, 24576 * MIB, 0, 29, 17),
    ]


@pytest.mark.whole
def test_only_changes_are_told(on):
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    # Less than a MiB is noise.
    sampling.put(changed(TWO, IDLE, used=4 * MIB + 1000))
    sampling.until(lambda cards: cards[IDLE].memory_free == before[IDLE].memory_free - MIB)
    sampling.put(changed(TWO, IDLE, used=4 * MIB + 300_000))
    assert sampling.within(3) == []


@pytest.mark.whole
def test_a_change_is_told(on):
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    assert (before[BUSY].utilization, before[BUSY].temperature, before[BUSY].power) == (97, 71, 338)
    sampling.put(changed(TWO, BUSY, use=12, temperature=55, power=107, used="500 MiB"))
    free = (24576 - 325 - 500) * MIB
    now = CardSample(uuid=BUSY, memory_free=free, memory_total=24576 * MIB, utilization=12, temperature=55, power=107)
    assert sampling.until(lambda cards: cards[BUSY] == now)[IDLE] == before[IDLE]


@pytest.mark.whole
def test_a_lost_card_says_so_and_the_others_go_on(on):
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    sampling.put(lost(TWO, IDLE))
    after = sampling.until(lambda cards: cards[IDLE].problem)
    assert "lost" in after[IDLE].problem
    assert after[BUSY] == before[BUSY]
    sampling.put(lost(changed(TWO, BUSY, use=5), IDLE))
    after = sampling.until(lambda cards: cards[BUSY].utilization == 5)
    assert (after[BUSY].problem, after[IDLE].memory_total) == ("", before[IDLE].memory_total)
    sampling.put(TWO)
    assert sampling.until(lambda cards: not cards[IDLE].problem)[IDLE] == before[IDLE]


@pytest.mark.whole
@pytest.mark.parametrize("key", sample(["memory", "use", "power", "mig"], 4))
def test_a_hanging_card_stops_no_other(on, key):
    sampling = on(changed(TWO, IDLE, **{key: "!HANG"}))
    cards = sampling.until(lambda cards: BUSY in cards)
    assert (cards[BUSY].utilization, cards[BUSY].problem) == (97, "")
    cards = sampling.until(lambda cards: cards[IDLE].problem)
    assert cards[IDLE] == CardSample(uuid=IDLE, problem=NO_RESPONSE_PROBLEM)
    assert cards[BUSY].problem == ""
    sampling.put(changed(changed(TWO, IDLE, **{key: "!HANG"}), BUSY, use=3))
    assert sampling.until(lambda cards: cards[BUSY].utilization == 3)[IDLE].problem == NO_RESPONSE_PROBLEM


@pytest.mark.whole
def test_a_card_that_begins_to_hang_keeps_its_values(on):
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    sampling.put(changed(TWO, IDLE, memory="!HANG"))
    after = sampling.until(lambda cards: cards[IDLE].problem)
    assert after == {BUSY: before[BUSY], IDLE: msgspec.structs.replace(before[IDLE], problem=NO_RESPONSE_PROBLEM)}


def test_each_value_fails_alone(on):
    keys = {"memory": "memory_total", "use": "utilization", "temperature": "temperature", "power": "power"}
    text = "".join(f"[card]\nuuid = GPU-{at}\nmemory = 9 MiB\nuse = 1\ntemperature = 2\npower = 3\n" for at in keys)
    for at in keys:
        text = changed(text, f"GPU-{at}", **{at: "!UNKNOWN"})
    cards = on(text).until(lambda cards: len(cards) == 4)
    for at, field in keys.items():
        empty = {name for name in keys.values() if getattr(cards[f"GPU-{at}"], name) is None}
        assert (empty, cards[f"GPU-{at}"].problem) == ({field}, "")


def test_a_driver_that_has_only_the_newer_call_for_the_temperature(on):
    cards = on(changed(TWO, BUSY, temperature_old="!FUNCTION_NOT_FOUND")).until(whole(BUSY, IDLE))
    assert (cards[BUSY].temperature, cards[IDLE].temperature) == (71, 34)


@pytest.mark.whole
def test_a_card_that_cannot_be_opened_is_tried_again(on):
    sampling = on(changed(TWO, IDLE, handle="!UNKNOWN"))
    assert set(sampling.until(whole(BUSY))) == {BUSY}
    sampling.put(TWO)
    assert sampling.until(whole(BUSY, IDLE))[IDLE].power == 21


def test_instances_of_a_divided_card(on):
    text = (MACHINES_FOLDER / "a100-mig.txt").read_text()
    text = text.replace("mig = on\n", "mig = on\ntemperature = 44\npower = 130\nuse = 9\n")
    cards = on(text).until(lambda cards: len(cards) == 4)
    small, large, undivided, empty = cards.values()
    free, total = (19968 - 12) * MIB, 19968 * MIB
    assert small == CardSample(
        uuid="MIG-11111111-1111-5111-8111-111111111111", memory_free=free, memory_total=total, temperature=44, power=130
    )
    assert (large.memory_total, large.temperature, large.utilization) == (40192 * MIB, 44, None)
    assert (undivided.memory_total, undivided.temperature) == (81920 * MIB, None)
    assert empty.uuid == "GPU-a1000000-3333-4222-8333-444444444444"


def test_strange_names_do_not_matter(on):
    cards = on("strange-names").until(lambda cards: len(cards) == 4)
    assert [(uuid[-1], card.memory_total) for uuid, card in cards.items()] == [
        ("1", 24576 * MIB), ("2", 24576 * MIB), ("3", 24576 * MIB), ("4", None),
    ]  # fmt: skip


@pytest.mark.parametrize("machine", ["init-hangs", "load-hangs"])
def test_a_driver_that_hangs_is_left_at_once(on, machine):
    sampling = on(machine)
    # The time begins with the first look at the samples, which starts the process.
    cancelled = threading.Event()
    ended = []
    sampling._samples = live_samples.yield_changed_samples(cancelled.is_set)
    watcher = threading.Thread(target=lambda: ended.append(list(sampling._samples)), daemon=True)
    watcher.start()
    wait_until(children)
    cancelled.set()
    watcher.join(SOON)
    assert (ended, children()) == ([[]], [])


def test_the_process_is_gone_when_nobody_wants_samples(on):
    sampling = on(changed(TWO, IDLE, memory="!HANG"))
    sampling.until(lambda cards: BUSY in cards)
    assert len(children()) == 1
    sampling.close()
    assert not children()


def test_nothing_is_started_for_who_does_not_want_samples(on, monkeypatch):
    monkeypatch.setattr(live_samples.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    on(TWO)
    assert list(live_samples.yield_changed_samples(lambda: True)) == []


def test_giving_up_ends_it_at_once(on):
    sampling = on(TWO)
    sampling.until(whole(BUSY, IDLE))
    try:
        set_children_cancelled()
        assert (list(sampling._samples), children()) == ([], [])
    finally:
        set_children_cancelled(cancelled=False)


@pytest.mark.whole
def test_a_process_that_falls_silent_is_told_of_each_card(on):
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    (child,) = children()
    child.suspend()
    after = sampling.until(lambda cards: cards[BUSY].problem)
    assert after == {uuid: msgspec.structs.replace(card, problem=NO_RESPONSE_PROBLEM) for uuid, card in before.items()}
    child.resume()
    assert sampling.until(lambda cards: not cards[BUSY].problem) == before
    child.suspend()
    sampling.close()
    assert not children()


@pytest.mark.whole
def test_a_process_that_crashes_is_replaced_later(on, monkeypatch):
    monkeypatch.setattr(live_samples, "_RESTART_DELAY_SECONDS", 7.0)
    monkeypatch.setattr(live_samples, "_MISSING_DRIVER_RETRY_SECONDS", 1000.0)
    sampling = on(TWO)
    before = sampling.until(whole(BUSY, IDLE))
    (child,) = children()
    began = child.create_time()
    child.send_signal(signal.SIGSEGV)
    after = sampling.until(lambda cards: cards[BUSY].problem)
    assert after == {uuid: msgspec.structs.replace(card, problem=NO_RESPONSE_PROBLEM) for uuid, card in before.items()}
    assert not children()
    assert sampling.until(lambda cards: not any(card.problem for card in cards.values()))[BUSY] == before[BUSY]
    (other,) = children()
    assert other.create_time() - began >= 6.9


@pytest.fixture
def starts(monkeypatch):
    """Return the list of when samplers were started."""
    told, start = [], subprocess.Popen

    def noted(*arguments, **more):
        told.append(time.monotonic())
        return start(*arguments, **more)

    monkeypatch.setattr(live_samples.subprocess, "Popen", noted)
    return told


@pytest.fixture
def no_library(monkeypatch, tmp_path):
    # A library of the machine itself is hidden by one that cannot be loaded.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


def for_seconds(seconds):
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() > ends


@pytest.mark.whole
def test_without_a_library_nothing_is_told_and_little_is_done(no_library, starts):
    assert list(live_samples.yield_changed_samples(for_seconds(4))) == []
    assert len(starts) == 1


@pytest.mark.whole
def test_a_driver_that_comes_later_is_found(on, no_library, starts, monkeypatch):
    monkeypatch.setattr(live_samples, "_MISSING_DRIVER_RETRY_SECONDS", 1.0)
    assert list(live_samples.yield_changed_samples(for_seconds(3))) == []
    assert 2 <= len(starts) <= 4
    assert all(later - earlier > 0.95 for earlier, later in itertools.pairwise(starts))
    sampling = on("init = !DRIVER_NOT_LOADED\n")
    timer = threading.Timer(2, sampling.put, [TWO])
    timer.start()
    assert set(sampling.until(whole(BUSY, IDLE))) == {BUSY, IDLE}
    timer.join()


READER = """
from tui_train.facts.gpus.live_samples import yield_changed_samples
for cards in yield_changed_samples(lambda: False):
    print(len(cards), flush=True)
"""


@pytest.mark.whole
@pytest.mark.parametrize("machine", ["two-3090-display-and-busy", "init-hangs"])
def test_the_process_ends_with_its_reader(machine):
    environment = {**os.environ, **driver_environment(machine), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", READER], env=environment, stdout=subprocess.PIPE) as reader:
        try:
            (child,) = wait_until(lambda: children(reader.pid))
            # Its watch over its input has to be there.
            wait_until(lambda: child.num_threads() > 1)
        finally:
            reader.kill()
    psutil.wait_procs([child], timeout=3)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_process_ends_when_nobody_reads_it():
    environment = {**os.environ, **driver_environment("two-3090-display-and-busy")}
    command = [sys.executable, "-m", "tui_train.facts.gpus.sampler"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert b"GPU-" in child.stdout.readline()
            child.stdout.close()
            assert child.wait(5) == 0
        finally:
            child.kill()

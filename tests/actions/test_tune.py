"""Tuning: which settings are tried, what a trial leaves alone, and real trials on the CPU."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import warm
from support import (
    GIB,
    SCRIPTS,
    example_count,
    facts,
    gpu,
    living_run_pids,
    plain_environment,
    prepare_without_errors,
    profile,
    run_cli,
    sample,
    set_variables,
    wait_until,
)

from tests.fake_driver import MACHINES_FOLDER, driver_environment
from tui_train.actions.tune.search import MAX_TRIALS, SearchSpace, Trial, TrialSetting, next_setting, recommended_trial
from tui_train.actions.tune.space import change_to_setting, make_search_space, trial_profile
from tui_train.actions.tune.trial import LocalMemoryWatcher, TrialStepPace
from tui_train.actions.tune.tune import TuningState, result_sentence, trial_rows
from tui_train.base.app_paths import trials_folder
from tui_train.base.command import argv
from tui_train.base.errors import TuiTrainError
from tui_train.facts.gpus import live_samples
from tui_train.memory.verdict import judge_memory
from tui_train.profile import store
from tui_train.runner.queue.listing import list_waiting_starts
from tui_train.runner.queue.tickets import OwnTicket, QueueFolder, ticket_name
from tui_train.runner.queue.turns import ResourceRequest, Ticket
from tui_train.runner.run_folder.lock_owner import this_process_as_owner
from tui_train.runs import run_folders
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.setup.setup import Setup

TOOL = [sys.executable, "-m", "tui_train"]
CARD = facts(gpus=(gpu(0),))
SCRIPT = {"trainer.kind": "script", "trainer.script": str(SCRIPTS / "hf_trainer.py"), "trainer.preset": "custom"}
FILE = {"trainer.kind": "script", "trainer.preset": "llama-factory", "trainer.config": "/t.yaml"}
WORDS = (
    "--output_dir={output}",
    "--per_device_train_batch_size={micro_batch}",
    "--gradient_accumulation_steps={accumulation}",
    "--max_steps={steps}",
    "--save_steps={checkpoint_every}",
)


class Card:
    """A card and a model made up at random: how fast it is, what it holds, and how far off the estimate is."""

    def __init__(self, chance):
        self.micros = tuple(2**place for place in range(chance.randint(1, 9)))
        self.overhead, self.bend = chance.uniform(0, 4), chance.choice([0, 0, chance.uniform(0, 0.02)])
        self.slower, self.base = chance.uniform(0.68, 0.85), chance.uniform(1, 20)
        self.each, self.kept = chance.uniform(0.3, 8), chance.uniform(0.1, 0.5)
        self.off, self.known = chance.uniform(0.87, 1.15), chance.random() < 0.85
        self.own = TrialSetting(chance.choice(self.micros), checkpointing=False, precision="bf16")
        self.noise = lambda: chance.uniform(0.997, 1.003)

    def memory(self, one):
        return self.base + one.micro_batch * self.each * (self.kept if one.checkpointing else 1)

    def rate(self, one):
        time = self.overhead / one.micro_batch + 1 + self.bend * one.micro_batch
        return (self.slower if one.checkpointing else 1) / time

    def space(self):
        grid = [TrialSetting(micro, saving, "bf16") for micro in self.micros for saving in (False, True)]
        sizes = {one: int(self.memory(one) * self.off * GIB) for one in grid} if self.known else {}
        return grid, SearchSpace(
            profile_setting=self.own,
            global_batch=64,
            micro_batches=self.micros,
            precisions=("bf16",),
            checkpointing=True,
            fit_bands={
                one: judge_memory(size, size, 24 * GIB, several_processes=False).band for one, size in sizes.items()
            },
            settings_that_cannot_fit=frozenset(one for one, size in sizes.items() if size * 0.85 > 24 * GIB),
        )

    def tried(self, one):
        if self.memory(one) > 24:
            return Trial(setting=one, outcome="out of memory")
        return Trial(setting=one, outcome="measured", rate=self.rate(one) * self.noise())


def test_few_trials_find_what_a_full_grid_would():
    chance = random.Random(7)
    most = 0
    for _ in range(example_count(1500)):
        card = Card(chance)
        grid, among = card.space()
        fitting = [card.rate(one) for one in grid if card.memory(one) <= 24]
        trials = ()
        while wanted := next_setting(among, trials):
            assert wanted not in {trial.setting for trial in trials} | among.settings_that_cannot_fit
            trials += (card.tried(wanted),)
        most = max(most, len(trials))
        found = recommended_trial(trials)
        assert (card.rate(found.setting) if found else 0) >= 0.97 * max(fitting, default=0)
    assert most <= MAX_TRIALS


def measured(micro, rate, *, saving=False, precision="fp32"):
    return Trial(setting=TrialSetting(micro, saving, precision), outcome="measured", rate=rate)


def test_of_those_as_fast_the_one_with_most_room_is_best():
    assert recommended_trial((measured(8, 100.0), measured(4, 99.5), measured(2, 90.0))).setting.micro_batch == 4
    assert (
        recommended_trial((Trial(setting=TrialSetting(1, checkpointing=False, precision="fp32"), outcome="failed"),))
        is None
    )


def test_where_the_first_fails_by_itself_nothing_else_is_tried():
    chosen = profile()
    among = make_search_space(Setup(chosen, CARD))
    assert next_setting(among, (Trial(setting=among.profile_setting, outcome="failed"),)) is None
    assert next_setting(among, (Trial(setting=among.profile_setting, outcome="out of memory"),))


def test_another_precision_is_tried_only_when_it_is_named():
    chosen = profile()
    among = make_search_space(Setup(chosen, CARD), ("bf16", "fp32"))
    assert among.precisions == ("fp32", "bf16")
    trials = (measured(8, 10.0), measured(16, 11.0), measured(16, 20.0, precision="bf16"))
    assert next_setting(among, trials[:1]).precision == "bf16"
    assert next_setting(among, trials) == TrialSetting(8, checkpointing=False, precision="bf16")
    assert make_search_space(Setup(chosen, CARD)).precisions == ("fp32",)


@pytest.mark.parametrize(
    ("values", "micros"),
    [
        ({"recipe.global_batch": 64}, [1, 2, 4, 8, 16, 32, 64]),
        ({"recipe.global_batch": 60, "recipe.micro_batch": 4}, [1, 2, 4, 6, 10, 15, 30, 60]),
        ({"recipe.global_batch": 34, "recipe.micro_batch": 17}, [1, 2, 17, 34]),
        # On the CPU what is predicted not to fit is not tried: the host would end other programs.
        ({"recipe.global_batch": 2**14, "recipe.sequence_length": 8192}, [1, 2, 4, 8, 16]),
    ],
)
def test_micro_batches_divide_and_lie_apart(values, micros):
    chosen = profile({"recipe.micro_batch": 4, **values})
    here = facts()
    here = msgspec.structs.replace(here, machine=msgspec.structs.replace(here.machine, memory_available=4 * GIB))
    found = make_search_space(Setup(chosen, here)).micro_batches
    assert list(found) == micros
    assert all(values["recipe.global_batch"] % micro == 0 for micro in found)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nodes.count": 2, "nodes.address": "h", "recipe.global_batch": 32}, "on one machine"),
        ({**SCRIPT, "trainer.arguments": ("--x",)}, "the batch of this script cannot be set"),
        ({**SCRIPT, "trainer.arguments": WORDS[1:]}, "takes its output folder from elsewhere"),
        ({**SCRIPT, "trainer.preset": "total-batch"}, "takes its output folder from elsewhere"),
        ({**SCRIPT, "trainer.preset": "hf-trainer", "trainer.arguments": ("--output_dir", "/my")}, "_dir /my in"),
        ({**SCRIPT, "trainer.preset": "hf-trainer", "trainer.arguments": ("--output-dir=/my",)}, "--output-dir=/my in"),
        ({**FILE, "trainer.arguments": ("output_dir=/my",)}, "output_dir=/my in your"),
        ({"recipe.micro_batch": 5, "recipe.global_batch": 12}, "no multiple of the micro batch"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused(values, said):
    chosen = profile(values)
    with pytest.raises(TuiTrainError, match=said):
        make_search_space(Setup(chosen, facts()))


def test_an_own_script_may_need_less_than_is_predicted():
    """It is tried although nothing of it is predicted to fit, about as large as it is."""
    words = {"trainer.preset": "hf-trainer", "trainer.arguments": ("--model_name_or_path=NousResearch/Llama-2-7b-hf",)}
    chosen = profile({**SCRIPT, **words, "recipe.micro_batch": 1, "recipe.global_batch": 64})
    among = make_search_space(Setup(chosen, CARD))
    assert {*among.fit_bands.values()} == {"will not fit"}
    assert next_setting(among, ()) == among.profile_setting


def test_where_nothing_is_predicted_steps_stay_small():
    chosen = profile({**SCRIPT, "trainer.arguments": WORDS, "recipe.micro_batch": 4, "recipe.global_batch": 4096})
    assert make_search_space(Setup(chosen, CARD)).micro_batches == (1, 2, 4, 8, 16, 32)
    with pytest.raises(TuiTrainError, match="passes no precision"):
        make_search_space(Setup(chosen, CARD), ("bf16",))


def test_too_slow_is_no_lack_of_memory():
    chosen = profile({"recipe.global_batch": 8})
    among = make_search_space(Setup(chosen, CARD))
    slow = Trial(setting=TrialSetting(8, checkpointing=False, precision="fp32"), outcome="failed", why="no two steps")
    assert next_setting(among, (measured(4, 10.0), slow, measured(2, 9.0))) is None


def test_trials_have_one_global_batch_and_a_folder_of_their_own():
    values = {"trainer.output": "/mine", "recipe.global_batch": 96, "recipe.micro_batch": 4, "hardware.processes": 2}
    chosen = profile({**values, "trainer.launcher": "torchrun", "recipe.lr_scaling": "linear"})
    among = make_search_space(Setup(chosen, facts()))
    batches = set()
    for micro in among.micro_batches:
        one = TrialSetting(micro, checkpointing=False, precision="fp32")
        short = trial_profile(one, among, Setup(chosen, facts()), "/trial")
        made = prepare_without_errors(short, facts()).plan
        said = dict(word.split("=", 1) for word in argv(made.attempts[0].command, "/run") if "=" in word)
        assert len(made.attempts) == 1
        assert said["--output_dir"] == "/run/output"
        assert int(said["--per_device_train_batch_size"]) == micro
        batches.add(micro * int(said["--gradient_accumulation_steps"]) * 2)
        assert made.global_batch in batches
        assert {item.name: item.value for item in made.attempts[0].command.env}["WANDB_MODE"] == "disabled"
    assert len(batches) == 1


FIVE = [(1, 10.0), (2, 15.0), (3, 16.0), (4, 17.0), (5, 18.0)]


@pytest.mark.parametrize(
    ("records", "known", "seconds"),
    [
        # The first steps do not count.
        (FIVE, False, 1.0),
        ([*FIVE, (6, 19.0)], True, 1.0),
        # However many there are, they must take their time.
        ([(step, step / 40) for step in range(1, 100)], False, 1 / 40),
        # Slow steps are timed as far as there are any.
        ([(1, 10.0)], False, 0.0),
        ([(1, 10.0), (2, 70.0)], False, 60.0),
        # A bar that jumps is divided by all the steps that it jumped over.
        ([(5, 0.0), (15, 1.0), (60, 4.0)], True, 3 / 45),
    ],
)
def test_the_pace_of_steps(records, known, seconds):
    pace = TrialStepPace()
    for step, now in records:
        assert not pace.is_known
        pace.record(step, now)
    assert (pace.is_known, pace.step_seconds) == (known, pytest.approx(seconds))


def test_the_change_says_what_it_gains():
    own = measured(8, 100.0, saving=True)
    among = SearchSpace(
        profile_setting=own.setting,
        global_batch=32,
        micro_batches=(8,),
        precisions=("fp32",),
        checkpointing=True,
        fit_bands={},
    )
    change = change_to_setting(measured(16, 150.0), among, own)
    assert change.title == "micro batch 8 -> 16, without activation checkpointing"
    assert change.why.startswith("1.50 times as fast")
    assert dict(change.edits) == {
        "recipe.micro_batch": 16, "recipe.activation_checkpointing": False, "recipe.global_batch": 32,
    }  # fmt: skip
    assert change_to_setting(own, among, own) is None
    # What is as fast as far as one can tell is no gain.
    assert change_to_setting(measured(4, 100.5), among, own) is None
    lost = Trial(setting=own.setting, outcome="out of memory")
    assert "it fits" in change_to_setting(measured(4, 90.0), among, lost).why


def test_words_of_a_trial_are_safe_to_show(tmp_path):
    trial = Trial(setting=TrialSetting(8, checkpointing=False, precision="fp32"), outcome="failed", why="\x1b[31mred")
    now = TuningState(folder=tmp_path, trials=(trial,))
    assert "\x1b" not in result_sentence(now) + str(trial_rows(now))


@pytest.mark.whole
def test_the_fullest_of_the_chosen_cards_counts(tmp_path, monkeypatch):
    """The real sampler on a fake driver: the card that shows the desktop is not one of those that train."""
    path = tmp_path / "machine.txt"
    path.write_text((MACHINES_FOLDER / "two-3090-display-and-busy.txt").read_text())
    set_variables(monkeypatch, driver_environment(path))
    both = {card.uuid: card for card in next(live_samples.yield_changed_samples(lambda: False))}
    idle, busy = sorted(both, key=lambda uuid: both[uuid].memory_total - both[uuid].memory_free)
    for cards, fullest in (((idle,), idle), ((idle, busy), busy)):
        memory = LocalMemoryWatcher(RunFolder(tmp_path), cards)
        wait_until(lambda memory=memory: memory.peak is not None)
        memory.end()
        assert memory.peak == both[fullest].memory_total - both[fullest].memory_free


def tunes(folder, **values):
    """A saved profile whose training runs out of memory above a micro batch of two, and its output folder."""
    more = ("--use_cpu=True", "--report_to=none", "--memory_for=2", "--fails_in_step=2")
    given = {**SCRIPT, "trainer.arguments": (*WORDS, *more), "trainer.output": str(folder / "mine")}
    given |= {"trainer.python": warm.training(), "recipe.micro_batch": 4, "recipe.global_batch": 4}
    values = given | {"recipe.steps": 60, "recipe.checkpoint_every": 60} | values
    path = folder / "slow.toml"
    path.write_text(store.profile_to_toml(profile({"name": "slow", **values})))
    return path


def started(path, *more):
    """The command, in an environment with the folders of this test."""
    folders = {name: value for name, value in os.environ.items() if name.startswith(("XDG_", "TUI_TRAIN_QUEUE"))}
    environment = plain_environment(**folders, HF_HUB_OFFLINE="1")
    return subprocess.Popen(
        [*TOOL, "tune", str(path), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.whole
def test_real_trials_find_what_fits_and_leave_nothing_behind(tmp_path):
    # Its memory is that of its own process.
    path = tunes(tmp_path, **{"trainer.python": sys.executable})
    done = started(path, "--json")
    said, wrong = done.communicate(timeout=240)
    assert (done.returncode, wrong) == (0, "")
    told = json.loads(said)
    tried = {trial["setting"]["micro_batch"]: trial["outcome"] for trial in told["trials"]}
    assert tried == {4: "out of memory", 2: "measured", 1: "measured"}
    assert told["change"]["recipe.micro_batch"] in {1, 2}
    assert all(trial["memory"] > 2**26 for trial in told["trials"])
    kept = json.loads(Path(told["folder"], "trials.json").read_text())
    assert kept["trials"] == told["trials"]
    assert not (tmp_path / "mine").exists()
    assert not run_folders.list_runs()
    for trial in Path(told["folder"]).glob("trial-*"):
        assert not (trial / "output").exists()
        assert not living_run_pids(read_status(RunFolder(trial)).mark)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("number", "code"), sample([(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], 2)
)
def test_whoever_ends_it_ends_the_trial_as_well(tmp_path, number, code):
    path = tunes(tmp_path, **{"recipe.steps": 1000})
    process = started(path)
    wait_until(lambda: [*trials_folder().glob("*/trial-1/attempt-1.log")], 60)
    run = RunFolder(next(trials_folder().glob("*/trial-1")))
    wait_until(lambda: read_status(run).leader, 20)
    # Nobody else would end it, were this program killed.
    parent = Path(f"/proc/{read_status(run).pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")[2] == b"240"
    process.send_signal(number)
    said, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (code, "")
    assert ("Stopped before a trial was timed." in said) == (number == signal.SIGINT)
    assert not living_run_pids(read_status(run).mark)


@pytest.fixture
def taken():
    """The ticket of a run that has all CPU cores."""
    owner = this_process_as_owner("before", "/runs/before")
    everything = ResourceRequest(cores=9999)
    own = OwnTicket(QueueFolder(make=True), Ticket(ticket_name("before"), os.geteuid(), owner, everything, cores=9999))
    yield own
    own.release()


def names_in_queue():
    folder = QueueFolder(make=True)
    found = [(Path(ticket.owner.folder).name, ticket.waits) for ticket in folder.tickets()]
    folder.close()
    return [each for each in found if each[0] != "before"]


def test_trials_wait_for_their_turn_and_ctrl_c_leaves_the_queue(tmp_path, taken):
    process = started(tunes(tmp_path), "--when-free")
    wait_until(lambda: process.poll() is not None or names_in_queue(), 60)
    ((name, waits),) = names_in_queue()
    assert (name.endswith("-slow"), waits) == (True, True)
    assert "before (" in process.stdout.readline()
    other = OwnTicket(
        QueueFolder(make=True),
        Ticket(
            ticket_name("x"), os.geteuid(), this_process_as_owner("x", "/runs/x"), ResourceRequest(cores=1), waits=True
        ),
    )
    for place, order in (("last", ["x", name]), ("first", [name, "x"])):
        run_cli("queue", place, name)
        assert [start.run for start in list_waiting_starts()] == order
    other.release()
    process.send_signal(signal.SIGINT)
    said, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (130, "")
    assert "Stopped while it waited for its turn." in said
    assert names_in_queue() == []
    assert not [*trials_folder().glob("*/*")]


@pytest.mark.whole
def test_who_kills_what_waits_takes_it_out_of_the_queue(tmp_path, taken):
    process = started(tunes(tmp_path), "--when-free")
    wait_until(lambda: process.poll() is not None or names_in_queue(), 60)
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not names_in_queue(), 60)


@pytest.mark.whole
def test_trials_hold_their_turn_until_all_are_done(tmp_path, taken):
    process = started(tunes(tmp_path, **{"trainer.python": sys.executable}), "--when-free", "--json")
    wait_until(lambda: process.poll() is not None or names_in_queue(), 60)
    taken.change(cores=0)
    wait_until(lambda: [*trials_folder().glob("*/trial-2/events.jsonl")], 120)
    assert [waits for name, waits in names_in_queue() if name.endswith("-slow")] == [False]
    said, wrong = process.communicate(timeout=240)
    assert process.returncode == 0, wrong
    assert len(json.loads(said)["trials"]) > 1
    assert names_in_queue() == []


@pytest.mark.whole
def test_a_script_that_fails_says_why(tmp_path):
    path = tunes(tmp_path, **{"trainer.script": str(SCRIPTS / "parse.py")})
    done = started(path)
    said, _ = done.communicate(timeout=120)
    assert done.returncode == 1
    assert "Its log: /" in said
    assert "No trial could be timed: JSON is malformed: Expecting value: line 1 column 1 (char 0)" in said

"""Many at once: of those that want one thing exactly one gets it; TUI_TRAIN_TEST_RACES says how many races."""

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from support import (
    create_run,
    living_run_pids,
    profile,
    sample,
    sleeper_profile,
    wait_until,
)
from try_counts import count_tries

from tui_train.base.app_paths import profiles_folder
from tui_train.base.errors import TuiTrainError
from tui_train.profile import store
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import list_runs
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training
HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_RACES", "6"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
# A race has so many runners.
RUNNERS = 5
# Commands of one process that has imported what they need: they begin together, and its locks are nobody else's.
TOGETHER = """
import json, os, sys
import tui_train.cli.app, tui_train.cli.plans.plans
import tui_train.cli.runs.run_and_resume, tui_train.actions.last_profile, tui_train.checks
from tui_train.__main__ import main
asked = json.load(sys.stdin)
hold, release = os.pipe()
pids = []
for number, words in enumerate(asked):
    pid = os.fork()
    if pid == 0:
        os.close(release)
        os.read(hold, 1)
        file = os.open(f"{sys.argv[1]}/{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(file, 1); os.dup2(file, 2); os.closerange(3, 50)
        sys.argv = ["tui-train", *words]
        code = 99
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    pids.append(pid)
os.close(release)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""


@pytest.fixture
def together(tmp_path):
    """Carry out commands at once; return the exit code and the words of each."""

    def carry_out(*commands):
        folder = tmp_path / f"said-{time.monotonic_ns()}"
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", TOGETHER, str(folder)],
            input=json.dumps(commands), capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return [(code, (folder / str(number)).read_text()) for number, code in enumerate(json.loads(done.stdout))]

    yield carry_out
    for run in list_runs():
        stop_local_run(run, at_once=True)


def alone(run):
    """The run trains once: one supervisor, one attempt, and no line of another training in its log."""
    wait_until(lambda: "attempt_started" in {event.event for event in run.events()}, 60)
    names = [event.event for event in run.events()]
    assert names.count("run_started") == names.count("attempt_started") == 1, names
    wait_until(lambda: b"tick 1\n" in run.attempt_log(1).read_bytes(), 60)
    assert run.attempt_log(1).read_bytes().count(b"tick 1\n") == 1
    assert not run.attempt_log(2).exists()


def of_replaced_profiles(together, chance, number):
    """One that is replaced again and again is whole whenever it is read."""
    name = f"replaced{number}"
    store.save_profile(profile({"name": name, "recipe.steps": 1}))
    commands = [("new", name, "--force", "--set", f"recipe.steps={steps}") for steps in range(2, 5)]
    ended = together(*commands, ("profiles",), ("plan", name))
    assert [code for code, _ in ended] == [0] * 5, ended
    assert store.load_profile_file(name).recipe.steps in {2, 3, 4}


def of_one_output(together, chance, number):
    """Of runs of one profile with an output folder of its own one starts."""
    name = f"output{number}"
    folder = profiles_folder() / f"out{number}"
    store.save_profile(sleeper_profile("--seconds=600", name=name, **{"trainer.output": str(folder)}))
    before = set(list_runs())
    ended = together(*[("run", name, "--detach")] * RUNNERS)
    codes = [code for code, _ in ended]
    assert codes.count(0) == 1, ended
    assert set(codes) <= {0, 69, 75}, ended
    assert not any("Traceback" in said for _, said in ended), ended
    made = set(list_runs()) - before
    live = [run for run in made if read_status(run).is_live]
    assert len(live) == 1
    alone(live[0])
    stop_local_run(live[0], at_once=True)


def of_one_profile(together, chance, number):
    """Runs of one profile get a folder each, and all train, in it alone."""
    name = f"profile{number}"
    store.save_profile(sleeper_profile("--seconds=600", name=name))
    before = set(list_runs())
    ended = together(*[("run", name, "--detach")] * RUNNERS)
    assert [code for code, _ in ended] == [0] * RUNNERS, ended
    made = set(list_runs()) - before
    assert len(made) == RUNNERS
    for run in made:
        alone(run)
    for run in made:
        stop_local_run(run, at_once=True)


def of_one_run(together, chance, number):
    """Of those that resume one run one does, whoever asks and by whatever program."""
    run = create_run(sleeper_profile("--seconds=600", name=f"run{number}"))
    scripts = [
        subprocess.Popen(
            ["bash", str(run.launch_script)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for _ in range(chance.choice((0, 0, 2)))
    ]  # fmt: skip
    ended = together(*[("resume", run.name, "--detach")] * (RUNNERS - len(scripts)))
    wait_until(lambda: read_status(run).is_live, 60)
    winners = sum(code == 0 for code, _ in ended)
    assert winners <= 1 if scripts else winners == 1, ended
    assert not any("Traceback" in said for _, said in ended), ended
    if scripts:
        wait_until(lambda: sum(script.poll() is None for script in scripts) == 1 - winners, 60)
    alone(run)
    stop_local_run(run, at_once=True)
    for script in scripts:
        script.wait(60)


def of_a_stop_and_the_end(together, chance, number):
    """Stops that come as a training ends find it finished or stop it; it ends once."""
    code = chance.choice((0, 3))
    run = create_run(
        sleeper_profile(f"--seconds={chance.uniform(0.2, 0.6):.2f}", f"--code={code}", name=f"end{number}")
    )
    start_run(run)
    time.sleep(chance.uniform(0.0, 0.8))
    errors = []

    def end(at_once):
        try:
            stop_local_run(run, at_once=at_once)
        except TuiTrainError as error:
            errors.append(error)

    threads = [threading.Thread(target=end, args=(at_once,)) for at_once in (False, False, chance.random() < 0.3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    names = [event.event for event in run.events()]
    assert names.count("run_ended") == 1, names
    assert names[-1] == "run_ended"
    now = read_status(run)
    assert now.state in {"stopped", "failed" if code else "finished"}
    assert now.state != "finished" or now.exit_code == 0
    assert living_run_pids(now.mark) == ()


RACES = (of_one_output, of_replaced_profiles, of_one_run, of_one_profile, of_a_stop_and_the_end)


@pytest.mark.whole
@pytest.mark.timeout(600 + HOW_MANY * 10)
@pytest.mark.parametrize("race", sample(RACES, 2), ids=lambda race: race.__name__)
def test_of_many_at_once_one_gets_it(race, together, record_property, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "2")
    with count_tries(record_property, f"races: {race.__name__.replace('_', ' ')}") as made:
        for number in range(max(1, -(-HOW_MANY // len(RACES)))):
            with made.one(f"race {number}, seed {SEED}"):
                race(together, random.Random(f"{SEED} {number}"), number)

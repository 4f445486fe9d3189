"""The cards where a run starts: those of the plan, others in their place, and an nvidia-smi that takes its time."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from support import SCRIPTS, UUIDS, facts, gpu, plain_environment, profile, ready, until

from tui_train.base.errors import Unavailable
from tui_train.runner import commands, gpus
from tui_train.runner.planned import Planned
from tui_train.runner.processes import start_ticks
from tui_train.runner.refused import Refused
from tui_train.runs import rundir
from tui_train.runs.results.resuming import resumption
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import restart_note, start
from tui_train.runs.status import status
from tui_train.runs.stop import stop_run
from tui_train.targets.here import submit_here

WHOLE = f"""GPU 0: NVIDIA GeForce RTX 3090 (UUID: {UUIDS[0]})
GPU 1: NVIDIA GeForce RTX 3090 (UUID: {UUIDS[1]})"""
MIG = ("MIG-0c1bd74b-8a41-5e2a-8f4a-2f3bc5a1d001", "MIG-GPU-0c1bd74b-8a41-5e2a-8f4a-2f3bc5a1d002/1/0")
PARTED = f"""GPU 0: NVIDIA A100 (UUID: GPU-parted)
  MIG 3g.20gb     Device  0: (UUID: {MIG[0]})
  MIG 3g.20gb     Device  1: (UUID: {MIG[1]})"""
PLANNED = Planned(gpus=UUIDS, gpu_names=("NVIDIA GeForce RTX 3090",) * 2, world_size=2)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Return what puts an nvidia-smi on PATH: what it lists, and what it says of processes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(listed="", users="", before=""):
        (folder / "listed").write_text(f"{listed}\n" if listed else "")
        (folder / "users").write_text(users)
        file = folder / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n{before}\ncase $1 in -L) cat {folder}/listed ;; *) cat {folder}/users ;; esac\n")
        file.chmod(0o755)
        return folder

    return put


@pytest.fixture
def impatient(monkeypatch):
    """Wait a moment where half a minute would be waited."""
    monkeypatch.setattr(gpus, "_ANSWER_SECONDS", 0.3)


def check(cards, planned=PLANNED):
    """Return what is said of cards that are looked at."""
    said = []
    gpus.require_cards(planned, cards, said.append)
    return said


def test_the_cards_of_the_plan_are_taken_where_they_are(smi):
    smi(WHOLE)
    assert gpus.choose_cards(PLANNED, "", 0) == UUIDS
    assert check(UUIDS) == []


def test_a_card_that_is_not_there_is_named_with_those_that_are(smi):
    smi(WHOLE.splitlines()[0])
    with pytest.raises(Refused) as refused:
        check(UUIDS)
    assert refused.value.code == 69
    assert refused.value.message == (
        f"the GPU {UUIDS[1]} (NVIDIA GeForce RTX 3090) is not there: this machine has GPU 0 NVIDIA GeForce RTX 3090 "
        f"{UUIDS[0]}. Take others with --gpus=UUID,…"
    )
    smi("")
    with pytest.raises(Refused, match="this machine has none"):
        check(UUIDS[:1])


def test_others_are_taken_on_one_machine_too(smi):
    smi(WHOLE)
    one = Planned(gpus=("GPU-of-another-machine",), world_size=1)
    assert gpus.choose_cards(one, UUIDS[1], 0) == UUIDS[1:]
    assert check(UUIDS[1:], one) == []
    with pytest.raises(Refused, match=r"the GPU GPU-0 \(chosen here\) is not there"):
        check(("GPU-0",), one)


def test_parts_of_a_card_are_chosen_like_cards(smi):
    smi(PARTED)
    for uuid in MIG:
        one = Planned(gpus=("GPU-x",), world_size=1)
        assert gpus.choose_cards(one, uuid, 0) == (uuid,)
        assert check([uuid], one) == []
    # A card that is parted trains nothing itself, and which of its parts is meant is not guessed.
    two = Planned(gpus=("GPU-x",), world_size=2, nodes=2)
    with pytest.raises(Refused, match=rf"this one has: GPU 0 NVIDIA A100 GPU-parted, MIG 3g.20gb +Device +0 {MIG[0]}"):
        gpus.choose_cards(two, "", 1)


@pytest.mark.parametrize(
    ("option", "code", "part"),
    [
        ("0,1", 64, "0 is no UUID (GPU-… or MIG-…), and a number means another GPU to other programs: there"),
        ("0,1", 64, UUIDS[1]),
        ("RTX,3090", 64, "RTX is no UUID"),
        ("GPU-a", 64, "--gpus names 1, and this trains on 2"),
        ("GPU-a,GPU-a", 64, "--gpus=GPU-a,GPU-a names GPU-a twice"),
        ("GPU-a,", 64, "names a GPU that is empty or has a space"),
        ("GPU-a, GPU-b", 64, "names a GPU that is empty or has a space"),
        ("GPU-a,GPU-\x1b[31m", 64, "is no UUID"),
    ],
)  # fmt: skip
def test_what_is_no_choice_is_refused(smi, option, code, part):
    smi(WHOLE)
    with pytest.raises(Refused) as refused:
        gpus.choose_cards(PLANNED, option, 0)
    assert (refused.value.code, part in refused.value.message) == (code, True), refused.value.message
    assert "\x1b" not in refused.value.message


def test_on_the_cpu_there_is_no_choice():
    assert gpus.choose_cards(Planned(), "", 0) == ()
    with pytest.raises(Refused, match="--gpus=GPU-a: this trains on the CPU"):
        gpus.choose_cards(Planned(), "GPU-a", 0)


def test_another_machine_takes_all_that_it_has(smi, impatient):
    several = PLANNED._replace(nodes=2, world_size=4)
    smi(WHOLE.replace("GPU-", "GPU-b"))
    assert gpus.choose_cards(several, "", 1) == tuple(uuid.replace("GPU-", "GPU-b") for uuid in UUIDS)
    smi(WHOLE.splitlines()[0])
    with pytest.raises(Refused, match=f"each machine trains on 2 GPUs, and this one has: .*{UUIDS[0]}; choose"):
        gpus.choose_cards(several, "", 1)
    smi(WHOLE, before="exec sleep 60")
    with pytest.raises(Refused, match="nvidia-smi does not answer: name the GPUs"):
        gpus.choose_cards(several, "", 1)


def test_another_machine_leaves_cards_out_that_are_not_of_the_plan(smi):
    several = PLANNED._replace(nodes=2, world_size=4)
    display = "\nGPU 2: NVIDIA GeForce GT 1030 (UUID: GPU-display)"
    smi(WHOLE + display)
    assert gpus.choose_cards(several, "", 1) == UUIDS
    smi(WHOLE.splitlines()[0] + display)
    assert gpus.choose_cards(several, "", 1) == (UUIDS[0], "GPU-display")
    smi(f"{WHOLE}\nGPU 3: NVIDIA GeForce RTX 3090 (UUID: GPU-third){display}")
    with pytest.raises(Refused, match="each machine trains on 2 GPUs"):
        gpus.choose_cards(several, "", 1)


def test_the_cards_that_the_plan_has_for_another_machine_are_taken(smi):
    several = PLANNED._replace(nodes=2, world_size=4, others=(UUIDS[::-1],))
    smi(WHOLE)
    assert gpus.choose_cards(several, "", 0) == UUIDS
    assert gpus.choose_cards(several, "", 1) == UUIDS[::-1]


def test_other_cards_are_taken_where_a_machine_no_longer_has_those_of_the_plan(smi):
    several = PLANNED._replace(nodes=2, world_size=4, others=(("GPU-x", UUIDS[0]),))
    smi(WHOLE)
    assert gpus.choose_cards(several, "", 1) == UUIDS


def test_each_machine_has_its_own_number_of_cards(smi):
    several = PLANNED._replace(nodes=3, world_size=5, uneven=(2, 1, 2))
    smi(WHOLE.splitlines()[0])
    assert gpus.choose_cards(several, "", 1) == UUIDS[:1]
    with pytest.raises(Refused, match="this machine trains on 2 GPUs, and this one has: "):
        gpus.choose_cards(several, "", 2)
    with pytest.raises(Refused, match="--gpus names 2, and this trains on 1"):
        gpus.choose_cards(several, ",".join(UUIDS), 1)


@pytest.mark.parametrize("before", ["exit 9", "exec sleep 60", "trap '' TERM; sleep 60 & sleep 60"])
def test_an_nvidia_smi_that_does_not_answer_is_said_and_left_behind(smi, impatient, before):
    smi(WHOLE, before=before)
    began = time.monotonic()
    assert check(UUIDS) == ["nvidia-smi does not answer: the GPUs are not looked at first"]
    assert gpus.compute_pids(UUIDS) is None
    said = []
    gpus.wait_until_free(UUIDS, (), 60.0, said.append)
    assert said == ["nvidia-smi does not answer: goes on without a look whether the GPUs are empty"]
    assert time.monotonic() - began < 10


def test_a_machine_without_nvidia_smi_trains_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check(UUIDS) == ["nvidia-smi does not answer: the GPUs are not looked at first"]


def test_who_computes_on_the_cards(smi):
    smi(users=f"{UUIDS[0]}, 42\nGPU-other, 7\n{UUIDS[1]}, 43\n{UUIDS[1]}, [N/A]\n")
    assert gpus.compute_pids(UUIDS) == (42, 43)
    assert gpus.compute_pids(UUIDS[1:]) == (43,)
    assert gpus.compute_pids(()) == ()


def test_cards_are_waited_for_until_they_are_empty(smi):
    folder = smi(users=f"{UUIDS[0]}, 42\n{UUIDS[0]}, 7\n")
    said = []
    began = time.monotonic()
    gpus.wait_until_free(UUIDS, (7,), 0.7, said.append)
    assert time.monotonic() - began >= 0.7
    assert said == ["a GPU is not empty after 0 s (process 42): goes on all the same"]
    with subprocess.Popen(["/bin/sh", "-c", f"sleep 0.7; echo '{UUIDS[0]}, 7' > {folder}/users"]):
        began = time.monotonic()
        gpus.wait_until_free(UUIDS, (7,), 60.0, said.append)
    assert len(said) == 1
    assert 0.4 < time.monotonic() - began < 20


def test_a_stop_ends_the_waiting(smi, monkeypatch):
    smi(WHOLE, users=f"{UUIDS[0]}, 42\n", before="exec sleep 60")
    monkeypatch.setattr(commands, "interrupted", lambda: True)
    said = []
    began = time.monotonic()
    gpus.wait_until_free(UUIDS, (), 60.0, said.append)
    gpus.require_cards(PLANNED, UUIDS, said.append)
    assert (said, time.monotonic() - began < 5) == ([], True)


# ---- other programs


def test_a_program_answers_and_its_words_are_bounded():
    answer = commands.run(("sh", "-c", "echo out; echo err >&2; cat; exit 3"), 20)
    assert answer == (3, "out\n", "err\n")
    answer = commands.run(("sh", "-c", "yes | head -c 5000000; echo end >&2"), 60)
    assert (answer.code, len(answer.out), answer.err) == (0, 1 << 20, "end\n")
    assert commands.run(("sh", "-c", "kill -9 $$"), 20).code == 137
    assert commands.run(("env",), 20, {"PATH": os.environ["PATH"], "A": "b"}).out.splitlines()[-1] == "A=b"
    assert commands.run(("not-there",), 20).code is None


def test_a_program_that_is_out_of_time_goes_with_all_that_it_started():
    began = time.monotonic()
    answer = commands.run(("sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"), 0.5)
    assert (answer.code, time.monotonic() - began < 10) == (None, True)
    until(lambda: start_ticks(int(answer.out)) is None)


def test_a_program_that_leaves_another_with_its_output_is_not_waited_for():
    began = time.monotonic()
    answer = commands.run(("sh", "-c", "sleep 3 & echo $!"), 60)
    assert (answer.code, time.monotonic() - began < 2) == (0, True)
    assert start_ticks(int(answer.out)) is not None


def test_a_program_has_nothing_of_ours_open_and_no_signal_ignored():
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        told = commands.run(("sh", "-c", "ls -l /proc/$$/fd; grep SigIgn /proc/$$/status"), 20).out
    finally:
        os.close(read)
        os.close(write)
    links = [line.split(" -> ")[1] for line in told.splitlines() if " -> " in line]
    assert links[0] == "/dev/null"
    assert len(links) == 3
    assert int(told.split("SigIgn:")[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_an_answer_that_is_of_no_use_is_not_waited_for(monkeypatch):
    wanted = []
    monkeypatch.setattr(commands, "interrupted", lambda: bool(wanted))
    before = signal.signal(signal.SIGALRM, lambda *_: wanted.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        began = time.monotonic()
        assert commands.run(("sleep", "60"), 60).code is None
        assert time.monotonic() - began < 5
        assert commands.run(("sleep", "0.2"), 60, interruptible=False).code == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_asking_costs_little_at_the_start():
    """It stands between `bash launch.sh` and the training."""
    code = (
        "import sys, time; began = time.perf_counter(); from tui_train.runner import commands, gpus, container;"
        "print('subprocess' in sys.modules, 'threading' in sys.modules, 'socket' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "False False False\n"


# ---- a start that takes its time


def sleeping(folder, *words):
    """A profile that sleeps on a card, and the machine that has it."""
    values = {
        "trainer.kind": "script",
        "trainer.preset": "custom",
        "trainer.launcher": "python",
        "trainer.script": str(SCRIPTS / "sleeper.py"),
        "trainer.arguments": words or ("--seconds=60",),
        "hardware.gpus": UUIDS[:1],
        "ladder.rungs": (),
    }
    return profile(values), facts(gpus=(gpu(0), gpu(1)))


def test_a_start_waits_as_long_as_it_lives(smi, tmp_path, monkeypatch):
    """nvidia-smi and an engine may take minutes between them; the folder stays, and the training begins."""
    monkeypatch.setattr(time, "monotonic", _fast(time.monotonic))
    smi(WHOLE, before="sleep 2")
    prepared = ready(*sleeping(tmp_path))
    run = submit_here(prepared, prepared.plan)
    try:
        assert run.script.is_file()
        assert status(run).live
        assert run.events()[0].event == "run_started"
    finally:
        stop_run(run, at_once=True)


def _fast(clock):
    """A clock on which two seconds are two minutes."""
    return lambda: clock() * 60


def test_a_detached_run_is_waited_for_as_people_start_it(smi, tmp_path):
    smi(WHOLE, before="sleep 1")
    run = RunDir(tmp_path / "run")
    rundir.export(run.path, ready(*sleeping(tmp_path)).files)
    command = [sys.executable, "-m", "tui_train", "resume", "--detach", str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    try:
        assert done.returncode == 0, done.stderr
        assert "runs. Watch it" in done.stdout
        assert "cannot resume: it begins with the first step" in done.stdout
        assert status(run).live
    finally:
        stop_run(run, at_once=True)


def test_a_start_that_ends_without_a_training_leaves_no_folder(smi, tmp_path):
    smi(WHOLE.splitlines()[1], before="sleep 0.5")
    prepared = ready(*sleeping(tmp_path))
    with pytest.raises(Unavailable, match=f"did not start: launch.sh: the GPU {UUIDS[0]}"):
        submit_here(prepared, prepared.plan)
    assert rundir.all_runs() == ()


def test_a_start_that_is_broken_off_is_ended_and_keeps_its_folder(smi, tmp_path, monkeypatch):
    """Nothing is taken from under a process: Ctrl-C while nvidia-smi hangs."""
    folder = smi(WHOLE, before=f"echo $$ > {tmp_path}/asked; exec sleep 60")
    prepared = ready(*sleeping(tmp_path))
    code = (
        "import sys, msgspec; from pathlib import Path; from tui_train.runs.rundir import RunDir;"
        "from tui_train.runs.start import start; start(RunDir(Path(sys.argv[1])))"
    )
    run = RunDir(tmp_path / "run")
    rundir.export(run.path, prepared.files)
    waiting = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stderr=subprocess.PIPE, text=True)
    until((tmp_path / "asked").exists, 60)
    waiting.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in waiting.communicate(timeout=60)[1]
    assert run.script.is_file()
    assert not run.events()
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(run.script) not in said
    assert folder


def test_plain_environment_is_enough(tmp_path, smi):
    """A machine whose nvidia-smi is slow, and a launch.sh that is started by hand."""
    smi(WHOLE, before="sleep 1")
    run = RunDir(tmp_path / "run")
    rundir.export(run.path, ready(*sleeping(tmp_path, "--seconds=0.1")).files)
    done = subprocess.run(
        ["bash", run.script],
        env=plain_environment(PATH=os.environ["PATH"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert status(run).state == "finished"


def test_several_machines_are_told_to_resume_only_where_they_understand_it(tmp_path, monkeypatch):
    """Where the trainer finds its checkpoints by itself, or cannot resume, the option would be refused."""
    cases = {
        "told": ({"nodes": 2, "attempts": [{"checkpoints": {"folder": "/o"}}]}, "[--resume]\n"),
        "by itself": ({"nodes": 2, "attempts": [{}], "resumes_itself": True}, "[]\n"),
        "never": ({"nodes": 2, "attempts": [{}]}, "[]\n"),
    }
    for how, (plan, said) in cases.items():
        folder = tmp_path / how
        folder.mkdir()
        run = RunDir(folder)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        run.script.write_text(
            """echo "[$*]" > "${0%/*}/words"; echo '{"time":1,"event":"run_started"}' > "${0%/*}/events.jsonl"\n"""
        )
        assert resumption(run) == how
        start(run, resume=True)
        assert (folder / "words").read_text() == said
        assert ("Start it on the other machines as well" in restart_note(run)) is True
        assert restart_note(run).endswith(" --resume") is (how == "told")

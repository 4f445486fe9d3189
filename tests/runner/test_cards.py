"""The cards where a run starts: those of the plan, others in their place, and an nvidia-smi that takes its time."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from support import UUIDS, facts, gpu, prepare_without_errors, sleeper_profile, wait_until

from tui_train.base.errors import Unavailable
from tui_train.places.place import Place
from tui_train.runner.gpus import training_cards
from tui_train.runner.run_folder.supervisor_plan import SupervisorPlan
from tui_train.runner.system import other_programs
from tui_train.runner.system.processes import process_start_ticks
from tui_train.runner.system.refused import Refused
from tui_train.runs import run_folders
from tui_train.runs.local_start import restart_difference_text, start_run
from tui_train.runs.results.resuming import resume_mode
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

WHOLE = f"""GPU 0: NVIDIA GeForce RTX 3090 (UUID: {UUIDS[0]})
GPU 1: NVIDIA GeForce RTX 3090 (UUID: {UUIDS[1]})"""
MIG = ("MIG-0c1bd74b-8a41-5e2a-8f4a-2f3bc5a1d001", "MIG-GPU-0c1bd74b-8a41-5e2a-8f4a-2f3bc5a1d002/1/0")
PARTED = f"""GPU 0: NVIDIA A100 (UUID: GPU-parted)
  MIG 3g.20gb     Device  0: (UUID: {MIG[0]})
  MIG 3g.20gb     Device  1: (UUID: {MIG[1]})"""
PLANNED = SupervisorPlan(gpus=UUIDS, gpu_names=("NVIDIA GeForce RTX 3090",) * 2, world_size=2)


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
def said(monkeypatch):
    """What is said of the cards."""
    texts = []
    monkeypatch.setattr(training_cards, "print_message", texts.append)
    return texts


def test_a_card_that_is_not_there_is_named_with_those_that_are(smi, said):
    smi(WHOLE)
    training_cards.require_cards_present(PLANNED, UUIDS)
    assert said == []
    smi(WHOLE.splitlines()[0])
    with pytest.raises(Refused) as refused:
        training_cards.require_cards_present(PLANNED, UUIDS)
    assert refused.value.code == 69
    assert refused.value.message == (
        f"the GPU {UUIDS[1]} (NVIDIA GeForce RTX 3090) is not there: this machine has GPU 0 NVIDIA GeForce RTX 3090 "
        f"{UUIDS[0]}. Take others with --gpus=UUID,…"
    )
    smi("")
    with pytest.raises(Refused, match="this machine has none"):
        training_cards.require_cards_present(PLANNED, UUIDS[:1])
    with pytest.raises(Refused, match=r"the GPU GPU-0 \(chosen here\) is not there"):
        training_cards.require_cards_present(OTHER, ("GPU-0",))


FIRST, DISPLAY = WHOLE.splitlines()[0], "\nGPU 2: NVIDIA GeForce GT 1030 (UUID: GPU-display)"
THIRD = "\nGPU 3: NVIDIA GeForce RTX 3090 (UUID: GPU-third)"
OTHER = SupervisorPlan(gpus=("GPU-of-another-machine",), world_size=1)
TWO_OTHERS = OTHER._replace(nodes=2, world_size=2)
SEVERAL = PLANNED._replace(nodes=2, world_size=4)
UNEVEN = PLANNED._replace(nodes=3, world_size=5, uneven=(2, 1, 2))


@pytest.mark.parametrize(
    ("planned", "listed", "asked", "taken"),
    [
        (PLANNED, WHOLE, ("", 0), UUIDS),
        (OTHER, WHOLE, (UUIDS[1], 0), UUIDS[1:]),
        (OTHER, PARTED, (MIG[0], 0), MIG[:1]),
        (OTHER, PARTED, (MIG[1], 0), MIG[1:]),
        (SupervisorPlan(), "", ("", 0), ()),
        # Another machine takes all that it has of the plan's kind.
        (SEVERAL, WHOLE.replace("GPU-", "GPU-b"), ("", 1), tuple(uuid.replace("GPU-", "GPU-b") for uuid in UUIDS)),
        (SEVERAL, WHOLE + DISPLAY, ("", 1), UUIDS),
        (SEVERAL, FIRST + DISPLAY, ("", 1), (UUIDS[0], "GPU-display")),
        # Those that the plan names for it, while it has them.
        (SEVERAL._replace(others=(UUIDS[::-1],)), WHOLE, ("", 0), UUIDS),
        (SEVERAL._replace(others=(UUIDS[::-1],)), WHOLE, ("", 1), UUIDS[::-1]),
        (SEVERAL._replace(others=(("GPU-x", UUIDS[0]),)), WHOLE, ("", 1), UUIDS),
        (UNEVEN, FIRST, ("", 1), UUIDS[:1]),
    ],
)
def test_which_cards_are_taken(smi, planned, listed, asked, taken):
    smi(listed)
    assert training_cards.choose_cards(planned, *asked) == taken


@pytest.mark.parametrize(
    ("planned", "listed", "asked", "refusal"),
    [
        (PLANNED, WHOLE, ("0,1", 0), (64, "0 is no UUID (GPU-… or MIG-…), and a number means")),
        (PLANNED, WHOLE, ("0,1", 0), (64, UUIDS[1])),
        (PLANNED, WHOLE, ("GPU-a", 0), (64, "--gpus names 1, and this trains on 2")),
        (PLANNED, WHOLE, ("GPU-a,GPU-a", 0), (64, "--gpus=GPU-a,GPU-a names GPU-a twice")),
        (PLANNED, WHOLE, ("GPU-a, GPU-b", 0), (64, "names a GPU that is empty or has a space")),
        (PLANNED, WHOLE, ("GPU-a,GPU-\x1b[31m", 0), (64, "is no UUID")),
        (SupervisorPlan(), "", ("GPU-a", 0), (64, "--gpus=GPU-a: this trains on the CPU")),
        # A card that is parted trains nothing itself, and which of its parts is meant is not guessed.
        (TWO_OTHERS, PARTED, ("", 1), (69, "has: GPU 0 NVIDIA A100 GPU-parted, MIG 3g")),
        (SEVERAL, FIRST, ("", 1), (69, "each machine trains on 2 GPUs, and this machine has: ")),
        (SEVERAL, WHOLE + DISPLAY + THIRD, ("", 1), (69, "each machine trains on 2 GPUs")),
        (UNEVEN, FIRST, ("", 2), (69, "this machine trains on 2 GPUs, and this machine has: ")),
        (UNEVEN, FIRST, (",".join(UUIDS), 1), (64, "--gpus names 2, and this trains on 1")),
    ],
)
def test_what_is_no_choice_is_refused(smi, planned, listed, asked, refusal):
    smi(listed)
    with pytest.raises(Refused) as refused:
        training_cards.choose_cards(planned, *asked)
    code, part = refusal
    assert (refused.value.code, part in refused.value.message) == (code, True), refused.value.message
    assert "\x1b" not in refused.value.message


@pytest.mark.parametrize("before", ["exit 9", "exec sleep 600", "trap '' TERM; sleep 600 & sleep 600"])
def test_an_nvidia_smi_that_does_not_answer_is_said_and_left_behind(smi, said, monkeypatch, before):
    monkeypatch.setattr(training_cards, "_NVIDIA_SMI_ANSWER_SECONDS", 0.3)
    smi(WHOLE, before=before)
    training_cards.require_cards_present(PLANNED, UUIDS)
    assert said == ["nvidia-smi does not answer: the GPUs are not looked at first"]
    assert training_cards.pids_computing_on(UUIDS) is None
    with pytest.raises(Refused, match="nvidia-smi does not answer: name the GPUs"):
        training_cards.choose_cards(SEVERAL, "", 1)
    training_cards.wait_until_cards_free(UUIDS, (), 60.0)
    assert said[1:] == ["nvidia-smi does not answer: goes on without a look whether the GPUs are empty"]


def test_a_machine_without_nvidia_smi_trains_all_the_same(said, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    training_cards.require_cards_present(PLANNED, UUIDS)
    assert said == ["nvidia-smi does not answer: the GPUs are not looked at first"]


def test_who_computes_on_the_cards(smi):
    smi(users=f"{UUIDS[0]}, 42\nGPU-other, 7\n{UUIDS[1]}, 43\n{UUIDS[1]}, [N/A]\n")
    assert training_cards.pids_computing_on(UUIDS) == (42, 43)
    assert training_cards.pids_computing_on(UUIDS[1:]) == (43,)
    assert training_cards.pids_computing_on(()) == ()


def test_cards_are_waited_for_until_they_are_empty(smi, said):
    folder = smi(users=f"{UUIDS[0]}, 42\n{UUIDS[0]}, 7\n")
    training_cards.wait_until_cards_free(UUIDS, (7,), 0.5)
    assert said == ["a GPU is not empty after 0 s (process 42): goes on all the same"]
    # The next look finds it empty.
    smi(users=f"{UUIDS[0]}, 42\n", before=f'case $1 in -L) ;; *) trap "echo > {folder}/users" EXIT ;; esac')
    training_cards.wait_until_cards_free(UUIDS, (7,), 600.0)
    assert len(said) == 1
    assert training_cards.pids_computing_on(UUIDS) == ()


def test_a_stop_ends_the_waiting(smi, said, monkeypatch):
    smi(WHOLE, users=f"{UUIDS[0]}, 42\n", before="exec sleep 600")
    monkeypatch.setattr(other_programs, "is_interrupted", lambda: True)
    training_cards.wait_until_cards_free(UUIDS, (), 60.0)
    training_cards.require_cards_present(PLANNED, UUIDS)
    assert said == []


# ---- other programs


def test_a_program_answers_and_its_words_are_bounded():
    answer = other_programs.run_program(("sh", "-c", "echo out; echo err >&2; cat; exit 3"), 20)
    assert answer == (3, "out\n", "err\n")
    answer = other_programs.run_program(("sh", "-c", "yes | head -c 5000000; echo end >&2"), 60)
    assert (answer.code, len(answer.out), answer.err) == (0, 1 << 20, "end\n")
    assert other_programs.run_program(("sh", "-c", "kill -9 $$"), 20).code == 137
    assert (
        other_programs.run_program(("env",), 20, {"PATH": os.environ["PATH"], "A": "b"}).out.splitlines()[-1] == "A=b"
    )
    assert other_programs.run_program(("not-there",), 20).code is None


def test_a_program_that_is_out_of_time_goes_with_all_that_it_started():
    answer = other_programs.run_program(("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; sleep 600"), 0.5)
    assert answer.code is None
    wait_until(lambda: process_start_ticks(int(answer.out)) is None)


def test_a_program_that_leaves_another_with_its_output_is_not_waited_for():
    answer = other_programs.run_program(("sh", "-c", "sleep 600 & echo $!"), 60)
    assert answer.code == 0
    os.kill(int(answer.out), signal.SIGKILL)


def test_a_program_has_nothing_of_ours_open_and_no_signal_ignored():
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        told = other_programs.run_program(("sh", "-c", "ls -l /proc/$$/fd; grep SigIgn /proc/$$/status"), 20).out
    finally:
        os.close(read)
        os.close(write)
    links = [line.split(" -> ")[1] for line in told.splitlines() if " -> " in line]
    assert links[0] == "/dev/null"
    assert len(links) == 3
    assert int(told.split("SigIgn:")[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_an_answer_that_is_of_no_use_is_not_waited_for(monkeypatch):
    wanted = []
    monkeypatch.setattr(other_programs, "is_interrupted", lambda: bool(wanted))
    before = signal.signal(signal.SIGALRM, lambda *_: wanted.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        assert other_programs.run_program(("sleep", "600"), 600).code is None
        assert other_programs.run_program(("sleep", "0.2"), 60, interruptible=False).code == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_streams_that_are_closed_are_opened_before_a_file_or_pipe_gets_their_numbers():
    code = (
        "import os; from tui_train.runner.command_line import main; os.closerange(0, 3); main(['no command'], '');"
        "os._exit(sum(os.readlink(f'/proc/self/fd/{number}') == os.devnull for number in range(3)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3


def test_asking_costs_little_at_the_start():
    """It stands between `bash launch.sh` and the training."""
    code = (
        "import sys; from tui_train.runner.system import other_programs; import tui_train.runner.gpus.training_cards;"
        "from tui_train.runner.containers import container;"
        "print('subprocess' in sys.modules, 'threading' in sys.modules, 'socket' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "False False False\n"


# ---- a start that takes its time


def trains_on_a_card():
    """What a profile that sleeps on a card becomes on a machine that has it."""
    values = {"hardware.device": "auto", "hardware.gpus": UUIDS[:1], "ladder.rungs": ()}
    chosen = sleeper_profile("--seconds=60", **{"trainer.launcher": "python"}, **values)
    return prepare_without_errors(chosen, facts(gpus=(gpu(0), gpu(1))))


@pytest.mark.whole
def test_a_start_waits_as_long_as_it_lives(smi, monkeypatch):
    """nvidia-smi and an engine may take minutes between them; the folder stays, and the training begins."""
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() * 60)
    smi(WHOLE, before="sleep 2")
    prepared = trains_on_a_card()
    run = Place().submit(prepared, prepared.plan)
    try:
        assert run.launch_script.is_file()
        assert read_status(run).is_live
        assert run.events()[0].event == "run_started"
    finally:
        stop_local_run(run, at_once=True)


def test_a_start_that_ends_without_a_training_leaves_no_folder(smi):
    smi(WHOLE.splitlines()[1], before="sleep 0.5")
    prepared = trains_on_a_card()
    with pytest.raises(Unavailable, match=f"did not start: launch.sh: the GPU {UUIDS[0]}"):
        Place().submit(prepared, prepared.plan)
    assert run_folders.list_runs() == ()


def test_a_start_that_is_broken_off_is_ended_and_keeps_its_folder(smi, tmp_path):
    """Nothing is taken from under a process: Ctrl-C while nvidia-smi hangs."""
    smi(WHOLE, before=f"echo $$ > {tmp_path}/asked; exec sleep 60")
    prepared = trains_on_a_card()
    code = (
        "import sys, msgspec; from pathlib import Path; from tui_train.runs.run_folders import RunFolder;"
        "from tui_train.runs.local_start import start_run; start_run(RunFolder(Path(sys.argv[1])))"
    )
    run = RunFolder(tmp_path / "run")
    run_folders.export_plan_files(run.path, prepared.files)
    waiting = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "asked").exists, 60)
    waiting.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in waiting.communicate(timeout=60)[1]
    assert run.launch_script.is_file()
    assert not run.events()
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(run.launch_script) not in said


def test_several_machines_are_told_to_resume_only_where_they_understand_it(tmp_path):
    """Where the trainer finds its checkpoints by itself, or cannot resume, the option would be refused."""
    cases = {
        "told": ({"nodes": 2, "attempts": [{"checkpoints": {"folder": "/o"}}]}, "[--resume]\n"),
        "by itself": ({"nodes": 2, "attempts": [{}], "resumes_itself": True}, "[]\n"),
        "never": ({"nodes": 2, "attempts": [{}]}, "[]\n"),
    }
    for how, (plan, said) in cases.items():
        folder = tmp_path / how
        folder.mkdir()
        run = RunFolder(folder)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        run.launch_script.write_text(
            """echo "[$*]" > "${0%/*}/words"\n"""
            """echo '{"time":1,"event":"run_started","pid":'$$'}' > "${0%/*}/events.jsonl"\n"""
        )
        assert resume_mode(run) == how
        start_run(run, resume=True)
        assert (folder / "words").read_text() == said
        assert ("Start it on the other machines as well" in restart_difference_text(run)) is True
        assert restart_difference_text(run).endswith(" --resume") is (how == "told")

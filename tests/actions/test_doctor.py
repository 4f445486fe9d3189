"""The test of the communication: real processes, real exchanges, and faults that are made on purpose."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec import structs
from support import UUIDS, facts, gpu, profile, run_cli

from tui_train.actions.doctor.communication import (
    STAGE_LINE_MARK,
    communication_profile,
    judge_stages,
    parse_stages,
    run_communication_test,
)
from tui_train.actions.doctor.communication_fixes import changes_to_try, examine_communication
from tui_train.actions.doctor.short_runs import ShortRunContext, ShortRunObserver
from tui_train.base.app_paths import communication_tests_folder, runs_folder
from tui_train.base.errors import NoAnswer
from tui_train.checks import find_problems
from tui_train.facts.machine import communication_tests
from tui_train.facts.machine.communication_tests import (
    STAGES,
    CommunicationTestResult,
    Examination,
    RankStage,
    TriedFix,
    load_communication_examinations,
    save_communication_examination,
)
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.profile.changes import apply_change
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.interrupts import Interrupts
from tui_train.runs.remote_run import RunLocation, read_remote_location, write_run_location
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.views.communication_report import examination_text

TWO = "--set=hardware.processes=2"
PRETENDED = Path(__file__).parents[1] / "pretended_cuda"


def faulty(fault, **more):
    return {"PYTHONPATH": str(PRETENDED), "FAULT": fault, **more}


def examined(chosen, found, seconds=60.0):
    return examine_communication(chosen, ShortRunContext(Place(), found, ShortRunObserver()), seconds)


def told_of(chosen, cause):
    """Return the findings that tell a cause."""
    found = structs.replace(facts(), communication=load_communication_examinations())
    return [finding for finding in find_problems(make_setup(chosen, found)) if cause in finding.message]


def words_of(process):
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def nothing_is_left():
    assert not list_runs()
    assert not [words for words in map(words_of, psutil.process_iter()) if str(runs_folder()) in words]


@pytest.mark.training
def test_two_processes_reach_each_other():
    made = json.loads(run_cli("doctor", "quickstart", TWO, "--json").stdout)
    stages = {(each["rank"], each["stage"]) for each in made["result"]["stages"]}
    names = {"device", "process group", "first exchange", "all_reduce", "broadcast", "all_gather", "barrier"}
    assert stages == {(rank, name) for rank in (0, 1) for name in names}
    assert (made["result"]["works"], made["cures"], made["change"]) == (True, [], None)
    assert made["result"]["bytes_per_second"] > 1e6
    nothing_is_left()


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("hang", "the first exchange got no answer, in process 0, 1 of 2"),
        ("die", "A process was killed by signal 9"),
        ("wrong", "wrong result"),
    ],
)
def test_a_fault_ends_in_time_with_its_cause_and_what_works(fault, cause):
    chosen = profile({"hardware.processes": 2, "trainer.environment": faulty(fault)})
    made = examined(chosen, facts())
    assert cause in made.result.cause
    assert made.proven_fix.edits == (("hardware.processes", 1),)
    nothing_is_left()
    (finding,) = told_of(chosen, cause)
    assert (finding.level, finding.change) == ("warning", made.proven_fix)
    changed = apply_change(finding.change, chosen)
    assert not told_of(changed, cause)


def nvidia_smi(folder):
    """A folder with a program that lists the cards of the tests."""
    listed = "\n".join(f"GPU {number}: NVIDIA GeForce RTX 3090 (UUID: {uuid})" for number, uuid in enumerate(UUIDS))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncase $1 in -L) echo '{listed}' ;; esac\n")
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def examined_on_pretended_cards(fault):
    cards = facts(gpus=(gpu(0), gpu(1)))
    chosen = profile({"trainer.environment": faulty(fault, PRETEND="cuda")})
    assert make_setup(chosen, cards).communication_backend == "nccl"
    return examined(chosen, cards, seconds=120)


def edits_that_worked(made):
    return [cure.change.edits for cure in made.cures if cure.result and cure.result.works]


@pytest.mark.whole
@pytest.mark.training
def test_what_fails_now_and_then_has_no_fix(tmp_path):
    """Else the first change that is tried would seem to be one."""
    once = faulty("once", FAULT_FILE=str(tmp_path / "failed"))
    chosen = profile({"hardware.processes": 2, "trainer.environment": once})
    made = examined(chosen, facts(), seconds=300)
    assert edits_that_worked(made) == [(("hardware.processes", 1),)]
    assert (made.works_at_times, made.proven_fix) == (True, None)
    text = examination_text(make_setup(chosen, facts()), made)
    assert "it fails now and then" in text
    assert "Fix:" not in text
    (finding,) = told_of(chosen, made.result.cause)
    assert (finding.change, "fails now and then" in finding.remedy) == (None, True)


@pytest.mark.whole
@pytest.mark.training
def test_a_garbled_name_in_shared_memory_is_cured_by_cumem_and_not_by_gloo(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path)["PATH"])
    made = examined_on_pretended_cards("garbled")
    assert "NCCL could not share memory" in made.result.cause
    worked = edits_that_worked(made)
    assert worked[0] == (("communication.without", ("cumem_host",)),)
    assert worked[1] == (("communication.backend", "gloo"),), "P2P and shared memory off do not help"
    assert {cure.result.works for cure in made.cures[1:3]} == {False}
    nothing_is_left()


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ("size=1m", "The shared memory (/dev/shm) is too small"),
        ("ro", "The shared memory (/dev/shm) is read-only"),
    ],
    ids=["full", "read-only"],
)
def test_shared_memory_that_cannot_be_used_is_named_and_done_without(tmp_path, options, cause):
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]}\n"
        "import msgspec, test_doctor\n"
        "print(msgspec.json.encode(test_doctor.examined_on_pretended_cards('shm')).decode())"
    )
    script = f'mount -t tmpfs -o {options} none /dev/shm && exec {sys.executable} -c "$1"'
    tried = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    if subprocess.run([*tried, "pass"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: a /dev/shm without room: only root may mount one")
    environment = {**os.environ, **nvidia_smi(tmp_path)}
    done = subprocess.run([*tried, code], env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    made = msgspec.json.decode(done.stdout.splitlines()[-1], type=Examination)
    assert (made.result.cause, "remount,rw" in made.result.remedy) == (cause, options == "ro")
    assert edits_that_worked(made)[0] == (("communication.without", ("shm",)),)


def changes(values=None, *, cards=2, **of_python):
    found = facts(gpus=[gpu(number) for number in range(cards)], **of_python)
    return [change.edits for change in changes_to_try(make_setup(profile(values or {}), found), None)]


def test_the_change_that_costs_least_is_tried_first():
    without = [(("communication.without", (name,)),) for name in ("cumem_host", "p2p", "shm")]
    gloo, one = (("communication.backend", "gloo"),), (("hardware.gpus", (UUIDS[0],)), ("hardware.processes", 0))
    assert changes() == [*without, gloo, one]
    # What is read by no version that is installed, is off already, or would train wrongly, is not tried.
    assert changes(packages={"nvidia-nccl-cu12": "2.20.5"}) == [*without[1:], gloo, one]
    old = {"trainer.strategy": "fsdp2", "trainer.launcher": "accelerate", "communication.without": ("p2p",)}
    assert changes(old, torch="2.8.0")[1:] == [(("communication.without", ("p2p", "shm")),), one]
    assert changes({"hardware.device": "cpu", "hardware.processes": 2}) == [(("hardware.processes", 1),)]


def test_the_test_starts_as_the_training_would():
    cards = facts(gpus=(gpu(0), gpu(1)))
    values = {
        "trainer.strategy": "fsdp2", "trainer.environment": {"A": "b"}, "nodes.count": 2, "nodes.address": "10.0.0.1",
        "communication.debug": "warn", "recipe.layers": 7, "notify.command": ("true",), "tracking.wandb": True,
    }  # fmt: skip
    training = make_setup(profile(values), cards)
    test = make_setup(communication_profile(training), cards)
    for part in ("launcher", "gpus", "world_size", "communication_backend", "device"):
        assert getattr(test, part) == getattr(training, part), part
    assert test.toolchain.python == training.toolchain.python
    assert (test.profile.nodes, test.profile.communication) == (training.profile.nodes, training.profile.communication)
    assert (test.profile.notify.command, test.profile.tracking.wandb) == ((), False)


def test_it_is_none_of_the_trainings_to_choose_from():
    assert "communication" not in run_cli("keys", "trainer.kind").stdout


def test_what_the_training_lacks_otherwise_does_not_matter():
    words = run_cli(
        "doctor", "quickstart", "--set=trainer.kind=finetune", "--set=communication.interface=none", code=69
    )
    assert "no model" not in words.stderr
    assert "interface" in words.stderr


def result_of(lines, processes=2, device="cpu"):
    """What is read in a log of these exchanges."""
    log = [f"[rank0]: {STAGE_LINE_MARK}{json.dumps(line) if isinstance(line, dict) else line}" for line in lines]
    values = {"hardware.processes": processes, "hardware.device": device}
    setup = make_setup(profile(values), facts(gpus=[gpu(0), gpu(1)] if device == "cuda" else ()))
    return judge_stages(setup, tuple(parse_stages(iter(log))), RunFolder(Path("/nowhere")), in_time=True)


def done(rank, *stages, **more):
    return [{"rank": rank, "stage": stage, **more} for stage in stages or STAGES]


def test_it_works_where_each_process_has_done_each_stage():
    assert result_of([*done(0), *done(1)]).works
    assert result_of(done(0, "device"), processes=1).works
    assert not result_of([*done(0), *done(1)[:-1]]).works
    assert not result_of([*done(0, "barrier"), *done(1, "barrier")]).works
    assert not result_of([*done(0), *done(1), *done(1, "end", problem="x")]).works


def test_gpus_that_torch_does_not_find_are_no_success():
    made = result_of([*done(0, device="cpu"), *done(1, device="cpu")], device="cuda")
    assert (made.works, made.is_conclusive) == (False, False)
    assert made.cause == "process 0 of 2 got no GPU: its PyTorch finds none"


@pytest.mark.parametrize(
    "line",
    [
        "", "{}", "[]", "[" * 9999, {"rank": -1, "stage": "device"}, {"rank": 0, "stage": "\x1b]0;owned\x07"},
        {"rank": 0, "stage": "device", "seconds": 1e300}, {"rank": 0, "stage": "all_reduce", "bytes_per_second": -5},
        '{"rank": 0, "stage": "device", "seconds": NaN}', {"rank": 0, "stage": "device", "problem": "x" * 9999},
    ],
)  # fmt: skip
def test_what_no_process_of_ours_prints_is_passed_over(line):
    assert not [*parse_stages(iter([f"{STAGE_LINE_MARK}{json.dumps(line) if isinstance(line, dict) else line}"]))]


def test_two_processes_may_print_in_one_line():
    one, two = ({"rank": rank, "stage": "device"} for rank in (0, 1))
    assert (
        len([*parse_stages(iter([f"{STAGE_LINE_MARK}{json.dumps(one)}{STAGE_LINE_MARK}{json.dumps(two)} and more"]))])
        == 2
    )


class Far(Place, frozen=True):
    """A host that is asked for nothing, on which a run has failed; where it hangs, no stop comes through."""

    hangs: bool = False
    asked: list[str] = msgspec.field(default_factory=list)

    def submit(self, *_):
        run = RunFolder(runs_folder() / "20260101-000000-far")
        run.path.mkdir(parents=True)
        write_run_location(run.path, RunLocation("box", "/far/run"))
        return run

    def ask_state(self, *_, **_options):
        return RunStatus("failed")

    def stop(self, *_, **_options):
        self.asked.append("stop")
        if self.hangs:
            raise NoAnswer("no answer", "Ask again.")

    def remove(self, run):
        self.asked.append(f"remove {read_remote_location(run.path).folder if run.path.exists() else 'what is here'}")


@pytest.mark.parametrize(("number", "keeps_failed", "kept"), [(0, True, "box:/far/run"), (2, True, ""), (0, False, "")])
def test_only_a_failed_run_that_is_named_stays_on_its_host(number, keeps_failed, kept):
    interrupts, place = Interrupts(), Far("box")
    interrupts.number = number
    run_context = ShortRunContext(place, facts(), ShortRunObserver(), interrupts)
    made = run_communication_test(
        communication_profile(make_setup(profile(), facts())), run_context, 0, keeps_failed=keeps_failed
    )
    assert made.kept_at == kept
    assert place.asked[-1] == f"remove {'what is here' if kept else '/far/run'}"


@pytest.mark.parametrize("number", [0, signal.SIGINT])
def test_a_host_that_hangs_is_asked_once_to_stop_and_never_to_remove(number):
    said, place = [], Far("box", hangs=True)
    interrupts = Interrupts(said.append)
    interrupts.number = number
    chosen = communication_profile(make_setup(profile(), facts()))
    context = ShortRunContext(place, facts(), ShortRunObserver(), interrupts)
    with contextlib.nullcontext() if number else pytest.raises(NoAnswer):
        run_communication_test(chosen, context, 0)
    assert place.asked == ["stop"]
    unconfirmed = "20260101-000000-far may still be at work: no answer. Ask again."
    assert said == (["Ctrl-C: ending the test …", unconfirmed] if number else [])


@pytest.mark.training
def test_ctrl_c_ends_a_test_and_leaves_nothing():
    program = [sys.executable, "-m", "tui_train", "doctor", "quickstart", TWO]
    program += [f"--set=trainer.environment={name}={value}" for name, value in faulty("hang").items()]
    made = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any("process group" in line for line in made.stdout)
    made.send_signal(signal.SIGINT)
    assert (made.communicate(timeout=120)[1], made.returncode) == ("Ctrl-C: ending the test …\n", 130)
    nothing_is_left()


FAILED = Examination(
    result=CommunicationTestResult(processes=2, works=False, stages=(RankStage(rank=0, stage="end", problem="x"),))
)


@pytest.mark.parametrize("works_at_times", [False, True])
def test_a_connection_that_fails_now_and_then_is_told_without_a_fix(works_at_times):
    chosen = profile({"hardware.processes": 2, "hardware.device": "cpu"})
    setup = make_setup(chosen, facts())
    (change,) = changes_to_try(setup, None)
    cure = TriedFix(change=change, result=CommunicationTestResult(processes=1, works=True))
    made = structs.replace(FAILED, cures=(cure,), works_at_times=works_at_times)
    save_communication_examination(setup.communication_test_key, made)
    (finding,) = told_of(chosen, "did not reach each other")
    assert finding.change == made.proven_fix == (None if works_at_times else change)
    assert ("fails now and then" in finding.remedy) == works_at_times
    text = examination_text(setup, made)
    assert ("it fails now and then" in text, "Fix:" in text) == (works_at_times, not works_at_times)


@pytest.mark.parametrize("kept", [b"", b"[]", b"{", b"\xff", b'{"result": 1}', b"[" * 999])
def test_a_damaged_file_of_a_test_is_none(kept):
    save_communication_examination("one", FAILED)
    save_communication_examination("two", FAILED)
    next(communication_tests_folder().glob("*-one.json")).write_bytes(kept)
    assert [*load_communication_examinations()] == ["two"]


def test_tests_that_end_together_are_all_kept():
    keys = [f"key-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda key: save_communication_examination(key, FAILED), keys)]
    assert {*load_communication_examinations()} == {*keys}
    # One that says nothing of the communication takes the place of the one before.
    save_communication_examination(keys[0], Examination(result=CommunicationTestResult(processes=2, works=False)))
    assert {*load_communication_examinations()} == {*keys[1:]}


def test_what_was_kept_before_the_machine_was_booted_is_not_read(monkeypatch):
    save_communication_examination("old", FAILED)
    monkeypatch.setattr(communication_tests, "machine_boot_id", lambda: "another")
    monkeypatch.setattr(communication_tests, "_MAX_SAVED_EXAMINATIONS", 2)
    assert load_communication_examinations() == {}
    for key in ("one", "two"):
        save_communication_examination(key, FAILED)
    assert {*load_communication_examinations()} == {"one", "two"}
    assert len([*communication_tests_folder().iterdir()]) == 2

"""The doctor on a host over a real ssh: what is proved there, and what it leaves there."""

import json
import sys
from pathlib import Path

import psutil
import pytest
import ssh as secure_shell
from ssh import runs_of_host
from support import prepare, profile, run_cli, wait_until

from tui_train.base.errors import Unavailable
from tui_train.facts.other_machines.remote import run_on_machine
from tui_train.places.host_questions import ask_removal
from tui_train.places.place import Place
from tui_train.runs.remote_run import read_run_location
from tui_train.runs.run_folders import list_runs

PRETENDED = Path(__file__).parents[1] / "pretended_cuda"
ON_BOX = (
    "--on=box", f"--set=trainer.python={sys.executable}", "--set=hardware.device=cpu", "--set=hardware.processes=2",
)  # fmt: skip
SLEEPS = "import time\nprint('began', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host `box` that has python3 and bash and nothing of this program, with a home of its own."""
    with secure_shell.bare_host(tmp_path, monkeypatch, SLEEPS, what="the doctor on a host over ssh") as home:
        yield home


@pytest.mark.whole
@pytest.mark.training
def test_a_test_that_works_leaves_nothing_there(host):
    made = json.loads(run_cli("doctor", "quickstart", *ON_BOX, "--json").stdout)
    assert (made["result"]["works"], made["result"]["processes"]) == (True, 2)
    assert (runs_of_host(host), list_runs()) == ([], ())


@pytest.mark.whole
@pytest.mark.training
def test_the_folder_of_one_that_fails_stays_there_and_is_named(host):
    fault = [f"--set=trainer.environment={value}" for value in (f"PYTHONPATH={PRETENDED}", "FAULT=die")]
    said = run_cli("doctor", "quickstart", *ON_BOX, *fault, code=69).stdout
    (kept,) = runs_of_host(host)
    assert said.rstrip().endswith(f"Its run folder stays there: box:{kept}")
    assert "process group" in (kept / "attempt-1.log").read_text()
    assert list_runs() == ()


@pytest.mark.whole
@pytest.mark.training
def test_the_proof_of_a_host(host, tmp_path):
    chosen = [f"--stage={name}" for name in ("kernels", "ranks", "memory")]
    run_cli("doctor", "--cards", *ON_BOX, *chosen, "--output", tmp_path / "proof")
    proof = json.loads((tmp_path / "proof" / "report.json").read_text())
    verdicts = {stage["name"]: [claim["verdict"] for claim in stage["claims"]] for stage in proof["stages"]}
    assert verdicts == {"kernels": ["ok"], "ranks": ["ok", "ok"], "memory": ["not tested"]}
    assert (runs_of_host(host), list_runs()) == ([], ())


@pytest.mark.whole
@pytest.mark.training
def test_a_run_that_is_at_work_there_is_not_removed(host):
    values = {
        "trainer.kind": "script", "trainer.preset": "custom", "trainer.script": f"{host}/train.py",
        "trainer.python": sys.executable, "hardware.device": "cpu",
    }  # fmt: skip
    place = Place("box")
    prepared = prepare(profile(values), place.probe_facts_for(profile(values)))
    run = place.submit(prepared, prepared.plan)
    with pytest.raises(Unavailable, match="at work"):
        ask_removal(read_run_location(run.path), ended=True)
    assert runs_of_host(host)
    place.stop(run, at_once=True)
    place.remove(run)
    assert (runs_of_host(host), list_runs()) == ([], ())


def child(code, seconds=60):
    """What a Python prints that this machine, asked as a host is, runs."""
    return run_on_machine("", [sys.executable, "-c", code], seconds, {"SENT": "along"})


def test_a_program_that_was_sent_along_prints_its_answer():
    made = child("import os, sys; print(os.environ['SENT']); print('why', file=sys.stderr); sys.exit(3)")
    assert (made.stdout, made.stderr, made.exit_code, made.failure) == (b"along\n", b"why\n", 3, "")
    assert "cannot be started" in run_on_machine("", ["/nowhere"], 60, {}).why_unusable()


@pytest.mark.whole
def test_a_program_that_hangs_is_ended(tmp_path):
    made = child(hangs(tmp_path / "pid"), seconds=3)
    assert (made.timed_out, made.failure) == (True, "no answer in time")
    wait_until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())), 30)


@pytest.mark.whole
def test_a_program_for_whose_answer_nobody_waits_is_ended(host, tmp_path):
    file = tmp_path / "pid"
    made = run_on_machine("box", [sys.executable, "-c", hangs(file)], 600, {}, file.exists)
    assert "was not waited for" in made.failure
    wait_until(lambda: not psutil.pid_exists(int(file.read_text())), 30)


def hangs(file):
    """A program that writes its number, and then does nothing."""
    return f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

"""How a job of Slurm is looked for, by squeue and, once that has forgotten it, by sacct."""

import json
import os

import pytest
from support import make_executable

from tui_train.runner.questions.slurm import send_listed_jobs

_GONE = {"number": "7", "state": "", "reason": "", "begins": ""}


@pytest.mark.parametrize(
    ("state", "ended"),
    [("CANCELLED by 0", {**_GONE, "ended": "CANCELLED by root"}),
     ("CANCELLED by 4000000000", {**_GONE, "ended": "CANCELLED by 4000000000"}),
     ("CANCELLED by x", {**_GONE, "ended": "CANCELLED by x"}),
     ("OUT_OF_MEMORY", {**_GONE, "ended": "OUT_OF_MEMORY"}),
     ("RUNNING", None)],
)  # fmt: skip
def test_a_job_that_squeue_has_forgotten_does_not_run(tmp_path, monkeypatch, capsys, state, ended):
    """Accounting that never heard of its end has it as running for good."""
    make_executable(tmp_path / "squeue", "#!/bin/sh\n")
    make_executable(tmp_path / "sacct", f"#!/bin/sh\necho '7|{state}|{tmp_path}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    send_listed_jobs({"cluster": "", "jobs": [("7", str(tmp_path))]})
    assert json.loads(capsys.readouterr().out)["jobs"] == [ended]


@pytest.mark.parametrize(("accounting", "ended"), [("7|CANCELLED by 0", "CANCELLED by root"), ("", "CANCELLED")])
def test_who_cancelled_a_job_is_asked_of_accounting(tmp_path, monkeypatch, capsys, accounting, ended):
    make_executable(tmp_path / "squeue", f"#!/bin/sh\necho '7|CANCELLED|None|N/A|{tmp_path}'\n")
    make_executable(tmp_path / "sacct", f"#!/bin/sh\n[ -n '{accounting}' ] && echo '{accounting}|{tmp_path}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    send_listed_jobs({"cluster": "", "jobs": [("7", str(tmp_path))]})
    assert json.loads(capsys.readouterr().out)["jobs"] == [{**_GONE, "ended": ended}]

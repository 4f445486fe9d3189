"""A failure is explained with the machine on which it happened, not with the one that looks."""

import json
import os
import time

import msgspec
import pytest
from support import export_run, facts, make_executable, run_launch_script, sleeper_profile, write_attempt_events
from training_results import ended_run

from tui_train.cli.results.diagnose import diagnosis_text
from tui_train.diagnose import diagnose_run, run_diagnosis
from tui_train.runner import machine_evidence as runner_evidence
from tui_train.runner.machine_evidence import MachineEvidence, read_machine_evidence
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.remote_run import HostReport, write_host_report
from tui_train.runs.status import read_status

FULL = {"host": "box", "free_disk": 0, "free_shm": 2**34, "memory_limit": 2**34, "oom_kills": 0}
ROOMY = FULL | {"free_disk": 2**40}
KILLED = ROOMY | {"oom_kills": 2}
LOST_CARD = ROOMY | {"gpu_error": "NVRM: Xid (PCI:0000:65:00): 79, pid=812, GPU has fallen off the bus."}
ABORT, KILL = ("Aborted (core dumped)", 134), ("step 14 loss 1.2", 137)


# What the log says, how the machine of the failure stood, how this one stands, and what failed.
CASES = [
    (ABORT, FULL, ROOMY, "disk_full"),
    (ABORT, ROOMY, FULL, "abort"),
    (KILL, KILLED, ROOMY, "host_oom"),
    (KILL, ROOMY, KILLED, "sigkill"),
    (ABORT, {}, FULL, "abort"),
    (ABORT, LOST_CARD, ROOMY, "gpu_hardware"),
    (("ModuleNotFoundError: No module named 'nemo'", 1), LOST_CARD, ROOMY, "missing_module"),
]


@pytest.mark.parametrize("case", CASES)
def test_the_machine_of_the_failure_counts(tmp_path, monkeypatch, case):
    (line, code), there, here, failure = case
    monkeypatch.setattr(run_diagnosis, "read_machine_evidence", lambda *_: MachineEvidence(**here))
    run = ended_run(tmp_path / "run", [line], state="failed")
    events = [json.loads(each) for each in run.events_file.read_text().splitlines()]
    for event in events:
        ends = {"attempt_ended": {"exit_code": code, **there}, "run_ended": {"exit_code": code}}
        event.update(ends.get(event["event"], {}))
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    attempts = read_status(run).attempts
    (run.path / "place.json").write_text(json.dumps({"host": "box", "folder": "/there"}))
    write_host_report(run.path, HostReport(at=1.0, status=RunStatus("failed", attempts=attempts, exit_code=code)))
    found = diagnose_run(run)
    assert (found.failure, found.host) == (failure, "box")


@pytest.mark.parametrize(("nodes", "where"), [(1, "rank 1"), (2, "rank 1 of box")])
def test_the_host_of_a_failure_is_named_where_several_train(tmp_path, nodes, where):
    run = ended_run(tmp_path / "run", ["[rank1]: RuntimeError: boom"], state="failed")
    write_attempt_events(run, 90, "failed", exit_code=1)
    run.plan_file.write_text(json.dumps({"nodes": nodes, "world_size": 2}))
    found = msgspec.structs.replace(diagnose_run(run), host="box")
    heading = " ".join(diagnosis_text(found, run).split("shown by")[0].split())
    assert heading.endswith(f", first on {where}")


def test_the_supervisor_notes_how_its_machine_stands(tmp_path):
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=0.1", "--code=7"), facts())
    assert run_launch_script(run).returncode == 7
    end = next(event for event in run.events() if event.event == "attempt_ended")
    assert end.host == os.uname().nodename
    assert min(end.free_disk, end.free_shm) > 0
    assert read_machine_evidence(str(tmp_path), None).host == end.host


KERNEL_LOG = """\
6,1,1000000,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.
4,2,5000000,-;NVRM: Xid (PCI:0000:17:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error
 SUBSYSTEM=pci
4,3,6000000,-;NVRM: Xid (PCI:0000:17:00): 31, pid=812, name=python, Ch 00000008, intr 10000000. MMU Fault
6,4,7000000,-;usb 1-1: new device
"""


@pytest.mark.parametrize(("began", "expected"), [(0.5, "17:00): 48"), (4.5, "17:00): 48"), (5.5, "")])
def test_an_error_of_a_card_is_read_from_the_kernels_log(tmp_path, monkeypatch, began, expected):
    """Of the time of the attempt alone; a program's own fault (31) is told by its log."""
    log = tmp_path / "kmsg"
    log.write_text(KERNEL_LOG)
    monkeypatch.setattr(runner_evidence, "KERNEL_LOG_PATH", str(log))
    found = read_machine_evidence(str(tmp_path), None, began).gpu_error
    assert (expected in found) if expected else found == ""
    assert read_machine_evidence(str(tmp_path), None).gpu_error == ""


def test_an_error_of_a_card_is_read_from_the_journal_where_the_kernels_log_is_closed(tmp_path, monkeypatch):
    """A user of the group adm may read that."""
    said = "NVRM: Xid (PCI:0000:65:00): 79, GPU lost"
    make_executable(tmp_path / "journalctl", f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{said}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(runner_evidence, "KERNEL_LOG_PATH", str(tmp_path / "none"))
    assert runner_evidence.gpu_error_since(time.monotonic() - 60).startswith("NVRM: Xid (PCI:0000:65:00): 79")
    asked = float((tmp_path / "asked").read_text().partition("--since=@")[2])
    assert abs(time.time() - 60 - asked) < 10
    (tmp_path / "journalctl").write_text("#!/bin/sh\nexit 1\n")
    assert runner_evidence.gpu_error_since(0.0) == ""
    (tmp_path / "journalctl").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner_evidence.gpu_error_since(0.0) == ""


def test_a_disk_that_calls_itself_endless_costs_no_event(tmp_path, monkeypatch):
    monkeypatch.setattr("tui_train.runner.machine_evidence.free_bytes_for_path", lambda _: 2**63)
    assert read_machine_evidence(str(tmp_path), None).free_disk == 2**53 - 1

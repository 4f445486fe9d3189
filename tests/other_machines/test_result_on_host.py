"""A result that lies on a host is merged and tried there, and data are read there, by programs that are sent along."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from fine_tuning import TUNING_LIBRARIES
from msgspec import structs
from ssh import bare_host, lead_ssh_back
from support import facts, make_executable, profile, wait_until
from training_results import ended_run

from tui_train.actions import sent_program
from tui_train.actions.chat import AnswerEnd, Chat
from tui_train.actions.evaluate import EvaluationOptions, evaluate_run, host_of_evaluation
from tui_train.actions.host_data import facts_with_data_on_host, read_data_on_host, read_data_or_say_why_not
from tui_train.actions.host_result import host_of_result, result_folder_candidates
from tui_train.actions.merge import MergeOptions, merge_adapter
from tui_train.actions.sent_program import SentProgram
from tui_train.base.errors import BadInput, Unavailable
from tui_train.facts.data.data_report import DataQuestion
from tui_train.runs.remote_run import RunLocation, write_run_location
from tui_train.runs.results.resuming import FETCH_MARK_FILE
from tui_train.runs.slurm_job import KnownJob, write_known_job
from tui_train.runs.status import read_status

ECHO = """
import json, os, sys
request = json.loads(sys.argv[1])
print(json.dumps({"event": "begun", "in": sorted(os.listdir(os.path.dirname(__file__)))}), flush=True)
with open(os.path.join(request["into"], "made"), "w") as file:
    file.write(request["text"])
for line in sys.stdin:
    print(json.dumps({"event": "echo", "of": json.loads(line)}), flush=True)
    if "code" in line:
        sys.exit(json.loads(line)["code"] and "it broke")
"""
PROGRAMS = Path(sent_program.__file__).parents[1] / "programs"


@pytest.fixture
def echo(monkeypatch):
    """A program in the place of those that are sent."""
    monkeypatch.setattr(sent_program, "sent_program_texts", lambda: {"result/echo.py": ECHO})


def test_a_program_that_is_sent_answers_and_its_folder_is_whole_or_not_there(tmp_path, echo):
    into = tmp_path / "into"
    for code in (3, 0):
        request = {"text": "whole"}
        with closing(
            SentProgram("", sys.executable, "result/echo.py", request, has_stdin=True, into=str(into))
        ) as sent:
            assert sent.read_line(20) == {"event": "begun", "in": ["echo.py"]}
            assert not into.exists()
            sent.send_message({"a": "b"})
            assert sent.read_line(20) == {"event": "echo", "of": {"a": "b"}}
            sent.send_message({"code": code})
            assert sent.read_line(20)["of"] == {"code": code}
            if code:
                with pytest.raises(Unavailable, match="ended with exit code 1: it broke"):
                    sent.read_line(20)
                assert list(tmp_path.iterdir()) == []
            else:
                assert sent.read_line(20) is None
            assert not sent.is_alive
    assert (into / "made").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["into"]


@pytest.mark.whole
def test_what_a_program_made_is_kept_however_long_it_takes_to_end(tmp_path, monkeypatch):
    code = "import json, os, sys, time; os.close(1); os.mkdir(json.loads(sys.argv[1])['into'] + '/made'); time.sleep(6)"
    monkeypatch.setattr(sent_program, "sent_program_texts", lambda: {"result/slow.py": code})
    with closing(SentProgram("", sys.executable, "result/slow.py", {}, into=str(tmp_path / "into"))) as sent:
        assert sent.read_line(20) is None
    assert (tmp_path / "into" / "made").exists()


def test_what_is_in_the_way_is_said_before_it_begins(tmp_path, echo):
    for into, python, why in (
        (tmp_path, sys.executable, "already exists"),
        (tmp_path / "no/new", sys.executable, "there is no folder"),
        (tmp_path / "new", "/nowhere/python", "cannot be started"),
    ):
        sent = SentProgram("", python, "result/echo.py", {"text": ""}, into=str(into))
        with closing(sent), pytest.raises(Unavailable, match=why):
            sent.read_line(20)
    assert list(tmp_path.iterdir()) == []


STARTS_ANOTHER = """
import json, subprocess, sys, time
print(json.dumps({"event": "begun", "pid": subprocess.Popen(["sleep", "100"]).pid}), flush=True)
time.sleep(100)
"""


def test_all_that_a_program_on_this_machine_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sent_program, "sent_program_texts", lambda: {"result/starts.py": STARTS_ANOTHER})
    with closing(SentProgram("", sys.executable, "result/starts.py", {}, into=str(tmp_path / "into"))) as sent:
        other = Path(f"/proc/{sent.read_line(20)['pid']}")
        assert other.exists()
    wait_until(lambda: not other.exists(), 5)
    assert list(tmp_path.iterdir()) == []


def test_a_program_may_take_no_more_memory_and_write_no_longer_lines_than_is_said(monkeypatch):
    for code, why in (
        ("input(); bytearray(1 << 30)", "out of memory: it took more than the 0 GiB"),
        ("print('x' * (2 << 20), flush=True); input()", "a line of more than 1 MiB"),
    ):
        monkeypatch.setattr(sent_program, "sent_program_texts", lambda code=code: {"result/bad.py": code})
        sent = SentProgram("", sys.executable, "result/bad.py", {}, has_stdin=True, memory_limit=200 << 20)
        sent.send_message("begin")
        with closing(sent), pytest.raises(Unavailable, match=why):
            sent.read_line(20)


def remote_run(folder):
    """An ended run of the host box."""
    run = ended_run(folder)
    write_run_location(run.path, RunLocation("box", "/there/run"))
    return run


def test_a_result_is_used_where_it_lies(tmp_path):
    here = ended_run(tmp_path / "here")
    assert host_of_result(here) == ""
    with pytest.raises(BadInput, match="here is on this machine, not on box"):
        host_of_result(here, "box")
    run = remote_run(tmp_path / "far")
    assert (host_of_result(run), host_of_result(run, "box")) == ("box", "box")
    with pytest.raises(BadInput, match="far is on box, not on other"):
        host_of_result(run, "other")
    (run.path / FETCH_MARK_FILE).write_text(str(len(read_status(run).attempts)))
    assert (host_of_result(run), host_of_result(run, "box")) == ("", "box")
    plan = json.loads((run.path / "plan.json").read_text())
    (run.path / "plan.json").write_text(json.dumps({**plan, "python": "/only/there/python"}))
    assert (host_of_result(run), host_of_result(run, python=sys.executable)) == ("box", "")
    (run.path / "plan.json").write_text(json.dumps(plan))
    options = EvaluationOptions()
    assert host_of_evaluation(run, options) == "box", "the rows that were held out are only there"
    assert not host_of_evaluation(run, EvaluationOptions(data=("rows.jsonl",)))
    (run.path / "data").mkdir()
    (run.path / "data/test.jsonl").touch()
    assert not host_of_evaluation(run, options)
    (run.path / FETCH_MARK_FILE).unlink()
    chosen = structs.replace(run, checkpoint=30)
    assert result_folder_candidates(chosen)[0][0].endswith("/output/checkpoint-30")
    final, saved = result_folder_candidates(run)
    assert final[0].startswith("/")
    assert saved == []
    with pytest.raises(BadInput, match="new is not an absolute path"):
        merge_adapter(run, "new", MergeOptions())
    write_known_job(run.path, KnownJob(number="1", starts=0, state=""))
    with pytest.raises(Unavailable, match="no model is loaded on the login node box") as raised:
        host_of_result(run)
    assert "tui-train fetch far" in raised.value.remedy


def test_a_host_that_does_not_answer_is_said_in_place_of_the_data(tmp_path, monkeypatch):
    lead_ssh_back(tmp_path / "home", tmp_path / "client", monkeypatch)
    report = read_data_or_say_why_not("dead", sys.executable, DataQuestion(files=("/data.jsonl",)))
    assert "dead did not answer: no route to host" in report.problem
    report = read_data_or_say_why_not("box", "/nowhere/python", DataQuestion(files=("/data.jsonl",)))
    assert "box: /nowhere/python cannot be started" in report.problem


FIND = """
import json, sys
sys.path.insert(0, sys.argv[1])
import result_find, result_load
class Pipe:
    def send(self, event, **values): print(json.dumps(values))
try:
    result_find.request_with_found_weights(json.loads(sys.argv[2]), Pipe())
except result_load.RefusedError as error:
    print(json.dumps({"kind": error.kind}))
"""


def find(final, saved=(), **more):
    """What the program that loads a result finds in some folders."""
    request = {"candidates": [list(map(str, final)), list(map(str, saved))], "base": "", "revision": "", **more}
    command = [sys.executable, "-c", FIND, str(PROGRAMS / "result"), json.dumps(request)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def test_the_newer_of_final_weights_and_checkpoint_is_found_there(tmp_path):
    for name, config in (("adapter", "adapter_config.json"), ("model", "config.json"), ("empty", "config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / config).write_text(
            json.dumps({"base_model_name_or_path": "acme/base", "architectures": ["X"]})
        )
    adapter, model, empty = (tmp_path / name for name in ("adapter", "model", "empty"))
    assert find([tmp_path / "gone", empty]) == {"kind": "weights"}
    (adapter / "adapter_model.safetensors").touch()
    (model / "model.safetensors").touch()
    assert find([empty, adapter]) == {"folder": str(adapter), "adapter": True, "base": "acme/base"}
    assert find([model])["adapter"] is False
    assert find([adapter], base="/mine", keeps_base=True)["base"] == "/mine"
    seconds = (model / "model.safetensors").stat().st_mtime
    os.utime(adapter / "adapter_model.safetensors", (seconds + 10, seconds + 10))
    assert find([model], [adapter])["folder"] == str(adapter)
    assert find([adapter], [model])["folder"] == str(adapter)
    (adapter / "adapter_config.json").write_text(json.dumps({"task_type": "SEQ_CLS", "base_model_name_or_path": "b"}))
    assert find([adapter], talks=True) == {"kind": "scores"}
    (adapter / "adapter_config.json").write_text("{}")
    assert find([adapter]) == {"kind": "base"}


def test_data_are_read_there_by_the_same_program(tmp_path):
    rows = [{"prompt": f"What is {number}?", "completion": "It is."} for number in range(5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = read_data_on_host("", sys.executable, DataQuestion(files=(str(tmp_path / "rows.jsonl"),)))
    assert (report.rows, report.format, report.problem) == (5, "prompt_completion", "")
    missing = read_data_on_host("", sys.executable, DataQuestion(files=(str(tmp_path / "gone.jsonl"),)))
    assert missing.problem or missing.problems or missing.counts


def test_what_is_planned_for_a_host_goes_by_the_data_there(tmp_path, monkeypatch):
    lead_ssh_back(tmp_path / "home", tmp_path / "client", monkeypatch)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(5)))
    chosen = profile({"trainer.kind": "finetune", "trainer.model": "acme/base", "trainer.data": (str(path),)})
    there = facts(packages=TUNING_LIBRARIES, paths={str(path): "file"})
    there = msgspec.structs.replace(there, other_machine="box")
    said = []
    (report,) = facts_with_data_on_host(chosen, there, "box", said.append).data.values()
    assert (report.rows, report.problem, said) == (5, "", ["Reading the data on box …"])
    missing = msgspec.structs.replace(there, paths={str(path): "missing"})
    assert facts_with_data_on_host(chosen, missing, "box", said.append) is missing


CHILD = """
import json, os, sys
request = json.loads(sys.argv[1])
def say(event, **values): print(json.dumps({"event": event, **values}), flush=True)
say("found", folder=request["candidates"][0][0], adapter=True, base="acme/base")
if "into" in request:
    say("step", what="merging", of=request["base"])
    open(os.path.join(request["into"], "model"), "w").close()
    difference = 0.5 if request["trusted"] else 1e-6
    say("done", dtype="float32", difference=difference, tolerance=1e-4, change=0.1)
    sys.exit(difference > 1e-4)
say("loading", what="acme/base")
say("ready", device=os.environ["DEVICE"], dtype="float32", template=True, compares=request["compare"])
for line in sys.stdin:
    asked = json.loads(line)
    if asked["messages"][-1]["content"] == "fail":
        say("error", kind="missing", why="no weights")
        continue
    say("text", id=asked["id"], text=f"{len(asked['messages'])} to {asked['side']}")
    say("end", id=asked["id"], tokens=2, seconds=0.5, why="end")
"""


@pytest.fixture
def far_run(tmp_path, monkeypatch):
    """A run of a host that is this machine behind another program than ssh, with programs that load no model."""
    (tmp_path / "bin").mkdir()
    make_executable(tmp_path / "bin" / "ssh", '#!/bin/sh\nfor last; do :; done\nsh -c "$last"\nexit $?\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("DEVICE", "cuda:0")
    files = {"result/chat_child.py": CHILD, "result/merge_child.py": CHILD}
    monkeypatch.setattr(sent_program, "sent_program_texts", lambda: files)
    return remote_run(tmp_path / "far")


def test_a_chat_is_held_on_the_host(far_run):
    with closing(Chat(far_run, compare=True, python=sys.executable)) as chat:
        seen = []
        loaded = chat.wait_until_loaded(seen.append)
        assert (loaded.device, loaded.compares, seen) == ("box: cuda:0", True, ["acme/base"])
        assert chat.result.weights_kind_and_base_text == "PEFT adapter of acme/base"
        for number, text in ((1, "1 to base"), (2, "3 to base")):
            piece, end = chat.ask(f"question {number}", "base")
            assert (piece.text, end.tokens) == (text, 2)
        with pytest.raises(Unavailable, match="files of the model are missing: no weights") as raised:
            list(chat.ask("fail", "result"))
        assert raised.value.remedy.startswith("On box: Copy the missing files there")
        assert chat.is_alive
    with closing(Chat(far_run, compare=False, python="/nowhere/python")) as chat:
        with pytest.raises(Unavailable, match="box: /nowhere/python cannot be started"):
            chat.wait_until_loaded(lambda _: None)
        assert not chat.is_alive


def test_an_adapter_is_merged_on_the_host_or_nothing_is_left(far_run, tmp_path):
    into, steps = tmp_path / "merged", []
    options = MergeOptions(python=sys.executable, trusts_model_code=True)
    with pytest.raises(Unavailable, match="does not answer as the adapter does"):
        merge_adapter(far_run, str(into), options)
    assert not into.exists()
    good = MergeOptions(python=sys.executable)
    merged = merge_adapter(far_run, str(into), good, lambda what, of: steps.append((what, of)))
    assert (merged.host, merged.folder, merged.dtype) == ("box", str(into), "float32")
    assert [what for what, _ in steps] == ["merging"]
    assert (into / "model").exists()
    with pytest.raises(Unavailable, match="it already exists"):
        merge_adapter(far_run, str(into), good)
    # As sshd does, what answers goes on for a moment after its client.
    wait_until(lambda: not list(tmp_path.glob(".merged*")), 10)


@pytest.mark.whole
@pytest.mark.training
def test_a_result_is_tried_on_its_host(tmp_path, monkeypatch, full_run):
    with bare_host(tmp_path, monkeypatch, "", what="a result that is tried on its host") as home:
        there = home / "run"
        there.mkdir()
        (full_run.path / "output").rename(there / "output")
        write_run_location(full_run.path, RunLocation("box", str(there)))
        chat = Chat(full_run, compare=False)
        with closing(chat):
            assert chat.wait_until_loaded(lambda _: None).device == "box: cpu"
            assert chat.result.weights.path == str(there / "output")
            *_, end = chat.ask("Hello", "result", 4)
            assert isinstance(end, AnswerEnd)
            assert end.tokens <= 4
        with pytest.raises(Unavailable, match="it is a full model: there is nothing to merge"):
            merge_adapter(full_run, str(home / "merged"), MergeOptions())
        assert not (home / "merged").exists()
        row = {"prompt": "What is 1?", "completion": "It is one."}
        (home / "rows.jsonl").write_text(2 * (json.dumps(row) + "\n"))
        evaluation = evaluate_run(full_run, EvaluationOptions(data=(str(home / "rows.jsonl"),)))
        assert [each.result.number for each in evaluation.rows] == [0, 1]
        assert evaluation.better_share in {0.0, 1.0}
        with pytest.raises(BadInput, match="is not an absolute path"):
            evaluate_run(full_run, EvaluationOptions(data=("rows.jsonl",)))
        with pytest.raises(Unavailable, match=r"the rows cannot be used: .*data/test\.jsonl cannot be read"):
            evaluate_run(full_run, EvaluationOptions())

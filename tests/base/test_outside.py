"""What others may have put in a file's place is never waited for, read without end, or a traceback."""

import json
import os
import re
import subprocess
import sys
import threading

import pytest
from damaged_runs import (
    DEEPLY_NESTED,
    ENDED_RUN_EVENTS,
    REPLACEMENTS,
    START_EVENT_LINE,
    UNEXPECTED_ERROR_PATTERN,
    UNPRIVILEGED_COMMAND,
    content_writer,
    new_run,
    safetensors_with_header,
    tensor_header,
)
from forked_commands import run_commands_in_forks
from support import export_run, facts, profile, sample, start_folder_holder

from tui_train.actions import image_check, nemo_files
from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.parse import (
    MissingFile,
    Unparsable,
    parse_json_as,
    parse_json_object,
    parse_toml_table,
    read_file_to_parse,
)
from tui_train.diagnose import diagnose_run
from tui_train.diagnose.run_diagnosis import diagnose_log
from tui_train.facts import yaml_documents
from tui_train.facts.models.safetensors import read_tensor_descriptions
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.programs import probe
from tui_train.runner import viewer_commands
from tui_train.runner.logs.log_head import has_each_process_trained_alone
from tui_train.runner.logs.memory_failure import read_memory_failure
from tui_train.runner.questions import survey
from tui_train.runner.run_folder.checkpoints import is_complete_file
from tui_train.runner.run_folder.fill_config import fill_config_files
from tui_train.runner.run_folder.supervisor_plan import read_plan
from tui_train.runner.system.refused import Refused
from tui_train.runs.local_start import start_run
from tui_train.runs.logs.search import start_nearest_search
from tui_train.runs.status import read_status

pytestmark = pytest.mark.timeout(60)


PLACES = REPLACEMENTS | {"deep": content_writer(DEEPLY_NESTED), "bytes": content_writer(b"\xff\xfe\x00")}
COMMANDS = (
    ("diagnose", "{}"), ("plan", "{}"), ("estimate", "{}"), ("new", "mine", "--like", "{}"), ("logs", "{}"),
    ("attach", "{}"), ("stop", "{}"), ("resume", "{}"), ("report", "{}"), ("facts", "--machine", "{}"),
    ("facts", "--toolchain", "{}"), ("nemo", "prepare", "{}", "--out", "{}-out", "--tokenizer", "{}"),
    ("nemo", "import", "{}", "{}-out"), ("plan", "quickstart", "--machine", "{}"), ("export", "{}", "{}-out"),
    ("export", "quickstart", "{}"),
)  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.whole
def test_no_command_hangs_or_breaks_at_a_path(tmp_path):
    asked = []
    for name, make in PLACES.items():
        path = tmp_path / f"{name}.toml"
        make(path)
        asked += [[word.replace("{}", str(path)) for word in words] for words in COMMANDS]
    for odd in ("x" * 300, "/" + "y/" * 3000, f"{tmp_path}/a\nb", "", "\udcff/x", f"{tmp_path}/pipe.toml/x"):
        asked += [[word.replace("{}", odd) for word in words] for words in COMMANDS]
    asked = sample(asked, 3)
    ended = run_commands_in_forks([["", *words] for words in asked], tmp_path, UNPRIVILEGED_COMMAND)
    assert [one.words for one in ended] == asked
    wrong = [one for one in ended if one.code < 0 or one.code in {1, 99} or UNEXPECTED_ERROR_PATTERN.search(one.said)]
    assert not wrong, "\n".join(map(str, wrong[:8]))


@pytest.mark.parametrize("place", ["pipe", "endless", "folder", "loop"])
def test_a_launcher_log_that_is_no_file_starts_nothing(place):
    run = new_run()
    PLACES[place](run.launch_log)
    with pytest.raises(TuiTrainError, match=re.escape("launch.log")):
        start_run(run)
    assert read_status(run).state == "new"


@pytest.mark.parametrize("place", ["pipe", "endless", "large", "folder", "loop"])
def test_a_diagnosis_never_waits_for_what_is_no_file(place, tmp_path):
    run = new_run()
    run.events_file.write_bytes(
        ENDED_RUN_EVENTS.replace(b'"exit_code":0', b'"exit_code":1').replace(b"finished", b"failed")
    )
    run.plan_file.unlink()
    PLACES[place](run.plan_file)
    run.attempt_log(1).write_bytes(b"ValueError: x\n")
    diagnose_run(run)
    PLACES[place](tmp_path / "log")
    if place == "large":
        with (tmp_path / "log").open("ab") as file:
            file.write(b"\nTraceback (most recent call last):\nValueError: the end of it\n")
        assert "the end of it" in diagnose_log(str(tmp_path / "log")).line
    else:
        with pytest.raises(BadInput):
            diagnose_log(str(tmp_path / "log"))


def test_a_pipe_that_a_shell_opens_is_read():
    read, write = os.pipe()
    os.write(write, b"ValueError: of a pipe\n")
    os.close(write)
    assert "of a pipe" in diagnose_log(f"/dev/fd/{read}").line
    os.close(read)


def test_a_question_of_any_size_is_compared(tmp_path):
    text, work = tmp_path / "text", tmp_path / "out.preparing"
    text.write_text("x")
    work.mkdir()
    (tmp_path / "tokenizer.json").write_text("{}")
    PLACES["large"](work / "question.json")
    data = nemo_files.NemoTextToPrepare(splits={"train": (text,)}, tokenizer=tmp_path, out=tmp_path / "out")
    with pytest.raises(Unavailable) as refused:
        nemo_files.prepare_nemo_data(data, "/nowhere/python", lambda _: None)
    assert refused.value.remedy.endswith("Started again, it goes on from what is prepared.")


def test_an_image_with_pipes_among_its_recipes_is_looked_through(tmp_path):
    recipes = tmp_path / "megatron" / "bridge" / "recipes"
    recipes.mkdir(parents=True)
    (tmp_path / "megatron" / "__init__.py").touch()
    for place in ("pipe", "endless", "large"):
        PLACES[place](recipes / f"{place}.py")
    (recipes / "z.py").write_text("def tiny_pretrain_config(): ...\n")
    done = subprocess.run(
        [sys.executable, "-c", image_check._FIND_RECIPE_SCRIPT, "tiny"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout == "there\n"


@pytest.mark.parametrize("place", ["pipe", "endless", "large"])
def test_files_of_the_machine_are_read_with_limits(place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".conda").mkdir()
    PLACES[place](tmp_path / ".conda/environments.txt")
    assert survey.label_by_candidate_python([])
    PLACES[place](tmp_path / "version.py")
    assert not probe.read_text(tmp_path / "version.py").strip("\0")


def test_a_link_that_cannot_be_followed_hides_no_package_beside_it(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "module.py").touch()
    (tmp_path / "data.txt").touch()
    (tmp_path / "itself").symlink_to("itself")
    assert sorted(probe.module_names_in_path_entry(str(tmp_path))) == ["itself", "module", "package"]


@pytest.mark.parametrize("place", ["pipe", "endless"])
def test_the_supervisor_waits_for_no_file_of_its_folder(place, tmp_path):
    path = tmp_path / "log"
    PLACES[place](path)
    assert not is_complete_file(str(path))
    assert not has_each_process_trained_alone(str(path), 2)
    assert not read_memory_failure(str(path), ()).phase
    run, _ = export_run(tmp_path / "run", profile({"trainer.launcher": "accelerate"}), facts())
    plan = read_plan(str(run.path))
    attempt = plan.attempts[0]._replace(fills=(("accelerate.yaml", None),))
    (run.path / "accelerate.yaml").unlink()
    PLACES[place](run.path / "accelerate.yaml")
    with pytest.raises(Refused):
        fill_config_files(plan._replace(attempts=(attempt,)), 1, str(run.path), "")


# ---- JSON, TOML and safetensors that others may have written

NOT_JSON = {
    b"": "empty",
    b"  \n": "empty",
    b"null": "null, not an object",
    b"[]": "a list, not an object",
    b'"x"': "a text, not an object",
    b"1": "a number, not an object",
    b"NaN": "a number, not an object",
    b"\xff\xfe{}": "not UTF-8",
    b'{"a": "\xff"}': "not UTF-8",
    b"[" * 10_000: "too many levels",
    b'{"a":' * 100 + b"1" + b"}" * 100: "too many levels",
    b'{"a": [' + b"{}," * 2_000_000: "too many values",
    b'{"a": ' + b"9" * 5000 + b"}": "too long",
    b'{"a": "\\ud800"}': "invalid character",
    b'{"a": 1': "line 1, column 8",
    b"{'a': 1}": "not JSON",
}


@pytest.mark.parametrize("data", NOT_JSON, ids=lambda data: repr(data[:20]))
def test_json_that_is_damaged_is_said_in_a_sentence(data):
    with pytest.raises(Unparsable, match=NOT_JSON[data]):
        parse_json_object(data)
    with pytest.raises(Unparsable) as error:
        parse_json_as(data, dict[str, int])
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 250


def test_what_python_writes_as_json_is_read():
    assert parse_json_object('\ufeff{"a": "\\ud83d\\ude00", "b": Infinity}'.encode()) == {"a": "😀", "b": float("inf")}
    assert len(parse_json_object(json.dumps({f"model.layers.{n}.x": "a" for n in range(100_000)}).encode())) == 100_000


def test_a_file_that_is_absent_is_told_from_one_that_is_damaged(tmp_path):
    with pytest.raises(MissingFile):
        read_file_to_parse(tmp_path / "none", 9)
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(Unparsable, match="UTF-8"):
        parse_toml_table(read_file_to_parse(tmp_path / "file", 9))
    with pytest.raises(Unparsable, match="larger than"):
        read_file_to_parse(tmp_path / "file", 0)


DAMAGED_WEIGHTS = {
    "empty": (b"", "empty"),
    "text": (b"x" * 20, "not a safetensors file"),
    "long": (safetensors_with_header(b"{}", length=2**63), "not a safetensors file"),
    "list": (safetensors_with_header(b"[]"), "header"),
    "null": (safetensors_with_header(b"null"), "header"),
    "nan": (safetensors_with_header(tensor_header(data_offsets=[0, float("nan")]), bytes(8)), "header"),
    "mixed": (safetensors_with_header(tensor_header(data_offsets=[0, "8"]), bytes(8)), "a: "),
    "numbers": (safetensors_with_header(b'{"a": 1}'), "a: "),
    "deep": (safetensors_with_header(b'{"a": ' + b"[" * 10_000), "header"),
    "bytes": (safetensors_with_header(b'{"\xff": {}}'), "header"),
    "negative": (safetensors_with_header(tensor_header(data_offsets=[0, -8])), "header"),
    "huge": (safetensors_with_header(tensor_header(shape=[2**62] * 60)), "size or place"),
    "dimensions": (safetensors_with_header(tensor_header(shape=[1] * 10_000), bytes(8)), "header"),
    "overlap": (safetensors_with_header(tensor_header(data_offsets=[4, 12]), bytes(12)), "size or place"),
    "size": (safetensors_with_header(tensor_header(shape=[3]), bytes(8)), "size or place"),
    "short": (safetensors_with_header(tensor_header(), bytes(7)), "it has only"),
}


@pytest.mark.parametrize("name", DAMAGED_WEIGHTS)
def test_weights_that_are_damaged_are_said_in_a_sentence(name, tmp_path):
    data, words = DAMAGED_WEIGHTS[name]
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Unparsable, match=words):
        read_tensor_descriptions(tmp_path / "x")


# ---- what a machine without tui-train shows


@pytest.mark.parametrize("place", ["pipe", "endless", "folder", "no rights", "loop"])
def test_the_supervisor_says_which_log_cannot_be_read(place):
    run = new_run()
    run.events_file.write_bytes(ENDED_RUN_EVENTS)
    PLACES[place](run.attempt_log(1))
    for word in ("tail", "follow"):
        command = [*UNPRIVILEGED_COMMAND, sys.executable, str(run.path / RUNNER_ZIP_FILE_NAME), word]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ("attempt-1.log" in done.stderr, "Traceback" in done.stderr) == (True, False)
        assert len(done.stdout) < 200


def test_a_log_without_newlines_is_followed_in_pieces():
    run = new_run()
    run.events_file.write_bytes(ENDED_RUN_EVENTS)
    run.attempt_log(1).write_bytes(b"x" * (48 << 20))
    lines = [line for _, line in viewer_commands._follow_lines(str(run.path))]
    assert sum(map(len, lines)) == 48 << 20
    assert max(map(len, lines)) <= 1 << 16


def test_a_progress_bar_without_an_end_is_shown_while_it_goes_on(monkeypatch):
    run = new_run()
    run.events_file.write_bytes(
        START_EVENT_LINE[:-2] + b"," + json.dumps(start_folder_holder(run.path)).encode()[1:] + b"\n"
    )
    assert read_status(run).is_live
    run.attempt_log(1).write_bytes(b"\r 1/9 [00:01\r 2/9 [00:02\r 3/9 [00:03")
    monkeypatch.setattr(viewer_commands, "_PROGRESS_BAR_REFRESH_SECONDS", 0.2)
    shown = []
    thread = threading.Thread(
        target=lambda: shown.append(next(viewer_commands._follow_lines(str(run.path)))), daemon=True
    )
    thread.start()
    thread.join(20)
    os.kill(read_status(run).pid, 9)
    assert shown == [(1, " 2/9 [00:02")]


def test_the_last_words_of_an_attempt_are_shown_before_the_next_one():
    run = new_run()
    run.events_file.write_bytes(ENDED_RUN_EVENTS)
    run.attempt_log(1).write_bytes(b"first\nno end")
    source = viewer_commands._follow_lines(str(run.path))
    assert next(source) == (1, "first")
    run.attempt_log(2).write_bytes(b"second\n")
    assert [*source] == [(1, "no end"), (2, "second")]


# ---- a search that was ended


def test_a_search_that_ends_within_a_line_has_no_more_news(tmp_path):
    (tmp_path / "log").write_bytes(b"a\n")
    search = start_nearest_search(tmp_path / "log", 0, ["a"], upward=False)
    read, write = os.pipe()
    os.write(write, b'{"percent":5}\n{"perc')
    os.close(write)
    search._out.close()
    search._out = os.fdopen(read, "rb")
    assert [found.percent for found in search.updates()] == [5]
    search.cancel()


# ---- what threads read at once

THREADS = """
import sys, threading
sys.setswitchinterval(1e-7)
import msgspec
from tui_train.base.parse import type_prepared_for_msgspec
inner = [msgspec.defstruct(f"I{n}", [(f"a{k}", int, 0) for k in range(20)]) for n in range(60)]
Big = msgspec.defstruct("Big", [(f"f{n}", kind, msgspec.field(default_factory=kind)) for n, kind in enumerate(inner)])
data = {f"f{n}": {"a1": 1} for n in range(60)}
barrier = threading.Barrier(4)
def one():
    barrier.wait()
    msgspec.convert(data, type_prepared_for_msgspec(Big))
threads = [threading.Thread(target=one) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_that_read_one_type_for_the_first_time_do_not_end_the_process():
    children = [subprocess.Popen([sys.executable, "-c", THREADS]) for _ in range(10)]
    assert [child.wait(60) for child in children] == [0] * 10


@pytest.mark.whole
def test_yaml_of_many_values_is_not_read_to_its_end():
    damaged_at_its_end = b"a: [" + b"0," * 110_000 + b"}"
    assert yaml_documents.parse_document(damaged_at_its_end).problem == "it has too many values or too many levels"

"""The small things of the command line: keys, the screen's words, tables that fit, completion, warnings."""

import json
import math
import os
import re
import subprocess
import sys
import time

import pexpect
import pytest
from click.testing import CliRunner
from support import (
    boxed,
    create_run,
    export_run,
    facts,
    findings_of,
    gpu,
    inside,
    prepare_without_errors,
    profile,
    sleeper_profile,
    start_folder_holder,
    wait_until,
    write_attempt_events,
)

from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.text import number_ranges_text, sparkline, text_table, truncated_text
from tui_train.cli.app import cli
from tui_train.cli.plans.plans import apply_edits, apply_fixes_of_errors
from tui_train.cli.runs.runs import run_table_text
from tui_train.diagnose.log_reader import read_relevant_log_lines
from tui_train.diagnose.remedy_texts import innermost_user_frame
from tui_train.diagnose.run_diagnosis import diagnose_run
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.runs import run_folders
from tui_train.runs.status import read_status
from tui_train.setup.setup import Setup
from tui_train.views import choices, plain_text

EIGHT = facts(gpus=[gpu(number, f"GPU-{number:08}") for number in range(8)])


def invoke(*words):
    """What a command prints on standard output, and on standard error."""
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


# Keys, and the words of the screen


def test_keys_lists_values_and_default_of_every_key():
    shown = invoke("keys")[0].splitlines()
    assert [line.split()[0] for line in shown if re.match(r"  \S", line)] == [*fields.FIELDS]
    assert max(map(len, shown)) <= 80
    data = {row["key"]: row for row in json.loads(invoke("keys", "--json")[0])}
    assert list(data) == list(fields.FIELDS)
    named = {(key, option) for key, row in fields.FIELDS.items() for option in row.options}
    named -= {("trainer.kind", "communication")}
    assert all(option in data[key]["values"] for key, option in named)
    assert data["recipe.micro_batch"]["default"].endswith("8")
    assert [row["key"] for row in json.loads(invoke("keys", "global", "--json")[0])] == ["recipe.global_batch"]
    with pytest.raises(BadInput):
        invoke("keys", "nothing-like-it")


@pytest.mark.parametrize("found", [facts(), EIGHT, boxed()], ids=["cpu", "gpus", "image"])
def test_every_word_of_the_screen_can_be_set(found):
    values = {"trainer.kind": "script", "trainer.script": "/x.py"} | (inside() if found.images else {})
    for chosen in (Profile(), profile(values)):
        setup = Setup(chosen, found)
        for row in fields.FIELDS.values():
            if row.kind not in {"choice", "switch"} and row.key != "trainer.preset":
                continue
            for option in choices.field_options(row.key, setup):
                for word in (option.label, option.value, option.label.upper()):
                    assert (
                        str(fields.format_value(fields.parse_value(row, choices.value_from_label(row.key, word))))
                        == option.value
                    )


@pytest.mark.parametrize(
    ("edit", "value"),
    [
        ("hardware.device=CPU", "cpu"),
        ("hardware.device=gpu", "cuda"),
        ("trainer.preset=Hugging Face Trainer", "hf-trainer"),
        ("recipe.precision=not set", None),
    ],
)
def test_set_takes_a_label(edit, value):
    assert fields.get_value(apply_edits(Profile(), (edit,)), edit.partition("=")[0]) == value
    with pytest.raises(BadInput):
        apply_edits(Profile(), ("hardware.device=TPU",))


# Batch


@pytest.mark.parametrize("whole", [8, 24, 128])
def test_a_default_micro_batch_follows_a_chosen_global_batch(whole):
    chosen = apply_edits(Profile(), (f"recipe.global_batch={whole}",))
    assert findings_of(chosen, EIGHT) == ()
    assert apply_fixes_of_errors(chosen, EIGHT, (f"recipe.global_batch={whole}",)) == (chosen, ())
    plan = prepare_without_errors(chosen, EIGHT).plan
    assert plan.global_batch == whole == plan.micro_batch * plan.accumulation * 8
    assert plan.micro_batch == max(size for size in range(1, 9) if whole // 8 % size == 0)


# Tables


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ((1.0, math.nan, 3.0, math.inf), "▁▁██"),
        ((math.nan, -math.inf), ""),
        ((1e308, -1e308), "██▁▁"),
        ((2.0, 2.0), "▁▁▁▁"),
    ],
)
def test_a_line_of_blocks_leaves_out_what_is_no_number(values, drawn):
    assert sparkline(values, 4) == drawn


def test_a_table_is_cut_only_to_fit():
    rows = [("run", "state", "why"), ("20260101-name", "failed", "x" * 100), ("b", "finished", "short")]
    assert max(map(len, text_table(rows).splitlines())) > 100
    for room in (40, 80):
        lines = text_table(rows, room).splitlines()
        assert max(map(len, lines)) <= room
        assert lines[1].startswith("20260101-name"), "the name is the last to be cut"
        assert lines[1].endswith("…")


def test_a_name_that_is_to_be_copied_is_never_cut():
    rows = [("run", "state", "why"), ("20260101-101010-name", "finished", "x" * 100)]
    for room in (66, 40, 10):
        assert text_table(rows, room, keeps_names=True).splitlines()[1].startswith(rows[1][0])


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (18, "learning_rate=1e-4"), (12, "learni…=1e-4"), (6, "…=1e-4"), (5, "lear…"), (0, ""),
    ],
)  # fmt: skip
def test_of_a_setting_the_value_is_kept(width, shown):
    assert truncated_text("learning_rate=1e-4", width) == shown


def test_ranges():
    assert number_ranges_text([0, 1, 2, 5, 7, 8]) == "0-2 5 7-8"
    assert number_ranges_text([]) == ""


def test_equal_cards_are_one_row_at_a_terminal():
    many = facts(gpus=[gpu(n, f"GPU-{n:08}", name="Tesla P40", compute_capability="6.1") for n in range(64)])
    folded = plain_text.facts_text(many, many.toolchains[0], (), 80)
    tables, _, _ = folded.partition("\n--json")
    assert "0-63" in tables
    assert tables.count("Tesla P40") == 1
    assert max(map(len, tables.splitlines())) <= 80
    whole = plain_text.facts_text(many, many.toolchains[0], ())
    assert all(card.uuid in whole for card in many.machine.gpus), "a program reads all of them"


@pytest.mark.parametrize("group", [[], ["env"], ["hosts"], ["nemo"], ["profiles"], ["queue"], ["runs"]])
def test_no_sentence_of_a_command_is_cut_in_the_help(group):
    assert (
        "..." not in CliRunner().invoke(cli, [*group, "--help"]).stdout.replace("RUN...", "").partition("Commands:")[2]
    )


def test_notes_for_which_a_table_of_runs_has_no_room_stand_below_their_runs():
    rows = [
        ("run", "state", "started", "took", "note"),
        ("20261127-1-a", "finished, loss is NaN", "18:20", "11 s", "too high"),
    ]
    rows += [("20261127-2-b", "stopped", "18:21", "7 s", "")]
    assert run_table_text(rows, None).splitlines()[0].endswith("note")
    assert run_table_text(rows, 54).splitlines() == [
        "run           state                  started  took",
        "20261127-1-a  finished, loss is NaN  18:20    11 s",
        "  too high",
        "20261127-2-b  stopped                18:21    7 s",
    ]
    assert run_table_text(rows, 45).splitlines()[:2] == [
        "run           state                  took", "20261127-1-a  finished, loss is NaN  11 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "heads", "newest"),
    [
        (90, "run state took attempts step loss", "finished 1 min 46 s 2 400/400 0.412"),
        (80, "run state took step loss", "finished 1 min 46 s 400/400 0.412"),
        (72, "run state took step", "finished 1 min 46 s 400/400"),
        (66, "run state took", "finished 1 min 46 s"),
        (56, "run state", "finished"),
    ],
)
def test_of_a_narrow_table_of_runs_last_columns_are_left_out_and_nothing_short_is_cut(width, heads, newest):
    name = "20261127-193321-tiny-qwen-chats-rate-0.01"
    rows = [
        ("run", "state", "started", "took", "attempts", "step", "loss"),
        (name, "finished", "19:33", "1 min 46 s", "2", "400/400", "0.412"),
    ]
    lines = run_table_text(rows, width).splitlines()
    assert [line.split() for line in lines] == [heads.split(), [name, *newest.split()]]
    assert max(map(len, lines)) <= width
    waiting = ("20261127-193322-a", "waiting (0 of 2 CPU cores free, behind another one)", "19:33", "-", "0", "", "")
    assert run_table_text([*rows, waiting], 80).splitlines() == [
        "run                                        state             took        step",
        f"{name}  finished          1 min 46 s  400/400",
        "20261127-193322-a                          waiting (0 of 2…  -",
    ]


def test_pythons_are_a_few_lines_each_where_the_table_is_too_wide():
    rows = [
        ("Python", "version", "torch", "NeMo", ""),
        ("/opt/a-long-path/bin/python", "3.11.7", "2.13.0", "-", "env hf"),
    ]
    assert plain_text.pythons_text(rows, 50).splitlines() == [
        "Python", "/opt/a-long-path/bin/python  env hf", "  version 3.11.7, torch 2.13.0, no NeMo",
    ]  # fmt: skip
    assert plain_text.pythons_text(rows, 80) == plain_text.pythons_text(rows, None)
    assert plain_text.pythons_text(rows, 1).startswith("Python\n/opt")


# Completion


@pytest.fixture
def shell(tmp_path):
    """Ask the program itself how the words of a line can end, as a shell's script does."""
    program = tmp_path / "bin" / "tui-train"
    program.parent.mkdir()
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m tui_train "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}

    def complete(*words):
        line = {
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "_TUI_TRAIN_COMPLETE": "bash_complete",
        }
        done = subprocess.run([program], env=environment | line, capture_output=True, text=True, check=False)
        return [item.partition(",")[2] for item in done.stdout.splitlines()]

    complete.environment = environment
    return complete


@pytest.mark.whole
def test_profiles_runs_keys_and_values_complete(shell):
    store.save_profile(Profile(name="mine"))
    run = create_run(Profile(), name="quickstart")
    assert shell("tui-train", "plan", "m") == ["mine"]
    assert shell("tui-train", "profiles", "rm", "m") == shell("tui-train", "profiles", "cp", "m") == ["mine"]
    for command in (("logs",), ("compare", "last"), ("runs", "rm"), ("runs", "note")):
        assert run.name in shell("tui-train", *command, "20")
    assert shell("tui-train", "plan", "mine", "--set", "recipe.preci") == ["recipe.precision="]
    assert shell("tui-train", "plan", "mine", "--set", "recipe.precision=b") == ["recipe.precision=bf16"]
    assert "--diff" in shell("tui-train", "plan", "--d")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(name):
    assert "tui-train" in invoke("completion", name)[0]


@pytest.mark.whole
def test_bash_completes_values_behind_the_equals_sign(shell):
    bash_there = pexpect.spawn("bash", ["--norc", "-i"], env=shell.environment, encoding="utf-8", timeout=30)
    try:
        for line, shown in (
            ('eval "$(tui-train completion bash)"; echo rea""dy\n', "ready"),
            ("tui-train plan quickstart --set recipe.precision=b\t", "recipe.precision=bf16"),
            ("\x15tui-train plan qui\t", "quickstart "),
        ):
            bash_there.send(line)
            bash_there.expect(shown)
    finally:
        bash_there.close(force=True)


# Warnings and refusals


def test_new_warns_of_a_script_that_is_not_there(tmp_path):
    script = tmp_path / "train.py"
    words = ("new", "mine", "--set", "trainer.kind=script", "--set", f"trainer.script={script}", "--force")
    assert str(script) in invoke(*words)[1]
    script.touch()
    assert invoke(*words)[1] == ""


def test_a_live_run_is_not_exported_over(tmp_path):
    run, _ = export_run(tmp_path / "run", Profile(), facts())
    run_folders.export_plan_files(run.path, prepare_without_errors(Profile(), facts()).files, overwrite=True)
    before = run.launch_script.read_bytes()
    event = {"time": time.time(), "event": "run_started", **start_folder_holder(run.path)}
    run.events_file.write_text(json.dumps(event) + "\n")
    assert read_status(run).is_live
    with pytest.raises(Unavailable):
        run_folders.export_plan_files(
            run.path, prepare_without_errors(profile({"recipe.steps": 3}), facts()).files, overwrite=True
        )
    assert run.launch_script.read_bytes() == before


def test_launch_says_how_to_watch_and_stop_and_plain_that_one_runs(tmp_path):
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=30"), facts())
    started = ["bash", str(run.launch_script)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        said = first.stdout.readline()
        assert f"{run.path}/runner.pyz follow" in said
        assert f"{run.path}/runner.pyz stop" in said
        wait_until(lambda: read_status(run).attempts)
        with subprocess.Popen([*started, "--plain"], stderr=subprocess.PIPE, text=True) as beside:
            assert "already" in beside.stderr.readline()
            beside.kill()
        subprocess.run(
            [sys.executable, str(run.path / RUNNER_ZIP_FILE_NAME), "stop", "--now"], capture_output=True, check=True
        )
        first.stdout.read()


# Diagnosis


def test_the_innermost_own_frame_of_the_same_rank(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 3, in main\n    f()\n'
        '  File "/home/me/model.py", line 7, in f\n    g()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 9, in g\n    raise KeyError(1)\n'
        "KeyError: 1\n"
    )
    lines = read_relevant_log_lines(str(log))
    assert innermost_user_frame(lines, lines[-1]).file == "/home/me/model.py"
    assert innermost_user_frame(lines[:1], lines[0]) is None


@pytest.mark.parametrize(("micro", "position"), [(1, 3), (4, 1)])
def test_halving_is_not_proposed_where_it_was_tried_to_the_end(micro, position):
    chosen = profile({"recipe.micro_batch": 4, "recipe.global_batch": 4, "ladder.rungs": ("micro_batch",)})
    run = create_run(chosen, facts(gpus=(gpu(0),)), "oom")
    write_attempt_events(run, 0, "failed", position=position, exit_code=1, out_of_memory=True, phase="loss")
    run.attempt_log(1).write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    diagnosis = diagnose_run(run)
    title = diagnosis.change.title if diagnosis.change else ""
    assert ("Halve" in diagnosis.remedy, "micro batch" in title) == (micro == 4, micro == 4)

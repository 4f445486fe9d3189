"""Preview and `tui-train plan`: the five lines, the one command, what changed since the run before, and the files."""

import json
import re
import subprocess
import sys
import threading

import msgspec
import pytest
from click.testing import CliRunner
from hostile_profiles import LAUNCHERS_AND_PRESETS, hostile_profile_and_facts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pilot import PRETRAIN_KEY, open_wizard, press_keys, screen_text, until_true, wait_for_text
from support import (
    BASH_OWN_VARIABLES,
    HOSTILE_VALUES,
    create_run,
    export_run,
    facts,
    gpu,
    plain_environment,
    prepare_without_errors,
    profile,
    run_launch_script,
    sample,
    stub_calls,
    write_attempt_events,
)
from textual.content import Content
from tui_train.screens.preview import plan_view
from tui_train.screens.widgets.file_viewer import FileViewer, file_names_lines, find_search_hits, fold_comments
from tui_train.screens.widgets.preview_lines import PreviewContent, command_lines, finding_lines

from tui_train.checks.finding import error, note, warning
from tui_train.cli.app import cli
from tui_train.facts.types import ScriptParameter, ScriptSource
from tui_train.memory import data_defaults
from tui_train.places import profile_facts
from tui_train.plan.render.prepare import prepare_plan
from tui_train.plan.render.script.plain_command import command_to_paste, make_plain_command, wrap_command
from tui_train.plan.run_files import RenderedFile
from tui_train.profile import store
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runs import run_folders
from tui_train.setup.setup import Setup
from tui_train.views import overview
from tui_train.views.previous_run import (
    differing_words,
    diffs_of_changed_files,
    effective_changes_since,
    expected_pace,
    find_previous_run,
    value_difference_lines,
)

TO_PREVIEW = (PRETRAIN_KEY, *["enter"] * 3)


def said(values=None, found=None, rate=None):
    """The five lines of a profile, by their label."""
    found = found or facts()
    found_lines = overview.training_outline_lines(Setup(profile(values), found), rate)
    return {line.label: line for line in found_lines}


# The five lines


def test_five_lines_say_what_a_plan_does():
    values, where = {"recipe.micro_batch": 2}, facts(gpus=(gpu(0), gpu(1)))
    found, plan = said(values, where), prepare_without_errors(profile(values), where).plan
    assert list(found) == ["Model", "Data", "Batch", "Rate", "Steps"]
    numbers = [int(number) for number in re.findall(r"\d+", found["Batch"].value)]
    assert numbers == [plan.micro_batch, plan.accumulation, plan.world_size, plan.global_batch]
    assert float(found["Rate"].value.split()[0]) == plan.learning_rate
    assert int(found["Steps"].value) == plan.steps


def test_what_a_script_keeps_for_itself_is_called_so():
    found = said({"trainer.kind": "script", "trainer.script": "/x/sft.py", "trainer.preset": "custom"})
    assert found["Model"].value == "that of sft.py"
    assert found["Data"].value == found["Batch"].value == "up to the script"


@pytest.mark.parametrize(
    ("steps", "every", "note"),
    [
        (8, 100, "no checkpoint before the end: one every 100"),
        (100, 100, "no checkpoint before the end: one every 100"),
        (101, 100, "a checkpoint every 100"),
    ],
)
def test_no_checkpoint_is_promised_that_a_short_training_does_not_reach(steps, every, note):
    assert said({"recipe.steps": steps, "recipe.checkpoint_every": every})["Steps"].note == note


DATA_OPTION = ScriptParameter(name="--data", default="corpus.txt")
DATA_WORD = ScriptParameter(name="dataset", form="positional", is_required=True)


@pytest.mark.parametrize(
    ("parameter", "arguments", "value", "note"),
    [
        (DATA_OPTION, (), "corpus.txt", "--data, the script's default"),
        (DATA_OPTION, ("--data", "/d/chats.jsonl"), "chats.jsonl", "--data"),
        (DATA_WORD, ("cifar10",), "cifar10", "dataset"),
        # Nothing that the script reads is known of these.
        (DATA_WORD, (), "up to the script", "its code or arguments name it"),
        (DATA_OPTION, ("--data={data}",), "up to the script", "its code or arguments name it"),
        (ScriptParameter(name="--data", form="switch", default="False"), (), "up to the script", ""),
    ],
)
def test_the_data_that_a_script_reads_by_its_own_argument(parameter, arguments, value, note):
    source = ScriptSource(kind="argparse", parameters=(parameter,))
    values = {"trainer.kind": "script", "trainer.script": "/x/t.py", "trainer.arguments": arguments}
    found = said(values, msgspec.structs.replace(facts(), sources={"/x/t.py": source}))["Data"]
    assert found.value == value
    assert found.note.startswith(note)


STEPS_OPTION = ScriptParameter(name="--steps", type="int", default="5")


@pytest.mark.parametrize(
    ("parameters", "arguments", "value", "note"),
    [
        ((STEPS_OPTION,), ("--steps", "30"), "30", "--steps"),
        ((STEPS_OPTION,), (), "5", "--steps, the script's default"),
        ((STEPS_OPTION,), ("--steps={steps}",), "up to the script", ""),
        ((), ("--max_steps", "30"), "30", "--max_steps"),
        ((), (), "up to the script", ""),
    ],
)
def test_the_steps_that_a_script_takes_by_its_own_argument(parameters, arguments, value, note):
    source = ScriptSource(kind="argparse" if parameters else "", parameters=parameters)
    values = {
        "trainer.kind": "script",
        "trainer.preset": "auto",
        "trainer.script": "/x/t.py",
        "trainer.arguments": arguments,
    }
    found = said(values, msgspec.structs.replace(facts(), sources={"/x/t.py": source}))["Steps"]
    assert (found.value, found.note) == (value, note)


@pytest.mark.parametrize("value", HOSTILE_VALUES)
def test_hostile_names_are_shown_as_text(value):
    found = said({"trainer.data": (f"/d/{value or 'x'}",), "nemo.recipe": value, "trainer.model": f"/m/{value}"})
    assert all(part.isprintable() for line in found.values() for part in (line.value, line.note))


# The command


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    way=st.sampled_from(LAUNCHERS_AND_PRESETS),
    values=st.lists(st.sampled_from(HOSTILE_VALUES), min_size=8, max_size=20),
    data=st.data(),
)
def test_copied_command_starts_what_launch_plain_starts(way, values, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("way")
    chosen, found = hostile_profile_and_facts(folder, *way, values)
    run, plan = export_run(folder / "run", chosen, found)
    width = data.draw(st.integers(30, 140))
    notes = folder / "notes"
    environment = plain_environment(STUB_NOTES=str(notes))
    assert run_launch_script(run, "--plain", env=environment).returncode == 0
    (by_script,) = stub_calls(notes)
    notes.rename(folder / "first")
    text = command_to_paste(make_plain_command(plan), width)
    pasted = subprocess.run(["bash", "-c", text], cwd=run.path, env=environment, capture_output=True, check=False)
    assert pasted.returncode == 0, pasted.stderr
    (by_hand,) = stub_calls(notes)
    assert by_hand["argv"] == by_script["argv"]
    assert by_hand["cwd"] == by_script["cwd"]
    chosen_names = {setting.name for setting in plan.attempts[0].command.env} - BASH_OWN_VARIABLES
    for name in chosen_names:
        assert by_hand["env"][name] == by_script["env"][name]


def test_command_keeps_to_the_width_where_words_allow():
    command = make_plain_command(prepare_without_errors(profile(), facts(gpus=(gpu(0), gpu(1)))).plan)
    longest = max(map(len, (*command.groups, *command.settings)))
    for width in (40, 60, 76, 100):
        assert max(map(len, wrap_command(command, width))) <= max(width, longest + 6)


# What changed since the run before


def run_of(chosen, *, seconds=None):
    """The folder of a run of a profile; with `seconds` one that finished."""
    run = create_run(chosen)
    if seconds:
        write_attempt_events(run, seconds)
    return run


def test_changes_since_the_newest_run_of_this_profile_that_is_not_damaged():
    run_of(profile({"recipe.steps": 10}))
    run_of(profile({"name": "quickstart-2", "recipe.steps": 30}))
    run = run_of(profile({"recipe.steps": 20}))
    run_of(Profile()).profile_file.write_text("=")
    found = find_previous_run(Profile())
    assert found.run_name == run.name
    now = profile({"recipe.steps": 20, "recipe.learning_rate": 1e-4, "recipe.layers": 2, "hardware.device": "cpu"})
    # On the CPU it was trained before as well.
    assert [change.key for change in effective_changes_since(found, now)] == ["recipe.layers", "recipe.learning_rate"]
    assert value_difference_lines(effective_changes_since(found, now))[1].endswith("0.003 (default) → 0.0001")
    assert find_previous_run(Profile(name="other")) is None
    older = run_folders.list_runs()[-1]
    assert find_previous_run(Profile(), older).run_name == older.name
    assert find_previous_run(Profile(name="quickstart-2"), older).run_name != older.name


def test_pace_holds_only_where_nothing_changes_the_speed():
    run = run_of(profile({"recipe.steps": 50}), seconds=100)
    found = find_previous_run(Profile())
    pace = expected_pace(found, profile({"recipe.steps": 500, "recipe.learning_rate": 1e-3}))
    assert (pace.seconds_per_step, said(rate=pace)["Time"].value) == (2.0, "at most 2 min 00 s")
    assert expected_pace(found, profile({"recipe.micro_batch": 2})) is None
    assert expected_pace(None, Profile()) is None
    # Where epochs end it, its log says how many steps there were.
    run.plan_file.write_text(json.dumps(run.plan() | {"steps": 0}))
    run.attempt_log(1).write_text("step 25/25 | loss 2.0\n")
    assert find_previous_run(Profile()).pace.seconds_per_step == 4.0


BARS = "".join(f"\r {step}%|#   | {step}/50 [{at} ?s/it]" for step, at in ((0, "00:00<?,"), (1, "00:31<25:19,")))
LAST_BAR = "\r100%|####| 50/50 [01:20<00:00,  1.0s/it]\n"
RUNTIME = "{'train_runtime': '75', 'train_loss': '2.1', 'epoch': '1'}\n"


@pytest.mark.parametrize(
    ("log", "seconds", "text"),
    [
        # Of 100 s the steps took 50, without start-up and the first step, in which kernels are chosen.
        (f"loading\n{BARS}\n{LAST_BAR}{RUNTIME}", 1.0, "about 1 min 50 s"),
        # An evaluation's bars are of other lengths.
        (f"{BARS}\n{LAST_BAR}\r 9/9 [09:00<00:00, 60s/it]\n", 1.0, "about 1 min 50 s"),
        (RUNTIME, 1.5, "about 1 min 55 s"),
        ("step 50/50 | loss 2.0\n", 2.0, "at most 2 min 00 s"),
    ],
)
def test_time_comes_from_the_steps_of_the_run_before_and_its_start_which_more_steps_do_not_stretch(log, seconds, text):
    run_of(profile({"recipe.steps": 50}), seconds=100).attempt_log(1).write_text(log)
    pace = expected_pace(find_previous_run(Profile()), profile({"recipe.steps": 60}))
    assert (pace.seconds_per_step, said({"recipe.steps": 60}, rate=pace)["Time"].value) == (seconds, text)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("0.003", "0.0001", ("0.003", "0.0001")),
        ("--a 1 --do_train --b 2", "--a 1 --b 2", ("… --do_train …", "without")),
        ("--a 1 --b 2", "--a 1 --b 3 --c", ("… 2", "… 3 --c")),
        ("--a 1 --b 2", "", ("--a 1 --b 2", "")),
        ("--x 1 --b 2", "--a 1 --b 2", ("--x …", "--a …")),
    ],
)
def test_of_long_values_the_words_that_differ_are_named(before, after, shown):
    assert differing_words(before, after) == shown


def test_files_are_compared_with_those_of_the_run_before():
    run = run_of(profile({"recipe.steps": 20}))
    now = prepare_without_errors(profile({"recipe.steps": 20, "recipe.learning_rate": 1e-4}), facts()).files
    changed = {file.path: file.text for file in diffs_of_changed_files(run.name, now)}
    assert "launch.sh.diff" in changed
    assert "plan.json.diff" not in changed
    lines = changed["launch.sh.diff"].splitlines()
    assert lines[:2] == [f"--- {run.name}", "+++ now"]
    assert any(line.startswith("+") and "0.0001" in line for line in lines)
    assert any(line.startswith("-") and "0.003" in line for line in lines)
    assert diffs_of_changed_files(run.name, prepare_without_errors(profile({"recipe.steps": 20}), facts()).files) == ()
    assert diffs_of_changed_files("no-such-run", now) is None
    (run.path / "launch.sh").unlink()
    (new,) = diffs_of_changed_files(run.name, prepare_without_errors(profile({"recipe.steps": 20}), facts()).files)
    assert new.path == "launch.sh.diff"
    assert new.text.startswith("--- not there")


async def test_the_run_that_is_edited_is_compared_with(machine):
    older = run_of(profile({"recipe.steps": 10}), seconds=10)
    run_of(profile({"recipe.steps": 30}), seconds=10)
    async with open_wizard(run=older, size=(120, 40)) as pilot:
        await wait_for_text(pilot, "e Edit")
        await press_keys("e")(pilot)
        for _ in range(4):
            if "● 4 Preview" not in screen_text(pilot):
                await press_keys("enter")(pilot)
        await wait_for_text(pilot, f"nothing since {older.name}")


async def test_keys_that_a_title_names_and_an_array_stand_in_the_footer(machine):
    run_of(profile({"recipe.steps": 20}))
    async with open_wizard(*TO_PREVIEW) as pilot:
        # A finding whose fix has long words is to leave them room.
        pilot.app.edits.set_profile(profile({"recipe.learning_rate": 0.1}))
        await wait_for_text(pilot, "; d shows it", "f shows launch.sh", "F2 ")
        footer = screen_text(pilot).splitlines()[-1]
        assert [key for key in ("F2 ", "a Sweep", "f Files", "d Changes", "F1 Help") if f"  {key}" not in footer] == []
        assert "…" not in footer


@pytest.mark.whole
@pytest.mark.parametrize(
    ("size", "name_of_now"), sample([((100, 40), "+++ now"), ((120, 40), "│ now"), ((160, 40), "│ now")], 2), ids=str
)
async def test_d_shows_which_lines_the_run_before_had_otherwise(machine, monkeypatch, size, name_of_now):
    run = run_of(profile({"recipe.steps": 20}))
    async with open_wizard(*TO_PREVIEW, size=size) as pilot:
        await wait_for_text(pilot, "; d shows it")
        await press_keys("d")(pilot)
        await wait_for_text(pilot, "launch.sh.diff", name_of_now)
        sent = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", sent.append)
        await press_keys("slash", *"micro", "enter", "escape", "y", "d", "slash", *"micro", "enter", "enter")(pilot)
        assert sent[0].startswith(f"--- {run.name}\n+++ now\n@@ ")
        await press_keys("escape", "d", "d")(pilot)
        await wait_for_text(pilot, "launch.sh \u203a")
        assert name_of_now not in screen_text(pilot)
        assert pilot.app.screen.query_one("#side").display == (size[0] >= 140)


async def test_the_key_of_a_fix_stays_when_another_finding_comes(machine, monkeypatch):
    def fix(key, value):
        return warning(key, f"Wrong: {key[-5:]}", "Set it.", Change("set", "it is wrong", ((key, value),)))

    of_recipe = [note(key, "said on Recipe", "") for key in ("finetune.answers_only", "recipe.micro_batch")]
    shown = [fix("recipe.layers", 3), fix("recipe.warmup", 7), *of_recipe]

    def prepare(setup):
        return msgspec.structs.replace(prepare_plan(setup), findings=tuple(shown))

    monkeypatch.setattr(plan_view, "prepare_plan", prepare)
    async with open_wizard(*TO_PREVIEW, size=(120, 40)) as pilot:
        await wait_for_text(pilot, "F2 ", "F6 ")
        assert "said on Recipe" not in screen_text(pilot)
        shown[0] = fix("recipe.steps", 9)
        pilot.app.facts = msgspec.structs.replace(pilot.app.facts, paths={"/x": "file"})
        await wait_for_text(pilot, "F7 ")
        lines = screen_text(pilot).splitlines()
        assert ["F7" in next(line for line in lines if f"Wrong: {key}" in line) for key in ("steps", "armup")] == [
            True,
            False,
        ]
        await press_keys("f2")(pilot)
        assert pilot.app.profile == Profile(), "the first finding has gone, and no other took its key"
        said = [notification.message for notification in pilot.app._notifications]
        assert said == ["F2 fixes nothing now: the key of each finding stands beside it."]
        await press_keys("f6")(pilot)
        assert pilot.app.profile.recipe.warmup == 7
        await wait_for_text(pilot, "F2 ")
        assert "F7" not in screen_text(pilot), "after a change of one's own the keys are given again"


# The command line


def invoke(*words):
    """What a command prints."""
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.whole
def test_plan_says_the_five_lines_first_and_what_changed():
    shown = invoke("plan", "quickstart")
    assert shown.startswith("Model")
    assert "Changed" not in shown
    assert "no earlier run" in invoke("plan", "quickstart", "--diff")
    run = run_of(profile({"recipe.steps": 20}))
    assert f"as in {run.name}" in invoke("plan", "quickstart", "--diff", "--set", "recipe.steps=20")
    assert "Steps  20 → 40" in invoke("plan", "quickstart", "--set", "recipe.steps=40", "--diff", run.name)
    data = json.loads(invoke("plan", "quickstart", "--json", "--diff", run.name))
    assert data["since"]["changes"][0]["key"] == "recipe.steps"


# The screen


@pytest.mark.whole
async def test_keys_show_turn_search_and_copy_the_files(machine, monkeypatch):
    async with open_wizard(*TO_PREVIEW) as pilot:
        sent = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", sent.append)
        files = pilot.app.screen.query_one(FileViewer)
        await press_keys("c", "f", "y")(pilot)
        assert sent == [command_to_paste(pilot.app.screen._preview_content.command), files.shown_file.text]
        assert "#!/usr/bin/env bash" in screen_text(pilot)
        await press_keys("right")(pilot)
        assert files.shown_index == 1
        await press_keys("slash", *"step_tokens", "enter")(pilot)
        assert "step_tokens" in files.shown_file.text
        first = files.shown_index, files._hit_index
        await press_keys("enter")(pilot)
        assert (files.shown_index, files._hit_index) != first
        await press_keys("escape")(pilot)
        assert "Search in all" not in screen_text(pilot)
        assert files.display, "Esc ended the search, not the step"
        await press_keys("escape")(pilot)
        assert "What will happen" in screen_text(pilot), "Esc closed the files, not the step"


@pytest.mark.parametrize("width", [40, 120])
def test_the_shown_name_is_always_seen(width):
    names = [f"folder/file-{number}.py" for number in range(12)]
    for place, name in enumerate(names):
        assert name in file_names_lines(names, place, "", width)[1].plain


def test_search_finds_each_line_of_each_file():
    files = [RenderedFile("a", "x\nHere\n"), RenderedFile("b", "here\nthere")]
    assert find_search_hits(files, "HERE", 80) == [(0, 1), (1, 0), (1, 1)]
    assert find_search_hits(files, "", 80) == []


@pytest.mark.parametrize("width", [0, 1, 2, 7])
def test_a_command_is_drawn_on_the_narrowest_screen(width):
    python = "/a/long path/狐/bin/python"
    plan = prepare_without_errors(profile({"trainer.python": python}), facts(python=python)).plan
    lines = overview.training_outline_lines(Setup(profile(), facts()), None)
    assert command_lines(
        PreviewContent(lines=lines, command=make_plain_command(plan), title=plan.title), width, with_variables=True
    )


@pytest.mark.parametrize("width", [30, 58, 76])
def test_a_long_comment_is_folded_into_comments(width):
    text = "#!/bin/bash\n  # " + "word " * 40 + "\n" + "x" * 200 + "\n#\n"
    lines = fold_comments(Content(text), width).plain.split("\n")
    comment = [line for line in lines if "word" in line]
    assert len(comment) > 1
    assert all(line.startswith("  # word") and len(line) <= width for line in comment)
    assert sum(line.count("word") for line in comment) == 40
    assert [line for line in lines if "word" not in line] == ["#!/bin/bash", "x" * 200, "#", ""]


@pytest.mark.whole
async def test_what_waits_for_a_picture_of_a_screen_is_let_be_once_that_is_left(machine):
    async with open_wizard(*TO_PREVIEW) as pilot:
        preview, called = pilot.app.screen, []
        preview.call_after_refresh(called.append, "there")
        await pilot.pause()
        left = pilot.app.pop_screen()
        preview.call_after_refresh(called.append, "left")
        await left
        await pilot.pause()
        assert called == ["there"]


@pytest.mark.whole
async def test_what_a_profile_means_is_made_once_for_all_steps(machine, monkeypatch):
    asked, make_setup = [], data_defaults.make_setup
    monkeypatch.setattr(data_defaults, "make_setup", lambda *values: asked.append(values) or make_setup(*values))
    async with open_wizard(*TO_PREVIEW):
        assert asked
        assert len(asked) == len({(id(chosen), id(found)) for chosen, found in asked})


async def test_enter_starts_nothing_that_an_error_stops(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import transformerz\n")
    values = {"hardware.device": "cpu", "trainer.kind": "script", "trainer.script": str(script)}
    store.save_profile(profile(values | {"name": "job", "trainer.python": sys.executable}))
    async with open_wizard() as pilot:
        pilot.app.open_saved_profile("job")
        pilot.app.action_go_to_step("preview")
        await wait_for_text(pilot, "has no transformerz", "e exports its files all the same")
        await pilot.press("enter")
        await until_true(pilot, lambda: "It cannot be started" in "".join(n.message for n in pilot.app._notifications))
        assert not run_folders.list_runs()


async def test_enter_starts_nothing_until_files_are_compared_with_what_was_read(machine, monkeypatch):
    compared = threading.Event()
    async with open_wizard(*TO_PREVIEW) as pilot:
        monkeypatch.setattr(profile_facts, "have_files_changed", lambda *_: not compared.wait(30))
        pilot.app.read_changed_files()
        await pilot.press("enter")
        await until_true(pilot, lambda: "Still looking" in "".join(n.message for n in pilot.app._notifications))
        compared.set()
        await until_true(pilot, lambda: not pilot.app.are_files_being_compared)
        assert not run_folders.list_runs()


@pytest.mark.parametrize(
    ("findings", "title"),
    [
        ((), "the hosts are asked"),
        ((warning("k", "odd", ""),), "1, the hosts are asked"),
        ((error("k", "wrong", ""),), "1 must be fixed before it starts"),
    ],
)
def test_what_findings_may_still_come_from_is_in_their_title(findings, title):
    first = finding_lines(findings, 60, unread="the hosts are asked")[0].plain
    assert " ".join(first.split()[1:]).rstrip(" ─") == title


@pytest.mark.parametrize(("width", "is_beside"), [(30, False), (60, False), (80, True)])
def test_what_f2_does_is_never_cut(width, is_beside):
    change = Change("a checkpoint for each evaluation", "", ())
    finding = warning("recipe.checkpoint_every", "some are not evaluated", "Save more often.", change=change)
    lines = [line.plain.rstrip() for line in finding_lines((finding,), width)]
    shown = " ".join(" ".join(lines).split())
    assert "F2 a checkpoint for each evaluation" in shown
    assert (lines[1] == "! some are not evaluated") is not is_beside
    assert all(len(line) <= width for line in lines)

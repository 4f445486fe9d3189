"""Every form in which training scripts print their progress, and what only looks like one."""

import ast
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_forms import MISLEADING_LINES, PROGRESS_FORMS
from support import facts, plan, profile

from tui_train.profile.presets.log_expression import why_expression_unusable
from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress
from tui_train.runner.logs.records import _build_record, parse_dictionary_record
from tui_train.runs.health import no_step_read_text
from tui_train.runs.run_folders import RunFolder


def read(lines):
    return advance_progress(Progress(), [shown for line in lines for shown in lines_left_on_terminal(line.encode())])


def points(curve):
    return [(point.step, point.loss) for point in curve.points()]


@pytest.mark.parametrize("form", PROGRESS_FORMS)
def test_a_form_is_read(form):
    lines, *expected = PROGRESS_FORMS[form]
    found = read(lines)
    told = [found.step, found.steps, points(found.curve), points(found.evaluations)]
    assert str(told) == str(expected), "as text, in which one NaN is like another"


@pytest.mark.parametrize("line", MISLEADING_LINES)
def test_what_only_looks_like_progress_gives_no_loss_of_the_training(line):
    assert points(read([line]).curve) == []


@pytest.mark.parametrize(
    "expression",
    [
        r"it (?P<step>\d+)/(?P<steps>\d+) L=(?P<loss>\S+)",
        r"(?:it|step)[ =](?P<step>\d+).*?loss.(?P<loss>[\d.]+)",
        r"\[(?P<step>\d+)\] [()+*|]* (?P<loss>\S+)",
        r".*loss.*?(?P<loss>[\d.]+).*lr (?P<lr>\S+).*grad (?P<grad_norm>\S+)",
        r"epoch\s*[:=]?\s*(?P<step>\d+)\s*/\s*(?P<steps>\d+).*?loss\s*[:=]?\s*(?P<loss>[-+\d.eE]+)(?:.*?lr=(?P<lr>\S+))?",
        r"loss=(?P<loss>[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)$",
    ],
)
def test_an_expression_for_a_log_can_be_used(expression):
    assert why_expression_unusable(expression) == ""


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(", "is not a regular expression"),
        (r"step (\d+)", "must have groups"),
        (r"(?P<stage>\d+)", "must have groups"),
        (r"(?P<step>(\d+)+)x", "hours"),
        (r"(?P<step>\d+)(?:a|aa){2,}x", "hours"),
        (r"(?P<step>\d+)((x+)y?)*z", "hours"),
        (r"(?:\d+){30}(?P<step>x)", "hours"),
        (r"\d*" * 7 + "(?P<step>x)", "minutes"),
        (r"\d?" * 30 + "(?P<step>x)", "minutes"),
        (r"(?:\d|\d\d)" * 12 + "(?P<step>x)", "minutes"),
        (r"(?x) \d* \d* \d* \d* (?P<step>y)", "minutes"),
        (r"\s*.*?\s*(?P<step>x)", "a row such as spaces"),
        ("(?P<step>x)" + "y" * 500, "more than 500"),
    ],
)
def test_an_expression_that_would_stop_the_supervisor_is_refused(expression, why):
    assert why in why_expression_unusable(expression)


OWN = LogReadingOptions(nameable=True)


@pytest.mark.parametrize(
    ("lines", "losses", "reading", "why"),
    [
        (200, 0, OWN, "trainer.progress"),
        (5, 5, OWN, "trainer.progress"),
        (199, 4, OWN, ""),
        (500, 500, LogReadingOptions(), ""),
        (200, 0, OWN._replace(expressions=(re.compile("(?P<step>x)"),)), "none fits Progress lines (trainer.progress)"),
    ],
)
def test_a_log_of_an_unknown_form_says_which_key_reads_it(lines, losses, reading, why):
    said = no_step_read_text(Progress(), lines, losses, reading)
    assert why in said
    assert bool(said) == bool(why)
    assert not no_step_read_text(Progress(step=1), lines, losses, reading)


def test_a_profiles_expression_comes_before_the_usual_forms(tmp_path):
    chosen = profile({"trainer.kind": "script", "trainer.script": "/train.py", "trainer.preset": "custom",
                      "trainer.progress": r"at (?P<step>\d+) of (?P<steps>\d+): L (?P<loss>\S+)"})  # fmt: skip
    log = plan(chosen, facts()).log
    assert log.nameable
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode({"log": log}))
    reading = RunFolder(tmp_path).log_reading_options()
    found = advance_progress(Progress(), ["at 3 of 9: L 1.5"], reading)
    assert (found.step, found.steps, points(found.curve)) == (3, 9, [(3, 1.5)])
    assert reading.nameable


TEXTS = st.text("ab'\"\\ é,:\t", max_size=6)


@given(st.dictionaries(TEXTS, st.one_of(st.floats(-1e9, 1e9), st.integers(), st.booleans(), st.none(), TEXTS)))
def test_a_dictionary_is_read_as_python_reads_it(values):
    line = str({"loss": 1.5, **values, "step": 7})
    expected = _build_record(ast.literal_eval(line)).values
    assert parse_dictionary_record(line).values == expected


@pytest.mark.parametrize("line", ["{'loss': 1.0, [1]: 2}", "{'loss', [1]}", "{'loss': 0x" + "f" * 3900 + "}"])
def test_what_python_cannot_make_of_a_dictionary_is_no_progress(line):
    assert advance_progress(Progress(), [line]).curve.size == 0

"""Configuration files with the machine's own paths, read by a YAML reader."""

import math
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tui_train.base.command import ConfigFile
from tui_train.plan.render.config_yaml import render_config_yaml
from tui_train.runner.run_folder.fill_config import (
    CHECKPOINT_PLACEHOLDER,
    RUN_DIR_PLACEHOLDER,
    fill_config_files,
    filled_config_path,
    yaml_text,
)
from tui_train.runner.run_folder.supervisor_plan import PlannedAttempt, SupervisorPlan
from tui_train.runner.system.refused import Refused

VALUES = {
    "output_dir": f"{RUN_DIR_PLACEHOLDER}/output",
    "resume": CHECKPOINT_PLACEHOLDER,
    "text": 'it\'s "own"',
    "steps": 5,
}


def planned(*fills):
    """A plan of which only the files matter."""
    unset = dict.fromkeys(SupervisorPlan._fields)
    one = {**dict.fromkeys(PlannedAttempt._fields), "fills": ()}
    return SupervisorPlan(**{**unset, "attempts": (PlannedAttempt(**one), PlannedAttempt(**{**one, "fills": fills}))})


def written(folder, checkpoint="", otherwise=None, values=None, name="config.yaml"):
    """What a YAML reader finds in the file of the second attempt."""
    (folder / name).write_text(render_config_yaml(ConfigFile(name, "why", values or VALUES)))
    fill_config_files(planned((name, otherwise)), 2, str(folder), checkpoint)
    assert {path.name for path in folder.iterdir()} == {name, filled_config_path(name)}
    return yaml.safe_load((folder / filled_config_path(name)).read_bytes())


def test_paths_are_put_in_beside_the_file(tmp_path):
    found = written(tmp_path, "/out/checkpoint-5")
    assert found == {**VALUES, "output_dir": f"{tmp_path}/output", "resume": "/out/checkpoint-5"}
    assert "@" in (tmp_path / "config.yaml").read_text(), "the plan's own stays as it is"


NAMES = ["a: b # c", 'say "hi"', "back\\slash \\n", "é ü 中文 🏖", "new\nline\ttab", "\x07\x85", "'"]


@pytest.mark.parametrize("name", [*NAMES, CHECKPOINT_PLACEHOLDER, RUN_DIR_PLACEHOLDER])
def test_any_path_reads_back(tmp_path, name):
    run = tmp_path / name
    run.mkdir()
    found = written(run, f"/out/{name}")
    assert (found["output_dir"], found["resume"]) == (f"{run}/output", f"/out/{name}")


def test_bytes_that_are_no_text_stay(tmp_path):
    run = tmp_path / os.fsdecode(b"\xff")
    run.mkdir()
    (run / "config.yaml").write_text(render_config_yaml(ConfigFile("config.yaml", "why", VALUES)))
    fill_config_files(planned(("config.yaml", None)), 2, str(run), "")
    assert b'"' + os.fsencode(run) + b'/output"' in (run / "config.filled.yaml").read_bytes()


OTHERWISE = [
    None, True, False, 0, -7, 10**30, 0.5, 1e-05, -1e22, 1e300, "", "no", "1e-5", "~", "it's \"a\" \\ path: # x",
    "a\nb\tc\x00\x1b\x7f\x85\u2028🏖",
]  # fmt: skip


@pytest.mark.parametrize("otherwise", OTHERWISE, ids=range(len(OTHERWISE)))
def test_without_a_checkpoint_the_users_own_value_stands_there(tmp_path, otherwise):
    found = written(tmp_path, "", otherwise)["resume"]
    assert found == otherwise
    assert type(found) is type(otherwise)


def test_numbers_that_are_none():
    assert yaml.safe_load(yaml_text(math.inf)) == math.inf
    assert yaml.safe_load(yaml_text(-math.inf)) == -math.inf
    assert math.isnan(yaml.safe_load(yaml_text(math.nan)))


@given(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text())
def test_any_value_reads_back(value):
    text = yaml_text(value)
    assert "\n" not in text
    assert yaml.safe_load(text) == value


def test_part_of_a_text_is_empty_without_a_checkpoint(tmp_path):
    assert written(tmp_path, "", 5, {"x": f"{CHECKPOINT_PLACEHOLDER}/weights"}) == {"x": "/weights"}


@pytest.mark.parametrize(("name", "beside"), [("c.yaml", "c.filled.yaml"), ("a.b.yml", "a.b.filled.yml")])
def test_where_it_is_written(tmp_path, name, beside):
    written(tmp_path, "/c", name=name)
    assert (tmp_path / beside).is_file()


def test_an_attempt_without_files_writes_none(tmp_path):
    fill_config_files(planned(("config.yaml", None)), 1, str(tmp_path), "")
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_done_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(Refused, match=r"config\.yaml cannot be read") as refused:
        fill_config_files(planned(("config.yaml", None)), 2, str(tmp_path), "")
    assert refused.value.code == 69
    (tmp_path / "config.yaml").write_text("x: 1\n")
    (tmp_path / "config.filled.yaml" / "taken").mkdir(parents=True)
    with pytest.raises(Refused, match=r"config\.filled\.yaml cannot be written") as refused:
        fill_config_files(planned(("config.yaml", None)), 2, str(tmp_path), "")
    assert refused.value.code == 73
    assert {path.name for path in tmp_path.iterdir()} == {"config.filled.yaml", "config.yaml"}

"""Which checkpoint is resumed from: the newest of those that are complete."""

import io
import os
import zipfile

import msgspec
import pytest
from support import FULL_RECIPE, facts, prepare_without_errors, profile

from tui_train.runner.run_folder import supervisor_plan
from tui_train.runner.run_folder.checkpoints import is_complete_file, newest_complete_checkpoint, step_in_name
from tui_train.runner.run_folder.supervisor_plan import CheckpointLayout


def folder(path, files=("state.json",)):
    path.mkdir(parents=True)
    for name in files:
        (path / name).write_text("x")


def archive():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("data.pkl", b"x" * 5000)
    return packed.getvalue()


@pytest.mark.parametrize("prefix", ["checkpoint-", "step_", "it's [a] *? ", ""])
@pytest.mark.parametrize("suffix", ["", ".d", " (b)"])
def test_the_highest_step_wins_whatever_the_names(tmp_path, prefix, suffix):
    for number in ("5", "12", "100", "0099"):
        folder(tmp_path / f"{prefix}{number}{suffix}")
    for name in (f"{prefix}x{suffix}", f"{prefix}{suffix} ", f"{prefix}-200{suffix}", f"{prefix}²{suffix}", "other"):
        folder(tmp_path / name)
    rule = CheckpointLayout(str(tmp_path), prefix, ("state.json",), suffix)
    assert newest_complete_checkpoint(rule, "/nowhere") == str(tmp_path / f"{prefix}100{suffix}")


@pytest.mark.parametrize(
    "broken",
    [
        lambda path: (path / "state.json").unlink(),
        lambda path: (path / "state.json").write_text(""),
        lambda path: (path / "state.json").write_bytes(archive()[:-30]),
        lambda path: ((path / "state.json").unlink(), (path / "state.json").symlink_to("nowhere")),
        lambda path: ((path / "state.json").unlink(), path.rmdir(), path.write_text("a file")),
    ],
    ids=["missing", "empty", "half an archive", "a link to nothing", "a file itself"],
)
def test_what_is_not_complete_is_passed_over(tmp_path, broken):
    for number in (20, 30):
        folder(tmp_path / f"checkpoint-{number}")
    rule = CheckpointLayout(str(tmp_path), "checkpoint-", ("state.json",))
    assert newest_complete_checkpoint(rule, "") == str(tmp_path / "checkpoint-30")
    broken(tmp_path / "checkpoint-30")
    assert newest_complete_checkpoint(rule, "") == str(tmp_path / "checkpoint-20")


def test_a_part_may_be_a_folder_and_files_are_checkpoints_where_nothing_else_is_asked_of_them(tmp_path):
    (tmp_path / "step_3" / "optimizer").mkdir(parents=True)
    rule = CheckpointLayout(str(tmp_path), "step_", ("optimizer",))
    assert newest_complete_checkpoint(rule, "") == str(tmp_path / "step_3")
    (tmp_path / "model_5.pt").write_bytes(archive())
    (tmp_path / "model_9.pt").write_bytes(archive()[:-1])
    rule = CheckpointLayout(str(tmp_path), "model_", (), ".pt")
    assert newest_complete_checkpoint(rule, "") == str(tmp_path / "model_5.pt")
    assert newest_complete_checkpoint(rule._replace(complete=("state.json",)), "") == ""


@pytest.mark.parametrize(
    ("data", "is_whole"),
    [
        (archive(), True), (archive()[:-1], False), (archive()[:2000], False), (b"PK\3\4", False), (b"", False),
        (b"\x80\x02pickle", True), (b"PK", True),
    ],
    ids=["archive", "its last byte is missing", "its end is missing", "its begin", "empty", "pickle", "two letters"],
)  # fmt: skip
def test_the_one_file_must_be_whole(tmp_path, data, is_whole):
    (tmp_path / "ckpt.pt").write_bytes(data)
    assert is_complete_file(str(tmp_path / "ckpt.pt")) is is_whole
    rule = CheckpointLayout(str(tmp_path), "", (), "", "ckpt.pt")
    assert newest_complete_checkpoint(rule, "") == (str(tmp_path / "ckpt.pt") if is_whole else "")


def test_where_nothing_can_be_read_there_is_none(tmp_path):
    rule = CheckpointLayout(str(tmp_path / "none"), "checkpoint-", ())
    assert newest_complete_checkpoint(rule, "") == ""
    assert newest_complete_checkpoint(rule._replace(file="ckpt.pt"), "") == ""
    os.mkfifo(tmp_path / "ckpt.pt")
    assert newest_complete_checkpoint(CheckpointLayout(str(tmp_path), "", (), "", "ckpt.pt"), "") == "", (
        "a pipe would be waited for"
    )


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/out/checkpoint-20", 20), ("/out/checkpoint-020/", 20), ("/o-7/step_3.d", 3), ("/out-7/ckpt.pt", 0),
        ("", 0), ("/out/checkpoint-" + "9" * 5000, 999999999999), ("/out/²", 0), ("it 8 of 9", 9),
    ],
)  # fmt: skip
def test_the_step_is_the_last_number_of_a_name(path, number):
    assert step_in_name(path) == number


def test_the_rule_of_a_real_plan_finds_them(tmp_path):
    made = prepare_without_errors(profile(FULL_RECIPE), facts()).plan
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(made))
    rule = supervisor_plan.read_plan(str(tmp_path)).attempts[0].checkpoints
    folder(tmp_path / "output" / "checkpoint-7", rule.complete)
    assert newest_complete_checkpoint(rule, str(tmp_path)) == str(tmp_path / "output" / "checkpoint-7")

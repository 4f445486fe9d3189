"""Runs and profiles are removed, renamed, noted and copied; nothing is lost that nobody named."""

import contextlib
import json
import os
import subprocess
import sys

import pexpect
import pytest
from support import (
    create_run,
    profile,
    run_cli,
    run_launch_script,
    sleeper_profile,
    wait_until,
)

from tui_train.base.app_paths import profiles_folder, runs_folder
from tui_train.base.errors import AlreadyExists, BadInput, CannotWrite, NotFound, Unavailable
from tui_train.profile import store
from tui_train.runner.system.folder_usage import folder_usage
from tui_train.runs import folders, incomplete_runs, run_folders
from tui_train.runs.local_start import start_run
from tui_train.runs.remote_run import RunLocation, write_run_location
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
COMMAND = [sys.executable, "-m", "tui_train"]


def ended(name="sleeper", *arguments):
    """A run that has ended."""
    chosen = sleeper_profile("--seconds=0", *arguments, name=name)
    run = create_run(chosen)
    run_launch_script(run)
    return run


@pytest.fixture
def live():
    """A run that trains until the test has ended."""
    run = create_run(sleeper_profile("--seconds=100", name="live"))
    start_run(run)
    yield run
    stop_local_run(run, at_once=True)


def said(*words, **more):
    done = run_cli(*words, **more)
    return done.stdout + done.stderr


# ---- removing runs


def test_a_removed_run_is_gone_with_what_it_took_and_nothing_else(tmp_path):
    outside = tmp_path / "kept"
    outside.mkdir()
    (outside / "model").write_bytes(b"x" * 5000)
    run, other = ended(), ended("other")
    (run.path / "link").symlink_to(outside)
    (run.path / "output").mkdir()
    (run.path / "output" / "big").write_bytes(os.urandom(3 << 20))
    taken = folder_usage(str(run.path)).size
    assert 3 << 20 <= taken < 5 << 20
    assert folders.remove_run(run) == taken
    assert [left.name for left in run_folders.list_runs()] == [other.name]
    assert (outside / "model").stat().st_size == 5000
    assert not list(runs_folder().glob(f"{incomplete_runs.INCOMPLETE_RUN_PREFIX}*"))


def test_a_live_run_stays(live):
    for change in (folders.remove_run, lambda run: folders.rename_run(run, "other")):
        with pytest.raises(Unavailable) as refused:
            change(live)
        assert f"tui-train stop {live.name}" in refused.value.remedy
    assert read_status(live).is_live
    assert "Stop it first" in said("runs", "rm", live.name, "--yes", code=69)
    assert run_folders.list_runs() == (live,)


def test_only_folders_of_the_runs_folder_are_removed(tmp_path):
    run = ended()
    elsewhere = tmp_path / "mine"
    run.path.rename(elsewhere)
    link = runs_folder() / "20260101-000000-link"
    link.symlink_to(elsewhere)
    for path in (elsewhere, link):
        with pytest.raises(BadInput):
            folders.remove_run(run_folders.RunFolder(path))
        run_cli("runs", "rm", str(path), "--yes", code=65)
    run_cli("runs", "rm", str(tmp_path), "--yes", code=66)
    assert (elsewhere / "launch.sh").is_file()
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove everything")
def test_nothing_is_removed_where_not_all_can_be():
    run = ended()
    (run.path / "closed").mkdir(mode=0o500)
    with pytest.raises(CannotWrite):
        folders.remove_run(run)
    (run.path / "closed").chmod(0o700)
    assert (run.path / "launch.sh").is_file()


def test_a_host_says_where_not_all_could_be_removed():
    folder = runs_folder() / "run"
    (folder / "kept").mkdir(parents=True)
    (folder / "launch.sh").touch()
    code = (
        "import sys; from tui_train.runner.questions.run_start import remove_run\n"
        "remove_run({'folder': sys.argv[1], 'ended': True})"
    )
    # A folder on which something is mounted stays, whoever removes it.
    script = 'mount -t tmpfs none "$1/kept" && exec "$0" -c "$2" "$1"'
    within = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, sys.executable, str(folder)]
    if subprocess.run([*within, "pass"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: a folder of a host that cannot be removed: only root may mount one")
    done = subprocess.run([*within, code], capture_output=True, text=True, check=False)
    assert f"not all of {folder} could be removed" in done.stderr
    assert "dropped" not in done.stdout


def test_several_are_removed_together_or_not_at_all():
    runs = [ended(), ended(), ended()]
    names = [run.name for run in runs]
    assert "nobody" in said("runs", "rm", names[0], "nobody", "--yes", code=66)
    assert "Add --yes" in said("runs", "rm", *names, code=69)
    assert len(run_folders.list_runs()) == 3
    text = said("runs", "rm", names[0], names[1], names[0], "--yes")
    assert "removed 2 runs, freed" in text
    assert [run.name for run in run_folders.list_runs()] == names[2:]


def test_a_profile_name_removes_no_run():
    ended("mine")
    run_cli("runs", "rm", "mine", "--yes", code=66)
    assert len(run_folders.list_runs()) == 1


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
def test_removing_asks_on_a_terminal(answer, left):
    run = ended()
    child = pexpect.spawn(COMMAND[0], [*COMMAND[1:], "runs", "rm", run.name], timeout=60, encoding="utf-8")
    child.expect("Remove 1 run, .*y/N")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    assert len(run_folders.list_runs()) == left


# ---- names and notes


def test_a_renamed_run_keeps_its_time_its_place_and_its_state():
    first, second = ended("first", "--code=3"), ended("second")
    renamed = folders.rename_run(first, "Better Name!")
    assert renamed.name == f"{first.name[:15]}-better-name"
    assert renamed.label == "better-name"
    assert [run.name for run in run_folders.list_runs()] == [second.name, renamed.name]
    assert (read_status(renamed).state, read_status(renamed).exit_code) == ("failed", 3)
    start_run(renamed, resume=True)
    wait_until(lambda: not read_status(renamed).is_live)
    assert len(read_status(renamed).attempts) == 2


@pytest.mark.parametrize(("place", "refused"), [(None, True), ("shared", True), ("its own", False)])
def test_a_run_with_copies_by_its_name_on_other_hosts_keeps_it(place, refused):
    run = ended()
    plan = json.loads((run.path / "plan.json").read_text())
    (run.path / "plan.json").write_text(json.dumps({**plan, "hosts": ["box", "second", "third"]}))
    if place:
        write_run_location(run.path, RunLocation("box", "/there/run", shared=place == "shared"))
    with (
        pytest.raises(Unavailable, match="copies of that name on second, third")
        if refused
        else contextlib.nullcontext()
    ):
        folders.rename_run(run, "better")
    assert run.path.exists() == refused


def test_a_run_that_is_only_a_time_keeps_it_with_its_name():
    run = ended()
    bare = run_folders.RunFolder(run.path.rename(run.path.with_name(run.name[:15])))
    assert bare.label == bare.name
    assert folders.rename_run(bare, "better").name == f"{bare.name}-better"


@pytest.fixture
def disk(mounted, monkeypatch):
    """A disk of its own for the runs."""
    folder = mounted("-t", "tmpfs", "-o", "size=2m", "tmpfs")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@ROOT
@pytest.mark.parametrize(
    "words", [("mv", "last", "better"), ("note", "last", "new"), ("note", "last", ""), ("rm", "last", "--yes")]
)
def test_on_a_disk_that_is_read_only_nothing_changes(disk, words):
    run = ended()
    folders.write_note(run, "old")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert str(run.path) in said("runs", *words, code=73)
    assert run_folders.list_runs() == (run,)
    assert run.note() == "old"


@ROOT
def test_on_a_full_disk_a_note_stays_and_a_run_can_be_renamed_and_removed(disk):
    run = ended()
    folders.write_note(run, "old")
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    assert "The disk is full" in said("runs", "note", "last", "new", code=73)
    assert run.note() == "old"
    said("runs", "mv", "last", "better")
    said("runs", "rm", "last", "--yes")
    assert run_folders.list_runs() == ()


@ROOT
def test_a_run_folder_that_is_a_disk_of_its_own_is_neither_renamed_nor_removed():
    run = ended()
    inside = run_folders.RunFolder(run.path.with_name(f"{run.name}-mounted"))
    inside.path.mkdir()
    subprocess.run(["mount", "--bind", run.path, inside.path], check=True)
    try:
        for change in (folders.remove_run, lambda each: folders.rename_run(each, "better")):
            with pytest.raises(CannotWrite, match="busy"):
                change(inside)
        assert {each.name for each in run_folders.list_runs()} == {run.name, inside.name}
    finally:
        subprocess.run(["umount", "-l", inside.path], check=True)


def test_names_that_are_none_or_taken_change_nothing():
    first, second = ended("first"), ended("second")
    with pytest.raises(BadInput):
        folders.rename_run(first, " /../ ")
    taken = first.path.with_name(f"{first.name[:15]}-taken")
    taken.mkdir()
    with pytest.raises(AlreadyExists):
        folders.rename_run(first, "taken")
    assert folders.rename_run(first, "first") == first
    assert {run.name for run in run_folders.list_runs()} == {first.name, second.name}


def test_a_list_says_how_far_runs_are():
    run = ended()
    run.attempt_log(1).write_text("step 40/150 | loss 2.5\n")
    head, row = said("runs").splitlines()
    assert head.split() == ["run", "state", "started", "took", "step", "loss"]
    assert row.split()[-2:] == ["40/150", "2.500"]


def test_notes_are_one_line_in_the_run_and_in_lists():
    run = ended()
    run_cli("runs", "note", "last", "batch 32\n\x1b[31mred")
    assert "\x1b" in run.note()
    listed = said("runs")
    assert "batch 32" in listed
    assert "\x1b" not in listed
    assert json.loads(said("runs", "--json"))[0]["note"].startswith("batch 32")
    assert "batch 32" in said("runs", "note", run.name)
    run_cli("runs", "note", run.name, "x" * 500, code=65)
    run_cli("runs", "note", run.name, "")
    assert "has no note" in said("runs", "note", run.name)
    assert not run.note_file.exists()


def test_a_run_is_found_by_its_profile():
    ended("mine")
    newest = ended("mine")
    other = ended("other")
    renamed = folders.rename_run(other, "again")
    assert run_folders.find_run("mine") == newest
    assert run_folders.find_run("again") == run_folders.find_run("other") == renamed
    assert said("logs", "mine") == said("logs", newest.name)
    with pytest.raises(NotFound, match="mine is the name of a profile, and this takes a run") as refused:
        run_folders.find_run("mine", by_profile=False)
    assert newest.name in refused.value.remedy


def test_stop_last_ends_the_newest_live_run(live):
    newer = ended("newer")
    assert run_folders.find_run("last") == newer
    text = said("stop", "last")
    assert live.name in text
    assert not read_status(live).is_live
    assert newer.name in said("stop", "last")


# ---- profiles


def test_profiles_are_copied_renamed_and_removed():
    store.save_profile(profile({"name": "a", "recipe.steps": 7}))
    run_cli("profiles", "cp", "a", "b")
    run_cli("profiles", "mv", "a", "c")
    assert store.saved_profile_names() == ("b", "c")
    assert store.load_profile_file("c") == profile({"name": "c", "recipe.steps": 7})
    assert "Add --yes" in said("profiles", "rm", "b", code=69)
    run_cli("profiles", "rm", "b", "nobody", "--yes", code=66)
    assert store.saved_profile_names() == ("b", "c")
    run_cli("profiles", "rm", "b", "c", "--yes")
    assert json.loads(said("profiles", "--json")) == []


def test_values_of_a_saved_profile_change_and_the_others_stay():
    store.save_profile(profile({"name": "a", "recipe.steps": 7, "recipe.seed": 3}))
    assert "profiles change a --set" in said("new", "a", code=73)
    run_cli("profiles", "change", "a", "--set", "recipe.steps=9")
    assert store.load_profile_file("a") == profile({"name": "a", "recipe.steps": 9, "recipe.seed": 3})
    assert "nothing to change" in said("profiles", "change", "a", code=64)
    run_cli("profiles", "change", "nobody", "--set", "recipe.steps=9", code=66)
    run_cli("profiles", "change", "a", "--set", "recipe.steps=x", code=65)
    assert store.load_profile_file("a").recipe.steps == 9


def test_comments_survive_another_name():
    profiles_folder().mkdir(parents=True)
    lines = ("# for the paper", "schema = 2", 'name   = "a" # short', "[recipe]", "steps = 7 # enough")
    text = "\n".join((*lines, "[trainer.environment]", 'name = "x"', ""))
    (profiles_folder() / "a.toml").write_text(text)
    store.rename_profile("a", "b")
    kept = (profiles_folder() / "b.toml").read_text()
    assert "# for the paper" in kept
    assert "# enough" in kept
    assert store.load_profile_file("b") == profile(
        {"name": "b", "recipe.steps": 7, "trainer.environment": {"name": "x"}}
    )


@pytest.mark.parametrize("new", ["taken", "../out", "a/b", "", ".hidden", "x.toml"])
def test_a_name_that_cannot_be_loses_nothing(new):
    for name in ("a", "taken"):
        store.save_profile(profile({"name": name, "recipe.seed": len(name)}))
    for change in (store.rename_profile, store.duplicate_profile):
        with pytest.raises((AlreadyExists, BadInput)):
            change("a", new)
    assert store.saved_profile_names() == ("a", "taken")
    assert store.load_profile_file("taken").recipe.seed == 5


def test_a_profile_that_cannot_be_read_can_be_removed_only():
    profiles_folder().mkdir(parents=True)
    (profiles_folder() / "bad.toml").write_text("name = ")
    with pytest.raises(BadInput):
        store.rename_profile("bad", "good")
    with pytest.raises(NotFound):
        store.remove_profile("../bad")
    store.remove_profile("bad")
    assert store.saved_profile_names() == ()

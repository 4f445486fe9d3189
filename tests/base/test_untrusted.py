"""Damaged, hostile and simultaneous: files that others may have made, folders that are not ours, two at once."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from damaged_runs import (
    DEEPLY_NESTED,
    ENDED_RUN_EVENTS,
    REPLACEMENTS,
    START_EVENT_LINE,
    UNPRIVILEGED_COMMAND,
    content_writer,
    new_run,
)
from support import facts, prepare_without_errors, profile, run_cli, sample

from tui_train.base.app_paths import profiles_folder, runs_folder
from tui_train.base.errors import AlreadyExists, BadInput, CannotWrite, NotFound, TuiTrainError
from tui_train.base.files import open_regular_file, read_regular_file, write_if_absent
from tui_train.profile import store
from tui_train.runner.system.safe_open import read_bounded
from tui_train.runs import incomplete_runs, run_folders
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.follow import rank_reader_of_attempt
from tui_train.runs.status import read_listed_runs
from tui_train.views import plain_text

SOMEBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: who owns what, which takes root")


DAMAGE = {
    "bytes": content_writer(START_EVENT_LINE + b'{"time":1,"event":"\xff"}\n'),
    "number": content_writer(START_EVENT_LINE.replace(b"1700000000", b"100000000000000000000")),
    "pid": content_writer(START_EVENT_LINE.replace(b'"pid":1', b'"pid":' + b"9" * 20)),
    "digits": content_writer(b'{"time":' + b"9" * 5000 + b"}\n"),
    "deep": content_writer(DEEPLY_NESTED + b"\n"),
    "deep inside": content_writer(b'{"time":1,"event":"a","x":' + DEEPLY_NESTED + b"\n"),
    **{name: REPLACEMENTS[name] for name in ("pipe", "endless", "large", "folder")},
}


# In a plan these are numbers like others.
OF_EVENTS = {"number", "pid"}


DAMAGED = [*product(["events.jsonl"], DAMAGE), *product(["plan.json"], sorted(DAMAGE.keys() - OF_EVENTS))]


@pytest.mark.parametrize(("name", "damage"), sample(DAMAGED, 6))
def test_a_damaged_run_is_listed_with_the_reason_and_hides_no_other(name, damage):
    before, broken, after = new_run("before"), new_run("broken"), new_run("after")
    DAMAGE[damage](broken.path / name)
    listed = {each.run: each for each in read_listed_runs()}
    assert [bool(listed[run].damage) for run in (before, broken, after)] == [False, True, False]
    assert name in listed[broken].damage
    assert all(plain_text.listed_run_row(each) for each in listed.values())
    # What plans and watches goes on, too.
    assert resources_in_use() == ()
    rank_reader_of_attempt(broken, 1)
    broken.log_reading_options()
    broken.attempt_titles()


def test_a_damaged_line_leaves_the_state_that_the_others_tell():
    run = new_run()
    run.events_file.write_bytes(
        START_EVENT_LINE + b"no event\n" + b'{"time":1700000009,"event":"run_ended","state":"failed"'
    )
    assert [event.event for event in run.events()] == ["run_started"]
    listed = read_listed_runs()[0]
    assert plain_text.listed_run_row(listed)[1] == "lost, damaged"
    assert "line 2" in listed.damage
    run.events_file.write_bytes(START_EVENT_LINE + b'{"time":1700000009,"eve')
    assert read_listed_runs()[0].damage == ""


def test_a_number_that_no_time_has_is_damage_where_it_would_end_the_list():
    run = new_run()
    for number in ("1e300", "-5", "99999999999999999999"):
        run.events_file.write_bytes(START_EVENT_LINE.replace(b"1700000000", number.encode()))
        listed = read_listed_runs()[0]
        assert (listed.status, plain_text.listed_run_row(listed)[1]) == (None, "damaged"), number


def test_a_regular_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "file", 5) == read_regular_file(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError, match="larger than"):
        read_regular_file(tmp_path / "file", 4)
    opened = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_bounded("file", 5, opened) == b"12345"
        with pytest.raises(OSError, match="link"):
            read_bounded("link", 5, opened)
    finally:
        os.close(opened)
    with pytest.raises(OSError, match="null"):
        open_regular_file("a\0b")


@AS_ROOT
def test_nothing_is_exported_into_another_users_folder(tmp_path):
    files = prepare_without_errors(profile({"hardware.device": "cpu"}), facts()).files
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    for overwrite in (False, True):
        with pytest.raises(CannotWrite, match="belongs to"):
            run_folders.export_plan_files(theirs, files, overwrite=overwrite)
    assert [*theirs.iterdir()] == []
    # What is made there is ours.
    assert run_folders.export_plan_files(theirs / "mine", files)


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_is_exported_through_a_link_that_leaves_the_folder(tmp_path, overwrite):
    files = prepare_without_errors(profile({"hardware.device": "cpu"}), facts()).files
    inner = sorted({file.path.partition("/")[0] for file in files if "/" in file.path})
    assert inner
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    target.mkdir()
    elsewhere.mkdir()
    for name in inner:
        (target / name).symlink_to(elsewhere)
    with pytest.raises(CannotWrite):
        run_folders.export_plan_files(target, files, overwrite=overwrite)
    assert [*elsewhere.iterdir()] == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_never_followed(tmp_path):
    files = prepare_without_errors(profile({"hardware.device": "cpu"}), facts()).files
    (tmp_path / "mine").write_text("mine")
    target = tmp_path / "target"
    target.mkdir()
    for link in (tmp_path / "mine", tmp_path / "not there"):
        (target / "launch.sh").unlink(missing_ok=True)
        (target / "launch.sh").symlink_to(link)
        with pytest.raises(AlreadyExists):
            run_folders.export_plan_files(target, files)
    run_folders.export_plan_files(target, files, overwrite=True)
    assert not (target / "launch.sh").is_symlink()
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "not there").exists()


def at_once(number, act):
    """Do something in so many threads, begun together; return what each came to."""
    barrier = threading.Barrier(number)

    def one(index):
        barrier.wait()
        try:
            return act(index)
        except TuiTrainError as error:
            return error

    with ThreadPoolExecutor(number) as several:
        return [*several.map(one, range(number))]


def test_of_many_profiles_saved_at_once_under_one_name_none_is_lost():
    for number in range(20):
        chosen = profile({"name": f"p{number}"})
        results = at_once(8, lambda _, chosen=chosen: store.save_profile(chosen))
        assert sum(isinstance(result, Path) for result in results) == 1, results
        assert sum(isinstance(result, AlreadyExists) for result in results) == 7


def test_of_many_exports_at_once_into_one_folder_one_is_whole(tmp_path):
    files = prepare_without_errors(profile({"hardware.device": "cpu"}), facts()).files
    for round_ in range(10):
        results = at_once(4, lambda _, to=tmp_path / str(round_): run_folders.export_plan_files(to, files))
        assert sum(isinstance(result, tuple) for result in results) <= 1
        assert all(isinstance(result, (tuple, AlreadyExists)) for result in results)
        assert (tmp_path / str(round_) / "launch.sh").read_text() == files[0].text


def test_where_there_are_no_links_a_file_is_still_never_lost(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert write_if_absent(tmp_path / "a", "first")
    assert not write_if_absent(tmp_path / "a", "second")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "first"


@pytest.mark.whole
def test_names_never_reach_the_terminal_raw():
    profiles_folder().mkdir(parents=True)
    (profiles_folder() / "evil\x1b]0;owned\x07\u202e.toml").write_text("")
    for arguments, code in ((("profiles",), 0), (("plan", "nope"), NotFound.exit_code)):
        done = run_cli(*arguments, code=code)
        said = done.stdout + done.stderr
        assert "evil" in said
        assert not {"\x1b", "\x07", "\u202e"} & set(said)


ZONES = ("Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin", "UTC")


def test_the_last_run_is_the_newest_in_every_zone_and_after_the_clock_was_set_back(monkeypatch):
    made = []
    try:
        for zone in ZONES * 2:
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            made.append(new_run("run"))
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    for year in ("2031", "1999"):
        monkeypatch.setattr(run_folders.time, "strftime", lambda _, year=year: f"{year}0101-000000")
        made.append(new_run("run"))
    assert [run.name for run in run_folders.list_runs()] == [run.name for run in made[::-1]]
    assert run_folders.find_run("last") == made[-1]


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"9" * 12, b"9" * 5000, b"\xff", "²".encode()])
def test_a_number_of_a_run_that_is_none_makes_it_the_oldest(data):
    odd, run = new_run("odd"), new_run("run")
    (odd.path / ".number").write_bytes(data)
    assert run_folders.list_runs() == (run, odd)
    assert new_run("next") == run_folders.find_run("last")


def test_half_made_folders_are_removed_later_and_never_while_they_are_made(monkeypatch):
    first = new_run("first")
    parent = runs_folder()
    dead, live = parent / ".new-dead", parent / ".new-live"
    for path in (dead, live):
        path.mkdir()
        (path / "launch.sh").write_text("")
    (parent / ".new-file").write_text("")
    (parent / ".new-link").symlink_to(first.path)
    real = time.time
    incomplete_runs.remove_abandoned_runs(parent)
    assert dead.is_dir()
    with incomplete_runs.lock_while_creating(live):
        monkeypatch.setattr(incomplete_runs.time, "time", lambda: real() + 2 * 3600)
        incomplete_runs.remove_abandoned_runs(parent)
        assert not dead.exists()
        assert live.is_dir()
    incomplete_runs.remove_abandoned_runs(parent)
    assert not live.exists()
    assert first.launch_script.is_file()
    assert (parent / ".new-file").exists()


def test_runs_that_were_never_started_are_removed_after_a_day(monkeypatch):
    never, started, used = new_run("never"), new_run("started"), new_run("used")
    killed, spoke = new_run("killed"), new_run("spoke")
    killed.launch_log.touch()
    spoke.launch_log.write_text("launch.sh: no GPU\n")
    started.events_file.write_bytes(START_EVENT_LINE)
    mine = runs_folder() / "my own folder"
    exported = run_folders.export_plan_files(
        mine, prepare_without_errors(profile({"hardware.device": "cpu"}), facts()).files
    )
    real = time.time
    os.utime(used.path, (real() + 60, real() + 60))
    incomplete_runs.remove_abandoned_runs(runs_folder())
    assert never.path.is_dir()
    monkeypatch.setattr(incomplete_runs.time, "time", lambda: real() + 2 * 86400)
    incomplete_runs.remove_abandoned_runs(runs_folder())
    assert not never.path.exists()
    assert not killed.path.exists()
    assert all(path.exists() for path in (started.path, used.path, spoke.path, *exported))


@AS_ROOT
def test_what_another_user_left_is_not_removed(monkeypatch):
    runs_folder().mkdir(parents=True)
    theirs = runs_folder() / ".new-theirs"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    real = time.time
    monkeypatch.setattr(incomplete_runs.time, "time", lambda: real() + 10 * 86400)
    incomplete_runs.remove_abandoned_runs(runs_folder())
    assert theirs.is_dir()


def test_a_run_that_is_not_there_is_told_with_names_made_visible():
    for name in ("a", "b"):
        path = runs_folder() / f"20260101-000000-\x1b[31m{name}"
        path.mkdir(parents=True)
        (path / "launch.sh").write_text("")
    with pytest.raises(NotFound) as caught:
        run_folders.find_run("20260101")
    assert "\x1b" not in caught.value.remedy


@pytest.mark.parametrize(
    ("command", "kind"),
    sample(product([("logs",), ("logs", "--follow"), ("attach",)], sorted(REPLACEMENTS.keys() - {"large"})), 4),
)
def test_a_log_that_cannot_be_read_is_told_at_once(kind, command):
    run = new_run()
    run.events_file.write_bytes(ENDED_RUN_EVENTS)
    REPLACEMENTS[kind](run.attempt_log(1))
    words = [*UNPRIVILEGED_COMMAND, sys.executable, "-m", "tui_train", command[0], "last", *command[1:]]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=15, check=False)
    told = done.stdout + done.stderr
    assert "attempt-1.log" in told or "attempt 1" in told, told
    assert any(word in told for word in ("ermission", "folder", "pipe", "device", "level")), told
    assert done.returncode == (BadInput.exit_code if command == ("logs",) else 0), told


def test_logs_of_a_run_whose_events_cannot_be_read_say_so():
    run = new_run()
    run.events_file.write_bytes(b"no event\n")
    assert "damaged: events.jsonl, line 1" in run_cli("logs", run.name, code=BadInput.exit_code).stderr

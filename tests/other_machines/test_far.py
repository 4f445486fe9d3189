"""Runs on a host over a real ssh: started, watched, stopped, resumed and fetched from a machine that knows its name."""

import ast
import asyncio
import json
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
import ssh as secure_shell
from fake_driver import driver_environment
from pilot import go_to_fields, press_keys, screen_text, until_true, wait_for_step, wait_for_text, wait_for_workers
from ssh import runs_of_host
from support import prepare, profile, run_cli, sleeper_profile, wait_until
from textual.widgets import Input
from tui_train.screens.run import run_end
from tui_train.screens.widgets.form.entry import Entry

from tui_train.base import app_paths
from tui_train.base.errors import BadInput, NoAnswer, Unavailable
from tui_train.channel.runner_zip import runner_texts
from tui_train.facts.machine import probe
from tui_train.facts.machine.folder_names import RemoteFolderNames
from tui_train.places import host_questions, place_of_run
from tui_train.places.fetched_results import fetch_results
from tui_train.places.place import Place
from tui_train.places.run_mirror import RunMirror
from tui_train.plan.run_files import RenderedFile
from tui_train.profile import hosts
from tui_train.profile.fields import profile_with_value
from tui_train.profile.store import save_profile
from tui_train.runner.machines.ssh import ssh_failure_advice
from tui_train.runner.system.processes import Process
from tui_train.runs import run_folders
from tui_train.runs.remote_run import RunLocation, read_remote_location, read_unconfirmed_start
from tui_train.runs.results.resuming import are_results_here
from tui_train.runs.status import read_listed_run, read_status
from tui_train.views import plain_text
from tui_train.wizard import make_wizard

pytestmark = pytest.mark.training

SLEEPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
for tick in range(1, int(sys.argv[1]) + 1):
    print(f"tick {tick}", flush=True)
    time.sleep(0.1)
os.makedirs(sys.argv[2], exist_ok=True)
open(sys.argv[2] + "/made.txt", "w").write("x" * 2000)
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host `box` that has python3 and bash and nothing of this program, with a home of its own."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    with secure_shell.bare_host(tmp_path, monkeypatch, SLEEPER, what="runs on a host over ssh") as home:
        yield home


def sleeper(host, ticks=3, **values):
    """The saved profile `far` of a script on the host, which counts, and writes a file at its end."""
    chosen = sleeper_profile(str(ticks), "{output}", **{"name": "far", "trainer.script": f"{host}/train.py"} | values)
    save_profile(chosen, overwrite=True)
    return chosen


def test_a_run_on_a_host_is_watched_to_its_end_and_fetched(host):
    sleeper(host, ticks=12)
    lines = run_cli("run", "far", "--host", "box").stdout.splitlines()
    (there,) = runs_of_host(host)
    assert lines[0].startswith(f"{there.name} runs on box, in {there};")
    assert lines[1:-1] == [f"tick {number}" for number in range(1, 13)]
    assert lines[-1] == f"{there.name}: finished on box"
    run = run_folders.find_run("last")
    assert (read_remote_location(run.path).folder, run.events()[-1].state) == (str(there), "finished")
    assert run_cli("logs", "last").stdout.splitlines()[-1] == "tick 12"
    assert json.loads(run_cli("runs", "--json").stdout)[0]["host"] == "box"
    assert not (run.path / "output").exists()
    assert "KiB fetched from box" in run_cli("fetch", "last").stdout
    assert (run.path / "output" / "made.txt").read_text() == "x" * 2000
    assert are_results_here(run)
    assert run.attempt_log(1).read_bytes().endswith(b"tick 12\n")
    run.path.rename(run.path.with_name(".gone"))
    listed = run_cli("runs", "--on", "box").stdout.splitlines()[1].split()
    assert listed[:2] == [there.name, "finished"], "what another machine started is listed as well"


@pytest.mark.whole
def test_a_report_of_a_run_holds_the_facts_of_its_host_or_none(host, tmp_path):
    sleeper(host, ticks=1)
    run_cli("run", "far", "--host", "box")
    run_cli("report", "last", str(tmp_path / "with.tar.gz"))
    (tmp_path / "client" / "ssh").write_text("#!/bin/sh\nexit 255\n")
    assert "box" in run_cli("report", "last", str(tmp_path / "without.tar.gz")).stderr
    with tarfile.open(tmp_path / "with.tar.gz") as one, tarfile.open(tmp_path / "without.tar.gz") as other:
        held, left = ({Path(name).name for name in archive.getnames()} for archive in (one, other))
    assert held - left == {"machine.json"}


@pytest.mark.whole
def test_a_detached_run_is_listed_as_it_was_heard_of_last_stopped_and_started_again(host, monkeypatch):
    sleeper(host, ticks=600)
    run_cli("run", "far", "--host", "box", "--detach")
    run = run_folders.find_run("last")
    assert read_status(run).state == "running"
    listed = run_cli("runs").stdout
    assert ("running on box" in listed, "as of" in listed) == (True, False)
    with monkeypatch.context() as patch:
        later = time.time() + 120
        patch.setattr(plain_text.time, "time", lambda: later)
        assert "running on box, as of" in plain_text.listed_run_row(read_listed_run(run))[1]
    assert "still trains" in run_cli("fetch", "last", code=69).stderr
    assert not are_results_here(run)
    assert "is running" in run_cli("resume", "last", code=69).stderr
    assert "no process of it is left" in run_cli("stop", "last").stdout
    assert read_status(run).state == "stopped"
    # The supervisor has said its last, and is about to end.
    wait_until(lambda: not far_processes(run))
    assert "cannot resume" in run_cli("resume", "last", "--detach", code=69).stderr
    run_cli("resume", "last", "--detach", "--force")
    assert (read_status(run).state, len(read_status(run).attempts)) == ("running", 2)
    assert place_of_run(run).stop(run, at_once=True).state == "stopped"
    wait_until(lambda: not far_processes(run))


def far_processes(run):
    mark = read_remote_location(run.path).folder.encode()
    return [process for process in Path("/proc").glob("[0-9]*") if mark in _words(process)]


def _words(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.whole
def test_a_lost_link_is_told_and_changes_nothing_of_the_run(host):
    sleeper(host, ticks=80)
    run_cli("run", "far", "--host", "box", "--detach")
    run, told = run_folders.find_run("last"), []
    mirror = RunMirror(run, told.append)
    wait_until(lambda: told and "tick 9" in run.attempt_log(1).read_text())
    mirror._session.kill()
    wait_until(lambda: any(told))
    mirror.wait()
    assert read_status(run).state == "finished"
    assert run.attempt_log(1).read_text().splitlines() == [f"tick {number}" for number in range(1, 81)]
    assert told[0] == told[-1] == ""
    assert next(filter(None, told)).startswith("box does not answer")


@pytest.mark.whole
def test_what_does_not_start_leaves_no_folder_on_either_side(host):
    chosen = sleeper(host)
    place = Place("box")

    prepared = prepare(chosen, place.probe_facts_for(chosen))
    (host / "bin" / "bash").write_text("#!/bin/sh\nexit 3\n")
    (host / "bin" / "bash").chmod(0o755)
    with pytest.raises(Unavailable):
        place.submit(prepared, prepared.plan)
    assert run_folders.list_runs() == ()
    assert runs_of_host(host) == []


@pytest.mark.whole
def test_a_start_that_hangs_before_its_report_is_stopped_and_made_no_more(host, tmp_path):
    chosen, box = sleeper(host, ticks=600), Place("box")
    prepared = prepare(chosen, box.probe_facts_for(chosen))
    bash = host / "bin" / "bash"
    bash.write_text('#!/bin/sh\n[ "$1" != -c ] || exec /bin/bash "$@"\nexec sleep 600\n')
    bash.chmod(0o755)

    def launchers():
        records = (json.loads(path.read_text()) for path in host.glob(".local/state/tui-train/runs/*/.start-*[!w]"))
        return [Process(*record["launcher"]) for record in records if "launcher" in record]

    cut = threading.Thread(target=lambda: wait_until(launchers, 60) and secure_shell.cut_connections_later(tmp_path, 0))
    cut.start()
    with pytest.raises(NoAnswer, match="did not confirm"):
        box.submit(prepared, prepared.plan)
    cut.join()
    run, (launcher,) = run_folders.find_run("last"), launchers()
    asked = read_unconfirmed_start(run.path)
    assert (read_status(run).state, launcher.is_alive) == ("unconfirmed", True)
    assert "had not started" in run_cli("stop", "last").stdout
    assert (read_status(run).state, launcher.is_alive) == ("new", False)
    bash.unlink()
    assert not host_questions.ask_start(read_remote_location(run.path), asked).started
    assert far_processes(run) == []


def test_hosts_that_cannot_be_reached_each_have_a_sentence(host):
    sleeper(host)
    unknown = run_cli("run", "far", "--host", "no-such-host-at-all", code=69).stderr
    assert "no-such-host-at-all" in unknown
    with pytest.raises(BadInput):
        host_questions.ask_report(RunLocation("-oProxyCommand=x", "/"))
    run_cli("run", "far", "--host", "box")
    run = run_folders.find_run("last")
    (there,) = runs_of_host(host)
    there.rename(there.with_name("gone"))
    with pytest.raises(Unavailable, match="is gone"):
        fetch_results(run)
    with pytest.raises(Unavailable, match="is gone"):
        place_of_run(run).resume(run)
    assert "finished on box" in run_cli("runs").stdout
    assert "tick 3" in run_cli("logs", "last").stdout


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (b"Host key verification failed.", "key is not known here yet"),
        (b"me@box: Permission denied (publickey,password).", "asks for a password"),
        (b"ssh: Could not resolve hostname box: Name or service not known", "unknown: check it"),
        (b"ssh: connect to host box port 22: Connection refused", "No ssh server"),
        (b"ssh: connect to host box port 22: Connection timed out", "does not answer"),
        (b"bash: line 1: python3: command not found", "Install python3"),
        (b"bash: line 1: exec: python3: not found", "Install python3"),
        (b"sh: 1: exec: python3: not found", "Install python3"),
        (b"zsh:1: command not found: python3", "Install python3"),
        (b"fish: Unknown command: python3", "Install python3"),
        (b"python3: Command not found.", "Install python3"),
        (b"\x1b[31mstrange\x1b[0m", "strange"),
        (b"", "nothing"),
    ],
)
def test_what_ssh_says_has_a_remedy(said, part):
    words = ssh_failure_advice(said)
    assert part in words
    assert "\x1b" not in words


def test_files_that_lead_elsewhere_are_not_put(host):
    with pytest.raises(Unavailable, match="no file of a run"):
        host_questions.create_run_folder_on_host(
            "box", run_folders.create_run_folder("x", []), [RenderedFile("../x", "x")]
        )
    assert runs_of_host(host) == []


def test_the_cards_of_a_host_are_read_from_its_driver(host):
    variables = " ".join(f"{name}={value}" for name, value in driver_environment("two-3090-one-busy").items())
    python = host / "bin" / "python3"
    real = python.resolve()
    python.unlink()
    python.write_text(f'#!/bin/sh\nexport {variables}\nexec {real} "$@"\n')
    python.chmod(0o755)
    gpus = json.loads(run_cli("facts", "--host", "box", "--json").stdout)["gpus"]
    assert [gpu["sm_count"] for gpu in gpus] == [82, 82], "nvidia-smi does not report it"


def test_the_program_that_is_sent_runs_in_old_pythons():
    for text in runner_texts().values():
        ast.parse(text, feature_version=(3, 8))


# Hosts by name


@pytest.mark.whole
def test_a_host_is_saved_by_name_and_a_profile_trains_on_it(host):
    assert "add" in run_cli("hosts").stdout
    run_cli("hosts", "add", "lab", "box")
    (listed,) = json.loads(run_cli("hosts", "--json").stdout)
    assert (listed["name"], listed["address"], listed["problem"]) == ("lab", "box", "")
    assert "lab is box" in run_cli("hosts", "add", "lab", "other", code=73).stderr
    assert "not a host name" in run_cli("hosts", "add", "bad", "x y", code=65).stderr
    assert run_cli("hosts", "rm", "none", code=66).stderr
    sleeper(host, **{"hardware.host": "lab"})
    assert "tick 3" in run_cli("run", "far").stdout
    assert read_remote_location(run_folders.find_run("last").path).host == "box"
    assert json.loads(run_cli("plan", "far", "--json").stdout)["plan"]["notes"][0].endswith("box.")
    assert "there is nothing to tune" in run_cli("tune", "far", code=65).stderr
    run_cli("run", "far", "--on", "lab")
    assert len(runs_of_host(host)) == 2
    run_cli("hosts", "rm", "lab")
    assert run_cli("hosts", "--json").stdout.split() == ["[]"]


@pytest.mark.parametrize("text", ["lab = 3\n", "lab = ''\n", "\udcff"])
def test_a_damaged_list_of_hosts_is_named_and_kept(host, text):
    del host
    path = app_paths.hosts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, errors="surrogateescape")
    for words in (("hosts",), ("hosts", "add", "lab"), ("plan", "quickstart", "--on", "lab")):
        assert str(path) in run_cli(*words, code=65).stderr
    assert path.read_text(errors="surrogateescape") == text


def test_an_export_for_the_host_of_a_profile_is_to_be_copied_there(host, tmp_path):
    sleeper(host, **{"hardware.host": "box"})
    assert "to box." in run_cli("export", "far", str(tmp_path / "out")).stdout


# The wizard


@pytest.mark.whole
async def test_hardware_goes_to_another_host_and_back(host):
    hosts.save_host("lab", "box")
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys("enter", "h", "down", "enter")(pilot)
        await wait_for_step(pilot, "Hardware")
        assert (app.profile.hardware.host, app.facts.other_machine) == ("lab", "box")
        assert "for lab" in screen_text(pilot)
        assert not app.place_for(profile()).name
        await press_keys("h", "down", "down", "enter", *"lab", "enter")(pilot)
        assert [*hosts.address_by_saved_host()] == ["lab"]
        await press_keys("h", "down", "down", "enter", *"nowhere-at-all", "enter")(pilot)
        await wait_for_step(pilot, "Hardware")
        assert "nowhere-at-all is not known" in " ".join(screen_text(pilot).split())
        assert "nowhere-at-all" not in hosts.address_by_saved_host(), "it has not answered"
        assert "CPU" not in screen_text(pilot).split("nowhere-at-all is not known")[1], "nothing is known of its CPU"
        await press_keys("h", "enter")(pilot)
        await wait_for_step(pilot, "Hardware")
        assert (app.profile.hardware.host, app.facts.other_machine) == ("", "")
        assert app.facts.machine.hostname == probe.probe_machine().hostname
        app.edits.set_profile(profile({"hardware.host": "lab"}))
        await wait_for_step(pilot, "Hardware")
        assert (app.profile.hardware.host, app.facts.other_machine) == ("lab", "box")


@pytest.mark.whole
async def test_other_hosts_are_asked_once_their_names_stand(host):
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys("enter", "enter")(pilot)
        await wait_for_step(pilot, "Backend")
        app.edits.set_profile(profile({"trainer.python": sys.executable, "hardware.device": "cpu"}))
        await wait_for_step(pilot, "Backend")
        await go_to_fields(pilot, "start", "nodes.hosts")
        await press_keys(*"me,box,nowhere")(pilot)
        assert (app.profile.nodes.hosts, app.facts.training_hosts) == (("me", "box", "nowhere"), {})
        await pilot.press("enter")
        await wait_for_step(pilot, "Recipe")
        box, nowhere = app.facts.training_hosts["box"], app.facts.training_hosts["nowhere"]
        assert (box.problem, box.toolchain and box.toolchain.python) == ("", sys.executable)
        assert nowhere.problem
        await press_keys("escape")(pilot)
        await wait_for_step(pilot, "Backend")
        # It is this machine itself.
        await press_keys("f2")(pilot)
        await wait_for_step(pilot, "Backend")
        assert app.profile.nodes.hosts == ("box", "me", "nowhere")
        app.edits.set_profile(
            profile({"trainer.python": sys.executable, "hardware.device": "cpu", "nodes.hosts": ("me", "box")})
        )
        await wait_for_step(pilot, "Backend")
        assert [*app.facts.training_hosts] == ["me", "box"]
        # What was said of its Python is nothing to an image.
        app.edits.set_profile(profile_with_value(app.profile, "container.engine", "docker"))
        await wait_for_step(pilot, "Backend")
        assert app.facts.training_hosts == {}
        app.edits.set_profile(profile({"trainer.python": sys.executable, "hardware.device": "cpu"}))
        await wait_for_step(pilot, "Backend")
        assert "answered" not in screen_text(pilot)


@pytest.mark.whole
async def test_paths_are_completed_by_the_names_on_the_host(host):
    (host / "only-there").mkdir()
    (host / "only-there" / "train.py").touch()
    app = make_wizard(place=Place("box"))
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys("enter", "enter")(pilot)
        await wait_for_step(pilot, "Backend")
        app.edits.set_profile(profile({"trainer.kind": "script"}))
        await wait_for_workers(pilot)
        await go_to_fields(pilot, "trainer.script")
        entry = app.screen.query_one(Entry)
        for typed, whole in (("~/on", "~/only-there/"), ("t", "~/only-there/train.py")):
            await press_keys(*typed)(pilot)
            await press_keys("tab")(pilot)
            assert entry.value == whole
        app.screen.action_ask_other_python()
        await press_keys(*"~/only-t", "tab")(pilot)
        assert app.screen.query_one(Input).value == "~/only-there/"
    assert RemoteFolderNames("box")("~/nothing") == []
    assert not RemoteFolderNames("not-a-host")("/")


@pytest.mark.whole
async def test_a_fetch_goes_on_when_its_screen_is_left(host, monkeypatch):
    sleeper(host)
    run_cli("run", "far", "--host", "box")
    run, (there,) = run_folders.find_run("last"), runs_of_host(host)
    (there / "output" / "large").write_bytes(bytes(64 << 20))
    monkeypatch.setattr(run_end, "PROGRESS_INTERVAL_SECONDS", 0.0)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        app.open_run(run)
        await wait_for_text(pilot, "fetch the result")
        await pilot.press("enter")
        await wait_for_text(pilot, "fetched …", during=True)
        with pytest.raises(Unavailable, match="is being fetched"):
            fetch_results(run)
        await pilot.press("escape")
        await asyncio.to_thread(wait_until, lambda: are_results_here(run), 60)
    assert (run.path / "output" / "large").stat().st_size == 64 << 20
    assert not list(run.path.rglob("*.part"))


async def test_preview_starts_on_the_host_and_run_follows_it(host):
    chosen = sleeper(host, ticks=30)
    app = make_wizard(place=Place("box"))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        app.edits.set_profile(chosen, save_as_draft=False)
        await wait_for_workers(pilot)
        await pilot.press("n", "enter")
        app.edits.set_profile(chosen, save_as_draft=False)
        for step in ("Hardware", "Backend", "Recipe"):
            await wait_for_step(pilot, step)
            await pilot.press("enter")
        await wait_for_step(pilot, "Preview")
        assert "far on box (s saves it under another name)" in " ".join(screen_text(pilot).split())
        await pilot.press("enter")
        await wait_for_text(pilot, "finished", "tick 30", seconds=60)
        await wait_for_text(pilot, "fetch the result")
        assert "on box" in screen_text(pilot).split("Outcome")[1]
        await pilot.press("enter")
        await wait_for_text(pilot, "Fetched ")
        assert (run_folders.find_run("last").path / "output" / "made.txt").read_text() == "x" * 2000
        await wait_for_workers(pilot)
        await pilot.press("enter")
        await wait_for_text(pilot, "files of your script")
    (there,) = runs_of_host(host)
    assert read_remote_location(run_folders.find_run("last").path).folder == str(there)


@pytest.mark.whole
async def test_run_says_when_its_host_was_heard_last(host, tmp_path):
    sleeper(host, ticks=600)
    run_cli("run", "far", "--host", "box", "--detach")
    run, client = run_folders.find_run("last"), tmp_path / "client" / "ssh"
    honest = client.read_text()
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        app.open_run(run)
        await wait_for_text(pilot, "tick 9", during=True)
        client.write_text("#!/bin/sh\nexit 255\n")
        await asyncio.to_thread(subprocess.run, ["pkill", "-f", f"{tmp_path}/config.*box"], check=False)
        await wait_for_text(pilot, "last heard", "goes on there", seconds=60, during=True)
        client.write_text(honest)
        await until_true(pilot, lambda: "last heard" not in screen_text(pilot))
        assert read_status(run).is_live
    run_cli("stop", "last")


def test_runs_on_a_host_wait_there_and_its_queue_is_listed_and_ordered_from_here(host):
    all_cores = {"trainer.environment": {"OMP_NUM_THREADS": "9999"}}
    sleeper(host, ticks=600, **all_cores)
    run_cli("run", "far", "--host", "box", "--detach")
    for name in ("one", "two"):
        save_profile(profile_with_value(sleeper(host, ticks=600, **all_cores), "name", name), overwrite=True)
        said = run_cli("run", name, "--host", "box", "--when-free", "--detach").stdout
        assert f"-{name} starts as soon as its GPUs or CPU cores are free." in said

    def order():
        return [each["run"].rpartition("-")[2] for each in json.loads(run_cli("queue", "--on", "box", "--json").stdout)]

    assert order() == ["one", "two"]
    assert run_cli("queue", "first", "two").stdout.splitlines()[1].split()[1].endswith("-two")
    assert order() == ["two", "one"]
    assert "waiting on box" in run_cli("runs").stdout
    run_cli("stop", "two")
    assert order() == ["one"]
    assert read_status(run_folders.find_run("two")).never_had_turn
    for name in ("far", "one"):
        run_cli("stop", "--now", name)

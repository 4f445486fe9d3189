"""The command line as a real process: what each command prints, how it ends, and that no error is a traceback."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pexpect
import pytest
from support import SCRIPTS, facts, living_run_pids, run_cli, sample, wait_until

from screens.run.run_end import explain_run_end
from tui_train import __main__, __version__, wizard
from tui_train.cli import app as cli
from tui_train.cli.group import COMMAND_BY_SYNONYM
from tui_train.cli.plans import plans
from tui_train.cli.results.diagnose import retry_command
from tui_train.cli.runs import run_and_resume, watch
from tui_train.diagnose.repeated_failure import failure_that_would_repeat
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.other_machines import remote
from tui_train.profile import hosts, store
from tui_train.profile.changes import Change
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs import run_folders
from tui_train.runs.interrupts import Interrupts
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run as end
from tui_train.views.run_digest import DigestCache

TUI_TRAIN = [sys.executable, "-m", "tui_train"]
SLEEPER = f"""\
schema = 2
[hardware]
device = "cpu"
[trainer]
kind = "script"
preset = "custom"
script = "{SCRIPTS / "sleeper.py"}"
arguments = ["--seconds=0.3"]
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """All programs of the system but the Pythons, each of which would be asked whether it can train."""
    folder = tmp_path_factory.mktemp("tools")
    found = {path.name: path for where in ("/bin", "/usr/bin") for path in Path(where).iterdir()}
    for name, path in found.items():
        if "python" not in name:
            (folder / name).symlink_to(path)
    return folder


@pytest.fixture(autouse=True)
def one_python(tools, tmp_path, monkeypatch):
    """A home of its own, and one Python."""
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def told(*arguments, code=0):
    """What a command says in JSON."""
    return json.loads(run_cli(*arguments, "--json", code=code).stdout)


def refused(*arguments, code):
    """What a command that is refused says: nothing on stdout, what is wrong on stderr, and what to do."""
    done = run_cli(*arguments, code=code)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) >= 2
    return done.stderr


# ---- what it is


def test_version_and_help():
    assert run_cli("--version").stdout == f"tui-train {__version__}\n"
    shown = run_cli("--help").stdout
    assert run_cli("-h").stdout == shown
    words = " ".join(shown.split())
    for code, meaning in cli.MEANING_BY_EXIT_CODE.items():
        assert f"{code} {meaning}" in words
    for name, command in cli.cli.commands.items():
        assert f"  {name} " in shown
        assert command.help
        assert "Usage: " in run_cli(name, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "what", "remedy"),
    [
        (["plann"], "no such command 'plann'", "Did you mean plan? `tui-train --help`"),
        (["list"], "no such command 'list'", "Did you mean runs? `tui-train --help`"),
        (["start", "x"], "no such command 'start'", "Did you mean run? `tui-train --help`"),
        (["env", "ls"], "no such command 'ls'", "Did you mean list? `tui-train env --help`"),
        (["plan", "--jsn", "x"], "no such option '--jsn'", "Did you mean --json? `tui-train plan --help`"),
        (["plan", "a", "b"], "got unexpected extra argument (b)", "`tui-train plan --help`"),
        (["run"], "missing argument 'PROFILE'", "`tui-train run --help`"),
        (["logs", "x", "--attempt=0"], "invalid value for '--attempt': 0", "`tui-train logs --help`"),
        (["runs", "rm", "last", "--yes", "--on="], "--on needs the name of a host", "`tui-train runs rm --help`"),
        (["logs", "x", "-f", "--attempt=1"], "give --follow or --attempt, not both", "`tui-train logs --help`"),
    ],
)
def test_wrong_usage_is_told_as_every_error(arguments, what, remedy):
    first, second = refused(*arguments, code=64).splitlines()
    assert first.startswith(f"tui-train: {what}")
    assert second.startswith(f"  {remedy}")


def test_each_word_of_other_tools_means_a_command_and_is_none_itself():
    assert {*COMMAND_BY_SYNONYM.values()} <= cli.cli.commands.keys()
    assert not COMMAND_BY_SYNONYM.keys() & cli.cli.commands.keys()


def test_the_wizard_needs_a_terminal():
    assert "tui-train quickstart" in refused(code=69)


@pytest.mark.parametrize(("said", "left", "code"), [(None, 1, 1), (None, 0, 0), (None, None, 0), (3, 0, 3)])
def test_a_crashed_wizard_is_no_success(monkeypatch, said, left, code):
    app = SimpleNamespace(run=lambda: said, return_code=left)
    monkeypatch.setattr(wizard, "is_wizard_terminal", lambda: True)
    monkeypatch.setattr(wizard, "make_wizard", lambda *_: app)
    assert wizard.open_wizard() == code


# ---- looking and planning


@pytest.mark.whole
def test_the_plan_is_what_export_writes(tmp_path):
    sets = ("--set=recipe.steps=30", "--set=hardware.device=cpu")
    found = told("plan", "quickstart", *sets)
    assert found.keys() == {"findings", "plan", "files"}
    assert found["findings"] == []
    assert found["plan"]["steps"] == 30
    words = found["plan"]["attempts"][0]["argv"]
    assert words[:2] == [sys.executable, "$RUN_DIR/pretrain.py"]
    assert "--max_steps=30" in words
    *files, last = run_cli("export", "quickstart", "out dir", *sets).stdout.splitlines()
    assert last == f"Run it with: bash {shlex.quote(str(tmp_path / 'out dir' / 'launch.sh'))}"
    assert sorted(files) == sorted(f"{tmp_path}/out dir/{name}" for name in found["files"])
    for name in found["files"].keys() - {"plan.json", "runner.pyz"}:
        assert (tmp_path / "out dir" / name).read_bytes() == found["files"][name].encode()
    shown = run_cli("plan", "quickstart", "--set=hardware.device=cpu").stdout
    assert "quickstart: the built-in trainer under python, 1 process on the CPU" in shown
    assert "after out of memory, attempt 2, micro batch 8 → 4: micro batch 4 × accumulation 4" in shown
    assert "launch.sh" in shown


# ---- what is wrong


def test_export_overwrites_only_when_told(tmp_path):
    (tmp_path / "mine.toml").write_text(SLEEPER)
    script = tmp_path / "out" / "launch.sh"
    run_cli("export", "mine.toml", "out")
    before = script.read_bytes()
    assert "--force" in refused("export", "mine.toml", "out", "--set", "name=other", code=73)
    assert script.read_bytes() == before
    run_cli("export", "mine.toml", "out", "--set", "name=other", "--force")
    assert script.read_bytes() != before


def test_a_profile_that_cannot_be_used(tmp_path):
    (tmp_path / "bad one.toml").write_text("[recipe]\nlayers = '2'")
    for command in (("plan", "bad one.toml"), ("export", "./bad one.toml", "out"), ("run", "bad one.toml")):
        said = refused(*command, code=65)
        assert "bad one.toml" in said
        assert "recipe.layers: Expected int, got str" in said
    assert not (tmp_path / "out").exists()


def test_a_profile_that_is_not_there(tmp_path):
    assert "Saved profiles: none yet." in refused("plan", "mine", code=66)
    assert "there is no profile" in refused("run", "./mine.toml", code=66)
    assert "it is a folder" in refused("plan", f"{tmp_path}/", code=65)
    (tmp_path / "train.py").write_text("import torch")
    for named in ("train.py", "./train.py"):
        assert f"Make a profile of it: tui-train import python {named}" in refused("plan", named, code=65)
    (tmp_path / "my run.sh").touch()
    assert "tui-train import 'my run.sh'" in refused("plan", "my run.sh", code=65)
    run_cli("new", "train.py")
    run_cli("profiles", "change", "train.py", "--set", "recipe.steps=7")
    assert "7 steps" in run_cli("plan", "train.py").stdout, "a saved profile of that name is meant"
    refused("plan", "~nobody-of-that-name/x.toml", code=65)


@pytest.mark.parametrize("edit", ["recipe.stepz=1", "recipe.steps", b"trainer.script=/src/\xff.py"])
def test_an_edit_that_cannot_be_made(edit):
    refused("plan", "quickstart", "--set", edit, code=65)


def test_a_script_that_is_named_alone_is_what_trains(tmp_path):
    (tmp_path / "mine.py").write_text("print('trained')\n")
    run_cli("new", "mine", f"--set=trainer.script={tmp_path / 'mine.py'}")
    assert store.load_profile_file("mine").trainer.kind == "script"


@pytest.mark.parametrize(
    ("edits", "code", "message"),
    [
        (("trainer.script=/no/such.py",), 65, "script: /no/such.py does not exist"),
        (("trainer.environment=HF_TOKEN=hf_abc",), 65, "HF_TOKEN looks like a secret"),
        (("hardware.device=auto", "hardware.gpus=GPU-x"), 69, "the GPU GPU-x is not in this machine"),
        (("trainer.python=/no/python",), 69, "/no/python"),
    ],
)
def test_a_plan_that_cannot_run(tmp_path, edits, code, message):
    (tmp_path / "mine.toml").write_text(SLEEPER)
    said = refused("run", "mine.toml", *(f"--set={edit}" for edit in edits), code=code)
    assert message in said
    assert "hf_abc" not in said
    assert run_folders.list_runs() == ()


@pytest.mark.whole
def test_the_current_folder_is_gone(tmp_path):
    (tmp_path / "gone").mkdir()
    line = f'rmdir "$PWD"; exec {shlex.join(TUI_TRAIN)} export quickstart x'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path / "gone", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.splitlines()[0] == "tui-train: the current folder is not there any more"


def test_what_nobody_foresaw_is_two_lines(monkeypatch, capsys):
    def fails(_):
        raise PermissionError(13, "Permission denied", "a\nb")

    monkeypatch.setattr(__main__, "_run_command_line_or_wizard", fails)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 70
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.whole
def test_a_terminal_of_few_letters(mine):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    run_cli("run", mine)
    run_cli("resume", "last", "--force")
    done = subprocess.run([*TUI_TRAIN, "attach", "last"], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2014 attempt 2: " in done.stdout


def test_no_such_run():
    for command in ("logs", "attach", "stop", "resume"):
        refused(command, "nope", code=66)
    refused("logs", "last", code=66)
    refused("logs", "./", code=66)
    assert "there is no file nope.log in this folder, and no run nope.log" in refused("diagnose", "nope.log", code=66)


def test_a_run_where_a_profile_is_wanted_names_its_profile():
    run = run_folders.runs_folder() / "20260101-101010-mine"
    run.mkdir(parents=True)
    (run / "launch.sh").touch()
    said = refused("plan", run.name, code=66)
    assert f"{run.name} is a run" in said
    assert f"Name the profile that it was started from: {run}/profile.toml" in said


def test_a_machine_before_a_command_is_that_of_the_command(tmp_path):
    run_cli("facts", "--save", "here.json")
    there = json.loads((tmp_path / "here.json").read_text())
    there["machine"]["cpu_name"] = "a CPU of no other machine"
    (tmp_path / "there.json").write_text(json.dumps(there))
    assert "a CPU of no other machine" in run_cli("--machine", "there.json", "facts").stdout
    assert "runs takes no --machine" in refused("--machine", "there.json", "runs", code=64)


# ---- saved profiles


@pytest.mark.whole
def test_profiles_are_saved_and_listed():
    assert told("profiles") == []
    run_cli("new", "first", "--set", "recipe.steps=5")
    run_cli("new", "second", "--like", "first", "--set", "recipe.seed=3")
    listed = told("profiles")
    assert [row["name"] for row in listed] == ["first", "second"]
    assert Path(listed[0]["path"]).is_file()
    assert "first  " in run_cli("profiles").stdout
    refused("new", "first", code=73)
    run_cli("new", "first", "--force")
    refused("new", "../first", code=65)
    plan = told("plan", "second")["plan"]
    assert (plan["name"], plan["steps"]) == ("second", 5)
    assert "Saved profiles: first, second." in refused("plan", "third", code=66)


# ---- running


@pytest.fixture
def mine(tmp_path):
    """A profile that sleeps; whatever still runs in the end is killed."""
    path = tmp_path / "my sleeper.toml"
    path.write_text('name = "My sleeper"\n' + SLEEPER)
    yield str(path)
    for run in run_folders.list_runs():
        for pid in (
            (read_status(run).pid, *living_run_pids(read_status(run).mark))
            if read_status(run).is_live or read_status(run).leftover
            else ()
        ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def arguments(*words):
    return ("--set", f"trainer.arguments={shlex.join(words)}")


def newest():
    return run_folders.list_runs()[0]


def test_a_run_is_shown_listed_and_resumed(mine):
    lines = run_cli("run", mine).stdout.splitlines()
    name = newest().name
    assert name.endswith("-my-sleeper")
    assert lines[0].startswith(f"{name} runs in ")
    assert "tick 1" in lines
    assert lines[-1] == f"{name}: finished"
    (row,) = told("runs")
    assert (row["run"], row["state"], row["exit_code"], len(row["attempts"])) == (name, "finished", 0, 1)
    assert row["path"] == str(newest().path)
    assert re.search(rf"^{name} +finished +(\d\d-\d\d )?\d\d:\d\d +\d+ s$", run_cli("runs").stdout, re.MULTILINE)
    for reference in (name, name[:15], "last", str(newest().path)):
        assert run_cli("logs", reference).stdout.startswith("tick 1\n")
    assert run_cli("attach", name).stdout.startswith("tick 1\n")
    assert run_cli("stop", name).stdout == f"{name} is not running: finished\n"
    assert f"tui-train resume {name} --force" in run_cli("resume", "last").stdout
    assert run_cli("resume", "last", "--force").stdout.splitlines()[-1] == f"{name}: finished"
    assert len(told("runs")[0]["attempts"]) == 2
    assert re.search(rf"^run .* attempts *\n{name} .* s +2$", run_cli("runs").stdout, re.MULTILINE)
    assert run_cli("logs", "last", "--attempt", "2").stdout.startswith("tick 1\n")
    refused("logs", "last", "--attempt", "3", code=65)
    newest().attempt_log(2).write_bytes(
        b"\x1b[31mred\x1b[0m \xff\n" + b"x" * (3 << 20) + b"\n10%\r20%\nlast without newline"
    )
    shown = run_cli("logs", "last").stdout.splitlines()[-4:]
    assert [shown[0], shown[1][:3], *shown[2:]] == ["red \ufffd", "xxx", "20%", "last without newline"]


@pytest.mark.whole
def test_it_ends_as_the_training_ends(mine):
    done = run_cli("run", mine, *arguments("--seconds=0.1", "--code=7"), code=7)
    state, following = done.stdout.splitlines()[-2:]
    assert state.endswith(": failed, exit code 7")
    assert "cannot resume" in following
    assert told("runs")[0]["exit_code"] == 7
    for command, code in ((("attach",), 7), (("logs", "--follow"), 7), (("logs",), 0)):
        run_cli(*command, "last", code=code)
    said = refused("resume", "last", code=69)
    assert "cannot resume: the script is given no checkpoint" in said
    assert f"tui-train resume {newest().name} --force" in said
    assert len(read_status(newest()).attempts) == 1
    run_cli("resume", "last", "--force", code=7)


@pytest.mark.whole
def test_what_would_fail_again_is_not_resumed(tmp_path):
    """Bad arguments, and no step: as long as neither the script nor the command has changed."""
    script, profile = tmp_path / "strict.py", tmp_path / "strict.toml"
    script.write_text("import argparse\np = argparse.ArgumentParser()\np.add_argument(*['--eta'])\np.parse_args()\n")
    profile.write_text(SLEEPER.replace(str(SCRIPTS / "sleeper.py"), str(script)).replace("--seconds=0.3", "--nope"))
    following = run_cli("run", str(profile), code=2).stdout.splitlines()[-1]
    assert following.startswith("Unchanged, it would fail again.")
    name = newest().name
    said = refused("resume", "last", code=69)
    assert f"{name} would fail again" in said
    assert "--nope" in said
    assert f"tui-train resume {name} --force" in said
    assert len(read_status(newest()).attempts) == 1
    digests = DigestCache()
    assert digests.explain_failure(digests.read_digest(newest())).why_not_resumable.startswith("would fail again. ")
    assert explain_run_end(newest(), 1, None).why_not_resumable.startswith("would fail again. ")
    run_cli("resume", "last", "--force", code=2)
    assert len(read_status(newest()).attempts) == 2
    assert failure_that_would_repeat(newest(), read_status(newest())) is not None
    script.write_text("print('trained')\n")
    assert failure_that_would_repeat(newest(), read_status(newest())) is None


def test_a_detached_run_is_watched_and_stopped(mine):
    shown = run_cli("run", mine, "--detach", *arguments("--seconds=600")).stdout
    run = newest()
    assert shown == f"{run.name} runs. Watch it: tui-train attach {run.name}; end it: tui-train stop {run.name}\n"
    assert told("runs")[0]["state"] == "running"
    refused("resume", "last", code=69)
    with subprocess.Popen([*TUI_TRAIN, "logs", "-f", "last"], stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout.readline() == "tick 1\n"
        assert "no process of it is left" in run_cli("stop", "last").stdout
        viewer.stdout.read()
    assert viewer.returncode == 143
    assert read_status(run).state == "stopped"
    assert not living_run_pids(read_status(run).mark)


def test_a_stop_without_time_to_save_is_asked_for(mine, monkeypatch):
    """Long before the time to save is over, which is longer than what waits here."""
    monkeypatch.setenv("TUI_TRAIN_GRACE", "600")
    run_cli("run", mine, "--detach", *arguments("--ignore-signals"))
    run = newest()
    wait_until(lambda: b"tick" in run.attempt_log(1).read_bytes())
    state, following = run_cli("stop", "last", "--now").stdout.splitlines()
    assert state == "stopped; no process of it is left"
    assert "cannot resume" in following
    assert f"tui-train logs {run.name}" in following


def viewing(*words):
    """A command that shows the log of a run, as a process without a terminal, once it has shown a line."""
    viewer = subprocess.Popen(
        [*TUI_TRAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: viewer.stdout.readline() == "tick 1\n")
    return viewer


def test_ctrl_c_without_a_terminal_ends_the_run(mine):
    with viewing("run", mine, *arguments("--seconds=60")) as viewer:
        os.killpg(viewer.pid, signal.SIGINT)
        assert viewer.stderr.read() == ""
    assert viewer.returncode == 143
    assert read_status(newest()).state == "stopped"
    assert not living_run_pids(read_status(newest()).mark)


def test_ctrl_c_on_a_viewer_leaves_the_run_alone(mine):
    run_cli("run", mine, "--detach", *arguments("--seconds=60"))
    for command in (("logs", "--follow", "last"), ("attach", "last")):
        with viewing(*command) as viewer:
            viewer.send_signal(signal.SIGINT)
            assert viewer.stderr.read().strip() == ""
        assert viewer.returncode == 130
        assert read_status(newest()).state == "running"
    run_cli("stop", "last")


@pytest.mark.whole
def test_a_folder_is_a_run_where_no_id_is_meant(mine):
    run_cli("export", mine, "mine")
    for more in ([], ["--follow"]):
        assert "mine has no attempts yet" in refused("logs", "mine", *more, code=65)
    subprocess.run(["bash", "mine/launch.sh"], stdout=subprocess.DEVNULL, check=True)
    for command in ("logs", "attach"):
        assert run_cli(command, "mine").stdout.startswith("tick 1\n")
    run_cli("run", mine)
    name = newest().name
    run_cli("export", mine, name)
    assert run_cli("logs", name).stdout.startswith("tick 1\n")


def test_following_keeps_two_points_however_many_there_were(monkeypatch, capsys):
    lines = [f"step {step}/500 | loss {step}.0 | tokens/s 1" for step in range(1, 501)]
    monkeypatch.setattr(watch, "follow_lines", lambda run, **_: iter(lines))
    monkeypatch.setattr(watch, "wait_for_end", lambda run: RunStatus(state="finished"))
    progress, _ = watch.stream_run(run_folders.RunFolder(Path("/nowhere")))
    assert [point.step for point in progress.curve.points()] == [1, 500]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_lost_quickstart_has_no_duration(monkeypatch, capsys):
    run = run_folders.RunFolder(Path("/runs/one"))
    monkeypatch.setattr(run_and_resume, "probe_profile_facts", lambda profile: facts())
    monkeypatch.setattr(run_and_resume.Place, "submit", lambda *_: run)
    lost = RunStatus(state="lost", started=1795226679.0)
    monkeypatch.setattr(run_and_resume, "stream_run", lambda run, started_here: (Progress(), lost))
    with pytest.raises(SystemExit) as ended:
        run_and_resume.run_quickstart(edits=())
    assert ended.value.code == 137
    assert "4 lost" in capsys.readouterr().out.splitlines()


def test_export_for_several_machines_says_how_each_is_started():
    values = ("hardware.device=cpu", "hardware.processes=2", "nodes.count=2", "nodes.address=10.0.0.1")
    sets = [f"--set={value}" for value in (*values, "recipe.global_batch=32")]
    assert "launch.sh --node-rank=N" in run_cli("export", "quickstart", "two", *sets).stdout
    assert "2 processes on the CPU of each of 2 machines" in run_cli("plan", "quickstart", *sets).stdout


def test_the_fix_of_a_finding_repeats_no_secret(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--niter', type=int)\n"
        "p.add_argument('--api-key')\np.parse_args()\n"
    )
    sets = (f"--set=trainer.script={script}", "--set=trainer.kind=script", "--set=hardware.device=cpu")
    for words, fix in (("--niters=3", True), ("--niters=3 --api-key=hunter2x9", False)):
        said = refused("plan", "quickstart", *sets, f"--set=trainer.arguments={words}", code=65)
        assert "Did you mean --niter?" in said
        assert "Found in train.py: argparse, line 2: --niter --api-key." in said
        assert ("\n  Fix: --set trainer.arguments=--niter=3\n" in said) is fix
        assert "hunter2x9" not in said


@pytest.mark.parametrize(("value", "shown"), [("--lr=1", "arguments=--lr=1"), ("--api-key=hunter2x9", "")])
def test_the_command_with_a_change_repeats_no_secret(tmp_path, value, shown):
    change = Change("", "", (("trainer.arguments", (value,)),))
    command = retry_command(RunFolder(tmp_path), change)
    assert command.endswith(shown)
    assert "hunter2x9" not in command


def test_ctrl_c_at_the_question_lets_the_run_go_on(monkeypatch, capsys):
    """Nobody said that it is to stop."""

    def asked(*_words, **_more):
        raise click.Abort

    monkeypatch.setattr(watch.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(watch.click, "prompt", asked)
    monkeypatch.setattr(watch, "stop_run_with_grace", lambda *_: pytest.fail("it was stopped"))
    with pytest.raises(SystemExit) as ended:
        watch.ask_then_detach_or_stop(run_folders.RunFolder(Path("/runs/mine")))
    assert ended.value.code == 0
    assert "mine continues. Watch it:" in capsys.readouterr().out


def test_ctrl_c_that_was_noted_while_a_run_started_asks_as_any_other(monkeypatch):
    asked = []
    monkeypatch.setattr(run_and_resume, "ask_then_detach_or_stop", asked.append)
    monkeypatch.setattr(
        run_and_resume, "stream_run", lambda run, started_here: (Progress(), RunStatus(state="stopped"))
    )
    run, noted = run_folders.RunFolder(Path("/runs/mine")), Interrupts()
    noted.start_recording()
    noted.record_signal(signal.SIGINT, None)
    assert run_and_resume._stream_started_run(run, noted)[1].state == "stopped"
    assert asked == [run]


@pytest.mark.parametrize("number", [0, signal.SIGHUP])
def test_a_terminal_that_is_lost_when_a_run_has_started_ends_as_its_signal_says(monkeypatch, number):
    def lost(_text):
        raise OSError(5, "Input/output error")

    interrupts = Interrupts()
    interrupts.number = number
    monkeypatch.setattr(run_and_resume.click, "echo", lost)
    with pytest.raises(SystemExit if number else OSError) as ended:
        run_and_resume._follow_to_end_or_detach(run_folders.RunFolder(Path("/runs/mine")), interrupts, detach=False)
    assert not number or ended.value.code == 129


@pytest.mark.whole
def test_a_run_that_is_lost_is_no_success(mine):
    with viewing("run", mine, *arguments("--seconds=60")) as viewer:
        os.kill(read_status(newest()).pid, signal.SIGKILL)
        wait_until(lambda: read_status(newest()).trains_unsupervised)
        assert f"it trains on alone: `tui-train stop {newest().name}` ends it" in run_cli("diagnose", "last").stdout
        # Its training still writes, and so it is still followed.
        log = newest().attempt_log(1)
        wait_until(lambda: len(log.read_text().splitlines()) > 2)
        written = log.read_text().rpartition("\n")[0].splitlines()[-1]
        wait_until(lambda: viewer.stdout.readline() == f"{written}\n")
        assert viewer.stdout.readline().startswith("tick")
        assert "lost" in run_cli("runs").stdout
        # What it says besides is known to the stop alone: whether the run's cgroup was empty.
        assert run_cli("stop", "last").stdout.splitlines()[-2].startswith("lost; no process")
        shown = viewer.stdout.read()
    assert shown.splitlines()[-2].endswith(": lost")
    assert viewer.returncode == 137
    assert not living_run_pids(read_status(newest()).mark)


@pytest.mark.whole
@pytest.mark.parametrize("command", sample(["keys", "plan quickstart --json", "logs last", "logs -f last"], 2, 1))
def test_a_reader_that_leaves_is_no_error(mine, command):
    if "last" in command:
        run_cli("run", mine, *arguments("--seconds=0.1", "--lines=20000"))
    line = f"set -o pipefail; {shlex.join(TUI_TRAIN)} {command} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.whole
@pytest.mark.training
def test_quickstart_goes_the_whole_way(tmp_path):
    sizes = ("layers=1", "hidden_size=16", "heads=2", "sequence_length=16", "steps=4", "checkpoint_every=2")
    done = run_cli("quickstart", *[word for size in sizes for word in ("--set", f"recipe.{size}")])
    shown = done.stdout
    for part in ("1 Looking at this machine", "\n2 The plan\n", "\n3 Running in ", "\n4 finished after ", "in 4 steps"):
        assert part in shown
    assert float(re.search(r"loss from (\S+) to", shown)[1]) > 4
    assert "nothing is left to train" in run_cli("resume", "last").stdout
    assert (newest().path / "output" / "checkpoint-4" / "trainer_state.json").is_file()


def test_image_says_what_it_holds(tmp_path):
    def docker(answers):
        """Have a docker answer as a script says, by its first word."""
        info = json.dumps({"ServerVersion": "28.2", "Runtimes": {}})
        (tmp_path / "docker").write_text(f"#!/bin/sh\ncase $1 in info) echo '{info}';; {answers} esac\n")
        (tmp_path / "docker").chmod(0o755)

    words, environment = ("image", "nemo:25.04", "--engine", "docker"), {**os.environ}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    tool = {"python": "/p", "version": "3.12.3", "torch": "2.7.0"}
    told_inside = json.dumps({"prefix": "/usr", "executable": "/p", "toolchain": tool})
    docker(f"image) echo sha256:abcdef;; run) echo '{told_inside}';;")
    shown = run_cli(*words, env=environment).stdout
    assert shown.startswith("nemo:25.04, by docker\n")
    assert "torch   2.7.0" in shown
    assert shown.endswith("It can train.\n")
    assert json.loads(run_cli(*words, "--json", env=environment).stdout)["image"]["toolchain"]["torch"] == "2.7.0"
    docker(f'*) echo "$*" >> {tmp_path}/asked; echo Error: No such image >&2; exit 1;;')
    assert "not on this machine: docker pull nemo:25.04" in run_cli(*words, code=69, env=environment).stdout
    assert "pull" not in (tmp_path / "asked").read_text().replace("--pull=never", "")


def test_an_image_is_looked_at_on_a_host_that_is_saved_by_a_name(monkeypatch, capsys):
    hosts.save_host("box", "me@10.0.0.7")
    asked = set()
    monkeypatch.setattr(remote, "read_host_facts", lambda host: asked.add(host) or facts())
    monkeypatch.setattr(remote, "run_on_machine", lambda host, *_: asked.add(host) or ChildResult(failure="no docker"))
    with pytest.raises(SystemExit):
        plans.print_image_check("nemo:25.04", engine="docker", recipe="", host="box", as_json=False)
    assert asked == {"me@10.0.0.7"}
    assert "nemo:25.04, by docker" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "code", "state"), [("\r", 0, "running"), ("x\rs\r", 143, "stopped")], ids=["enter", "s"]
)
def test_ctrl_c_asks_what_becomes_of_the_run(mine, keys, code, state):
    terminal = pexpect.spawn(TUI_TRAIN[0], [*TUI_TRAIN[1:], "run", mine, *arguments("--seconds=60")], timeout=30)
    terminal.expect("tick 1")
    terminal.sendintr()
    terminal.expect("etach.*or.*top it")
    terminal.send(keys)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == code
    assert read_status(newest()).state == state
    end(newest())


def test_a_second_ctrl_c_takes_the_grace_away(mine, monkeypatch):
    """Its end comes long before the grace is over, which is longer than what waits here."""
    monkeypatch.setenv("TUI_TRAIN_GRACE", "600")
    words = arguments("--seconds=600", "--ignore-signals")
    terminal = pexpect.spawn(TUI_TRAIN[0], [*TUI_TRAIN[1:], "run", mine, *words], timeout=60)
    terminal.expect("tick 1")
    terminal.sendintr()
    terminal.expect("etach.*or.*top it")
    terminal.send("s\r")
    terminal.expect("it gets 600 s to save and end")
    wait_until(lambda: read_status(newest()).state == "stopping")
    terminal.sendintr()
    terminal.expect("ending it at once")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert (terminal.exitstatus, read_status(newest()).state) == (143, "stopped")
    assert not living_run_pids(read_status(newest()).mark)

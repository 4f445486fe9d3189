"""The command line as a real process: what each command prints, how it ends, and that no error is a traceback."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import click
import pexpect
import pytest
import warm
from support import HOSTILE, SCRIPTS, facts, marked, sample, until

from screens.run.run_end import explain_end
from tui_train import __main__, __version__, wizard
from tui_train.cli import app as cli
from tui_train.cli.results.diagnose import retry_command
from tui_train.cli.runs import start, watch
from tui_train.diagnose.repeated_failure import repeating_failure
from tui_train.profile.changes import Change
from tui_train.profile.fields import FIELDS
from tui_train.runner.progress import Progress
from tui_train.runner.state import Status
from tui_train.runs import rundir
from tui_train.runs.interrupts import Interrupts
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.runs.stop import stop_run as end
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


def tui(*arguments, code=0, **more):
    """Run a command to its end, in a Python that has imported it; nothing it says is ever a traceback."""
    done = subprocess.run(warm.program(*arguments), capture_output=True, text=True, timeout=100, check=False, **more)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


def told(*arguments, code=0):
    """What a command says in JSON."""
    return json.loads(tui(*arguments, "--json", code=code).stdout)


def refused(*arguments, code):
    """What a command that is refused says: nothing on stdout, what is wrong on stderr, and what to do."""
    done = tui(*arguments, code=code)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) >= 2
    return done.stderr


# ---- what it is


def test_version_and_help():
    assert tui("--version").stdout == f"tui-train {__version__}\n"
    shown = tui("--help").stdout
    assert tui("-h").stdout == shown
    words = " ".join(shown.split())
    for code, meaning in cli.EXIT_CODES:
        assert f"{code} {meaning}" in words
    for name, command in cli.cli.commands.items():
        assert f"  {name} " in shown
        assert command.help
        assert "Usage: " in tui(name, "--help").stdout


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["plan"], ["plan", "a", "b"], ["runs", "--nope"], ["logs", "x", "--attempt=0"]]
)
def test_wrong_usage(arguments):
    assert "Usage: " in tui(*arguments, code=64).stderr


def test_the_wizard_needs_a_terminal():
    assert "tui-train quickstart" in refused(code=69)


@pytest.mark.parametrize(("said", "left", "code"), [(None, 1, 1), (None, 0, 0), (None, None, 0), (3, 0, 3)])
def test_a_crashed_wizard_is_no_success(monkeypatch, said, left, code):
    app = SimpleNamespace(run=lambda: said, return_code=left)
    monkeypatch.setattr(wizard, "terminal", lambda: True)
    monkeypatch.setattr(wizard, "wizard", lambda run: app)
    assert wizard.open_wizard() == code


def test_keys_lists_them_all():
    shown = tui("keys").stdout
    assert [line.split()[0] for line in shown.splitlines() if re.match(r"  \S", line)] == [*FIELDS]
    assert max(map(len, shown.splitlines())) <= 80
    assert "3e-3" in shown or "0.003" in shown


# ---- looking and planning


def test_facts():
    found = told("facts")
    assert found.keys() >= {"machine", "gpus", "sets", "toolchains"}
    assert found["machine"]["cpu_count"] >= 1
    assert found["toolchains"][0]["python"] == sys.executable
    assert found["toolchains"][0]["torch"]
    for gpu in found["gpus"]:
        assert gpu["verdict"] in {"use", "skip", "blocked"}
    shown = tui("facts").stdout
    assert found["machine"]["hostname"] in shown
    assert sys.executable in shown


def test_the_plan_is_what_export_writes(tmp_path):
    found = told("plan", "quickstart", "--set", "recipe.steps=30", "--set", "hardware.device=cpu")
    assert found.keys() == {"findings", "plan", "files"}
    assert found["findings"] == []
    assert found["plan"]["steps"] == 30
    words = found["plan"]["attempts"][0]["argv"]
    assert words[:2] == [sys.executable, "$RUN_DIR/pretrain.py"]
    assert "--max_steps=30" in words
    shown = tui(
        "export", "quickstart", "out dir", "--set=recipe.steps=30", "--set=hardware.device=cpu"
    ).stdout.splitlines()
    assert shown[-1] == f"Run it with: bash {shlex.quote(str(tmp_path / 'out dir' / 'launch.sh'))}"
    assert sorted(shown[:-1]) == sorted(f"{tmp_path}/out dir/{name}" for name in found["files"])
    for name in found["files"].keys() - {"plan.json", "runner.pyz"}:
        text = found["files"][name]
        assert (tmp_path / "out dir" / name).read_bytes() == text.encode()
    shown = tui("plan", "quickstart", "--set=hardware.device=cpu").stdout
    assert "quickstart: the built-in trainer under python, 1 process on the CPU" in shown
    assert "after out of memory, attempt 2, micro batch 8 → 4: micro batch 4 × accumulation 4" in shown
    assert "launch.sh" in shown


def test_export_overwrites_only_when_told(tmp_path):
    (tmp_path / "mine.toml").write_text(SLEEPER)
    tui("export", "mine.toml", "out")
    before = (tmp_path / "out" / "launch.sh").read_bytes()
    said = refused("export", "mine.toml", "out", "--set", "name=other", code=73)
    assert "launch.sh already exists" in said
    assert "--force" in said
    assert (tmp_path / "out" / "launch.sh").read_bytes() == before
    tui("export", "mine.toml", "out", "--set", "name=other", "--force")
    assert (tmp_path / "out" / "launch.sh").read_bytes() != before
    assert tui("export", "mine.toml", "mine.toml", code=64).stderr
    assert "A part of the path is a file" in refused("export", "mine.toml", "mine.toml/x", code=73)


def test_hostile_values_are_planned_as_they_are(tmp_path):
    words = [value for value in HOSTILE if value != "{steps} {unknown} {}"]
    (tmp_path / "mine.toml").write_text(SLEEPER)
    found = told("plan", "mine.toml", "--set", f"trainer.arguments={shlex.join(words)}", "--set", "name=it's\n\x1b[31m")
    assert found["plan"]["attempts"][0]["argv"][2:] == words
    shown = tui("plan", "mine.toml", "--set", "name=it's\n\x1b[31m").stdout
    assert "it's\\n\\x1b[31m: " in shown


# ---- what is wrong


BAD_FILES = {
    "unknown key": ("[recipe]\nlayer = 2", "recipe.layer is not a key", "Did you mean recipe.layers?"),
    "wrong type": ("[recipe]\nlayers = '2'", "recipe.layers: Expected int, got str", "Fix that value."),
    "invalid TOML": ("[recipe\n", "is not TOML", "line 1"),
    "newer schema": ("schema = 3", "has schema 3", "Install a newer tui-train."),
    "out of limits": ("[recipe]\nsteps = 0", "recipe.steps is 0", "from 1 to 1000000000"),
    "not UTF-8": (b"name = '\xff'", "is not UTF-8 text", "Give a TOML profile."),
    "binary": (bytes(range(256)), "is not UTF-8 text", "Give a TOML profile."),
    "NUL byte": ('[trainer]\narguments = ["a\\u0000b"]', "trainer.arguments holds a NUL byte", "Remove it"),
    "unknown preset": ("[trainer]\npreset = 'hf-trainr'", "trainer.preset is 'hf-trainr'", "Did you mean hf-trainer?"),
    "preset of another": ("[trainer]\nkind = 'script'\npreset = 'builtin'", "trainer.preset is 'builtin'", "Known are"),
    "empty path": ("[trainer]\ndata = ['']", "trainer.data holds an empty path", "Remove it"),
    "no such Python": ("[trainer]\npython = 'nopython'", "there is no nopython on PATH", "Write its whole path."),
    "no name": ("name = ' '", "has no name", "Give it a name."),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_profile_that_cannot_be_used(tmp_path, name):
    text, message, remedy = BAD_FILES[name]
    (tmp_path / "bad one.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in (("plan", "bad one.toml"), ("export", "./bad one.toml", "out"), ("run", "bad one.toml")):
        said = refused(*command, code=65)
        assert message in said
        assert remedy in said
        assert "bad one.toml" in said
        if command[0] == "plan" and name != "wrong type":
            break
    assert not (tmp_path / "out").exists()


def test_a_profile_that_is_not_there(tmp_path):
    assert "Saved profiles: none yet." in refused("plan", "mine", code=66)
    assert "there is no profile" in refused("run", "./mine.toml", code=66)
    assert "it is a folder" in refused("plan", "./", code=65)
    assert "nobody" in refused("plan", "~nobody-of-that-name/x.toml", code=65)
    assert "it is a folder" in refused("plan", f"{tmp_path}/", code=65)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("recipe.stepz=1", "Did you mean recipe.steps?"),
        ("recipe.steps", "is not KEY=VALUE"),
        ("recipe.steps=many", "recipe.steps is 'many'"),
        ("recipe.precision=fp8", "Choose one of: fp32, bf16, fp16."),
        ("trainer.arguments=it's", "a quote is not closed"),
        (b"trainer.script=/src/\xff.py", "is not UTF-8 text"),
        ("trainer.script=~nobody-of-that-name/x.py", "nobody"),
    ],
)
def test_an_edit_that_cannot_be_made(edit, words):
    assert words in refused("plan", "quickstart", "--set", edit, code=65)


CANNOT_RUN = {
    "script missing": (["trainer.script=/no/such.py"], 65, "script: /no/such.py does not exist", "Name a file"),
    "data missing": (["trainer.kind=builtin", "trainer.data=/a.txt"], 65, "/a.txt does not exist", "Name a file"),
    "batch": (
        [
            "trainer.kind=builtin",
            "trainer.script=",
            "trainer.preset=auto",
            "trainer.arguments=",
            "recipe.micro_batch=8",
            "recipe.global_batch=20",
        ],
        65,
        "20 is not a multiple",
        "Nearest global batches: 16 or 24.",
    ),
    "secret": (["trainer.environment=HF_TOKEN=hf_abc"], 65, "HF_TOKEN looks like a secret", "Name it under secrets"),
    "preset": (
        ["trainer.preset=hf"],
        65,
        "trainer.preset is 'hf'",
        "Known are: auto, accelerate, axolotl, custom, hf-trainer",
    ),
    "no preset of a script": (
        ["trainer.preset=builtin"],
        65,
        "trainer.preset is 'builtin'",
        "Known are: auto, accelerate",
    ),
    "rung": (["ladder.rungs=micro-batch"], 65, "there is no fallback micro-batch", "Did you mean micro_batch?"),
    "card": (
        ["hardware.device=auto", "hardware.gpus=GPU-x"],
        69,
        "the GPU GPU-x is not in this machine",
        "Choose the GPUs again.",
    ),
    "python": (["trainer.python=/no/python"], 69, "/no/python", "trainer.python"),
}


@pytest.mark.parametrize("name", CANNOT_RUN)
def test_a_plan_that_cannot_run(tmp_path, name):
    edits, code, message, remedy = CANNOT_RUN[name]
    (tmp_path / "mine.toml").write_text(SLEEPER)
    words = [word for edit in edits for word in ("--set", edit)]
    said = refused("run", "mine.toml", *words, code=code)
    assert message in said
    assert remedy in said
    assert "hf_abc" not in said
    assert rundir.all_runs() == ()
    if name == "batch":
        found = told("plan", "mine.toml", *words, code=code)
        assert found["plan"] is None
        assert found["files"] == {}
        assert [item["level"] for item in found["findings"]] == ["error"]
        for number in (16, 24):
            assert told("plan", "mine.toml", *words, "--set", f"recipe.global_batch={number}")["findings"] == []


def test_a_python_without_torch(tmp_path):
    (tmp_path / "mine.toml").write_text(SLEEPER)
    bare = tmp_path / "bare python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    said = refused("export", "mine.toml", "out", "--set", f"trainer.python={bare}", code=69)
    assert "bare python has no torch" in said
    assert "pip install" in said


def test_the_current_folder_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'rmdir "$PWD"; exec {shlex.join(TUI_TRAIN)} "$@"'
    for command in (["plan", "quickstart"], ["facts"], ["export", "quickstart", "x"]):
        gone.mkdir(exist_ok=True)
        done = subprocess.run(
            ["bash", "-c", line, "bash", *command], cwd=gone, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (65, "")
        assert done.stderr.splitlines()[0] == "tui-train: the current folder is not there any more"


def test_what_nobody_foresaw_is_two_lines(monkeypatch, capsys):
    def fails(_):
        raise PermissionError(13, "Permission denied", "a\nb")

    monkeypatch.setattr(__main__, "_start", fails)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 70
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.whole
def test_a_terminal_of_few_letters(mine):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    tui("run", mine)
    tui("resume", "last")
    done = subprocess.run([*TUI_TRAIN, "attach", "last"], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2014 attempt 2: " in done.stdout


def test_runs_cannot_be_kept(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(SLEEPER)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert "A part of the path is a file" in refused("run", "mine.toml", code=73)
    assert tui("runs").stdout.startswith("No runs yet")


@pytest.mark.parametrize("command", ["logs", "attach", "stop", "resume"])
def test_no_such_run(command):
    assert "there is no run nope" in refused(command, "nope", code=66)
    assert "there is no run last" in refused(command, "last", code=66)
    assert "is not a run folder" in refused(command, "./", code=66)


# ---- saved profiles


def test_profiles_are_saved_and_listed(tmp_path):
    assert told("profiles") == []
    tui("new", "first", "--set", "recipe.steps=5")
    tui("new", "second", "--like", "first", "--set", "recipe.seed=3")
    listed = told("profiles")
    assert [row["name"] for row in listed] == ["first", "second"]
    assert Path(listed[0]["path"]).is_file()
    assert "first  " in tui("profiles").stdout
    assert "already exists" in refused("new", "first", code=73)
    tui("new", "first", "--force")
    assert "cannot be a profile's name" in refused("new", "../first", code=65)
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
    for run in rundir.all_runs():
        for pid in (status(run).pid, *marked(status(run).mark)) if status(run).live or status(run).leftover else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def arguments(*words):
    return ("--set", f"trainer.arguments={shlex.join(words)}")


def newest():
    return rundir.all_runs()[0]


def test_a_run_is_shown_listed_and_resumed(mine):
    lines = tui("run", mine).stdout.splitlines()
    name = newest().name
    assert name.endswith("-my-sleeper")
    assert lines[0].startswith(f"{name} runs in ")
    assert "tick 1" in lines
    assert lines[-1] == f"{name}: finished"
    (row,) = told("runs")
    assert (row["run"], row["state"], row["exit_code"], len(row["attempts"])) == (name, "finished", 0, 1)
    assert row["path"] == str(newest().path)
    assert re.search(rf"^{name} +finished +\d{{4}}-\d\d-\d\d \d\d:\d\d +\d+ s +1$", tui("runs").stdout, re.MULTILINE)
    for reference in (name, name[:15], "last", str(newest().path)):
        assert tui("logs", reference).stdout.startswith("tick 1\n")
    assert tui("attach", name).stdout.startswith("tick 1\n")
    assert tui("stop", name).stdout == f"{name} is not running: finished\n"
    assert tui("resume", "last").stdout.splitlines()[-1] == f"{name}: finished"
    assert len(told("runs")[0]["attempts"]) == 2
    assert tui("logs", "last", "--attempt", "2").stdout.startswith("tick 1\n")
    assert "no such attempt" in refused("logs", "last", "--attempt", "3", code=65)


def test_it_ends_as_the_training_ends(mine):
    done = tui("run", mine, *arguments("--seconds=0.1", "--code=7"), code=7)
    state, following = done.stdout.splitlines()[-2:]
    assert state.endswith(": failed, exit code 7")
    assert "cannot resume" in following
    assert told("runs")[0]["exit_code"] == 7
    tui("attach", "last", code=7)
    tui("logs", "last", "--follow", code=7)
    tui("logs", "last")


def test_what_would_fail_again_is_not_resumed(tmp_path):
    """Bad arguments, and no step: as long as neither the script nor the command has changed."""
    script, profile = tmp_path / "strict.py", tmp_path / "strict.toml"
    script.write_text("import argparse\np = argparse.ArgumentParser()\np.add_argument(*['--eta'])\np.parse_args()\n")
    profile.write_text(SLEEPER.replace(str(SCRIPTS / "sleeper.py"), str(script)).replace("--seconds=0.3", "--nope"))
    following = tui("run", str(profile), code=2).stdout.splitlines()[-1]
    assert following.startswith("Started again as it is, it would fail again.")
    name = newest().name
    said = refused("resume", "last", code=69)
    assert f"{name} would fail again" in said
    assert "--nope" in said
    assert f"tui-train resume {name} --force" in said
    assert len(status(newest()).attempts) == 1
    digests = DigestCache()
    assert digests.explain(digests.digest_of(newest())).why_not_resumable.startswith("would fail again. ")
    assert explain_end(newest(), 1, None).why_not_resumable.startswith("would fail again. ")
    tui("resume", "last", "--force", code=2)
    assert len(status(newest()).attempts) == 2
    assert repeating_failure(newest(), status(newest())) is not None
    script.write_text("print('trained')\n")
    assert repeating_failure(newest(), status(newest())) is None


def test_a_detached_run_is_watched_and_stopped(mine):
    began = time.monotonic()
    shown = tui("run", mine, "--detach", *arguments("--seconds=60")).stdout
    assert time.monotonic() - began < 15
    run = newest()
    assert shown == f"{run.name} runs. Watch it: tui-train attach {run.name}; end it: tui-train stop {run.name}\n"
    assert told("runs")[0]["state"] == "running"
    assert "is running" in refused("resume", "last", code=69)
    with subprocess.Popen([*TUI_TRAIN, "logs", "-f", "last"], stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout.readline() == "tick 1\n"
        assert "no process of it is left" in tui("stop", "last").stdout
        viewer.stdout.read()
    assert viewer.returncode == 143
    assert status(run).state == "stopped"
    assert not marked(status(run).mark)


def test_a_stop_without_time_to_save_is_asked_for(mine, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "600")
    tui("run", mine, "--detach", *arguments("--ignore-signals"))
    run = newest()
    until(lambda: b"tick" in run.attempt_log(1).read_bytes())
    began = time.monotonic()
    state, following = tui("stop", "last", "--now").stdout.splitlines()
    assert state == "stopped; no process of it is left"
    assert "cannot resume" in following
    assert f"tui-train logs {run.name}" in following
    assert time.monotonic() - began < 60


def test_a_viewer_ends_without_harm(mine):
    """Killing what follows a run, as a lost connection does, leaves the run alone."""
    with subprocess.Popen(
        [*TUI_TRAIN, "run", mine, *arguments("--seconds=60")], stdout=subprocess.PIPE, text=True
    ) as viewer:
        until(lambda: viewer.stdout.readline() == "tick 1\n")
        viewer.kill()
    assert status(newest()).state == "running"
    tui("stop", "last")


def test_ctrl_c_without_a_terminal_ends_the_run(mine):
    viewer = subprocess.Popen(
        [*TUI_TRAIN, "run", mine, *arguments("--seconds=60")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with viewer:
        until(lambda: viewer.stdout.readline() == "tick 1\n")
        os.killpg(viewer.pid, signal.SIGINT)
        said = viewer.stderr.read()
    assert said == ""
    assert viewer.returncode == 143
    assert status(newest()).state == "stopped"
    assert not marked(status(newest()).mark)


@pytest.mark.parametrize("command", [["logs", "--follow", "last"], ["attach", "last"]])
def test_ctrl_c_on_a_viewer_leaves_the_run_alone(mine, command):
    tui("run", mine, "--detach", *arguments("--seconds=60"))
    viewer = subprocess.Popen(
        [*TUI_TRAIN, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with viewer:
        until(lambda: viewer.stdout.readline() == "tick 1\n")
        viewer.send_signal(signal.SIGINT)
        said = viewer.stderr.read()
    assert said.strip() == ""
    assert viewer.returncode == 130
    assert status(newest()).state == "running"
    tui("stop", "last")


def test_logs_of_one_attempt_are_not_followed(mine):
    tui("run", mine)
    assert "exclude each other" in tui("logs", "last", "--follow", "--attempt=1", code=64).stderr


def test_a_folder_is_a_run_where_no_id_is_meant(mine):
    tui("export", mine, "mine")
    for more in ([], ["--follow"]):
        assert "mine has no attempts yet" in refused("logs", "mine", *more, code=65)
    subprocess.run(["bash", "mine/launch.sh"], stdout=subprocess.DEVNULL, check=True)
    assert tui("logs", "mine").stdout.startswith("tick 1\n")
    assert tui("attach", "mine").stdout.startswith("tick 1\n")
    tui("run", mine)
    name = newest().name
    tui("export", mine, name)
    assert tui("logs", name).stdout.startswith("tick 1\n")


@pytest.mark.parametrize("text", ["[]", '{"attempts": 3}', '{"attempts": [1, {"title": [2]}]}'])
def test_a_plan_of_another_shape_is_passed_over(mine, text):
    tui("run", mine)
    newest().plan_file.write_text(text)
    assert "plan.json is no plan of tui-train: export it again" in refused("resume", "last", code=69)
    assert "tick 1" in tui("attach", "last").stdout


def test_following_keeps_two_points_however_many_there_were(monkeypatch, capsys):
    lines = [f"step {step}/500 | loss {step}.0 | tokens/s 1" for step in range(1, 501)]
    monkeypatch.setattr(watch, "follow", lambda run, on_attempt: iter(lines))
    monkeypatch.setattr(watch, "wait_for_end", lambda run: None)
    progress, _ = watch.stream_run(rundir.RunDir(Path("/nowhere")))
    assert [point.step for point in progress.curve.points()] == [1, 500]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_lost_quickstart_has_no_duration(monkeypatch, capsys):
    run = rundir.RunDir(Path("/runs/one"))
    monkeypatch.setattr(start, "probe_facts", lambda profile: facts())
    monkeypatch.setattr(start, "submit_here", lambda *_: run)
    lost = Status(state="lost", started=1795226679.0)
    monkeypatch.setattr(start, "stream_run", lambda run, started_here: (Progress(), lost))
    with pytest.raises(SystemExit) as ended:
        start.quickstart(())
    assert ended.value.code == 137
    assert "4 lost" in capsys.readouterr().out.splitlines()


def test_export_for_several_machines_says_how_each_is_started(tmp_path):
    sets = [
        "--set=hardware.device=cpu",
        "--set=hardware.processes=2",
        "--set=nodes.count=2",
        "--set=nodes.address=10.0.0.1",
    ]
    said = tui("export", "quickstart", "two", *sets, "--set=recipe.global_batch=32").stdout
    assert "launch.sh --node-rank=N" in said
    assert "--node-rank=0 on the first" in said
    shown = tui("plan", "quickstart", *sets, "--set=recipe.global_batch=32").stdout
    assert "2 processes on the CPU of each of 2 machines" in shown


def test_the_fix_of_a_finding_repeats_no_secret(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--niter', type=int)\n"
        "p.add_argument('--api-key')\np.parse_args()\n"
    )
    sets = (f"--set=trainer.script={script}", "--set=trainer.kind=script", "--set=hardware.device=cpu")
    said = refused("plan", "quickstart", *sets, "--set=trainer.arguments=--niters=3", code=65)
    assert "\n  Did you mean --niter?\n  Fix: --set trainer.arguments=--niter=3\n" in said
    secret = refused("plan", "quickstart", *sets, "--set=trainer.arguments=--niters=3 --api-key=hunter2x9", code=65)
    assert "Did you mean --niter?" in secret
    assert "hunter2x9" not in secret


@pytest.mark.parametrize(("value", "shown"), [("--lr=1", "arguments=--lr=1"), ("--api-key=hunter2x9", "")])
def test_the_command_with_a_change_repeats_no_secret(tmp_path, value, shown):
    change = Change("", "", (("trainer.arguments", (value,)),))
    command = retry_command(RunDir(tmp_path), change)
    assert command.endswith(shown)
    assert "hunter2x9" not in command


def test_ctrl_c_at_the_question_lets_the_run_go_on(monkeypatch, capsys):
    """Nobody said that it is to stop."""

    def asked(*_words, **_more):
        raise click.Abort

    monkeypatch.setattr(watch.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(watch.click, "prompt", asked)
    monkeypatch.setattr(watch, "end_run", lambda *_: pytest.fail("it was stopped"))
    with pytest.raises(SystemExit) as ended:
        watch.ask_detach_or_stop(rundir.RunDir(Path("/runs/mine")))
    assert ended.value.code == 0
    assert "mine continues. Watch it:" in capsys.readouterr().out


def noting(number):
    """Signals of which one was noted while a run started."""
    found = Interrupts()
    found.install()
    found.record(number, None)
    return found


def test_ctrl_c_that_was_noted_while_a_run_started_asks_as_any_other(monkeypatch):
    asked = []
    monkeypatch.setattr(start, "ask_detach_or_stop", asked.append)
    monkeypatch.setattr(start, "stream_run", lambda run, started_here: (Progress(), Status(state="stopped")))
    run = rundir.RunDir(Path("/runs/mine"))
    assert start._follow_started(run, noting(signal.SIGINT))[1].state == "stopped"
    assert asked == [run]


@pytest.mark.parametrize("number", [0, signal.SIGHUP])
def test_a_terminal_that_is_lost_when_a_run_has_started_ends_as_its_signal_says(monkeypatch, number):
    def lost(_text):
        raise OSError(5, "Input/output error")

    interrupts = Interrupts()
    interrupts.number = number
    monkeypatch.setattr(start.click, "echo", lost)
    with pytest.raises(SystemExit if number else OSError) as ended:
        start._watch_started(rundir.RunDir(Path("/runs/mine")), interrupts, detach=False)
    assert not number or ended.value.code == 129


@pytest.mark.whole
def test_ctrl_c_before_there_is_a_run(mine, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked'\nexec sleep 60\n")
    slow.chmod(0o755)
    with subprocess.Popen(
        [*TUI_TRAIN, "plan", mine, "--set", f"trainer.python={slow}"], stderr=subprocess.PIPE, text=True
    ) as plan:
        until((tmp_path / "asked").exists)
        plan.send_signal(signal.SIGINT)
        said = plan.stderr.read()
    assert "Traceback" not in said
    assert plan.returncode == 130


def test_a_run_that_is_lost_is_no_success(mine):
    with subprocess.Popen(
        [*TUI_TRAIN, "run", mine, *arguments("--seconds=60")], stdout=subprocess.PIPE, text=True
    ) as viewer:
        until(lambda: viewer.stdout.readline() == "tick 1\n")
        os.kill(status(newest()).pid, signal.SIGKILL)
        until(lambda: status(newest()).trains_on)
        assert f"it trains on alone: `tui-train stop {newest().name}` ends it" in tui("diagnose", "last").stdout
        # Its training still writes, and so it is still followed.
        log = newest().attempt_log(1)
        until(lambda: len(log.read_text().splitlines()) > 2)
        written = log.read_text().rpartition("\n")[0].splitlines()[-1]
        until(lambda: viewer.stdout.readline() == f"{written}\n")
        assert viewer.stdout.readline().startswith("tick")
        assert "lost" in tui("runs").stdout
        # What it says besides is known to the stop alone: whether the run's cgroup was empty.
        assert tui("stop", "last").stdout.splitlines()[-2].startswith("lost; no process")
        shown = viewer.stdout.read()
    assert shown.splitlines()[-2].endswith(": lost")
    assert viewer.returncode == 137
    assert not marked(status(newest()).mark)


@pytest.mark.parametrize("command", sample(["keys", "plan quickstart --json", "logs last", "logs -f last"], 2, 1))
def test_a_reader_that_leaves_is_no_error(mine, command):
    if "last" in command:
        tui("run", mine, *arguments("--seconds=0.1", "--lines=20000"))
    line = f"set -o pipefail; {shlex.join(TUI_TRAIN)} {command} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_log_of_any_bytes_is_shown_safely(mine):
    tui("run", mine)
    newest().attempt_log(1).write_bytes(
        b"\x1b[31mred\x1b[0m \xff\n" + b"x" * (3 << 20) + b"\n10%\r20%\nlast without newline"
    )
    shown = tui("logs", "last").stdout.splitlines()
    assert [shown[0], shown[1][:3], shown[2], shown[3]] == ["red \ufffd", "xxx", "20%", "last without newline"]


@pytest.mark.training
def test_quickstart_goes_the_whole_way(tmp_path):
    sizes = ("layers=1", "hidden_size=16", "heads=2", "sequence_length=16", "steps=4", "checkpoint_every=2")
    done = tui("quickstart", *[word for size in sizes for word in ("--set", f"recipe.{size}")])
    shown = done.stdout
    for part in ("1 Looking at this machine", "\n2 The plan\n", "\n3 Running in ", "\n4 finished after ", "in 4 steps"):
        assert part in shown
    assert float(re.search(r"loss from (\S+) to", shown)[1]) > 4
    assert "nothing is left to train" in tui("resume", "last").stdout
    assert (newest().path / "output" / "checkpoint-4" / "trainer_state.json").is_file()


IMAGE_TOLD = {
    "prefix": "/usr",
    "executable": "/p",
    "toolchain": {"python": "/p", "version": "3.12.3", "torch": "2.7.0"},
}


def a_docker(folder, script):
    """A docker that answers as `script` says, by its first word."""
    (folder / "docker").unlink(missing_ok=True)
    info = json.dumps({"ServerVersion": "28.2", "Runtimes": {}})
    (folder / "docker").write_text(f"#!/bin/sh\ncase $1 in info) echo '{info}';; {script} esac\n")
    (folder / "docker").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_image_says_what_it_holds(tmp_path):
    (tmp_path / "b").mkdir()
    environment = a_docker(tmp_path / "b", f"image) echo sha256:abcdef;; run) echo '{json.dumps(IMAGE_TOLD)}';;")
    done = tui("image", "nemo:25.04", "--engine", "docker", env=environment)
    assert done.stdout.splitlines()[0] == "nemo:25.04, by docker"
    assert "torch   2.7.0" in done.stdout
    assert done.stdout.endswith("It can train.\n")
    told = json.loads(tui("image", "nemo:25.04", "--engine", "docker", "--json", env=environment).stdout)
    assert told["image"]["toolchain"]["torch"] == "2.7.0"


def test_image_that_is_not_here_is_not_fetched(tmp_path):
    (tmp_path / "b").mkdir()
    asked = f'echo "$*" >> {tmp_path}/asked'
    environment = a_docker(tmp_path / "b", f"*) {asked}; echo Error: No such image >&2; exit 1;;")
    done = tui("image", "nemo:99", "--engine", "docker", code=69, env=environment)
    assert "not on this machine: docker pull nemo:99" in done.stdout
    assert "pull" not in (tmp_path / "asked").read_text().replace("--pull=never", "")


def test_image_without_an_engine(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    for name in ("sh", "env"):
        (tmp_path / "b" / name).symlink_to(shutil.which(name))
    done = tui("image", "x", code=69, env={**os.environ, "PATH": str(tmp_path / "b")})
    assert "no container engine works here (none is installed)" in done.stderr


def test_a_plan_in_a_container_shows_the_engines_words(tmp_path):
    (tmp_path / "b").mkdir()
    told = {**IMAGE_TOLD, "toolchain": {**IMAGE_TOLD["toolchain"], "accelerate": "1", "transformers": "5"}}
    environment = a_docker(tmp_path / "b", f"image) echo sha256:abc;; run) echo '{json.dumps(told)}';;")
    words = ["--set", "container.engine=docker", "--set", "container.image=nemo:1", "--set", "hardware.device=cpu"]
    planned = json.loads(tui("plan", "quickstart", "--json", *words, env=environment).stdout)
    argv = planned["plan"]["attempts"][0]["argv"]
    assert argv[:2] == ["docker", "run"]
    inside = argv[argv.index("nemo:1") + 1 :]
    assert (inside[0], "python" in inside) == ("sh", True)
    assert "--env=PYTHONUNBUFFERED=1" in argv


@pytest.mark.parametrize(
    ("keys", "code", "state"),
    [("\r", 0, "running"), ("d\r", 0, "running"), ("\x03", 0, "running"), ("x\rs\r", 143, "stopped")],
    ids=["enter", "d", "again", "s"],
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
    assert status(newest()).state == state
    end(newest())


def test_a_second_ctrl_c_takes_the_grace_away(mine, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_GRACE", "60")
    words = arguments("--seconds=60", "--ignore-signals")
    terminal = pexpect.spawn(TUI_TRAIN[0], [*TUI_TRAIN[1:], "run", mine, *words], timeout=30)
    terminal.expect("tick 1")
    began = time.monotonic()
    terminal.sendintr()
    terminal.expect("etach.*or.*top it")
    terminal.send("s\r")
    terminal.expect("it gets 60 s to save and end")
    until(lambda: status(newest()).state == "stopping")
    terminal.sendintr()
    terminal.expect("ending it at once")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert time.monotonic() - began < 20
    assert (terminal.exitstatus, status(newest()).state) == (143, "stopped")
    assert not marked(status(newest()).mark)

"""launch.sh hands every word, variable and folder to the training unchanged, whatever they hold."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from hostile_profiles import LAUNCHERS_AND_PRESETS, as_file_name, hostile_profile_and_facts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import (
    BASH_OWN_VARIABLES,
    HOSTILE_VALUES,
    UUIDS,
    example_count,
    export_run,
    facts,
    gpu,
    make_executable,
    make_stub,
    plain_environment,
    plan,
    prepare_without_errors,
    profile,
    run_launch_script,
    sample,
    stub_calls,
    wait_until,
)

from tui_train import runner
from tui_train.base.command import Command, CommandPart, EnvSetting, argv, expand_word, word_in_run_dir
from tui_train.plan.render import (
    PLAN_JSON_FILE_NAME,
    PROFILE_FILE_NAME,
    RUNNER_ZIP_FILE_NAME,
    files_for_display,
)
from tui_train.plan.render.script.launch_script import render_launch_script
from tui_train.plan.types import Plan
from tui_train.profile.store import profile_from_toml
from tui_train.runs.local_start import start_run

OOM = {"STUB_SAYS": "torch.OutOfMemoryError: CUDA out of memory. Tried", "STUB_CODE": "1"}
COREUTILS = {"env", "nice", "readlink"}
# Of bash, and of the supervisor: but for what bash takes from no environment, or means something by.
NAMES = ("PYTHON", "RUN_DIR", "RUN_ID", "GRACE", "BOOT_ID", "CDPATH", "GLOBIGNORE", "child", "log", "folder", "name")


def assert_same(note, command, run, environment, checkpoint=""):
    """What the stub was given is what the plan says."""
    assert note["argv"] == argv(command, str(run.path), checkpoint)
    assert note["cwd"] == expand_word(command.cwd, {"RUN_DIR": str(run.path)})
    values = {"RUN_DIR": str(run.path), "PYTHONPATH": ""}
    wanted = environment | {setting.name: expand_word(setting.value, values) for setting in command.env}
    found = {
        name: value for name, value in note["env"].items() if name not in BASH_OWN_VARIABLES | {"TUI_TRAIN_RUN_ID"}
    }
    assert found == {name: value for name, value in wanted.items() if name not in BASH_OWN_VARIABLES}


def plain(run, *arguments, attempt=1, env=None):
    """Run an attempt of a run folder's launch.sh without the supervisor."""
    return run_launch_script(run, "--plain", f"--attempt={attempt}", *arguments, env=env)


def each(run, plan, env, *arguments):
    """Run every attempt without the supervisor, and return how each ended."""
    return [plain(run, *arguments, attempt=number, env=env) for number in range(1, len(plan.attempts) + 1)]


def hostile_run(folder, launcher, preset, values=("x",), name="run", **variables):
    """The exported run of a hostile profile, its plan, and an environment in which stubs note their starts."""
    run, made = export_run(folder / name, *hostile_profile_and_facts(folder, launcher, preset, values))
    return run, made, plain_environment(STUB_NOTES=str(folder / "notes"), **variables)


def assert_handed_over(folder, launcher, preset, values, run_name):
    """Export a hostile profile, run each of its attempts, and compare it with the plan."""
    folder = folder.resolve()
    chosen, found = hostile_profile_and_facts(folder, launcher, preset, values)
    run, plan = export_run(folder / run_name, chosen, found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), MINE=values[0], **OOM)
    for done in each(run, plan, environment):
        assert (done.returncode, done.stderr) == (1, b"")
    notes = stub_calls(folder / "notes")
    for note, attempt in zip(notes, plan.attempts, strict=True):
        assert_same(note, attempt.command, run, environment)
    assert not [*folder.rglob("pwned")]
    assert not Path("pwned").exists()
    assert profile_from_toml((run.path / PROFILE_FILE_NAME).read_text()) == chosen


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_of_any_kind_in_your_variables_arrive(tmp_path, locale):
    chosen, found = hostile_profile_and_facts(tmp_path, "python", "builtin", ["中\n\u202e é"])
    run, plan = export_run(tmp_path.resolve() / "run 中\n", chosen, found)
    odd = os.fsdecode(bytes(range(1, 256)) + b"\n\n")
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"), micro_batch=odd, ODD=odd, LC_ALL=locale, _x="")
    environment["not.a-name"] = odd
    done = plain(run, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    (note,) = stub_calls(tmp_path / "notes")
    assert_same(note, plan.attempts[0].command, run, environment)


@pytest.mark.parametrize(
    "number", sample(range(len(HOSTILE_VALUES)), 3), ids=lambda number: ascii(HOSTILE_VALUES[number])
)
def test_every_text_field_reaches_the_training_as_it_is(tmp_path, number):
    launcher, preset = LAUNCHERS_AND_PRESETS[number % len(LAUNCHERS_AND_PRESETS)]
    values = [*HOSTILE_VALUES[number:], *HOSTILE_VALUES[:number]]
    assert_handed_over(tmp_path, launcher, preset, values, f"run {as_file_name(HOSTILE_VALUES[number])}")


@pytest.mark.parametrize(("launcher", "preset"), LAUNCHERS_AND_PRESETS)
def test_one_value_in_every_field_at_once(tmp_path, launcher, preset):
    value = 'it\'s $(touch pwned) `touch pwned` "x"\n\\ 中 *'
    assert_handed_over(tmp_path, launcher, preset, [value], as_file_name(value))


def test_scripts_are_clean(tmp_path):
    """With hostile words; test_cases.py has those with GPUs, machines and shards."""
    scripts = []
    for number, (launcher, preset) in enumerate(sample(LAUNCHERS_AND_PRESETS, 3)):
        chosen, found = hostile_profile_and_facts(
            tmp_path, launcher, preset, [*HOSTILE_VALUES[number:], *HOSTILE_VALUES]
        )
        scripts.append(export_run(tmp_path / f"run-{number}", chosen, found)[0].launch_script)
    tool = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([tool, "--norc", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[:4000]


def test_people_are_shown_the_plan_in_a_line_and_what_the_runner_holds(tmp_path):
    prepared = prepare_without_errors(profile(), facts())
    shown = {file.path: file.text for file in files_for_display(prepared.files)}
    assert shown.keys() == {file.path for file in prepared.files}
    assert len(shown[PLAN_JSON_FILE_NAME].splitlines()) == 1
    # What is written is whole.
    run, made = export_run(tmp_path / "run", profile(), facts())
    assert msgspec.json.decode(run.plan_file.read_bytes(), type=Plan) == made
    with zipfile.ZipFile(run.path / RUNNER_ZIP_FILE_NAME) as packed:
        assert [line.partition("  ")[0] for line in shown[RUNNER_ZIP_FILE_NAME].splitlines()] == packed.namelist()
        folder = Path(runner.__file__).parent
        for module in folder.rglob("[!_]*.py"):
            assert packed.read(f"runner/{module.relative_to(folder)}") == module.read_bytes()


@pytest.mark.parametrize(("launcher", "preset"), sample(LAUNCHERS_AND_PRESETS, 3))
def test_dry_run_prints_what_would_be_started(tmp_path, launcher, preset):
    folder = tmp_path.resolve()
    values = [*HOSTILE_VALUES[LAUNCHERS_AND_PRESETS.index((launcher, preset)) :], *HOSTILE_VALUES]
    run, plan, environment = hostile_run(folder, launcher, preset, values, "a $(touch pwned) run")
    before = sorted(run.path.rglob("*"))
    shown = run_launch_script(run, "--dry-run", env=environment)
    assert shown.returncode == 0
    assert shown.stderr == b""
    assert sorted(run.path.rglob("*")) == before
    assert not (folder / "notes").exists()
    blocks = re.split(rb"(?m)^# attempt \d+: .*\n", shown.stdout)[1:]
    assert len(blocks) == len(plan.attempts)
    for block in blocks:
        subprocess.run(
            ["bash", "-c", 'eval "$1"', "bash", block], env=environment, check=True, stdout=subprocess.DEVNULL
        )
    for note, attempt in zip(stub_calls(folder / "notes"), plan.attempts, strict=True):
        assert_same(note, attempt.command, run, environment)


def checkpoint(folder, step, *files):
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    for name in files:
        (made / name).write_text("{}")
    return made


@pytest.mark.parametrize("preset", ["builtin", "hf-trainer"])
def test_it_resumes_from_the_checkpoint_that_it_is_given(tmp_path, preset):
    folder = tmp_path.resolve()
    run, plan, environment = hostile_run(folder, "torchrun", preset, ["it's $(touch pwned)", "中 文"])
    given = "/my *out/it's \n$(touch pwned)/checkpoint-20"
    each(run, plan, environment, f"--checkpoint={given}")
    assert "--resume" in " ".join(argv(plan.attempts[0].command, str(run.path), "x"))
    for note, attempt in zip(stub_calls(folder / "notes"), plan.attempts, strict=True):
        assert_same(note, attempt.command, run, environment, given)
    assert (
        b"checkpoint-20"
        in run_launch_script(run, "--plain", "--dry-run", f"--checkpoint={given}", env=environment).stdout
    )
    assert b"--resume" not in run_launch_script(run, "--dry-run", env=environment).stdout


def test_it_needs_bash_and_coreutils_only(tmp_path):
    """Not grep, sed, awk, ps, setsid or flock: none of them is on this PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in sorted(COREUTILS | {"bash"}):
        (tools / name).symlink_to(shutil.which(name))
    folder = tmp_path.resolve()
    run, plan, environment = hostile_run(folder, "python", "builtin", PATH=str(tools))
    for done in (*each(run, plan, environment), run_launch_script(run, "--dry-run", env=environment)):
        assert (done.returncode, done.stderr) == (0, b"")
    assert len(stub_calls(folder / "notes")) == len(plan.attempts) > 1


def test_variables_may_have_any_name(tmp_path):
    """Those of the profile and those around it, whatever launch.sh and bash call their own."""
    folder = tmp_path.resolve()
    chosen, found = hostile_profile_and_facts(folder, "torchrun", "custom", ["x"])
    script = export_run(folder / "run", chosen, found)[0].launch_script.read_text()
    names = {*re.findall(r"\b([a-z][a-z0-9_]*)\+?=", script), "caller_env", "option", *NAMES}
    assert {"python", "run_dir", "batch", "settings", "command", "title", "dry_run"} <= names
    yours = {name: f"it's\nmine {name} $(touch pwned)" for name in names}
    for number, (table, around) in enumerate([(yours, {}), ({}, yours | {"HF_TOKEN": "1"})]):
        values = {"trainer.environment": table, "trainer.secrets": ("HF_TOKEN",) if around else ()}
        run, plan = export_run(folder / f"run-{number}", profile(values, chosen), found)
        environment = plain_environment(STUB_NOTES=str(folder / f"notes-{number}"), **around)
        for done in each(run, plan, environment):
            assert (done.returncode, done.stderr) == (0, b"")
        for note, attempt in zip(stub_calls(folder / f"notes-{number}"), plan.attempts, strict=True):
            assert_same(note, attempt.command, run, environment)
    assert not [*folder.rglob("pwned")]


@pytest.mark.parametrize("given", ["run dir/launch.sh", "./run dir/launch.sh", "a link", "launch.sh", "./launch.sh"])
def test_it_finds_its_folder_however_it_is_named(tmp_path, given):
    """Also where CDPATH would lead `cd` elsewhere, and through a link."""
    folder = tmp_path.resolve()
    elsewhere = folder / "elsewhere"
    run, plan, environment = hostile_run(folder, "python", "builtin", name="run dir", CDPATH=str(elsewhere))
    (elsewhere / "run dir").mkdir(parents=True)
    (folder / "a link").symlink_to(run.launch_script)
    where = run.path if given.endswith("launch.sh") and "run dir" not in given else folder
    done = subprocess.run(["bash", given, "--plain"], cwd=where, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert_same(stub_calls(folder / "notes")[0], plan.attempts[0].command, run, environment)


def test_a_secret_must_be_there_and_is_written_nowhere(tmp_path):
    folder = tmp_path.resolve()
    value = "s3cret $(touch pwned) 'x'\n\"中"
    chosen, found = hostile_profile_and_facts(folder, "torchrun", "builtin", ["x"])
    run, _ = export_run(folder / "run", profile({"trainer.secrets": ("HF_TOKEN", "DB_KEY")}, chosen), found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), DB_KEY=value, **OOM)
    for lacking in (environment, environment | {"HF_TOKEN": ""}):
        for done in (run_launch_script(run, env=lacking), plain(run, env=lacking)):
            assert done.returncode == 69
            assert done.stderr.decode() == "launch.sh: HF_TOKEN is not set: export it, then start again\n"
        assert not run.events_file.exists()
        assert not (folder / "notes").exists()
    done = plain(run, env=environment | {"HF_TOKEN": value})
    assert done.returncode == 1
    assert stub_calls(folder / "notes")[0]["env"]["HF_TOKEN"] == value
    shown = run_launch_script(run, "--dry-run", env=environment | {"HF_TOKEN": value})
    written = [path.read_bytes() for path in run.path.rglob("*") if path.is_file()]
    for text in (*written, done.stdout, done.stderr, shown.stdout):
        assert b"s3cret" not in text


def test_another_python_can_be_named_where_it_is_started(tmp_path):
    folder = tmp_path.resolve()
    other = make_stub(folder / "other = $(touch pwned)" / "python")
    run, plan, environment = hostile_run(folder, "torchrun", "builtin", TUI_TRAIN_PYTHON=str(other))
    assert plain(run, env=environment).returncode == 0
    assert stub_calls(folder / "notes")[0]["argv"] == [str(other), *argv(plan.attempts[0].command, str(run.path))[1:]]
    words = stub_calls(folder / "notes")[0]["argv"][1:]
    relative = environment | {"TUI_TRAIN_PYTHON": "./other = $(touch pwned)/python"}
    started = ["bash", run.launch_script, "--plain"]
    subprocess.run(started, cwd=folder, env=relative, check=True, stdout=subprocess.DEVNULL)
    assert stub_calls(folder / "notes")[1]["argv"][1:] == words
    (folder / "no-x").write_text("")
    for wrong in ("/nowhere/python", str(folder), str(folder / "no-x"), "no-such-python"):
        for arguments in ((), ("--plain",)):
            done = run_launch_script(run, *arguments, env=environment | {"TUI_TRAIN_PYTHON": wrong})
            assert done.returncode == 69
            assert done.stderr.decode().startswith(f"launch.sh: cannot run {wrong}: set TUI_TRAIN_PYTHON")
    shown = run_launch_script(run, "--dry-run", env=environment | {"TUI_TRAIN_PYTHON": "/nowhere/python"})
    assert (shown.returncode, b"/nowhere/python" in shown.stdout) == (0, True)


def test_a_python_below_your_home_is_found_in_any_home(tmp_path):
    folder = tmp_path.resolve()
    python = make_stub(folder / "a home" / "my env" / "python")
    made = plan(profile(), facts(python=python))
    (folder / "launch.sh").write_text(render_launch_script(msgspec.structs.replace(made, python="~/my env/python")))
    environment = plain_environment(HOME=str(folder / "a home"), STUB_NOTES=str(folder / "notes"))
    subprocess.run(["bash", folder / "launch.sh", "--plain"], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert stub_calls(folder / "notes")[0]["argv"][0] == str(python)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nonsense"], "--nonsense"),
        (["--dry-run", "x"], "x"),
        (["--attempt="], "--attempt="),
        (["--gpus=x"], "--gpus=x"),
        (["%s; touch pwned"], "%s; touch pwned"),
    ],
)
def test_an_option_that_it_does_not_have_is_named(tmp_path, arguments, named):
    run, _ = export_run(tmp_path, profile(), facts())
    done = run_launch_script(run, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (64, b"", 1)
    assert f" {named}: " in done.stderr.decode()
    assert not run.events_file.exists()


@pytest.mark.parametrize("argument", ["--help", "-h"])
def test_its_help_is_the_head_of_the_file(tmp_path, argument):
    run, _ = export_run(tmp_path, profile(), facts())
    done = run_launch_script(run, argument)
    head = run.launch_script.read_text().partition("\n\n")[0].splitlines()[1:]
    assert done.stdout.decode().splitlines() == [line.removeprefix("#").removeprefix(" ") for line in head]
    assert (done.returncode, done.stderr) == (0, b"")
    assert not run.events_file.exists()


@pytest.mark.parametrize("number", ["0", "6", "-1", "01", "1x", "99999999999999999999", "$(touch pwned)"])
def test_an_attempt_must_be_there(tmp_path, number):
    run, _ = export_run(tmp_path, profile(), facts())
    for arguments in ((), ("--plain",), ("--dry-run",)):
        done = run_launch_script(run, *arguments, f"--attempt={number}")
        assert (done.returncode, done.stdout) == (64, b"")
        assert done.stderr.decode() == f"launch.sh: there is no attempt {number} of 5\n"


TELLS = """
import json, os, sys
print(json.dumps([sys.argv, sys.flags.isolated, sys.flags.no_site, sys.flags.utf8_mode, os.getcwd(), dict(os.environ)]))
sys.exit(7)
"""


def test_it_hands_over_to_the_supervisor_beside_it(tmp_path):
    """With every word, in the caller's folder and environment; --plain and --dry-run need none."""
    folder = tmp_path.resolve() / "run\n"
    run, _ = export_run(folder, profile(), facts())
    (folder / RUNNER_ZIP_FILE_NAME).write_text(TELLS)
    words = ["--attempt=3", "--resume"]
    yours = plain_environment(run_dir="it's\nmine", python="mine")
    done = subprocess.run(
        ["bash", run.launch_script, *words], env=yours, cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (7, b"")
    given, *flags, where, environment = json.loads(done.stdout)
    assert given == [f"{folder}/{RUNNER_ZIP_FILE_NAME}", "launch", f"{folder}/launch.sh", *words]
    assert flags == [1, 1, 1]
    assert where == str(tmp_path)
    assert {name: value for name, value in environment.items() if name not in BASH_OWN_VARIABLES} == {
        name: value for name, value in yours.items() if name not in BASH_OWN_VARIABLES
    }


def test_alone_it_runs_the_planned_command_and_says_what_is_missing(tmp_path):
    folder = tmp_path.resolve()
    python = make_stub(folder / "python")
    _, plan = export_run(folder / "run", profile(), facts(python=python))
    alone = folder / "elsewhere"
    alone.mkdir()
    shutil.copy(folder / "run/launch.sh", alone)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), STUB_CODE="3")
    done = subprocess.run(["bash", alone / "launch.sh"], env=environment, capture_output=True, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("launch.sh: no runner.pyz beside")
    assert stub_calls(folder / "notes")[0]["argv"] == argv(plan.attempts[0].command, str(alone))
    waits = ["bash", alone / "launch.sh", "--when-free"]
    done = subprocess.run(waits, env=environment, capture_output=True, check=False)
    assert (done.returncode, b"no runner.pyz, which waits" in done.stderr) == (69, True)
    assert len(stub_calls(folder / "notes")) == 1, "it has not started"
    done = subprocess.run(["bash", alone / "launch.sh", "--plain"], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"")


WORDS = ("--a=1", "--a=2", "--a=", "-c", "x", "y z", "it's $x", "", "--config=a,b", "{c}", "中’", "a=1", "--b=\n", "=")
PARTS = st.lists(
    st.builds(
        lambda words, resumes: CommandPart(tuple(words), resumes=resumes),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=2),
        st.booleans(),
    ),
    max_size=5,
)


@settings(max_examples=example_count(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(attempts=st.lists(st.tuples(PARTS, st.sampled_from(WORDS)), min_size=1, max_size=4))
def test_whatever_attempts_differ_in_each_is_what_the_plan_says(tmp_path_factory, attempts):
    """One command and a table stand for any attempts, even where they have nothing in common."""
    folder = tmp_path_factory.mktemp("any").resolve()
    python = make_stub(folder / "python")
    base = plan(profile(), facts(python=python))
    made = []
    for parts, value in attempts:
        env = (
            EnvSetting("ALL", value, "", "ladder"),
            *([EnvSetting("SOME", value, "", "ladder")] if "a" in value else []),
        )
        command = Command((CommandPart((str(python),)), *parts), env, word_in_run_dir(""))
        made.append(msgspec.structs.replace(base.attempts[0], command=command))
    (folder / "launch.sh").write_text(render_launch_script(msgspec.structs.replace(base, attempts=tuple(made))))
    takes_checkpoint = "--checkpoint=?*" in (folder / "launch.sh").read_text()
    for number, attempt in enumerate(made, start=1):
        for checkpoint in ("", "/c 1"):
            started = ["bash", folder / "launch.sh", "--plain", f"--attempt={number}"]
            started += [f"--checkpoint={checkpoint}"] if checkpoint and takes_checkpoint else []
            subprocess.run(
                started, env=plain_environment(STUB_NOTES=str(folder / "notes")), check=True, stdout=subprocess.DEVNULL
            )
            note = stub_calls(folder / "notes")[-1]
            assert note["argv"] == argv(attempt.command, str(folder), checkpoint)
            found = {name: note["env"][name] for name in ("ALL", "SOME") if name in note["env"]}
            assert found == {setting.name: setting.value for setting in attempt.command.env}


def test_read_from_a_pipe_it_refuses(tmp_path):
    run, _ = export_run(tmp_path, profile(), facts())
    done = subprocess.run(["bash"], input=run.launch_script.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (64, b"")
    assert b"was read from a pipe" in done.stderr


def test_sh_is_told_to_be_bash(tmp_path):
    run, _ = export_run(tmp_path, profile(), facts())
    done = subprocess.run(["dash", run.launch_script], capture_output=True, check=False)
    assert done.returncode == 69
    assert b'start it as "bash launch.sh"' in done.stderr


def test_gpus_are_chosen_by_uuid_and_others_where_it_is_started(tmp_path):
    folder = tmp_path.resolve()
    python = make_stub(folder / "python")
    found = facts(python=python, gpus=[gpu(0), gpu(1)])
    run, _ = export_run(folder / "run", profile({"trainer.launcher": "torchrun"}), found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), CUDA_VISIBLE_DEVICES="7")
    plain(run, env=environment)
    plain(run, "--gpus=GPU-x,GPU-y", env=environment)
    note, other = stub_calls(folder / "notes")
    assert other["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-x,GPU-y"
    assert note["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(UUIDS)
    assert note["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "--nproc-per-node=2" in note["argv"]


MACHINES = {"nodes.count": 3, "nodes.address": "10.0.0.1", "recipe.global_batch": 96}


def machines(folder, gpus=2, **more):
    """A run folder for three machines, and an environment in which nvidia-smi lists the cards in `there`."""
    python = make_stub(folder / "python")
    found = facts(python=python, gpus=[gpu(number) for number in range(gpus)])
    chosen = profile({"trainer.launcher": "torchrun", "hardware.processes": 0 if gpus else 2, **MACHINES, **more})
    lists = 'n=0\nfor one in $THERE; do echo "GPU $n: NVIDIA X (UUID: $one)"; n=$((n + 1)); done'
    tool = make_executable(folder / "bin" / "nvidia-smi", f"#!/bin/bash\n{lists}\n")
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), THERE="GPU-a GPU-b")
    environment["PATH"] = f"{tool.parent}:{environment['PATH']}"
    return (*export_run(folder / "run", chosen, found), environment)


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 64, "3 machines train together: give the rank of this one, --node-rank=0 (the first) to --node-rank=2"),
        (["--node-rank=3"], 64, "--node-rank=3 is not one of the ranks 0 to 2"),
        (["--node-rank=x"], 64, "--node-rank=x is not one of the ranks 0 to 2"),
        (["--node-rank=99999999999999999999"], 64, "is not one of the ranks 0 to 2"),
        (["--node-rank=1"], 64, "the GPUs in this script are those of the first machine: give --gpus="),
    ],
)
def test_a_machine_must_be_named(tmp_path, arguments, code, part):
    run, _, environment = machines(tmp_path)
    done = run_launch_script(run, "--plain", *arguments, env=environment)
    assert done.returncode == code
    assert part in done.stderr.decode()
    assert not (tmp_path / "notes").exists()


def test_each_machine_starts_its_own_number_of_processes(tmp_path):
    folder, counts = tmp_path.resolve(), (2, 1, 3)
    run, made, environment = machines(folder, **{"nodes.processes": counts})
    assert (made.world_size, made.uneven) == (6, counts)
    for rank, count in enumerate(counts):
        words = [f"--node-rank={rank}", *([f"--gpus={','.join(f'GPU-{one}' for one in range(count))}"] if rank else [])]
        assert plain(run, *words, env=environment).returncode == 0
        assert f"--nproc-per-node={count}" in stub_calls(folder / "notes")[-1]["argv"]
    done = run_launch_script(run, "--node-rank=2", "--gpus=GPU-a", env=environment)
    assert (done.returncode, "--gpus names 1, and this trains on 3" in done.stderr.decode()) == (64, True)


def test_each_machine_takes_its_own_gpus(tmp_path):
    folder = tmp_path.resolve()
    run, plan, environment = machines(folder)

    def started(*arguments, **more):
        done = run_launch_script(run, *arguments, env=environment | more)
        assert done.returncode == 0, done.stderr
        return stub_calls(folder / "notes")[-1]

    first = started("--node-rank=0", THERE=" ".join(UUIDS))
    assert first["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(UUIDS)
    assert first["argv"] == argv(plan.attempts[0].command, str(run.path), address=plan.address)
    second = started("--node-rank=1")
    assert second["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert second["argv"] == argv(plan.attempts[0].command, str(run.path), "", 1, plan.address)
    third = started("--node-rank=2", "--gpus=GPU-c,GPU-a", THERE="GPU-a GPU-b GPU-c")
    assert third["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"
    # Each has files of its own, for the folder may be on a disk that they share.
    for place in (run.path, run.path / "node-1", run.path / "node-2"):
        assert (place / "events.jsonl").is_file()
        assert [path.name for path in place.glob("attempt-*")] == ["attempt-1.log"]
        assert not (place / ".lock").exists()
    shown = run_launch_script(run, "--node-rank=1", "--dry-run", env=environment)
    assert b"# these GPUs are those of" in shown.stdout
    shown = run_launch_script(run, "--node-rank=1", "--gpus=GPU-a,GPU-b", "--dry-run", env=environment)
    assert b"CUDA_VISIBLE_DEVICES=GPU-a\\,GPU-b" in shown.stdout
    assert b"--node-rank=1" in shown.stdout
    assert started(TUI_TRAIN_NODE_RANK="1")["argv"] == second["argv"]
    moved = started("--node-rank=1", TUI_TRAIN_ADDRESS="127.0.0.2")
    assert moved["argv"] == argv(plan.attempts[0].command, str(run.path), "", 1, "127.0.0.2")


def test_ranks_mean_nothing_on_one_machine_and_cards_nothing_on_the_cpu(tmp_path):
    run, _ = export_run(tmp_path / "one", profile(), facts())
    for word in ("--node-rank=0", "--gpus=GPU-a"):
        done = run_launch_script(run, word)
        assert (done.returncode, word.encode() in done.stderr) == (64, True)
    options = run_launch_script(run, "--help").stdout
    assert b"--attempt=N" in options
    assert b"--node-rank" not in options
    assert b"--gpus" not in options
    run, *_ = machines(tmp_path, gpus=0)
    assert run_launch_script(run, "--node-rank=1", "--gpus=GPU-a").returncode == 64
    assert b"--node-rank=N" in run_launch_script(run, "--help").stdout


def test_a_run_that_is_started_here_is_the_first_machine(tmp_path, monkeypatch):
    folder = tmp_path.resolve()
    run, plan, _ = machines(folder, gpus=0)
    monkeypatch.setenv("STUB_NOTES", str(folder / "notes"))
    start_run(run)
    wait_until(lambda: run.events()[-1].event == "run_ended")
    assert stub_calls(folder / "notes")[0]["argv"] == argv(
        plan.attempts[0].command, str(run.path), address=plan.address
    )

"""launch.sh hands every word, variable and folder to the training unchanged, whatever they hold."""

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import (
    HOSTILE,
    OF_BASH,
    UUIDS,
    bash,
    exported,
    facts,
    gpu,
    noted,
    plain_environment,
    profile,
    ready,
    stub,
    until,
)

from tui_train.plan.types import argv, expand
from tui_train.profile.store import loads
from tui_train.render import PROFILE, SCRIPT
from tui_train.runs import rundir
from tui_train.runs.start import start

WAYS = [(launcher, preset) for preset in ("builtin", "hf-trainer", "total-batch", "custom")
        for launcher in ("torchrun", "python", "accelerate")]  # fmt: skip
OOM = {"STUB_SAYS": "torch.OutOfMemoryError: CUDA out of memory. Tried", "STUB_CODE": "1"}
COREUTILS = {
    "cat", "cksum", "date", "env", "head", "mkdir", "mv", "nice", "readlink", "rm", "rmdir", "sleep", "tail",
    "timeout", "tr",
}  # fmt: skip


def as_name(value):
    """The value as the name of a file: without what no name can hold."""
    return value.replace("/", "_").replace("\0", "_").replace("..", "__") if value.strip(".") else "empty"


def built(folder, launcher, preset, values):
    """A profile whose every text field holds one of `values` in turn, and the facts that it is made for."""
    turn = itertools.cycle(values)
    python = stub(folder / as_name(next(turn)) / as_name(next(turn)))
    data = [folder / "data" / as_name(next(turn)) for _ in range(3)]
    working = folder / "cwd" / as_name(next(turn))
    working.mkdir(parents=True, exist_ok=True)
    words = [next(turn) for _ in range(4)]
    chosen = {
        "name": next(turn).strip() or "x",
        "hardware.processes": 1 if launcher == "python" else 2,
        "trainer.kind": "builtin" if preset == "builtin" else "script",
        "trainer.launcher": launcher,
        "trainer.python": str(python),
        "trainer.preset": preset if preset != "builtin" else "hf-trainer",
        "trainer.arguments": (
            *words,
            f"--batch={{micro_batch}}x{{accumulation}} {next(turn)}",
            "--in={data}",
            "--to={output}",
        ),
        "trainer.working_directory": str(working),
        "trainer.environment": {"PLAIN": "1", **{f"HOSTILE_{number}": next(turn) for number in range(3)}},
        "trainer.data": tuple(map(str, data)),
        "recipe.micro_batch": 2,
        "recipe.global_batch": 16,
        # Each helps the phase that the stub tells of, so that every attempt is made.
        "ladder.rungs": ("micro_batch", "activation_checkpointing"),
    }
    if preset != "builtin":
        chosen["trainer.script"] = str(folder / "script" / as_name(next(turn)))
        chosen["trainer.output"] = str(folder / "out" / as_name(next(turn)))
    else:
        chosen["trainer.model"] = str(folder / "model" / as_name(next(turn)))
    if any("{steps}" in word for word in chosen["trainer.arguments"]):
        chosen["recipe.steps"] = 60
    return profile(chosen), facts(python=python)


def assert_same(note, command, run, environment, checkpoint=""):
    """What the stub was given is what the plan says."""
    assert note["argv"] == argv(command, str(run.path), checkpoint)
    assert note["cwd"] == expand(command.cwd, {"RUN_DIR": str(run.path)})
    values = {"RUN_DIR": str(run.path), "PYTHONPATH": ""}
    wanted = environment | {setting.name: expand(setting.value, values) for setting in command.env}
    found = {name: value for name, value in note["env"].items() if name not in OF_BASH | {"TUI_TRAIN_RUN_ID"}}
    assert found == {name: value for name, value in wanted.items() if name not in OF_BASH}


def assert_handed_over(folder, launcher, preset, values, run_name):
    """Export a hostile profile, run it to the end of its ladder, and compare each attempt with the plan."""
    folder = folder.resolve()
    chosen, found = built(folder, launcher, preset, values)
    run, plan = exported(folder / run_name, chosen, found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), MINE=values[0], **OOM)
    done = bash(run, env=environment)
    notes = noted(folder / "notes")
    assert done.returncode == 1, done.stderr.decode()
    assert len(notes) == len(plan.attempts)
    for note, attempt in zip(notes, plan.attempts, strict=True):
        assert_same(note, attempt.command, run, environment)
    assert not [*folder.rglob("pwned")]
    assert not Path("pwned").exists()
    assert loads((run.path / PROFILE).read_text()) == chosen
    return run


def test_variables_of_yours_that_the_script_has_too_reach_the_training_as_they_are(tmp_path):
    chosen, found = built(tmp_path, "torchrun", "custom", ["x"])
    run, _ = exported(tmp_path / "run", chosen, found)
    text = run.script.read_text()
    own = {*re.findall(r"\b([a-z_]+)=", text), *re.findall(r"\blocal ([a-z_ ]+)$", text, re.MULTILINE)}
    names = {"entry", "yours", *(name for words in own for name in words.split())}
    assert {"python", "grace", "found", "seen", "yours", "entry", "parents", "code", "run_id"} <= names
    yours = {name: f"it's\nmine {name}" for name in names}
    done = bash(run, env=plain_environment(STUB_NOTES=str(tmp_path / "notes"), **yours))
    assert (done.returncode, done.stderr) == (0, b"")
    (note,) = noted(tmp_path / "notes")
    assert {name: value for name, value in note["env"].items() if name in names} == yours


@pytest.mark.parametrize("number", range(len(HOSTILE)), ids=lambda number: ascii(HOSTILE[number]))
def test_every_text_field_reaches_the_training_as_it_is(tmp_path, number):
    launcher, preset = WAYS[number % len(WAYS)]
    values = [*HOSTILE[number:], *HOSTILE[:number]]
    assert_handed_over(tmp_path, launcher, preset, values, f"run {as_name(HOSTILE[number])}")


@pytest.mark.parametrize(("launcher", "preset"), WAYS)
def test_one_value_in_every_field_at_once(tmp_path, launcher, preset):
    value = 'it\'s $(touch pwned) `touch pwned` "x"\n\\ 中 *'
    run = assert_handed_over(tmp_path, launcher, preset, [value], as_name(value))
    subprocess.run(["bash", "-n", run.script], check=True)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(TEXT, min_size=12, max_size=16), way=st.sampled_from(WAYS))
def test_any_text_reaches_the_training_as_it_is(tmp_path_factory, values, way):
    assert_handed_over(tmp_path_factory.mktemp("any"), *way, values, as_name(values[0]))


def test_scripts_are_clean(tmp_path, shellcheck):
    """bash and shellcheck have nothing against any script, with GPUs and without."""
    scripts = []
    for number, (launcher, preset) in enumerate(WAYS):
        chosen, found = built(tmp_path, launcher, preset, [*HOSTILE[number:], *HOSTILE])
        scripts.append(exported(tmp_path / f"run-{number}", chosen, found)[0].script)
    cards = facts(gpus=(gpu(0), gpu(1)), python="/opt/train/bin/python")
    chosen = profile({"trainer.launcher": "accelerate", "recipe.precision": "fp16", "trainer.secrets": ("HF_TOKEN",)})
    scripts.append(exported(tmp_path / "gpus", chosen, cards)[0].script)
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    shellcheck(*scripts)


@pytest.fixture
def shellcheck():
    """Run shellcheck on scripts, with all its optional checks that concern safety."""

    def run(*scripts):
        tool = Path(sys.executable).with_name("shellcheck")
        done = subprocess.run([tool, "--norc", *scripts], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[:4000]

    return run


def test_preview_export_and_run_folder_hold_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    chosen, found = built(tmp_path, "accelerate", "builtin", ["tab\tand\rreturn", "中\n文", "🚀"])
    prepared = ready(chosen, found)
    rundir.export(tmp_path / "export", prepared.files)
    run = rundir.create("x", prepared.files, b"{}")
    assert {file.path for file in prepared.files} >= {SCRIPT, PROFILE, "accelerate.yaml", "trainer/train.py"}
    for file in prepared.files:
        shown = file.text.encode()
        assert (tmp_path / "export" / file.path).read_bytes() == shown
        assert (run.path / file.path).read_bytes() == shown


@pytest.mark.parametrize(("launcher", "preset"), WAYS)
def test_dry_run_prints_what_would_be_started(tmp_path, launcher, preset):
    folder = tmp_path.resolve()
    chosen, found = built(folder, launcher, preset, [*HOSTILE[WAYS.index((launcher, preset)) :], *HOSTILE])
    run, plan = exported(folder / "a $(touch pwned) run", chosen, found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"))
    before = sorted(run.path.rglob("*"))
    shown = bash(run, "--dry-run", env=environment)
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
    for note, attempt in zip(noted(folder / "notes"), plan.attempts, strict=True):
        assert_same(note, attempt.command, run, environment)


def checkpoint(folder, step, *files):
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    for name in files:
        (made / name).write_text("{}")
    return made


@pytest.mark.parametrize("preset", ["builtin", "hf-trainer"])
def test_it_resumes_from_the_newest_complete_checkpoint(tmp_path, preset):
    folder = tmp_path.resolve()
    chosen, found = built(folder, "torchrun", preset, ["it's $(touch pwned)", "中 文"])
    output = folder / "my *out"
    run, plan = exported(folder / "run", profile({"trainer.output": str(output)}, chosen), found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"))
    every = plan.attempts[0].checkpoints.complete
    checkpoint(output, 8, *every)
    newest = checkpoint(output, 20, *every)
    kept = [checkpoint(output, 100, *every[1:]), checkpoint(output, 30), checkpoint(output, "40-tmp", *every)]
    (checkpoint(output, 50, *every) / every[0]).write_text("")
    bash(run, env=environment)
    assert "--resume" in " ".join(argv(plan.attempts[0].command, str(run.path), "x"))
    assert_same(noted(folder / "notes")[0], plan.attempts[0].command, run, environment, str(newest))
    shown = bash(run, "--dry-run", env=environment).stdout
    assert b"checkpoint-20" in shown
    assert all(path.is_dir() for path in kept)


def test_it_needs_bash_and_coreutils_only(tmp_path):
    """Not grep, sed, awk, ps, setsid or flock: none of them is on this PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in sorted(COREUTILS | {"bash"}):
        (tools / name).symlink_to(shutil.which(name))
    folder = tmp_path.resolve()
    chosen, found = built(folder, "python", "builtin", ["x"])
    run, plan = exported(folder / "run", chosen, found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), PATH=str(tools), **OOM)
    done = bash(run, env=environment)
    assert (done.returncode, done.stderr) == (1, b"")
    assert len(noted(folder / "notes")) == len(plan.attempts) > 1
    assert run.events()[-1].state == "failed"
    again = bash(run, env=environment | {"STUB_CODE": "0"})
    assert (again.returncode, again.stderr) == (0, b"")
    assert bash(run, "--dry-run", env=environment).stderr == b""


# fmt: off
NAMES = (
    "command", "settings", "shared", "attempts", "titles", "secrets", "checkpoint", "child", "code", "position",
    "number", "PYTHON", "RUN_DIR", "RUN_ID", "GRACE", "BOOT_ID", "IFS", "UID", "PPID", "RANDOM", "SECONDS",
    "CDPATH", "GLOBIGNORE", "BASH_ENV", "POSIXLY_CORRECT", "name", "log", "folder", "dry_run",
)
# bash takes these from no environment, or means something by them.
NOT_AROUND = ("UID", "PPID", "RANDOM", "SECONDS", "IFS", "BASH_ENV", "POSIXLY_CORRECT")
# fmt: on


def test_variables_of_the_user_may_have_any_name(tmp_path):
    """Those of the profile arrive whatever the script calls its own; around it they do when they are upper-case."""
    folder = tmp_path.resolve()
    mine = {name: f"mine {name}" for name in NAMES}
    theirs = {name: value for name, value in mine.items() if name.isupper() and name not in NOT_AROUND}
    for number, (table, around) in enumerate([(mine, {}), ({}, theirs)]):
        chosen, found = built(folder, "python", "builtin", ["x"])
        run, plan = exported(folder / f"run-{number}", profile({"trainer.environment": table}, chosen), found)
        environment = plain_environment(STUB_NOTES=str(folder / f"notes-{number}"), **around, **OOM)
        done = bash(run, env=environment)
        assert (done.returncode, done.stderr) == (1, b"")
        for note, attempt in zip(noted(folder / f"notes-{number}"), plan.attempts, strict=True):
            assert_same(note, attempt.command, run, environment)


@pytest.mark.parametrize("given", ["run dir/launch.sh", "./run dir/launch.sh", "a link", "launch.sh", "./launch.sh"])
def test_it_finds_its_folder_however_it_is_named(tmp_path, given):
    """Also where CDPATH would lead `cd` elsewhere, and through a link."""
    folder = tmp_path.resolve()
    chosen, found = built(folder, "python", "builtin", ["x"])
    run, plan = exported(folder / "run dir", chosen, found)
    (folder / "elsewhere" / "run dir").mkdir(parents=True)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), CDPATH=str(folder / "elsewhere"))
    (folder / "a link").symlink_to(run.script)
    where = run.path if given.endswith("launch.sh") and "run dir" not in given else folder
    done = subprocess.run(["bash", given], cwd=where, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert_same(noted(folder / "notes")[0], plan.attempts[0].command, run, environment)


def test_a_secret_must_be_there_and_is_written_nowhere(tmp_path):
    folder = tmp_path.resolve()
    value = "s3cret $(touch pwned) 'x'\n\"中"
    chosen, found = built(folder, "torchrun", "builtin", ["x"])
    run, _ = exported(folder / "run", profile({"trainer.secrets": ("HF_TOKEN", "DB_KEY")}, chosen), found)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), DB_KEY=value, **OOM)
    for lacking in (environment, environment | {"HF_TOKEN": ""}):
        done = bash(run, env=lacking)
        assert done.returncode == 69
        assert done.stderr.decode() == "launch.sh: HF_TOKEN is not set: export it, then start again\n"
        assert not run.events_file.exists()
    done = bash(run, env=environment | {"HF_TOKEN": value})
    assert done.returncode == 1
    assert noted(folder / "notes")[0]["env"]["HF_TOKEN"] == value
    shown = bash(run, "--dry-run", env=environment | {"HF_TOKEN": value})
    written = [path.read_bytes() for path in run.path.rglob("*") if path.is_file()]
    for text in (*written, done.stdout, done.stderr, shown.stdout):
        assert b"s3cret" not in text


def test_another_python_can_be_named_where_it_is_started(tmp_path):
    folder = tmp_path.resolve()
    chosen, found = built(folder, "torchrun", "builtin", ["x"])
    run, plan = exported(folder / "run", chosen, found)
    other = stub(folder / "other = $(touch pwned)" / "python")
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), TUI_TRAIN_PYTHON=str(other))
    assert bash(run, env=environment).returncode == 0
    assert noted(folder / "notes")[0]["argv"] == [str(other), *argv(plan.attempts[0].command, str(run.path))[1:]]
    words = noted(folder / "notes")[0]["argv"][1:]
    relative = environment | {"TUI_TRAIN_PYTHON": "./other = $(touch pwned)/python"}
    subprocess.run(["bash", run.script], cwd=folder, env=relative, check=True, stdout=subprocess.DEVNULL)
    assert noted(folder / "notes")[1]["argv"][1:] == words
    done = bash(run, env=environment | {"TUI_TRAIN_PYTHON": "/nowhere/python"})
    assert done.returncode == 69
    assert b"there is no /nowhere/python" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["-h"], 0), (["--nonsense"], 64), (["--dry-run", "x"], 64)]
)
def test_its_own_arguments(tmp_path, arguments, code):
    run, _ = exported(tmp_path, profile(), facts())
    done = bash(run, *arguments)
    assert done.returncode == code
    assert b"usage: bash launch.sh" in (done.stdout if code == 0 else done.stderr)
    assert not run.events_file.exists()


def test_sh_is_told_to_be_bash(tmp_path):
    run, _ = exported(tmp_path, profile(), facts())
    done = subprocess.run(["dash", run.script], capture_output=True, check=False)
    assert done.returncode == 69
    assert b'start it as "bash launch.sh"' in done.stderr


@pytest.mark.parametrize("uuids", [UUIDS[:1], UUIDS])
def test_gpus_are_chosen_by_uuid(tmp_path, uuids):
    folder = tmp_path.resolve()
    python = stub(folder / "python")
    found = facts(python=python, gpus=[gpu(number) for number in range(len(uuids))])
    run, _ = exported(folder / "run", profile({"trainer.launcher": "torchrun"}), found)
    bash(run, env=plain_environment(STUB_NOTES=str(folder / "notes"), CUDA_VISIBLE_DEVICES="7"))
    note = noted(folder / "notes")[0]
    assert note["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(uuids)
    assert note["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert f"--nproc-per-node={len(uuids)}" in note["argv"]


MACHINES = {"nodes.count": 3, "nodes.address": "10.0.0.1", "recipe.global_batch": 96}


def machines(folder, gpus=2, **more):
    """A run folder for three machines, and an environment in which nvidia-smi lists the cards in `there`."""
    python = stub(folder / "python")
    found = facts(python=python, gpus=[gpu(number) for number in range(gpus)])
    chosen = profile({"trainer.launcher": "torchrun", "hardware.processes": 0 if gpus else 2, **MACHINES, **more})
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/bash\nn=0\nfor one in $THERE; do echo "GPU $n: NVIDIA X (UUID: $one)"; n=$((n + 1)); done\n'
    )
    tool.chmod(0o755)
    environment = plain_environment(STUB_NOTES=str(folder / "notes"), THERE="GPU-a GPU-b")
    environment["PATH"] = f"{tool.parent}:{environment['PATH']}"
    return (*exported(folder / "run", chosen, found), environment)


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ([], 64, "3 machines train together: say which one this is, --node-rank=0 (the first) to --node-rank=2"),
        (["--node-rank=3"], 64, "--node-rank=3 is not there: 3 machines are 0 to 2"),
        (["--node-rank=x"], 64, "--node-rank=x is no number from 0 to 2"),
        (["--node-rank=99999999999999999999"], 64, "is no number from 0 to 2"),
        (["--node-rank="], 64, "usage:"),
        (["--node-rank=1", "--cards=GPU-a"], 64, "--cards names 1, and each machine trains on 2"),
        (["--node-rank=1", "--cards=GPU,GPU-"], 69, "the card GPU (chosen here) is not there"),
        (["--node-rank=1", "--cards=GPU-a,GPU-a"], 64, "--cards=GPU-a,GPU-a names GPU-a twice"),
        (["--node-rank=1", "--cards=GPU-a,GPU-b,"], 64, "names a card that is empty or has a space"),
        (["--node-rank=1", "--cards=GPU-a,GPU-c"], 69, "the card GPU-c (chosen here) is not there"),
        (["--node-rank=0"], 69, f"the card {UUIDS[0]} (NVIDIA GeForce RTX 3090) is not there"),
    ],
)
def test_a_machine_must_be_named(tmp_path, arguments, code, part):
    run, _, environment = machines(tmp_path)
    done = bash(run, *arguments, env=environment)
    assert done.returncode == code
    assert part in done.stderr.decode()
    assert not (tmp_path / "notes").exists()


def test_each_machine_takes_its_own_cards(tmp_path):
    folder = tmp_path.resolve()
    run, plan, environment = machines(folder)

    def started(*arguments, **more):
        done = bash(run, *arguments, env=environment | more)
        assert done.returncode == 0, done.stderr
        return noted(folder / "notes")[-1]

    first = started("--node-rank=0", THERE=" ".join(UUIDS))
    assert first["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(UUIDS)
    assert first["argv"] == argv(plan.attempts[0].command, str(run.path))
    second = started("--node-rank=1")
    assert second["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert second["argv"] == argv(plan.attempts[0].command, str(run.path), node_rank=1)
    third = started("--node-rank=2", "--cards=GPU-c,GPU-a", THERE="GPU-a GPU-b GPU-c")
    assert third["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-a"
    # Each has files of its own, for the folder may be on a disk that they share.
    for place in (run.path, run.path / "node-1", run.path / "node-2"):
        assert (place / "events.jsonl").is_file()
        assert [path.name for path in place.glob("attempt-*")] == ["attempt-1.log"]
        assert not (place / ".lock").exists()
    shown = bash(run, "--node-rank=1", "--dry-run", env=environment)
    assert b"CUDA_VISIBLE_DEVICES=GPU-a\\,GPU-b" in shown.stdout
    assert b"--node-rank=1" in shown.stdout
    assert started(TUI_TRAIN_NODE_RANK="1")["argv"] == second["argv"]


@pytest.mark.parametrize(
    ("there", "told"), [("GPU-a GPU-b GPU-c", "GPU-a GPU-b GPU-c"), ("GPU-a", "GPU-a"), ("", "none")]
)
def test_cards_are_never_guessed(tmp_path, there, told):
    run, _, environment = machines(tmp_path)
    done = bash(run, "--node-rank=1", env=environment | {"THERE": there})
    assert done.returncode == 69
    said = f"launch.sh: each machine trains on 2 cards, and this one has: {told}; choose with --cards=UUID,…\n"
    assert done.stderr.decode() == said
    shutil.rmtree(tmp_path / "bin")
    done = bash(run, "--node-rank=1", env=environment)
    assert (done.returncode, b"name the cards with --cards=UUID" in done.stderr) == (69, True)


def test_cards_and_ranks_mean_nothing_on_one_machine(tmp_path):
    run, _ = exported(tmp_path / "one", profile(), facts())
    for word in ("--node-rank=0", "--cards=GPU-a"):
        done = bash(run, word)
        assert done.returncode == 64
        assert b"are for several machines, and this trains on one" in done.stderr
    run, *_ = machines(tmp_path, gpus=0)
    done = bash(run, "--node-rank=1", "--cards=GPU-a")
    assert (done.returncode, b"this trains on the CPU" in done.stderr) == (64, True)


def test_scripts_for_machines_and_shards_are_clean(tmp_path, shellcheck):
    run, _, environment = machines(tmp_path)
    assert b"--node-rank=N" in bash(run, "--help", env=environment).stdout
    chosen = profile({"trainer.launcher": "accelerate", "ladder.rungs": ("sharding", "offload"), "nodes.count": 1})
    shards, _ = exported(tmp_path / "shards", chosen, facts(gpus=(gpu(0), gpu(1))))
    assert (shards.path / "accelerate-3.yaml").is_file()
    shellcheck(run.script, shards.script)


def test_a_run_that_is_started_here_is_the_first_machine(tmp_path, monkeypatch):
    folder = tmp_path.resolve()
    run, plan, _ = machines(folder, gpus=0)
    monkeypatch.setenv("STUB_NOTES", str(folder / "notes"))
    start(run)
    until(lambda: run.events()[-1].event == "run_ended")
    assert noted(folder / "notes")[0]["argv"] == argv(plan.attempts[0].command, str(run.path), node_rank=0)

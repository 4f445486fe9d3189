"""For programs: `spec` says what can be called, and every answer, dry run and error is the JSON that it says."""

import ast
import inspect
import json
import pkgutil
import shlex
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import click
import msgspec
import pytest
import training_results
import warm
from jsonschema import Draft202012Validator
from ssh import lead_ssh_back
from support import (
    create_run,
    make_executable,
    run_cli,
    sleeper_profile,
    write_attempt_events,
)
from training_results import write_adapter

from tui_train import __main__
from tui_train.cli import spec
from tui_train.cli.app import cli
from tui_train.cli.plans import plan_commands
from tui_train.cli.runs import run_commands
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.runs import run_folders
from tui_train.runs.remote_run import RunLocation, write_run_location

SURFACE = json.loads(json.dumps(spec.command_surface(cli)))
COMMANDS = {command["name"]: command for command in SURFACE["commands"]}
VERBS = ("writes", "removes", "starts", "stops", "sends")
# Whatever cards the machine of the tests has.
CPU = ("--set", "hardware.device=cpu")
BROKEN = ("--set", "recipe.global_batch=7", "--set", "recipe.micro_batch=2")
SMALL = ("layers=1", "hidden_size=16", "heads=2", "sequence_length=16", "steps=2", "checkpoint_every=1")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


def strict(schema):
    """A schema by which an object has no other keys than those that it names."""
    if isinstance(schema, dict):
        closed = {"additionalProperties": False} if "properties" in schema else {}
        return closed | {key: strict(value) for key, value in schema.items()}
    return [strict(each) for each in schema] if isinstance(schema, list) else schema


DEFINITIONS = strict(deepcopy(SURFACE["$defs"]))


def check(value, schema):
    errors = [*Draft202012Validator({**schema, "$defs": DEFINITIONS}).iter_errors(value)]
    assert not errors, [(error.json_path, error.message[:200]) for error in errors]


def call(monkeypatch, capsys, *words):
    """The exit code and the answer of a command, in this very process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(sys, "argv", ["tui-train", *words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    capsys.readouterr()
    try:
        with pytest.raises(SystemExit) as ended:
            __main__.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return ended.value.code, json.loads(capsys.readouterr().out)


def answer(command, *words, code=0):
    """What a real command answers, which is as `spec` says it."""
    told = json.loads(run_cli(*command.split(), *words, "--json", code=code).stdout)
    kind = "dry_run_answer" if "--dry-run" in words else "answer"
    check(told, COMMANDS[command][kind])
    return told


def flags(command):
    return {flag for option in command["options"] for flag in option["flags"]}


# What can be called


def test_schemas_are_schemas_and_lead_to_definitions():
    for definition in SURFACE["$defs"].values():
        Draft202012Validator.check_schema(definition)
    text = json.dumps(SURFACE)
    names = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert names <= set(SURFACE["$defs"])
    assert {"PlanAnswer", "Finding", "Profile", "Event", "ErrorAnswer", "Changes"} <= set(SURFACE["$defs"])


def test_what_changes_something_has_a_dry_run_and_answers():
    for name, command in COMMANDS.items():
        changes = any(command[verb] for verb in VERBS)
        if changes and not command["changes_only_with"]:
            assert {"--dry-run", "--json"} <= flags(command), name
            assert command["answer"], name
            assert command["dry_run_answer"], name
        else:
            assert "--dry-run" not in flags(command), name
            assert command["changes_only_with"] in {"", *flags(command)}, name
        assert bool(command["answer"]) == ("--json" in flags(command)), name
    assert {name for name, command in COMMANDS.items() if command["ends_with_code_of_training"]} == {
        "run", "quickstart", "resume", "logs", "attach",
    }  # fmt: skip


def test_a_parameter_says_its_type_choices_limits_and_default():
    seconds = next(each for each in COMMANDS["tune"]["options"] if each["flags"] == ["--seconds"])
    assert (seconds["type"], seconds["default"], seconds["minimum"], seconds["maximum"]) == ("integer", 180, 5, 3600)
    method = next(each for each in COMMANDS["data"]["options"] if each["flags"] == ["--method"])
    assert method["choices"][:2] == ["sft", "dpo"]
    files = COMMANDS["data"]["arguments"][0]
    assert (files["required"], files["multiple"], files["type"]) == (True, True, "path")
    assert COMMANDS["evaluate"]["exit_codes"] == {"1": "no difference", "2": "worse"}


@pytest.mark.parametrize("module", [plan_commands, run_commands])
def test_what_a_command_calls_takes_the_options_that_it_passes_on(module):
    for function in ast.parse(inspect.getsource(module)).body:
        command = getattr(module, getattr(function, "name", ""), None)
        if not isinstance(command, click.Command):
            continue
        names = {each.name for each in command.params if each.expose_value}
        # Those that become one argument.
        for several, one in (({"machine", "host", "slurm"}, "named_place"), ({"waits", "any_gpus"}, "when_free")):
            names = names - several | {one} if names >= several else names
        names -= {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
        imported = {}
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                imported |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
            elif isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg is None:
                first, *rest = ast.unparse(node.func).split(".")
                called = pkgutil.resolve_name(".".join((imported[first], *rest)))
                own = {keyword.arg for keyword in node.keywords[:-1]}
                inspect.signature(called).bind(*node.args, **dict.fromkeys(names | own))


def test_skill_names_no_command_but_where_to_look():
    text = run_cli("skill").stdout
    head = text.split("---\n")[1]
    assert head.startswith("name: tui-train\ndescription: ")
    assert "`tui-train spec`" in text
    assert not {name for name in COMMANDS if f"`tui-train {name}" in text} - {"spec"}


# Errors


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_argument_is_answered_in_json(name, monkeypatch, capsys):
    code, told = call(monkeypatch, capsys, *name.split(), "--no-such-option", "--json")
    check(told, SURFACE["error"])
    assert (code, told["exit_code"]) == (64, 64)
    assert "--no-such-option" in told["error"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan", "none"), 66),
        (("plan", "quickstart", "--set", "recipe.steps=x"), 65),
        (("result", "none"), 66),
        (("runs", "rm", "none"), 66),
        (("stop", "none"), 66),
        (("keys", "nothing-like-it"), 65),
        (("hosts", "rm", "none"), 66),
        (("hosts", "add", "-x", "--dry-run"), 64),
        (("merge", "none", "folder", "--dry-run"), 66),
        (("nemo", "import", "none", "out", "--dry-run"), 69),
        (("evaluate", "none"), 66),
        (("profiles", "rm", "none", "--dry-run"), 66),
        (("data", "none.jsonl"), 66),
        (("metrics", "none", "--csv"), 64),
        (("new", "last"), 65),
        (("import", "--dry-run", "pip", "install"), 65),
    ],
)
def test_an_error_is_answered_in_json(words, code, monkeypatch, capsys):
    ended, told = call(monkeypatch, capsys, *words, "--json")
    check(told, SURFACE["error"])
    assert (ended, told["exit_code"], told["why"]) == (code, code, SURFACE["exit_codes"][str(code)])
    assert told["fix"]


def test_a_refused_start_says_what_was_found():
    told = json.loads(run_cli("run", "quickstart", *CPU, *BROKEN, "--json", code=65).stdout)
    check(told, SURFACE["error"])
    assert told["error"] in {finding["message"] for finding in told["findings"]}
    assert not run_folders.list_runs()


def test_nothing_is_asked_of_a_program(monkeypatch, capsys):
    store.save_profile(Profile(name="mine"))
    code, told = call(monkeypatch, capsys, "profiles", "rm", "mine", "--json")
    assert (code, told["fix"]) == (69, "Add --yes to remove without asking.")
    assert store.saved_profile_names() == ("mine",)


# Dry runs


def tree(folder):
    """All that lies below a folder, without caches and the Pythons that somebody named, which every command keeps."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
        if ".cache" not in path.parts and path.name != "pythons.json"
    }


@pytest.fixture
def world():
    """A saved profile, a host, and a run that has ended."""
    store.save_profile(Profile(name="mine"))
    run_cli("hosts", "add", "box", "me@box")
    chosen = sleeper_profile("--seconds=0.1")
    run = create_run(chosen, name="ended")
    write_attempt_events(run, 5.0, "failed", exit_code=1)
    run.attempt_log(1).write_text("step 1/2 loss 3.5\nstep 2/2 loss 3.0\nRuntimeError: broken\n")
    return run


@pytest.mark.parametrize(
    ("command", "words", "done"),
    [
        ("new", ("other",), {"writes": "other.toml"}),
        ("profiles change", ("mine", "--set", "recipe.steps=3"), {"writes": "mine.toml"}),
        ("profiles cp", ("mine", "copy"), {"writes": "copy.toml"}),
        ("profiles mv", ("mine", "moved"), {"writes": "moved.toml", "removes": "mine.toml"}),
        ("profiles rm", ("mine", "--yes"), {"removes": "mine.toml"}),
        ("hosts add", ("more",), {"writes": ": more"}),
        ("hosts rm", ("box",), {"removes": ": box"}),
        ("runs note", ("last", "a word"), {"writes": "note.txt"}),
        ("runs mv", ("last", "moved"), {"writes": "-moved", "removes": "-ended"}),
        ("runs rm", ("last", "--yes"), {"removes": "-ended"}),
        ("report", ("last", "my.tar.gz"), {"writes": "my.tar.gz"}),
        ("stop", ("last",), {}),
        ("export", ("quickstart", "folder", *CPU), {"writes": "launch.sh"}),
    ],
)
def test_a_dry_run_says_what_is_done_and_changes_nothing(world, tmp_path, command, words, done):
    before = tree(tmp_path)
    told = answer(command, *words, "--dry-run")
    assert tree(tmp_path) == before
    assert told["dry_run"]
    assert {verb for verb in VERBS if told[verb]} == done.keys()
    for verb, end in done.items():
        assert any(each.endswith(end) for each in told[verb]), told
    really = answer(command, *words)
    assert {verb: really[verb] for verb in VERBS} == {verb: told[verb] for verb in VERBS}
    paths = [Path(each) for each in really["writes"] if ": " not in each]
    assert all(path.exists() for path in paths)
    assert not any(Path(each).exists() for each in really["removes"] if ": " not in each)
    assert (tree(tmp_path) == before) == (not done)


@pytest.fixture
def nemo_python(tmp_path):
    """A Python that says that it has NeMo."""
    packages = tmp_path / "nemo"
    for name, version in (
        ("nemo_toolkit", "2.7.3"),
        ("nemo_run", "0.11.1"),
        ("megatron_core", "0.15.3"),
        ("torch", "2.13.0"),
    ):
        named = packages / f"{name}-{version}.dist-info"
        named.mkdir(parents=True)
        (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return make_executable(packages / "python", f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')


@pytest.fixture
def dear(tmp_path, nemo_python, monkeypatch):
    """What commands work on that take long: a result, a run on a host, data for NeMo, a profile that starts."""
    write_adapter(training_results.ended_run(tmp_path / "tuned").path / "output")
    far = create_run(sleeper_profile(), name="far")
    write_run_location(far.path, RunLocation("box", "/far"))
    store.save_profile(sleeper_profile("--seconds=0.1"))
    run_cli("hosts", "add", "box", "me@box")
    lead_ssh_back(tmp_path / "there", tmp_path / "client", monkeypatch)
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n' * 20)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    training_results.write_model(tmp_path / "model")
    (tmp_path / "checkpoint" / "context").mkdir(parents=True)
    (tmp_path / "checkpoint" / "context" / "io.json").write_text("{}")
    (tmp_path / "checkpoint" / "weights").mkdir()


@pytest.mark.parametrize(
    ("line", "verb", "ends"),
    [
        ("merge tuned folder", "writes", ["/folder"]),
        ("export-model tuned folder --for vllm", "writes", ["/folder"]),
        ("fetch far", "writes", ["-far"]),
        ("hosts login box", "starts", ["ssh me@box"]),
        ("run sleeper --array=--seconds=0,1", "starts", ["--seconds=0", "--seconds=1"]),
        ("run sleeper --on box", "starts", ["sleeper"]),
        ("nemo prepare text.jsonl --out made --tokenizer tokenizer --python nemo/python", "writes",
         ["made_train.bin", "made_train.idx"]),
        ("nemo import model made --python nemo/python", "writes", ["/made"]),
        ("nemo export checkpoint made --python nemo/python", "writes", ["/made"]),
    ],
)  # fmt: skip
def test_a_dry_run_of_what_takes_long_starts_and_writes_nothing(dear, tmp_path, line, verb, ends):
    before = tree(tmp_path)
    command = next(name for name in sorted(COMMANDS, reverse=True) if line.startswith(f"{name} "))
    told = answer(command, *line.removeprefix(command).split(), "--dry-run")
    assert tree(tmp_path) == before
    assert len(told[verb]) == len(ends)
    assert all(each.endswith(end) for each, end in zip(told[verb], ends, strict=True)), told


def test_a_dry_run_is_words_for_people(world):
    shown = run_cli("profiles", "rm", "mine", "--dry-run").stdout
    assert shown == f"would remove {store.saved_profile_path('mine')}\n"
    assert run_cli("stop", "last", "--dry-run").stdout == "nothing would be changed\n"


def test_a_start_is_told_before_and_after(tmp_path, monkeypatch):
    store.save_profile(sleeper_profile("--seconds=0.2"))
    before = tree(tmp_path)
    told = answer("run", "sleeper", "--dry-run")
    assert (told["starts"], tree(tmp_path)) == (["sleeper"], before)
    told = answer("run", "sleeper")
    (run,) = run_folders.list_runs()
    assert (told["starts"], told["writes"]) == ([run.name], [str(run.path)])
    assert answer("resume", "last", "--dry-run")["starts"] == []
    assert [each["first"] for each in answer("tune", "quickstart", *CPU, "--dry-run")].count(True) == 1


# Answers


def test_answers_are_as_the_schemas_say(world, tmp_path):
    answer("facts")
    plan = answer("plan", "quickstart", *CPU, "--diff")
    assert plan["plan"]["attempts"][0]["argv"]
    answer("plan", "quickstart", *CPU, *BROKEN, code=65)
    answer("estimate", "quickstart", *CPU)
    answer("keys")
    answer("presets")
    answer("profiles")
    (run,) = answer("runs")
    assert (run["state"], run["attempts"][0]["exit_code"]) == ("failed", 1)
    world.events_file.write_text("{}\n")
    answer("runs")
    answer("queue")
    answer("compare", "last", "last")
    assert answer("metrics", "last")["run"] == world.name
    answer("result", "last")
    answer("diagnose", str(world.attempt_log(1)))
    quiet = tmp_path / "quiet.log"
    quiet.write_text("all is well\n")
    assert answer("diagnose", str(quiet))["class"] is None


def test_an_import_answers_what_became_of_each_word(tmp_path):
    def call_import(*options, code=0):
        command = ("import", *options, "--name", "mine", "--json", "torchrun train.py --x 1 | wc")
        return json.loads(run_cli(*command, code=code).stdout)

    before = tree(tmp_path)
    told = call_import("--dry-run")
    check(told, COMMANDS["import"]["dry_run_answer"])
    assert (told["saved"], tree(tmp_path)) == (None, before)
    assert "not understood" in {each["outcome"] for each in told["words"]}
    really = call_import()
    check(really, COMMANDS["import"]["answer"])
    assert really == told | {"saved": str(store.saved_profile_path("mine"))}
    assert Path(really["saved"]).exists()
    for options in ((), ("--dry-run",)):
        check(call_import(*options, code=73), SURFACE["error"])
    assert call_import("--force") == really


def test_a_profile_and_the_events_of_a_run_are_as_the_schemas_say(world):
    for event in map(json.loads, world.events_file.read_text().splitlines()):
        Draft202012Validator({**SURFACE["event"], "$defs": SURFACE["$defs"]}).validate(event)
    check(json.loads(msgspec.json.encode(Profile())), SURFACE["profile"])


# The whole way


class Agent:
    """Knows of the program only what `spec` prints."""

    def __init__(self):
        self.surface = json.loads(run_cli("spec").stdout)

    def command(self, **about):
        """The one command of which that is so: the name of its answer, and whether a verb and arguments are there."""
        found = [each for each in self.surface["commands"] if all(self.fits(each, *item) for item in about.items())]
        assert len(found) == 1, [each["name"] for each in found]
        return found[0]

    def fits(self, command, what, wanted):
        if what == "answer":
            return f"/{wanted}'" in str(command["answer"])
        if what == "needs":
            return [each["name"] for each in command["arguments"] if each["required"]] == wanted
        return wanted in command[what]

    def flag(self, command, metavar="", name=""):
        fits = (each for each in command["options"] if (metavar and each["metavar"] == metavar) or each["name"] == name)
        return next(fits)["flags"][0]

    def call(self, command, *words, code=0):
        called = warm.cli_command(*command["name"].split(), *words, self.flag(command, name="as_json"))
        done = subprocess.run(called, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def edits(self, command, values):
        flag = self.flag(command, metavar="KEY=VALUE")
        return [word for key, value in values.items() for word in (flag, f"{key}={value}")]


@pytest.mark.training
@pytest.mark.whole
def test_an_agent_that_reads_only_spec_runs_breaks_mends_and_diagnoses(tmp_path):
    agent = Agent()
    demo = agent.command(starts="to its end", needs=[])
    values = {f"recipe.{word.partition('=')[0]}": word.partition("=")[2] for word in SMALL}
    values |= {"hardware.device": "cpu", "trainer.python": warm.training()}
    first = agent.call(demo, *agent.edits(demo, values))
    assert len(first["starts"]) == 1

    plan = agent.command(answer="PlanAnswer")
    broken = values | {"recipe.global_batch": "7", "recipe.micro_batch": "2"}
    found = agent.call(plan, demo["name"], *agent.edits(plan, broken), code=65)
    assert found["plan"] is None
    (error,) = [each for each in found["findings"] if each["level"] == "error"]
    refused = agent.call(demo, *agent.edits(demo, broken), code=65)
    assert refused["findings"][0]["message"] == error["message"]
    fixed = broken | {key: str(value) for key, value in error["change"]["edits"]}
    assert agent.call(plan, demo["name"], *agent.edits(plan, fixed))["plan"]
    second = agent.call(demo, *agent.edits(demo, fixed))

    states = {each["run"]: each["state"] for each in agent.call(agent.command(answer="RunAnswer"))}
    assert {states[first["starts"][0]], states[second["starts"][0]]} == {"finished"}

    script = tmp_path / "fails.py"
    script.write_text("open('/no/such/rows.jsonl')\n")
    run = agent.command(starts="--detach", needs=["profile"])
    fails = {"trainer.script": shlex.quote(str(script)), "hardware.device": "cpu", "trainer.preset": "custom"}
    ended = agent.call(run, demo["name"], *agent.edits(run, fails), code=1)
    diagnose = agent.command(answer="DiagnosisAnswer")
    diagnosis = agent.call(diagnose, ended["starts"][0])
    assert (diagnosis["class"], "rows.jsonl" in diagnosis["line"]) == ("missing_file", True)
    assert diagnosis["remedy"]
    again = agent.call(agent.command(starts="--detach", needs=["run"]), ended["starts"][0], code=69)
    assert "cannot resume" in again["error"]
    assert again["fix"]

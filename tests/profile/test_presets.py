"""Presets: what reaches the trainer, by which way; the user's own; what a script's --help lists; whole trainings."""

import json
import os
import re
import subprocess
import sys
import textwrap
from argparse import ArgumentParser
from importlib import resources
from pathlib import Path

import msgspec
import pytest
import warm
import yaml
from support import (
    SCRIPTS,
    export_run,
    facts,
    findings_of,
    install_packages,
    plain_environment,
    plan,
    prepare_without_errors,
    profile,
    run_launch_script,
    sample,
    values_taken_by_preset,
    wait_until,
)
from yaml_configs import LLAMA_FACTORY_CONFIG, profile_with_config

from tui_train.base import app_paths
from tui_train.base.command import ConfigFile, argv
from tui_train.base.errors import BadInput, NotFound
from tui_train.cli.plans import presets as printed_presets
from tui_train.facts.scripts.script_help import flags_without_second_spellings, parse_help, read_script_help
from tui_train.facts.types import HelpFlag, YamlDocument
from tui_train.facts.yaml_documents import parse_document, read_document
from tui_train.plan.render.config_yaml import render_config_yaml
from tui_train.profile import store
from tui_train.profile.changes import apply_change
from tui_train.profile.presets import (
    UserPreset,
    get_preset,
    shipped_preset_texts,
    shipped_presets,
)
from tui_train.profile.presets import user_presets as user_module
from tui_train.profile.presets.user_presets import user_presets
from tui_train.runner.logs.curve import LossPoint
from tui_train.runner.logs.progress import Progress, advance_progress
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.setup import Setup

MINE = """\
# all that is mine
model_name: "a: b # c"
do_train: true
batch_size: 3
training:
  batch_size: 32
  steps: 4
  weight_decay: 1e-2
  use_ddp: false
  names: [yes, "no", null, 1.5]
"""
WHOLE = 'label = "Mine"\nabout = "my own"\narguments = [{ words = ["--bs={micro_batch}"] }]\n'
RECIPE = {
    "recipe.micro_batch": 4,
    "recipe.global_batch": 32,
    "recipe.learning_rate": 1e-5,
    "recipe.steps": 9,
    "recipe.checkpoint_every": 3,
    "recipe.sequence_length": 64,
    "hardware.processes": 2,
    "trainer.launcher": "torchrun",
    "trainer.kind": "script",
    "trainer.script": "/src/train.py",
    "ladder.rungs": ("micro_batch",),
}
# What a preset passes of the recipe above, on two processes: words, or keys of its file with their values.
PASSED = {
    "accelerate": ["--per_device_train_batch_size=4", "--gradient_accumulation_steps=4", "--block_size=64",
                   "--learning_rate=1e-05", "--max_train_steps=9", "--checkpointing_steps=3", "--seed=1"],
    "axolotl": {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "sequence_len": 64, "learning_rate": 1e-5,
                "max_steps": 9, "save_steps": 3, "bf16": False, "fp16": False, "gradient_checkpointing": False,
                "batch_size": None},
    "custom": [],
    "hf-trainer": ["--per_device_train_batch_size=4", "--gradient_accumulation_steps=4", "--learning_rate=1e-05"],
    "llama-factory": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "cutoff_len": 64,
                      "learning_rate": 1e-5, "max_steps": 9, "save_steps": 3, "bf16": False,
                      "disable_gradient_checkpointing": True, "do_train": True},
    "nanogpt": ["--batch_size=4", "--gradient_accumulation_steps=8", "--block_size=64", "--learning_rate=1e-05",
                "--max_iters=9", "--eval_interval=3", "--dtype=float32", "--device=cpu",
                "--n_layer=4", "--n_head=4", "--n_embd=128"],
    "total-batch": ["--batch_size=8", "--accumulation_steps=4", "--lr=1e-05"],
    "total-batch-yaml": {"training.batch_size": 8, "training.accumulation_steps": 4, "training.use_ddp": True},
    "trl": ["--per_device_train_batch_size=4", "--gradient_accumulation_steps=4", "--max_length=64",
            "--learning_rate=1e-05", "--max_steps=9", "--bf16=False", "--gradient_checkpointing=False"],
}  # fmt: skip


def chosen_for(name, folder, **more):
    """A profile with this preset, and facts that know its YAML file, which is written to the folder."""
    values = values_taken_by_preset({**RECIPE, "trainer.preset": name, "trainer.python": sys.executable, **more})
    found = facts(python=values["trainer.python"])
    if (file := shipped_presets()[name].file) and file.needs_user_file:
        (folder / "mine.yaml").write_text(MINE)
        values["trainer.config"] = str(folder / "mine.yaml")
        found = msgspec.structs.replace(found, documents={values["trainer.config"]: parse_document(MINE.encode())})
    return profile(values), found


def at(values, key):
    for name in key.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


@pytest.mark.parametrize("name", sorted(set(shipped_presets()) - {"builtin"}))
def test_each_preset_passes_the_recipe(name, tmp_path):
    chosen, found = chosen_for(name, tmp_path)
    made = prepare_without_errors(chosen, found).plan
    expected = PASSED[name]
    for attempt, (micro, steps) in zip(made.attempts, ((4, 4), (2, 8), (1, 16)), strict=False):
        assert micro * steps * 2 == 32
        said = argv(attempt.command, "/run")
        if isinstance(expected, list) and attempt is made.attempts[0]:
            assert [word for word in expected if word not in said] == []
    if isinstance(expected, dict):
        first, second, third = made.configs
        assert [config.path for config in made.configs] == ["config.yaml", "config-2.yaml", "config-3.yaml"]
        written = yaml.safe_load(render_config_yaml(first))
        for key, value in expected.items():
            assert (at(written, key), type(at(written, key))) == (value, type(value)), key
        assert written["model_name"] == "a: b # c"
        assert written["training"]["names"] == [True, "no", None, 1.5]
        batches = {config.path: str(yaml.safe_load(render_config_yaml(config))) for config in (first, second, third)}
        assert len(set(batches.values())) == 3
        for number, attempt in enumerate(made.attempts):
            own = ("config", "config-2", "config-3")[number]
            words = " ".join(argv(attempt.command, "/run"))
            assert f"/run/{own}.filled.yaml" in words or f"/run/{own}.yaml" in words


def noted_run(folder, name, launcher, **more):
    """Run the noting script under a launcher as this preset starts it, through launch.sh; return what each rank got."""
    notes, project = folder / "notes", folder / "my project"
    notes.mkdir()
    project.mkdir()
    script = (SCRIPTS / "noted.py").read_text()
    (project / "train.py").write_text(script)
    variables = {"NOTES": str(notes)}
    if module := shipped_presets()[name].module:
        *packages, last = module.split(".")
        inner = project.joinpath("modules", *packages)
        inner.mkdir(parents=True)
        (inner / f"{last}.py").write_text(script)
        variables["PYTHONPATH"] = str(project / "modules")
    world = 1 if launcher == "python" else 2
    chosen, found = chosen_for(
        name,
        project,
        **{
            "trainer.python": warm.training(),
            "trainer.script": str(project / "train.py"),
            "trainer.launcher": launcher,
            "trainer.environment": variables,
            "hardware.processes": world,
            "ladder.rungs": (),
            **more,
        },
    )
    run, made = export_run(folder / "my run", chosen, found)
    done = run_launch_script(run, "--plain", timeout=120)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    told = [json.loads(path.read_text()) for path in sorted(notes.glob("*.json"))]
    assert [(one["rank"], one["world"]) for one in told] == [(str(rank), str(world)) for rank in range(world)]
    return run, made, told


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "launcher"),
    sample(
        [
            *((name, "python") for name in sorted(set(shipped_presets()) - {"builtin"})),
            ("axolotl", "torchrun"),
            ("nanogpt", "torchrun"),
            ("llama-factory", "accelerate"),
            ("total-batch-yaml", "accelerate"),
        ],
        2,
    ),
)
def test_the_script_receives_what_the_plan_says(tmp_path, name, launcher):
    run, made, told = noted_run(
        tmp_path, name, launcher, **{"trainer.script": ""} if shipped_presets()[name].module else {}
    )
    words = argv(made.attempts[0].command, str(run.path))
    module = shipped_presets()[name].module
    start = words.index(module or str(tmp_path / "my project" / "train.py"))
    for one in told:
        assert one["argv"] == words[start + 1 :]
        assert one["cwd"] == str(tmp_path / "my project") or name == "trl"
        if module:
            assert one["name"] in {module, "__main__"} or one["name"].endswith("__main__")
        if made.configs[-1:] and shipped_presets()[name].file:
            (text,) = one["files"].values()
            seen = yaml.safe_load(text)
            text = json.dumps(made.configs[-1].values).replace("@TUI_TRAIN_RUN_DIR@", str(run.path))
            assert seen == json.loads(text.replace('"@TUI_TRAIN_CHECKPOINT@"', "null"))
        if name == "accelerate":
            assert one["mixed"] == "no"


def test_yours_come_first_where_they_hold_a_whole_configuration(tmp_path):
    chosen, found = chosen_for("nanogpt", tmp_path, **{"trainer.arguments": ("config/mine.py", "--seed=2")})
    words = argv(plan(chosen, found).attempts[0].command, "/run")
    at_script = words.index("/src/train.py")
    assert words[at_script + 1 : at_script + 4] == ["config/mine.py", "--seed=2", "--out_dir=/run/output"]
    assert words[-1] != "--init_from=resume"
    resumed = argv(plan(chosen, found).attempts[0].command, "/run", "/run/output/ckpt.pt")
    assert resumed[-1] == "--init_from=resume"


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("nanogpt",
         ["tokens per iteration will be: 491,520", "step 0: train loss 10.9897, val loss 10.9898",
          "iter 0: loss 10.9897, time 5035.66ms, mfu -100.00%", "iter 10: loss 4.2300, time 100.12ms, mfu 3.44%"],
         ((LossPoint(0, 10.9897), LossPoint(10, 4.23)), 10, 9)),
        ("trl", ["{'loss': '1.5', 'grad_norm': '0.9', 'learning_rate': '1e-05', 'entropy': '1.2', 'epoch': '0.1'}"],
         ((LossPoint(0, 1.5, 1e-5),), 0, 9)),
        ("axolotl", ["{'loss': 1.25, 'grad_norm': 0.9, 'learning_rate': 1e-05, 'epoch': 0.1}",
                     " 33%|###3      | 3/9 [00:01<00:02,  2.00it/s]"], ((LossPoint(0, 1.25, 1e-5),), 3, 9)),
        ("accelerate", ["11/20/2026 22:19:18 - INFO - __main__ -   Total optimization steps = 9",
                        " 44%|####4     | 4/9 [00:01<00:02,  2.00it/s]"], ((), 4, 9)),
    ],
)  # fmt: skip
def test_logs_are_read_as_the_preset_says(tmp_path, name, lines, expected):
    chosen, found = chosen_for(name, tmp_path)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan(chosen, found)))
    progress = advance_progress(Progress(), lines, RunFolder(tmp_path).log_reading_options())
    assert (progress.curve.points(), progress.step, progress.steps) == expected


@pytest.mark.parametrize("log", [{"expressions": ["("]}, {"expressions": 5}, {"steps": "x"}, [], None, "x"])
def test_a_plan_that_is_not_ours_says_nothing_of_lines(tmp_path, log):
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode({"log": log}))
    assert RunFolder(tmp_path).log_reading_options().expressions == ()


def newest(run):
    """The checkpoint from which the supervisor resumes the first attempt."""
    from tui_train.runner.run_folder import checkpoints, supervisor_plan

    return checkpoints.newest_complete_checkpoint(
        supervisor_plan.read_plan(str(run.path)).attempts[0].checkpoints, str(run.path)
    )


def test_checkpoints_may_be_files_with_their_step_in_the_name(tmp_path):
    text = WHOLE + '[checkpoints]\nprefix = "it "\nsuffix = ".pt"\nresume = ["--from", "{checkpoint}"]\n'
    mine = UserPreset(path="/p", preset=user_module.parse_preset(text, "mine"))
    found = msgspec.structs.replace(facts(), presets={"mine": mine})
    values = values_taken_by_preset({**RECIPE, "trainer.preset": "mine"}, mine.preset)
    run, _ = export_run(tmp_path / "my run", profile(values), found)
    output = run.path / "output"
    output.mkdir()
    archive = b"PK\x03\x04" + bytes(50)
    ending = b"PK\x05\x06" + bytes(18)
    for name, data in {
        "it 3.pt": archive + ending,
        "it 010.pt": archive + ending,
        "it 20.pt": archive,
        "it 30.pt": b"",
        "it 40.pt.tmp": archive + ending,
        "it x.pt": archive + ending,
    }.items():
        (output / name).write_bytes(data)
    said = run_launch_script(run, "--dry-run", f"--checkpoint={output}/it 010.pt")
    assert said.stderr == b""
    assert f"--from {output}/it\\ 010.pt".replace("my run", "my\\ run") in said.stdout.decode()
    assert newest(run) == f"{output}/it 010.pt"
    (output / "it 20.pt").write_text("no archive at all")
    assert newest(run) == f"{output}/it 20.pt"


# ---- the user's YAML ---------------------------------------------------------------------------------------------


# Six lines that stand for a hundred thousand values.
LAUGHS = b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 10)) for name in b"bcde"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a: [", "it is not YAML: .*line 1"),
        (b"- a\n- b", "not a mapping"),
        (b"a: \xff", "UTF-8"),
        (b"when: 2024-01-01", "when is a date: put it in quotes"),
        (b"a: {1: b}", "the name 1 is not text"),
        (b"a: .nan", "a is not a finite number"),
        (b"a: &x [*x]", "too many"),
        (b"a: !!python/object/apply:os.system [touch pwned]", "it is not YAML"),
        (b"a: \x1b[31m", "it is not YAML"),
        (LAUGHS, "too many"),
        (b"a: " + b"9" * 30, "too large"),
        (b"[" * 3000, "it is not YAML|too many"),
    ],
)  # fmt: skip
def test_a_yaml_that_cannot_be_the_base_says_why(text, problem):
    found = parse_document(text)
    assert re.search(problem, found.problem), found.problem
    assert found.values == {}
    assert found.problem.isprintable()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "it is a folder"),
        (lambda path: None, "it does not exist"),
        (lambda path: path.write_bytes(b"# " + b"x" * 2**20), "it is larger than 1 MiB"),
        (os.mkfifo, "it is a pipe"),
    ],
    ids=["folder", "none", "large", "pipe"],
)
def test_a_yaml_file_is_read_bounded(tmp_path, make, problem):
    make(tmp_path / "file")
    assert problem in read_document(str(tmp_path / "file")).problem


def test_an_empty_yaml_file_has_no_values():
    assert parse_document(b"") == YamlDocument()


@pytest.mark.parametrize(
    "value",
    [1e-4, 1e-05, 3e300, 0.1, 1, True, None, "1e-4", "no", "null", "1", "a: b", "x\ny\n", " ", "中", "", "'\"\\"],
)
def test_a_value_keeps_its_type(value):
    written = render_config_yaml(ConfigFile("c.yaml", "why", {"a": {"b": [value]}}))
    back = yaml.safe_load(written)["a"]["b"][0]
    assert (back, type(back)) == (value, type(value))


# ---- presets of the user's own -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = app_paths.presets_folder()
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("label = ", "is not TOML"),
        ('label = "x"', "missing required field `about`"),
        (WHOLE + "argumnets = []", "argumnets"),
        (WHOLE.replace("micro_batch", "micro_batches"), r"arguments\[0\]\.words: {micro_batches} is not a placeholder"),
        (WHOLE.replace("{ words", '{ when = "precisoin=bf16", words'), r"arguments\[0\]\.when"),
        (WHOLE.replace('["--bs={micro_batch}"]', "[]"), r"arguments\[0\]\.words: is empty"),
        (WHOLE.replace('["--bs={micro_batch}"]', "5"), r"arguments\[\.\.\.\]\.words|arguments"),
        (WHOLE + 'module = "a b"', "module"),
        (WHOLE + "eval_batch = -1", "eval_batch"),
        (WHOLE + "log = ['(']", r"log\[0\]: is not a regular expression"),
        (WHOLE + "log = ['(?P<lost>x)']", r"log\[0\]: must have groups"),
        (WHOLE + '[checkpoints]\nprefix = "a"\nfile = "b"\nresume = ["x"]', "either prefix or file"),
        (WHOLE + '[checkpoints]\nprefix = "a"', "checkpoints.resume: is empty"),
        (WHOLE + '[checkpoints]\nfile = "../b"\nresume = ["x"]', "checkpoints.file: is not a file name"),
        (WHOLE + "[stop]\ngrace = 0", "stop.grace: is not a number"),
        (WHOLE + "[stop]\ngrace = 99999", "stop.grace: is not a number"),
        (WHOLE + '[stop]\nneeds = "transformers"', "stop.needs: transformers is not a library and version"),
        (WHOLE + '[stop]\nwhen = "worlds=1"', "stop.when"),
        (WHOLE + '[file]\npath = "../x.yaml"\nvalues = []', "file.path"),
        (WHOLE + '[file]\npath = "accelerate.yaml"\nvalues = []', "file.path"),
        (WHOLE + '[file]\nvalues = [{ key = "a..b", value = 1 }]', r"file.values\[0\]\.key"),
        (WHOLE + 'variables = [{ name = "A", value = "{output}" }]', "variables"),
        (WHOLE + "defaults = { layer = 1 }", "defaults.layer: is not a value that can have a default"),
        (WHOLE + "defaults = { micro_batch = 0 }", "defaults.micro_batch is 0: Give a number from 1"),
        (WHOLE + 'defaults = { learning_rate = "fast" }', "defaults.learning_rate is 'fast': Type a number"),
        (WHOLE + 'defaults = { precision = "" }', "defaults.precision is '': Choose one of: fp32"),
        (WHOLE + "defaults = { accumulation = true }", "defaults.accumulation is True: Type a whole number"),
        ('label = "\\u001b[31m"\nabout = 5', "about"),
        ("\x00", "TOML"),
    ],
)  # fmt: skip
def test_a_broken_preset_names_its_file_and_key_and_hides_no_other(folder, text, problem):
    (folder / "bad.toml").write_text(text)
    (folder / "good.toml").write_text(WHOLE)
    (folder / "hf-trainer.toml").write_text(WHOLE)
    (folder / "bytes.toml").write_bytes(b"\xff")
    (folder / "gone.toml").symlink_to("nowhere")
    found = user_presets()
    assert sorted(found) == ["bad", "bytes", "gone", "good", "hf-trainer"]
    assert found["good"].preset == msgspec.toml.decode(WHOLE, type=type(shipped_presets()["custom"]))
    assert re.search(problem, found["bad"].problem), found["bad"].problem
    assert "bad.toml" in found["bad"].problem
    assert found["bad"].problem.isprintable()
    assert "is the name of a shipped preset" in found["hf-trainer"].problem
    assert "UTF-8" in found["bytes"].problem
    assert "cannot be read" in found["gone"].problem
    with pytest.raises(BadInput, match="bad cannot be used"):
        get_preset("bad", found)
    assert get_preset("hf-trainer", found) == shipped_presets()["hf-trainer"]
    assert get_preset("good", found).label == "Mine"


def test_a_default_may_be_written_as_one_writes_it(folder):
    (folder / "good.toml").write_text(WHOLE + "module = 'mine.train'\ndefaults = { epochs = 3, micro_batch = 2 }\n")
    found = msgspec.structs.replace(facts(), presets=user_presets())
    held = Setup(profile({"trainer.kind": "script", "trainer.preset": "good"}), found).effective_values
    assert (repr(held["epochs"].value), held["micro_batch"].value) == ("3.0", 2)


def test_a_profile_may_name_a_preset_of_ones_own(folder):
    (folder / "good.toml").write_text(WHOLE)
    text = 'name = "x"\n[trainer]\nkind = "script"\nscript = "/t.py"\npreset = "good"\n[recipe]\nmicro_batch = 8\n'
    chosen = store.profile_from_toml(text)
    found = msgspec.structs.replace(facts(), presets=user_presets())
    assert argv(plan(chosen, found).attempts[0].command, "/run")[-1] == "--bs=8"
    (folder / "good.toml").unlink()
    with pytest.raises(BadInput, match="good"):
        store.profile_from_toml(text)


def test_the_command_lists_and_prints_them(folder, capsys):
    (folder / "good.toml").write_text(WHOLE)
    (folder / "bad.toml").write_text("label = 5")
    printed_presets.print_all_presets(as_json=False)
    out = capsys.readouterr()
    assert re.search(r"^  good +Starts your script; cannot resume. Passes: micro_batch\.$", out.out, re.MULTILINE)
    assert re.search(r"^  axolotl +Starts python -m \S+; can resume\. Passes:\s+seq", out.out, re.MULTILINE)
    assert "bad.toml" in out.err
    printed_presets.print_all_presets(as_json=True)
    told = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["bad"]["preset"] is None
    assert "bad.toml" in told["bad"]["problem"]
    assert set(told["nanogpt"]["takes"]) >= {"recipe.layers", "recipe.micro_batch"}
    for name in shipped_presets():
        printed_presets.print_preset(name)
        printed = capsys.readouterr().out
        assert printed == shipped_preset_texts()[name]
        assert user_module.parse_preset(printed, name) == shipped_presets()[name]
    printed_presets.print_preset("good")
    assert capsys.readouterr().out == WHOLE
    with pytest.raises(NotFound, match="no preset nope"):
        printed_presets.print_preset("nope")


# ---- what a script's --help lists --------------------------------------------------------------------------------


def helped(tmp_path, text, *words):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    return read_script_help(sys.executable, (str(script), *words), str(tmp_path))


def test_the_help_of_argparse(tmp_path):
    found = helped(
        tmp_path,
        """
        import argparse, os
        parser = argparse.ArgumentParser(description="--nothing here", epilog="see also --nor here")
        parser.add_argument("--batch_size", "-b", type=int, required=True, help="The total, of all: see --lr. " * 9)
        parser.add_argument("--lr", type=float)
        parser.add_argument("--fast", action="store_true", help=f"{os.environ['CUDA_VISIBLE_DEVICES']!r}")
        parser.add_argument("--ema", action=argparse.BooleanOptionalAction)
        parser.parse_args()
    """,
    )
    assert [(flag.name, flag.valued) for flag in found.flags] == [
        ("--batch_size", True), ("--lr", True), ("--fast", False), ("--ema", False), ("--no-ema", False),
    ]  # fmt: skip
    assert found.flags[0].help.startswith("The total, of all: see --lr.")
    assert found.flags[2].help == "''"


def test_the_help_of_click(tmp_path):
    found = helped(
        tmp_path,
        """
        import click
        @click.command()
        @click.option("--count", "-c", default=1, show_default=True, help="How many.")
        @click.option("--shout/--no-shout", default=False, help="Loud.")
        @click.option("--mode", type=click.Choice(["a", "b"]))
        def run(**_):
            pass
        run()
    """,
    )
    assert [(flag.name, flag.valued) for flag in found.flags] == [
        ("--count", True), ("--shout", False), ("--no-shout", False), ("--mode", True),
    ]  # fmt: skip
    assert found.flags[0].help == "How many.  [default: 1]"


def test_the_help_of_absl():
    found = parse_help(
        "Trains.\nflags:\n\n/src/train.py:\n  --batch_size: Its size.\n    (default: '8')\n    (an integer)\n"
        "  --[no]compile: Compile it.\n    (default: 'true')\n  -c,--config: The file.\n\nTry --helpfull to get all.\n"
    )
    assert found == (
        HelpFlag("--batch_size", "Its size. (default: '8') (an integer)"),
        HelpFlag("--compile", "Compile it. (default: 'true')", valued=False),
        HelpFlag("--config", "The file."),
    )


def test_an_argument_with_two_spellings_is_offered_once():
    assert [
        flag.name for flag in flags_without_second_spellings((HelpFlag("--max_steps"), HelpFlag("--max-steps")))
    ] == ["--max_steps"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("print('trained')", "lists no arguments"),
        ("import sys; sys.exit(3)", "it ended with exit code 3"),
        ("print(input())", "EOF"),
        ("while True: print('x' * 10000)", "it wrote more than 1 MiB"),
        ("import os; os.abort()", "signal 6"),
    ],
)
def test_a_script_without_help_says_why(tmp_path, text, problem):
    found = helped(tmp_path, text)
    assert problem in found.problem
    assert found.flags == ()


def test_a_script_that_hangs_is_ended_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr("tui_train.facts.scripts.script_help._DEADLINE_SECONDS", 1.0)
    found = helped(
        tmp_path,
        f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        child.wait()
    """,
    )
    assert "no answer in time" in found.problem
    state = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    wait_until(
        lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX", what="it lives on"
    )


# ---- the real parsers --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A folder with the parsers of TRL, LLaMA-Factory and axolotl, without most of what they need to train."""
    target = tmp_path_factory.mktemp("real")
    wanted = ["trl==1.16.0", "llamafactory==0.9.5", "datasets", "pyarrow", "pandas", "dill", "multiprocess", "xxhash",
              "python-dateutil", "six", "omegaconf", "antlr4-python3-runtime==4.9.3", "peft", "pytz", "pillow",
              "axolotl==0.19.0",
              "pydantic==2.14.3", "pydantic-core==2.50.4", "annotated-types", "typing-inspection", "addict",
              "fire", "colorama", "termcolor", "python-dotenv", "posthog", "backoff", "distro"]  # fmt: skip
    if said := install_packages(target, *wanted):
        pytest.skip(f"NOT TESTED against TRL, LLaMA-Factory and axolotl: {said}")
    return target


def parsers(test):
    """Mark a test that needs them: one process runs all of these, so they are installed once."""
    return pytest.mark.packaging(pytest.mark.xdist_group("parsers")(test))


# Each as a fallback would set it.
FALLEN = {"recipe.eval_batch": 1, "recipe.lora": True}
COURSE = {"recipe.epochs": 2.0, "recipe.warmup": 0.05, "recipe.schedule": "cosine", "recipe.weight_decay": 0.1}


@pytest.mark.training
def test_the_hf_trainer_itself_understands_its_evaluation_batch(tmp_path):
    more = {"recipe.eval_batch": 1, "hardware.processes": 1, **COURSE}
    chosen, found = chosen_for("hf-trainer", tmp_path, **more)
    words = argv(plan(chosen, found).attempts[0].command, "/run")
    told = parsed("", """
        import json, sys
        from transformers import HfArgumentParser, TrainingArguments
        (read,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(sys.argv[1:])
        own = TrainingArguments()
        print(json.dumps([read.per_device_eval_batch_size, read.per_device_train_batch_size,
              read.eval_accumulation_steps, own.per_device_eval_batch_size,
              [read.num_train_epochs, read.warmup_steps, read.get_warmup_steps(200), read.lr_scheduler_type,
               read.weight_decay],
              [own.num_train_epochs, own.warmup_steps, own.lr_scheduler_type, own.weight_decay]]))
    """, *words[words.index("/src/train.py") + 1 :])  # fmt: skip
    own = shipped_presets()["hf-trainer"]
    assert told == [1, 4, 8, own.eval_batch, [2.0, 0.05, 10, "cosine", 0.1],
                    [own.defaults[name] for name in ("epochs", "warmup", "schedule", "weight_decay")]]  # fmt: skip


@pytest.mark.parametrize("preset_name", ["hf-trainer", "trl", "builtin"])
def test_the_course_is_passed_where_it_was_chosen(preset_name, tmp_path):
    """In the words of the transformers that runs; only what is ours is passed what nobody chose."""
    kind = {"trainer.kind": "builtin", "trainer.script": ""} if preset_name == "builtin" else {}
    for version, course, expected in (
        ("5.23.0", COURSE, "--warmup_steps=0.05"),
        ("4.57.6", COURSE, "--warmup_ratio=0.05"),
        ("4.57.6", {"recipe.warmup": 30.0}, "--warmup_steps=30"),
        ("5.23.0", {"recipe.warmup": 0.0}, "--warmup_steps=0"),
        ("5.23.0", {}, "--warmup_steps=0.1" if kind else ""),
    ):
        own = {key: value for key, value in course.items() if not kind or key != "recipe.epochs"}
        chosen, found = chosen_for("hf-trainer" if kind else preset_name, tmp_path, **own, **kind)
        found = msgspec.structs.replace(
            found, toolchains=tuple(msgspec.structs.replace(tool, transformers=version) for tool in found.toolchains)
        )
        words = argv(plan(chosen, found).attempts[0].command, "/run")
        assert [word for word in words if "warmup" in word] == ([expected] if expected else [])
        if course == COURSE and not kind:
            assert {"--num_train_epochs=2.0", "--lr_scheduler_type=cosine", "--weight_decay=0.1"} <= {*words}


def no_trainer():
    """The arguments of transformers' examples without the Trainer, as in their run_clm_no_trainer.py."""
    parser = ArgumentParser()
    for name in ("output_dir", "model_name_or_path", "checkpointing_steps", "resume_from_checkpoint"):
        parser.add_argument(f"--{name}")
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps",
                 "num_train_epochs", "max_train_steps", "num_warmup_steps", "block_size", "seed"):  # fmt: skip
        parser.add_argument(f"--{name}", type=int)
    for name in ("learning_rate", "weight_decay"):
        parser.add_argument(f"--{name}", type=float)
    schedules = ["linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup"]
    parser.add_argument("--lr_scheduler_type", choices=schedules)
    return parser


def test_the_accelerate_examples_understand_the_course(tmp_path):
    """They take whole numbers; what is none is an error before the start."""
    chosen, found = chosen_for("accelerate", tmp_path, **COURSE, **{"recipe.steps": 30})
    words = argv(plan(chosen, found).attempts[0].command, "/run")
    read_back = no_trainer().parse_args(words[words.index("/src/train.py") + 1 :])
    assert (read_back.num_train_epochs, read_back.num_warmup_steps, read_back.max_train_steps) == (2, 2, 30)
    assert (read_back.lr_scheduler_type, read_back.weight_decay) == ("cosine", 0.1)
    for values, key, fixed in (
        ({"recipe.warmup": 0.05, "recipe.steps": None}, "recipe.warmup", {"recipe.warmup": 5.0}),
        ({"recipe.epochs": 1.5, "recipe.steps": None}, "recipe.epochs", None),
    ):
        chosen, found = chosen_for("accelerate", tmp_path, **values)
        (finding,) = [item for item in findings_of(chosen, found) if item.level == "error"]
        assert finding.key == key
        changed = profile(fixed, chosen) if fixed else apply_change(finding.change, chosen)
        assert not [item for item in findings_of(changed, found) if item.level == "error"]
    unset = " ".join(argv(plan(*chosen_for("accelerate", tmp_path)).attempts[0].command, "/run"))
    assert not re.search("warmup|epochs|scheduler|decay", unset)


def parsed(real, code, *words, python=None):
    environment = plain_environment(PYTHONPATH=str(real), DISABLE_VERSION_CHECK="1", HF_HUB_OFFLINE="1")
    command = [python or warm.training(), "-c", textwrap.dedent(code), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


# TRL's own loss and the trace's, under the trace's counting: the most that lives in the forward and backward pass.
LOSSES = """
    import contextlib, json, sys
    sys.path[:0] = sys.argv[1:3]
    import memory_loss, memory_trace, torch
    from trl import ModelConfig
    from trl.kernels import chunked_logprob
    from trl.trainer import utils
    from tui_train.facts.models.dimensions import ModelDimensions
    from tui_train.memory.trace import memory_child_request
    from tui_train.memory.types import MemorySettings

    # What the kernels of Triton write, they write over the tile.
    chunked_logprob._forward_tile = chunked_logprob._backward_tile = lambda *_, **__: None
    chunked_logprob._addmm_fp32 = lambda *_: None

    def real(model, tokens, asked, device="cpu"):
        utils.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
        with torch.autocast("cpu", torch.bfloat16) if asked["autocast"] else contextlib.nullcontext():
            return model(input_ids=tokens, labels=tokens, fused_lm_head=True).loss

    told = {"layers": 1, "hidden": 512, "heads": 8, "ffn": 512, "vocab": 90000}
    ways = [{"autocast": "bf16"}, {"weight_dtype": "bf16", "trained": "lora"}, {"weight_dtype": "bf16"}]
    for way in ways:
        how = MemorySettings(micro_batch=3, sequence_length=1500, optimizer="sgd", loss="tiled", **way)
        asked = memory_child_request(ModelDimensions(**told), how)
        for loss in (memory_loss.trainer_loss, real):
            memory_loss.trainer_loss, usual = loss, memory_loss.trainer_loss
            phases = memory_trace.trace_memory(asked)["phases"]
            memory_loss.trainer_loss = usual
            way[loss.__name__] = [phases["forward"], phases["backward"]]
    print(json.dumps([ModelConfig().dtype, [[way["trainer_loss"], way["real"]] for way in ways]]))
"""


@pytest.mark.whole
@parsers
def test_trl_itself_takes_for_its_loss_what_is_traced_and_loads_in_fp32(real):
    child = Path(str(resources.files("tui_train"))) / "programs" / "memory"
    dtype, ways = parsed(real, LOSSES, str(child), str(child.parents[2]))
    assert dtype == "float32"
    for ours, theirs in ways:
        assert ours == pytest.approx(theirs, rel=0.005)


@pytest.mark.whole
@parsers
def test_trl_itself_understands_its_arguments(real, tmp_path):
    chosen, found = chosen_for("trl", tmp_path, **{"trainer.script": "", **FALLEN, **COURSE})
    words = argv(plan(chosen, found).attempts[0].command, "/run", "/run/output/checkpoint-3")
    told = parsed(real, """
        import json, sys
        from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser
        _, read, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(
            [*sys.argv[1:], "--dataset_name=x"])
        print(json.dumps([
            [read.per_device_train_batch_size, read.gradient_accumulation_steps, read.max_length, read.bf16,
             read.gradient_checkpointing, read.learning_rate, read.max_steps, read.resume_from_checkpoint],
            [read.per_device_eval_batch_size, read.eval_accumulation_steps, SFTConfig.per_device_eval_batch_size],
            [model.use_peft, model.lora_target_modules, model.lora_r],
            [read.num_train_epochs, read.warmup_steps, read.lr_scheduler_type, read.weight_decay]]))
    """, *words[words.index("trl.scripts.sft") + 1 :])  # fmt: skip
    assert told == [
        [4, 4, 64, False, False, 1e-5, 9, "/run/output/checkpoint-3"],
        [1, 8, shipped_presets()["trl"].eval_batch],
        [True, "all-linear", 16],
        [2.0, 0.05, "cosine", 0.1],
    ]


@parsers
@pytest.mark.whole
def test_trl_itself_reads_the_data_and_what_was_not_chosen(real, tmp_path):
    data = [tmp_path / name for name in ("a b.jsonl", "c.jsonl")]
    for number, path in enumerate(data):
        path.write_text(json.dumps({"text": f"sample {number}"}) + "\n")
    values = {"trainer.kind": "script", "trainer.preset": "trl", "trainer.data": tuple(map(str, data)),
              "trainer.python": sys.executable}  # fmt: skip
    run, made = export_run(tmp_path / "run", profile(values), facts(paths=dict.fromkeys(map(str, data), "file")))
    words = argv(made.attempts[0].command, str(run.path))
    told = parsed(real, """
        import json, sys
        from trl import DatasetMixtureConfig, SFTConfig, TrlParser, get_dataset
        args, mixture = TrlParser((SFTConfig, DatasetMixtureConfig)).parse_args_and_config(sys.argv[1:] + ["--use_cpu"])
        rows = get_dataset(mixture)["train"]["text"]
        print(json.dumps([list(rows), args.learning_rate, args.max_steps, args.max_length, args.save_steps, args.seed]))
    """, *words[words.index("trl.scripts.sft") + 1 :])  # fmt: skip
    own = shipped_presets()["trl"].defaults
    assert told == [["sample 0", "sample 1"], own["learning_rate"], -1, own["sequence_length"],
                    own["checkpoint_every"], own["seed"]]  # fmt: skip


@parsers
@pytest.mark.whole
def test_llama_factory_itself_reads_your_file_as_it_was(real, tmp_path):
    text = LLAMA_FACTORY_CONFIG.replace("bf16: true", "bf16: false")
    chosen, found = profile_with_config(tmp_path, "llama-factory", text)
    values = {**plan(chosen, found).configs[0].values, "resume_from_checkpoint": None}
    code = """
        import json
        from llamafactory.hparams.parser import _TRAIN_ARGS, read_args
        from transformers import HfArgumentParser
        model, data, training, *_ = HfArgumentParser(_TRAIN_ARGS).parse_dict(read_args())
        print(json.dumps([training.per_device_train_batch_size, training.gradient_accumulation_steps, data.cutoff_len,
              training.learning_rate, training.max_steps, training.num_train_epochs, training.output_dir,
              model.disable_gradient_checkpointing, training.seed, training.save_steps]))
    """
    (tmp_path / "after.yaml").write_text(render_config_yaml(ConfigFile("c.yaml", "", values)))
    before, after = (parsed(real, code, str(tmp_path / name)) for name in ("mine.yaml", "after.yaml"))
    assert before == after
    assert after[:7] == [2, 8, 4096, 1e-5, -1, 3.0, "saves/qwen"]
    own = shipped_presets()["llama-factory"].defaults
    assert after[-2:] == [own["seed"], own["checkpoint_every"]]


@parsers
@pytest.mark.whole
def test_llama_factory_itself_understands_its_file(real, tmp_path):
    chosen, found = chosen_for("llama-factory", tmp_path, **FALLEN)
    config, mine = plan(chosen, found).configs[0], parse_document(MINE.encode()).values
    values = {key: value for key, value in config.values.items() if key not in mine}
    values |= {"output_dir": "/o", "model_name_or_path": "/m", "resume_from_checkpoint": None}
    (tmp_path / "config.yaml").write_text(render_config_yaml(msgspec.structs.replace(config, values=values)))
    told = parsed(real, """
        import json
        from llamafactory.hparams.parser import _TRAIN_ARGS, read_args
        from transformers import HfArgumentParser
        parser = HfArgumentParser(_TRAIN_ARGS)
        model, data, training, finetuning, _ = parser.parse_dict(read_args())
        _, _, usual, method, _ = parser.parse_dict({"output_dir": "/o", "model_name_or_path": "/m"})
        print(json.dumps([
            [training.per_device_train_batch_size, training.gradient_accumulation_steps, data.cutoff_len,
             training.learning_rate, training.max_steps, model.disable_gradient_checkpointing, training.save_steps],
            [training.per_device_eval_batch_size, training.eval_accumulation_steps, usual.per_device_eval_batch_size],
            [finetuning.finetuning_type, finetuning.lora_target, finetuning.lora_rank, method.finetuning_type]]))
    """, str(tmp_path / "config.yaml"))  # fmt: skip
    # Where nothing is said it trains LoRA: what memory is predicted, and whether there is a fallback, go by that.
    assert told == [
        [4, 4, 64, 1e-5, 9, True, 3],
        [1, 8, shipped_presets()["llama-factory"].eval_batch],
        ["lora", ["all"], 8, "lora"],
    ]


@parsers
def test_llama_factory_starts_no_torchrun_of_its_own(real):
    launcher = (real / "llamafactory" / "launcher.py").read_text()
    assert re.search(
        r'__name__ == "__main__":\s+from llamafactory.train.tuner import run_exp.*\s+run_exp\(\)', launcher
    )


@pytest.mark.whole
@parsers
@pytest.mark.parametrize("precision", sample(["bf16", "fp32"], 2))
def test_axolotl_itself_understands_its_file(real, tmp_path, precision):
    more = {"recipe.precision": precision, "trainer.launcher": "torchrun", **FALLEN}
    chosen, _ = chosen_for("axolotl", tmp_path, **more)
    mine = b"base_model: m\nbatch_size: 99\nsaves_per_epoch: 2\ndatasets: [{path: x, type: alpaca}]\n"
    found = msgspec.structs.replace(facts(), documents={chosen.trainer.config: parse_document(mine)})
    config = plan(chosen, found).configs[0]
    (tmp_path / "config.yaml").write_text(render_config_yaml(config).replace("'@TUI_TRAIN_CHECKPOINT@'", "null"))
    told = parsed(real, """
        import json, sys, yaml
        from axolotl.utils.schemas.config import AxolotlInputConfig
        read = AxolotlInputConfig(**yaml.safe_load(open(sys.argv[1])))
        print(json.dumps([
            [read.micro_batch_size, read.gradient_accumulation_steps, read.sequence_len, read.learning_rate,
             read.max_steps, bool(read.bf16), read.save_steps, read.gradient_checkpointing],
            [read.eval_batch_size, read.adapter, read.lora_r, read.lora_alpha, read.lora_target_linear]]))
    """, str(tmp_path / "config.yaml"))  # fmt: skip
    assert told == [[4, 4, 64, 1e-5, 9, precision == "bf16", 3, False], [1, "lora", 16, 32, True]]
    # Without a value of its own it is the micro batch.
    source = (real / "axolotl" / "utils" / "config" / "__init__.py").read_text()
    assert re.search(r"eval_batch_size is None:\s+cfg.eval_batch_size = cfg.micro_batch_size", source)
    assert shipped_presets()["axolotl"].eval_batch == 0

"""What a script is by its source, and what `auto` therefore passes to it: nothing that it does not take."""

import sys
from types import SimpleNamespace

import msgspec
import pytest
from pilot import press_keys, screen_text, wait_for_workers
from support import facts, plan, profile, toolchain, words_after_script
from tui_train.screens.messages import OpenStep

from tui_train.base.command import argv
from tui_train.base.errors import BadInput
from tui_train.checks import find_problems
from tui_train.facts.machine import probe
from tui_train.facts.scripts.script_help import facts_with_script_help, read_script_help
from tui_train.facts.scripts.script_source import parse_script_source, read_script_source
from tui_train.facts.types import HelpFlag, ScriptHelp
from tui_train.places.help_question import script_help_question_for_auto_preset
from tui_train.places.profile_facts import probe_profile_facts, read_script_sources
from tui_train.profile import fields
from tui_train.setup.recipe.effective_values import EffectiveValue
from tui_train.setup.setup import Setup
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT
from tui_train.trainers.auto_preset import arguments_summary as said
from tui_train.views.run_settings import effective_settings, shortened_setting_text
from tui_train.wizard import make_wizard

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--eta", type=float)
parser.add_argument("--save-model", action="store_true")
parser.parse_args()
"""
PARSED = "from transformers import HfArgumentParser, TrainingArguments\n"
TRAINING = ("per_device_train_batch_size", "gradient_accumulation_steps", "save_strategy", "save_total_limit",
            "logging_steps", "lr_scheduler_type", "dataloader_num_workers")  # fmt: skip
TRL = "from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser\n"


def script(tmp_path, text, **values_of):
    """The profile of a script of this text that names no preset, and what was gathered for it."""
    (tmp_path / "train.py").write_text(text)
    values = {"trainer.kind": "script", "trainer.preset": "auto", "trainer.script": str(tmp_path / "train.py")}
    values |= {"trainer.python": sys.executable, "hardware.device": "cpu", "ladder.rungs": ()}
    chosen = profile(values, **values_of)
    return chosen, msgspec.structs.replace(facts(), sources=read_script_sources(chosen))


def words(tmp_path, text, **values):
    """The words of the command after the script's name."""
    chosen, known = script(tmp_path, text, **values)
    return words_after_script(chosen, known)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("import lightning as L\nL.Trainer(max_epochs=2).fit(m)", "none", 2),
        ("import torch\nprint(1)", "none", 0),
        (ARGPARSE, "argparse", 3),
        ("from argparse import ArgumentParser as P\nP().parse_args()", "argparse", 2),
        (PARSED + "HfArgumentParser(TrainingArguments)", "hf-trainer", 2),
        (PARSED + "class Mine(TrainingArguments): ...\nHfArgumentParser((Model, Mine))", "hf-trainer", 3),
        (PARSED + "class DataTrainingArguments: ...\nHfArgumentParser(DataTrainingArguments)", "dataclass", 3),
        (PARSED + "TrainingArguments(output_dir='x')", "none", 0),
        ("from trl import SFTTrainer\nSFTTrainer(m)", "none", 2),
        (TRL + "TrlParser((ScriptArguments, SFTConfig, ModelConfig))", "trl", 2),
        ("from transformers import HfArgumentParser\nfrom trl import DPOConfig\nHfArgumentParser(DPOConfig)", "trl", 3),
        ("import click\n@click.command()\n@click.option('--lr')\ndef main(lr): ...", "click", 2),
        ("import hydra\n@hydra.main(config_name='c')\ndef main(cfg): ...", "hydra", 2),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(M)", "lightning", 2),
        ("import typer\ndef main(lr: float): ...\ntyper.run(main)", "typer", 3),
        ("import fire\ndef main(lr=1.0): ...\nfire.Fire(main)", "fire", 3),
        ("from absl import app, flags\nflags.DEFINE_float('lr', 0.1, '')\napp.run(main)", "absl", 2),
        ("lr = 1\nexec(open('configurator.py').read())", "nanogpt", 2),
        ("import tyro\ntyro.cli(main)", "", 2),
        ("import sys\nrate = float(sys.argv[1])", "", 2),
    ],
)
def test_a_script_is_what_its_source_says(text, kind, line):
    found = parse_script_source(text.encode())
    assert (found.kind, found.line) == (kind, line)
    assert bool(found.why_unread) == (kind == "")


def test_a_parser_in_a_file_beside_the_script_counts(tmp_path):
    (tmp_path / "options.py").write_text(ARGPARSE)
    (tmp_path / "train.py").write_text("from options import parser\nparser.parse_args()\n")
    found = read_script_source(str(tmp_path / "train.py"))
    assert (found.kind, found.file, found.line) == ("argparse", "options.py", 3)
    assert said(found) == "argparse, line 3 of options.py: --lr --batch-size --epochs --eta --save-model"


def test_only_what_the_script_takes_is_passed(tmp_path):
    assert words(tmp_path, ARGPARSE) == []
    chosen = {"recipe__learning_rate": 0.5, "recipe__micro_batch": 4, "recipe__epochs": 2.0}
    assert words(tmp_path, ARGPARSE, **chosen) == ["--batch-size=4", "--lr=0.5", "--epochs=2"]
    with pytest.raises(BadInput, match="is set, but not used"):
        words(tmp_path, "print(1)", **chosen)


def test_a_trainer_of_hugging_face_is_passed_its_arguments(tmp_path):
    passed = words(tmp_path, PARSED + "HfArgumentParser(TrainingArguments)", recipe__learning_rate=0.5)
    assert "--learning_rate=0.5" in passed
    assert any(word.startswith("--output_dir=") for word in passed)


@pytest.mark.parametrize(
    "text",
    [
        ARGPARSE + "parser.add_argument('--learning-rate')\n",
        ARGPARSE.replace('"--lr", type=float', '"--lr", choices=["a", "b"]'),
        ARGPARSE.replace('"--lr", type=float', '"lr", type=float'),
        ARGPARSE.replace('"--lr"', '"--eta0"'),
    ],
)
def test_a_name_in_doubt_is_passed_nothing(tmp_path, text):
    with pytest.raises(BadInput, match=r"recipe\.learning_rate\) is set, but not used"):
        words(tmp_path, text, recipe__learning_rate=0.5)


CLICK = """
import click
@click.group()
def cli(): ...
@click.command()
@click.option("--lr", "-l", default=0.01, help="The  rate.")
@click.option("--epochs", type=click.IntRange(1, 9))
@click.option("--amp/--no-amp", default=False)
@click.argument("data")
@click.argument("more", required=False)
def main(lr, epochs, amp, data, more): ...
@cli.command("sample")
@click.option("--seed", type=int)
def draw(seed): ...
main()
"""
ACCELERATED = """
import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--num_train_epochs", type=int)
parser.add_argument("--mixed_precision", choices=["no", "bf16"])
parser.add_argument("--checkpointing_steps")
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
Accelerator(mixed_precision=args.mixed_precision)
"""
NANO = "out_dir = 'out'\nbatch_size = 12\nmax_iters = 9\n_x = 1\nexec(open('configurator.py').read())\n"
FIELDS = """
from dataclasses import dataclass, field
from typing import Optional
@dataclass
class Own:
    model_name_or_path: Optional[str] = field(default=None, metadata={"help": "The model."})
    block_size: int = 128
"""


def test_the_arguments_of_click_are_read():
    found = {each.name: each for each in parse_script_source(CLICK.encode()).parameters}
    assert [(name, each.form, each.type) for name, each in found.items()] == [
        ("--lr", "option", "float"), ("--epochs", "option", "int"), ("--amp", "pair", "bool"),
        ("data", "positional", "str"), ("more", "positional", "str"), ("--seed", "option", "int"),
    ]  # fmt: skip
    assert (found["--lr"].flags, found["--lr"].default, found["--lr"].help) == (("--lr", "-l"), "0.01", "The rate.")
    assert (found["data"].is_required, found["more"].is_required, found["--seed"].subcommand) == (True, False, "sample")


ABSL = "from absl import app, flags\nflags.DEFINE_integer('seed', 1, 'The seed.')\napp.run(print)"
RATE = {"recipe__learning_rate": 0.5}
DECLARED = {
    "click": (CLICK, RATE | {"recipe__epochs": 2.0, "trainer__arguments": ("x.txt",)}, "--lr=0.5 --epochs=2 x.txt"),
    "accelerate": (ACCELERATED, RATE | {"recipe__precision": "bf16", "recipe__checkpoint_every": 5},
                   "--learning-rate=0.5 --mixed_precision=bf16 --checkpointing_steps=5"),
    "nanogpt": (NANO, {"recipe__micro_batch": 4}, "--batch_size=4 --out_dir=/run/output"),
    "dataclass": (PARSED + FIELDS + "HfArgumentParser((Own, TrainingArguments))",
                  {"recipe__sequence_length": 64, "trainer__model": "org/m"},
                  "--block_size=64 --model_name_or_path=org/m"),
    "fire": ("import fire\ndef f(lr=0.1, n: int = 3): ...\nfire.Fire(f)", RATE, "--lr=0.5"),
    "absl": (ABSL, {"recipe__seed": 7}, "--seed=7"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DECLARED)
def test_each_kind_is_passed_what_it_declares(tmp_path, kind):
    text, chosen, passed = DECLARED[kind]
    found = set(words(tmp_path, text, **chosen))
    assert found >= {*passed.split()} if kind == "dataclass" else found == {*passed.split()}


@pytest.mark.parametrize(
    ("spelling", "choices", "precision", "passed"),
    [
        ("--mixed-precision", "['no', 'fp16', 'bf16']", "bf16", ["--mixed-precision=bf16"]),
        ("--mixed-precision", "['no', 'fp16', 'bf16']", "fp32", ["--mixed-precision=no"]),
        ("--mixed_precision", "None", "fp32", ["--mixed_precision=no"]),
        ("--mixed_precision", "['fp16', 'bf16']", "bf16", ["--mixed_precision=bf16"]),
        ("--mixed_precision", "['fp16', 'bf16']", None, []),
    ],
)
def test_a_precision_is_passed_as_the_script_takes_it(spelling, choices, precision, passed, tmp_path):
    text = ACCELERATED.replace('"--mixed_precision", choices=["no", "bf16"]', f'"{spelling}", choices={choices}')
    assert words(tmp_path, text, recipe__precision=precision) == passed


def test_a_precision_that_the_script_does_not_take_is_said(tmp_path):
    with pytest.raises(BadInput, match="the script does not take fp32"):
        words(tmp_path, ACCELERATED.replace('["no", "bf16"]', '["fp16", "bf16"]'), recipe__precision="fp32")


TYPER = "import typer\nfrom typing import Annotated\napp = typer.Typer()\n"
PLAIN_TYPER = TYPER + "@app.command()\ndef train({}): ...\napp()\n"
TYPER_RATE = PLAIN_TYPER.format("lr: float = 0.1")


@pytest.mark.parametrize(
    ("signature", "passed"),
    [
        ("lr: float = 0.1", ["--lr=0.5"]),
        ("lr: Annotated[float, typer.Option(help='rate')] = 0.1", ["--lr=0.5"]),
        ("lr: Annotated[float, typer.Option('--learning-rate')] = 0.1", ["--learning-rate=0.5"]),
        ("rate: Annotated[float, typer.Option('-r', '--lr')]", ["--lr=0.5"]),
        ("rate: float = typer.Option(0.1, '--lr')", ["--lr=0.5"]),
        ("lr: Annotated[float, typer.Option('--eta')] = 0.1", None),
        ("lr: Annotated[float, typer.Argument()] = 0.1", None),
        ("lr: float = typer.Argument(0.1)", None),
        ("lr: Annotated[float, RATE] = 0.1", None),
        ("lr: Annotated[float, ETA] = 0.1", None),
        ("lr: Rate = 0.1", None),
    ],
)
def test_typer_is_passed_the_names_that_it_is_told(signature, passed, tmp_path):
    text = "ETA = typer.Option('--eta')\nRate = Annotated[float, ETA]\n"
    whole = PLAIN_TYPER.format(signature).replace("app = ", text + "app = ")
    if passed is None:
        with pytest.raises(BadInput, match="is set, but not used"):
            words(tmp_path, whole, **RATE)
    else:
        assert words(tmp_path, whole, **RATE) == passed


@pytest.mark.parametrize(
    ("text", "given", "passed"),
    [
        (TYPER_RATE, (), ["--lr=0.5"]),
        (TYPER_RATE + "@app.callback()\ndef all(): ...\n", ("train",), ["train", "--lr=0.5"]),
        (TYPER_RATE + "app.add_typer(other)\n", ("train",), ["train", "--lr=0.5"]),
        (TYPER + "@app.command(name='fit')\ndef train_it(lr: float = 0.1): ...\n@app.command()\ndef Test(): ...\n",
         ("fit",), ["fit", "--lr=0.5"]),
    ],
)  # fmt: skip
def test_typer_is_passed_options_behind_the_subcommand(text, given, passed, tmp_path):
    assert words(tmp_path, text, trainer__arguments=given, **RATE) == passed


def test_a_method_without_a_length_is_passed_none(tmp_path):
    text = "from trl import {0}, TrlParser\nTrlParser(({0},)).parse_args_and_config()\n"
    assert "--max_length=64" in words(tmp_path, text.format("SFTConfig"), recipe__sequence_length=64)
    with pytest.raises(BadInput, match="is set, but not used"):
        words(tmp_path, text.format("GRPOConfig"), recipe__sequence_length=64)


def test_a_script_that_reads_its_checkpoint_resumes(tmp_path):
    assert Setup(*script(tmp_path, ACCELERATED)).preset.checkpoints.prefix == "step_"
    without = ACCELERATED.replace("resume_from_checkpoint", "restore")
    assert Setup(*script(tmp_path, without)).preset.checkpoints is None


def test_what_the_script_does_not_say_is_its_own(tmp_path):
    chosen, known = script(tmp_path, "print(1)")
    made = plan(chosen, known)
    assert "Found in train.py: no arguments." in made.notes
    assert not any("5e-05" in line for line in (*made.notes, *made.numbers))
    settings = effective_settings(chosen, {})
    assert settings["recipe.learning_rate"].text == SCRIPT_OWN_VALUE_SOURCE_TEXT
    assert Setup(chosen, known).effective_values["learning_rate"] == EffectiveValue(None, SCRIPT_OWN_VALUE_SOURCE_TEXT)


@pytest.mark.parametrize("given", [("-b", "4"), ("--bs=4",), ("--batch-size", "4")])
def test_a_value_that_the_user_gives_by_another_spelling_is_in_force(tmp_path, given):
    text = "import argparse\np = argparse.ArgumentParser()\np.parse_args()\n"
    text += "p.add_argument('-b', '--bs', '--batch-size', type=int, default=128)\n"
    text += "p.add_argument('--gradient_accumulation_steps', type=int, default=2)\n"
    held = Setup(*script(tmp_path, text, trainer__arguments=given)).effective_values
    assert (held["micro_batch"].value, held["global_batch"].value) == (4, 8)


HELPED = "import argparse\np = argparse.ArgumentParser()\np.add_argument('{}', type=int, default=8, help='{}')\n"
HELPED += "p.parse_args()\n"


@pytest.mark.parametrize(
    ("name", "help_text", "passed", "change"),
    [
        ("--batch-size", "images in a batch", "--batch-size=4", None),
        ("--batch-size", "mini-batch of each GPU, not the total", "--batch-size=4", None),
        ("--batch-size", "Size on every GPU. Total batch size: times the GPUs", "--batch-size=4", None),
        ("--batch-size", "total number of images in it", "--batch-size=4", None),
        ("--micro-batch-size", "accumulated to the effective batch", "--micro-batch-size=4", None),
        ("--batch-size", "the total batch of all GPUs", "", None),
        ("--batch", "Total batch size", "", None),
        ("--batch", "batch", "", "--batch={micro_batch}"),
        ("--niter", "number of epochs to train for", "", "--niter={whole_epochs}"),
        ("--niter", "iterations", "", "--niter={steps}"),
        ("--niter", "iters, which overrides epochs", "", "--niter={steps}"),
        ("--num_batches", "", "", "--num_batches={steps}"),
    ],
)
def test_a_help_may_say_that_an_argument_is_not_what_its_name_says(tmp_path, name, help_text, passed, change):
    text = HELPED.format(name, help_text)
    chosen, known = script(tmp_path, text, ladder__rungs=())
    offered = [edit for found in find_problems(Setup(chosen, known)) if found.change for edit in found.change.edits]
    assert ("trainer.arguments", (change,)) in offered if change else not offered
    micro, known = script(tmp_path, text, ladder__rungs=(), recipe__micro_batch=4)
    if passed:
        assert passed in words(tmp_path, text, recipe__micro_batch=4, ladder__rungs=())
    elif "atch" in name and not change:
        assert any(found.key == "recipe.micro_batch" for found in find_problems(Setup(micro, known)))


def test_a_folder_that_holds_files_is_the_output_all_the_same(tmp_path):
    text = "import argparse\np = argparse.ArgumentParser()\np.parse_args()\n"
    text += "p.add_argument('--output_dir', required=True, help='Where to store the files of the model.')\n"
    assert any(word.startswith("--output_dir=") for word in words(tmp_path, text, ladder__rungs=()))


def test_a_default_of_the_scripts_own_class_is_no_default_of_the_library(tmp_path):
    text = "import transformers\nfrom dataclasses import dataclass, field\n@dataclass\nclass Arguments("
    text += "transformers.TrainingArguments):\n    learning_rate: float = field(default=0.0002)\n"
    text += "args, = transformers.HfArgumentParser((Arguments,)).parse_args_into_dataclasses()\n"
    held = Setup(*script(tmp_path, text)).effective_values
    assert held["learning_rate"] == EffectiveValue(0.0002, "the script's default")
    assert held["epochs"] == EffectiveValue(3.0, "Hugging Face Trainer's default")


def test_the_argument_that_may_take_a_checkpoint_is_named(tmp_path):
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume_from')\np.parse_args()\n"
    (told,) = [note for note in plan(*script(tmp_path, text)).notes if "checkpoint" in note]
    assert "unless you give it --resume_from" in told
    (told,) = [note for note in plan(*script(tmp_path, text.replace("resume", "take"))).notes if "checkpoint" in note]
    assert "unless" not in told


@pytest.mark.parametrize(("text", "goes_on"), [(ACCELERATED, True), (ARGPARSE, False)])
def test_a_run_over_an_output_folder_says_whether_it_goes_on(tmp_path, text, goes_on):
    text = text.replace("parser.add_argument(", "parser.add_argument('--output_dir')\nparser.add_argument(", 1)
    chosen, known = script(tmp_path, text, trainer__output=str(tmp_path))
    known = msgspec.structs.replace(known, paths={**known.paths, str(tmp_path): "folder"})
    (found,) = [each for each in find_problems(Setup(chosen, known)) if each.key == "trainer.output"]
    assert ("resumes from the newest" in found.remedy, "starts at the first step" in found.remedy) == (
        goes_on, not goes_on,
    )  # fmt: skip


def test_the_defaults_of_a_script_are_those_that_it_writes_out(tmp_path):
    chosen, known = script(tmp_path, ARGPARSE)
    held = Setup(chosen, known).effective_values
    assert held["learning_rate"] == EffectiveValue(1.0, "the script's default")
    assert held["epochs"] == EffectiveValue(14.0, "the script's default")
    assert held["seed"] == EffectiveValue(None, SCRIPT_OWN_VALUE_SOURCE_TEXT)
    assert effective_settings(chosen, {})["recipe.learning_rate"].text == "1.0 (default)"
    given, _ = script(tmp_path, ARGPARSE, trainer__arguments=("--lr=0.01",))
    assert effective_settings(given, {"learning_rate": 0.01})["recipe.learning_rate"].text == "0.01", (
        "an argument set it"
    )


def test_a_name_with_control_bytes_is_shown_safely():
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--a\\x1b[31m')\np.parse_args()\n"
    assert "\x1b" not in said(parse_script_source(text.encode()))


DEEP = "from options import Options\nprint(Options().parse())\n"
FILES = {
    "options.py": "from below.base import Base\nclass Options(Base): ...\n",
    "below/base.py": """
import argparse
class Base:
    def parse(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.add_argument("--n_epochs", type=int, help="passes (default: 2)")
        parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
        return parser.parse_args()
""",
}


def test_what_the_source_leaves_open_is_read_from_the_help(tmp_path):
    (tmp_path / "below").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    chosen, _ = script(tmp_path, DEEP, recipe__learning_rate=0.5, recipe__epochs=3.0)
    waits = []
    found = probe_profile_facts(chosen, waits.append)
    assert waits == [f"Running {chosen.trainer.script} --help, as its source does not name all arguments …"]
    known = found.sources[chosen.trainer.script]
    assert said(known).endswith("read from --help, line 2: --lr --n_epochs --amp")
    assert [(one.name, one.type, one.default, one.off_flags) for one in known.parameters] == [
        ("--lr", "", "", ()), ("--n_epochs", "int", "2", ()), ("--amp", "bool", "", ("--no-amp",)),
    ]  # fmt: skip
    assert words_after_script(chosen, found) == ["--lr=0.5", "--n_epochs=3"]


def test_a_help_is_kept_until_the_script_or_its_modules_change(tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    for name, text in {**FILES, "train.py": DEEP}.items():
        (tmp_path / name).write_text(text)
    now, waits = [0.0], []
    monkeypatch.setattr("tui_train.facts.scripts.script_help.time", SimpleNamespace(time=lambda: now[0]))

    def asks():
        return read_script_help(
            sys.executable, (str(tmp_path / "train.py"),), str(tmp_path), lambda: waits.append(now[0])
        )

    first = asks()
    assert (asks(), len(waits)) == (first, 1)
    below = tmp_path / "below" / "base.py"
    below.write_text(below.read_text().replace("--lr", "--rate"))
    assert [flag.name for flag in asks().flags] == ["--rate", "--n_epochs", "--amp", "--no-amp"]
    now[0] = 3600.0
    asks()
    assert waits == [0.0, 0.0, 3600.0]
    (tmp_path / "train.py").write_text("1 / 0")
    assert (asks().problem, asks().problem) == ("it ended with exit code 1: ZeroDivisionError: division by zero",) * 2
    assert len(waits) == 5  # what fails may work the next time


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        (DEEP, True),
        ("import tyro\ntyro.cli(print)", True),
        (PARSED + "import there\nHfArgumentParser(there.ALL)", True),
        (PARSED + "from there import Mine\nHfArgumentParser(Mine)", True),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument(name)\np.parse_args()", True),
        ("import click\nfrom there import cli\n@click.group()\ndef main(): ...\nmain()", True),
        (ARGPARSE, False),
        (PARSED + "HfArgumentParser(TrainingArguments)", False),
        ("import sys\nprint(sys.argv)", False),
        ("from omegaconf import OmegaConf\nOmegaConf.from_cli()", False),
        ("def parse_args(): return 1\nparse_args()", False),
        ("import json\njson.parse()\nprint(1)", False),
    ],
)
def test_only_a_script_that_leaves_its_arguments_open_and_answers_is_asked(tmp_path, text, asks):
    chosen, known = script(tmp_path, text)
    known = msgspec.structs.replace(known, toolchains=(toolchain(python=sys.executable),))
    assert (script_help_question_for_auto_preset(chosen, known) is not None) == asks
    answer = ScriptHelp(flags=(HelpFlag("--lr"),))
    unchosen = msgspec.structs.replace(known, toolchains=(toolchain(python=sys.executable, unchosen=True),))
    answered = facts_with_script_help(msgspec.structs.replace(known, help={chosen.trainer.script: answer}))
    others = [
        fields.profile_with_value(chosen, *edit)
        for edit in (("trainer.preset", "custom"), ("container.engine", "docker"))
    ]
    for pair in (others[0], known), (others[1], known), (chosen, unchosen), (chosen, answered):
        assert script_help_question_for_auto_preset(*pair) is None


def test_a_help_with_the_fields_of_training_arguments_is_of_their_trainer(tmp_path):
    names = ["learning_rate", "max_steps", "output_dir", *(f"{name}" for name in TRAINING)]
    chosen, known = script(tmp_path, PARSED + "import there\nHfArgumentParser(there.ALL)", recipe__learning_rate=0.5)
    answer = ScriptHelp(flags=tuple(HelpFlag(f"--{name}") for name in names))
    known = facts_with_script_help(msgspec.structs.replace(known, help={chosen.trainer.script: answer}))
    assert said(known.sources[chosen.trainer.script]).startswith("HfArgumentParser with TrainingArguments, read from")
    assert "--learning_rate=0.5" in argv(plan(chosen, known).attempts[0].command, "/run")
    few = msgspec.structs.replace(answer, flags=answer.flags[:-1])
    _, known = script(tmp_path, PARSED + "import there\nHfArgumentParser(there.ALL)")
    known = facts_with_script_help(msgspec.structs.replace(known, help={chosen.trainer.script: few}))
    assert known.sources[chosen.trainer.script].kind == "help"


def test_a_help_that_says_nothing_leaves_the_arguments_unknown(tmp_path):
    chosen, known = script(tmp_path, DEEP)
    answer = ScriptHelp(problem="no answer in time")
    known = facts_with_script_help(msgspec.structs.replace(known, help={chosen.trainer.script: answer}))
    assert said(known.sources[chosen.trainer.script]).endswith("was not read; its --help: no answer in time")
    assert argv(plan(chosen, known).attempts[0].command, "/run")[-1] == chosen.trainer.script


@pytest.mark.whole
async def test_the_wizard_asks_when_recipe_is_opened_and_not_while_one_types(tmp_path, monkeypatch):
    asked = []

    def answer(*question):
        asked.append(question)
        return ScriptHelp(flags=(HelpFlag("--width", "(default: 64)"),))

    monkeypatch.setattr("tui_train.facts.scripts.script_help.read_script_help", answer)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (toolchain(python=sys.executable),))
    chosen, _ = script(tmp_path, DEEP)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        await press_keys("enter")(pilot)
        app.edits.set_profile(chosen)
        await wait_for_workers(pilot)
        assert asked == []
        app.post_message(OpenStep("recipe"))
        await wait_for_workers(pilot)
        assert "the script's default (64)" in screen_text(pilot)
        app.screen.form.go_to_row("trainer.arguments --width")
        await press_keys("8", "down")(pilot)
        await wait_for_workers(pilot)
        assert app.profile.trainer.arguments == ("--width=8",)
        app.post_message(OpenStep("preview"))
        await wait_for_workers(pilot)
        assert len(asked) == 1


def test_a_setting_that_does_not_fit_keeps_its_beginning_and_a_path_its_end():
    assert shortened_setting_text("0.003 (default)", 8) == "0.003"
    assert shortened_setting_text("failed, exit code 1", 10) == "failed, e…"
    assert shortened_setting_text("/data/of/chats.jsonl", 10) == "…ats.jsonl"

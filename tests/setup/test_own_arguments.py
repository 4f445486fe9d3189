"""The arguments that a script declares: which are given, what is wrong with them, and how one is set."""

import ast
import contextlib
import io
import itertools
import os
import sys
from types import SimpleNamespace

import msgspec
import pytest
from pilot import press_keys, screen_text, wait_for_workers
from support import facts, findings_of, plan, profile, toolchain, words_after_script
from tui_train.screens.messages import OpenStep
from tui_train.screens.recipe.script_rows import make_own_arguments_group

from tui_train.base.command import argv
from tui_train.facts.machine import probe
from tui_train.facts.scripts.script_arguments import argparse_arguments
from tui_train.facts.scripts.script_source import parse_script_source
from tui_train.facts.scripts.script_syntax import ScriptModule
from tui_train.places.profile_facts import probe_profile_facts, read_profile_files, read_script_sources
from tui_train.profile import fields
from tui_train.profile.changes import apply_change
from tui_train.runner.system.paths import free_bytes_for_path, why_unwritable
from tui_train.setup.recipe import given_arguments
from tui_train.setup.setup import Setup
from tui_train.wizard import make_wizard

TEXT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("extra", nargs="?")
parser.add_argument("--eta", type=float, default=0.05, help="step size")
parser.add_argument("-b", "--bs", type=int, default=8)
parser.add_argument("--layers", type=int, nargs="+")
parser.add_argument("--optim", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--fast", action="store_true")
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
parser.add_argument("-k")
if __name__ == "__main__":
    parser.parse_args()
"""
SOURCE = parse_script_source(TEXT.encode())


def parsed(words, text=TEXT):
    """What argparse itself makes of the arguments, None where it refuses them."""
    names = {}
    exec(text, names)  # noqa: S102 - the script above
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        return vars(names["parser"].parse_args(list(words)))


@pytest.mark.parametrize(
    "words",
    [
        ("d",),
        ("d", "--eta", "0.1"),
        ("--eta=0.1", "d", "e"),
        ("--et", "-0.5", "d"),
        ("-b", "4", "d", "--fast"),
        ("d", "--layers", "1", "2", "--amp"),
        ("--no-amp", "d", "--bs=2", "--bs=3"),
        ("--fast", "d", "-k", "v"),
    ],
)
def test_what_is_given_is_what_argparse_takes(words):
    taken, empty = parsed(words), parsed(("?",))
    found = {name.lstrip("-"): given.values for name, given in given_arguments.given_arguments(SOURCE, words).items()}
    assert {name for name in taken if taken[name] != empty[name]} == set(found)
    for name, values in found.items():
        if name not in {"fast", "amp"}:
            assert "".join(values) == str(taken[name]).strip("[]").replace(", ", "")
    assert (found.get("amp") == ("yes",)) == (taken["amp"] is True)


@pytest.mark.parametrize("words", [(), ("d",), ("d", "e", "--fast"), ("--eta", "1", "--amp", "d", "--bs=2", "--bs=3")])
@pytest.mark.parametrize(
    ("name", "values", "becomes"),
    [
        ("--eta", ("0.2",), 0.2),
        ("--bs", ("16",), 16),
        ("--layers", ("3", "4"), [3, 4]),
        ("--optim", ("adam",), "adam"),
        ("--fast", ("yes",), True),
        ("--amp", ("no",), False),
        ("--amp", ("yes",), True),
        ("-k", ("-x y",), None),
        ("data", ("new",), "new"),
    ],
)
def test_one_that_is_set_arrives_and_the_others_stay(words, name, values, becomes):
    parameter = next(one for one in SOURCE.parameters if one.name == name)
    now = given_arguments.arguments_with_values(SOURCE, words, parameter, values)
    assert given_arguments.given_arguments(SOURCE, now)[name].values == values if becomes is not None else True
    needed = () if "d" in words else ("d",)
    if becomes is not None:
        after = parsed((*(() if name == "data" else needed), *now))
        assert after == parsed((*needed, *words)) | {name.lstrip("-"): becomes}
    without = given_arguments.arguments_with_values(SOURCE, now, parameter, ())
    assert given_arguments.given_arguments(SOURCE, without) == given_arguments.given_arguments(
        SOURCE, given_arguments.arguments_with_values(SOURCE, words, parameter, ())
    )


def script(tmp_path, text, **more):
    path = tmp_path / "train.py"
    path.write_text(text)
    chosen = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": str(path)}
    return profile(chosen | {"trainer.python": sys.executable, "hardware.device": "cpu"}, **more)


def seen(chosen):
    """What is found of a profile where its script was read."""
    return findings_of(chosen, read(chosen))


def read(chosen):
    return msgspec.structs.replace(facts(), sources=read_script_sources(chosen))


def arguments_found(chosen):
    return [one.message for one in seen(chosen) if one.key == "trainer.arguments" and one.level == "error"]


def test_a_required_argument_that_nothing_passes_is_found(tmp_path):
    text = TEXT + 'parser.add_argument("--seed", type=int, required=True)\n'
    asked = [message.partition(" (")[0] for message in arguments_found(script(tmp_path, text))]
    assert asked == ["missing required argument: data", "missing required argument: --seed"]
    assert arguments_found(script(tmp_path, text, trainer__arguments=("d", "--seed", "1"))) == []
    assert arguments_found(script(tmp_path, text, trainer__arguments=("@file",))) == []


def test_one_of_a_subcommand_is_required_only_with_it(tmp_path):
    assert arguments_found(script(tmp_path, SUBCOMMANDS.replace("required=True", "", 1))) == []
    assert len(arguments_found(script(tmp_path, SUBCOMMANDS, trainer__arguments=("fit",)))) == 1
    source = parse_script_source(SUBCOMMANDS.encode())
    seed = next(one for one in source.parameters if one.name == "--seed")
    words = given_arguments.arguments_with_values(source, ("fit", "--data=1"), seed, ("7",))
    assert words == ("--seed=7", "fit", "--data=1")
    assert parsed(words, SUBCOMMANDS) == {"seed": 7, "data": "1", "lr": 0.1}


def test_an_output_that_cannot_be_made_is_found_before_the_start(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "train.py").touch()
    out = str(tmp_path / "file" / "out")
    chosen = script(tmp_path, "", trainer__output=out, trainer__preset="hf-trainer")
    finding = next(one for one in findings_of(chosen, probe_profile_facts(chosen)) if one.key == "trainer.output")
    assert finding.level == "error"
    assert finding.message.endswith(f"cannot be used: {tmp_path}/file is a file")
    assert apply_change(finding.change, chosen).trainer.output == ""


@pytest.mark.parametrize(
    ("path", "why"),
    [("x" * 300 + "/y", "too long"), ("new/deep/out", ""), (".", ""), ("/proc/x", "nothing can be saved in /proc")],
)
def test_why_nothing_can_be_written(path, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert why in why_unwritable(path)
    assert bool(why) == bool(why_unwritable(path))
    assert free_bytes_for_path("/proc/x") is None


def test_a_file_system_that_is_read_only_takes_no_output(tmp_path, monkeypatch):
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=real.f_flag | os.ST_RDONLY))
    assert why_unwritable(str(tmp_path / "out")) == f"{tmp_path} is on a file system that is read-only"


@pytest.mark.parametrize(("inodes", "free", "is_full"), [(1000, 3, True), (1000, 900, False), (0, 0, False)])
def test_a_file_system_without_inodes_takes_no_output(tmp_path, monkeypatch, inodes, free, is_full):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=0, f_files=inodes, f_favail=free))
    assert ("no inodes left" in why_unwritable(str(tmp_path / "out"))) == is_full


@pytest.mark.parametrize(("where", "said"), [("profile", "fix"), ("shell", "no fix"), ("", "")])
def test_a_folder_for_temporary_files_that_does_not_exist(tmp_path, monkeypatch, where, said):
    monkeypatch.delenv("TMPDIR", raising=False)
    missing = str(tmp_path / "missing")
    if where == "shell":
        monkeypatch.setenv("TMPDIR", missing)
    chosen = profile({"trainer.environment": {"TMPDIR": missing}} if where == "profile" else {})
    known = msgspec.structs.replace(facts(), **msgspec.structs.asdict(read_profile_files(chosen)))
    found = [one for one in findings_of(chosen, known) if "temporary files" in one.message]
    assert [(one.level, "fix" if one.change else "no fix") for one in found] == [("warning", said)] * bool(where)


INPUTS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--train_file")
parser.add_argument("--data", nargs="+")
parser.add_argument("--model_name_or_path")
parser.add_argument("--out_file")
parser.add_argument("--train_log")
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--train_file=gone.json",), ("--train_file",)),
        (("--train_file", "here.json"), ()),
        (("--data", "here.json", "gone.csv"), ("--data",)),
        (("--model_name_or_path=./gone",), ("--model_name_or_path",)),
        # The id of a model, a folder that a download makes, patterns, what is written.
        (("--model_name_or_path=gone/gone",), ()),
        (("--data", "./gone", "gone/*.json", "https://host/gone.json", "s3://gone.csv"), ()),
        (("--out_file=gone.json", "--train_log=gone.txt"), ()),
    ],
)
def test_what_the_arguments_have_a_script_read_exists(tmp_path, words, missing):
    (tmp_path / "here.json").touch()
    chosen = script(tmp_path, INPUTS, trainer__arguments=words)
    known = msgspec.structs.replace(facts(), **msgspec.structs.asdict(read_profile_files(chosen)))
    found = [one for one in findings_of(chosen, known) if "gone" in one.message]
    assert [(one.level, one.argument) for one in found] == [("warning", name) for name in missing]


def test_a_fix_back_to_the_default_leaves_it_to_the_method():
    tuned = profile({
        "trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",), "recipe.learning_rate": 3.0,
    })  # fmt: skip
    where = msgspec.structs.replace(facts(), paths={"/m": "folder", "/d.jsonl": "file"})
    finding = next(one for one in findings_of(tuned, where) if one.key == "recipe.learning_rate")
    assert apply_change(finding.change, tuned).recipe.learning_rate is None


def test_a_value_of_another_type_or_choice_names_its_row(tmp_path):
    words = ("d", "--bs", "abc", "--optim=lion", "--eta={learning_rate}", "--layers", "1", "x")
    chosen = script(tmp_path, TEXT, trainer__arguments=words, recipe__learning_rate=0.1)
    found = [one for one in seen(chosen) if one.argument]
    assert [(one.argument, one.form_row_key) for one in found] == [
        (name, f"trainer.arguments {name}") for name in ("--bs", "--layers", "--optim")
    ]
    assert found[0].message == "--bs is 'abc', which is not a whole number (line 7 of the script)"
    assert apply_change(found[0].change, chosen).trainer.arguments == (*words[:1], *words[3:])


def test_another_number_of_values_than_an_option_takes_is_found(tmp_path):
    text = TEXT.replace('parser.add_argument("data")\n', "") + 'parser.add_argument("--betas", nargs=2, type=float)\n'
    one, two = (
        arguments_found(script(tmp_path, text, trainer__arguments=("--betas", *each))) for each in (["0.9"], "12")
    )
    assert [message for message in one if "betas" in message] == [
        f"--betas takes 2 values, and 1 is given (line {text.count(chr(10))} of the script)"
    ]
    assert not [message for message in two if "betas" in message]
    text = 'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("p", nargs="?")\n'
    text += 'parser.add_argument("q", nargs=2)\nparser.parse_args()\n'
    assert arguments_found(script(tmp_path, text, trainer__arguments=("1", "2"))) == []


def test_a_name_in_doubt_is_offered_and_its_value_goes_through_the_recipe(tmp_path):
    chosen = script(tmp_path, TEXT, trainer__arguments=("d",))
    offered = {one.argument: one for one in seen(chosen) if one.level == "note" and one.argument}
    assert set(offered) == {"--eta", "--bs"}
    assert offered["--eta"].change.title == "use --eta as the learning rate"
    # Its row asks, and names the key that answers.
    source = read(chosen).sources[chosen.trainer.script]
    group = make_own_arguments_group(
        source, ("d",), Setup(chosen, read(chosen)), {one.form_row_key: one for one in offered.values()}
    )
    assert {row.field.label: row.note for row in group.rows}["--eta"] == "learning rate? F2: yes"
    passed = apply_change(offered["--eta"].change, chosen)
    assert passed.trainer.arguments == ("d", "--eta={learning_rate}")
    assert passed.recipe.learning_rate == 0.05
    assert "--eta" not in {one.argument for one in seen(passed)}
    command = argv(plan(passed, read(passed)).attempts[0].command, "/run")
    assert command[-2:] == ["d", "--eta=0.05"]
    given = script(tmp_path, TEXT, trainer__arguments=("d", "--eta", "0.3"))
    change = next(one.change for one in seen(given) if one.argument == "--eta")
    assert apply_change(change, given).recipe.learning_rate == 0.3


@pytest.mark.whole
async def test_the_arguments_of_a_script_are_rows_of_the_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (toolchain(python=sys.executable),))
    chosen = script(tmp_path, TEXT.replace('"data"', '"--data", required=True').replace("step size", "step [b]size"))
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot)
        await press_keys("enter")(pilot)
        app.edits.set_profile(chosen)
        app.post_message(OpenStep("recipe"))
        await wait_for_workers(pilot)
        form = app.screen.form

        def line(name):
            return next(line for line in screen_text(pilot).splitlines() if line[1:].startswith(name))

        assert "the script's default" in line("--eta")
        assert "✗ the script requires it" in line("--data")
        form.go_to_row("trainer.arguments --optim")
        await press_keys("right", "right")(pilot)
        assert app.profile.trainer.arguments == ("--optim=adam",)
        form.go_to_row("trainer.arguments --data")
        await press_keys("d")(pilot)
        form.go_to_row("trainer.arguments --bs")
        await press_keys("minus")(pilot)
        assert "✗ Type a whol" in line("--bs")
        await press_keys("f2", "4")(pilot)
        assert app.profile.trainer.arguments == ("--optim=adam", "--data=d", "--bs=4")
        await press_keys("ctrl+z")(pilot)
        assert app.profile.trainer.arguments == ("--optim=adam", "--data=d")
        app.edits.set_profile(
            fields.profile_with_value(app.profile, "trainer.arguments", ("--data=d", "--eta=0.2", "--bs=a"))
        )
        await wait_for_workers(pilot)
        assert "0.2" in line("--eta")
        assert "✗ --bs is 'a'" in line("--bs")
        form.go_to_row("trainer.arguments --eta")
        await press_keys("f2")(pilot)
        assert "the value of Learning rate (0.2)" in line("--eta")
        assert (app.profile.recipe.learning_rate, form.entry.display) == (0.2, False)
        await press_keys("f1")(pilot)


FIELDS = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class Own:
    train_file: str = field(metadata={"help": "The rows."})
    size: int = 8
parser = HfArgumentParser((Own, TrainingArguments))
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    parser.parse_json_file(sys.argv[1])
parser.parse_args_into_dataclasses()
"""


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), True),
        (("--size", "4"), True),
        (("--train_file", "a"), False),
        (("--train-file=a",), False),
        (("--train_f", "a"), False),
        (("own.json",), False),
        (("@words",), False),
    ],
)
def test_a_field_without_a_default_is_required(tmp_path, words, asked):
    found = arguments_found(script(tmp_path, FIELDS, trainer__arguments=words, ladder__rungs=()))
    assert [message.partition(" (")[0] for message in found] == ["missing required argument: --train_file"] * asked


PARSER = "import argparse\nparser = argparse.ArgumentParser()\nparse = lambda: parser.parse_args()\n"
REQUIRED = (
    PARSER + "parser.add_argument('-b', '--bsz', required=True)\nparser.add_argument('-v', action='store_true')\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (REQUIRED, ("-b8",)),
        (REQUIRED, ("-vb", "8")),
        (REQUIRED, ("--config", "a.yaml")),
        (PARSER + "parser.add_argument('--tags', nargs='+')\nparser.add_argument('data')\n", ("--tags", "a", "d.txt")),
        (PARSER + "parser.add_argument('--lr', type=float)\nother = argparse.ArgumentParser()\n"
         "other.add_argument('corpus')\n", ("--lr", "1")),
        (PARSER + "parser.add_argument('--opt', type=str.lower, choices=['adam'])\n", ("--opt=Adam",)),
        ("import fire\ndef main(data, lr=0.1):\n    pass\nfire.Fire(main)\n", ("--data=x", "--lr=None")),
    ],
)  # fmt: skip
def test_what_is_not_sure_is_no_error(tmp_path, text, words):
    """A false error would keep a script that is right from being started."""
    assert arguments_found(script(tmp_path, text, trainer__arguments=words)) == []


ETA = PARSER + "parser.add_argument('--eta', type=float)\nparser.add_argument('--niter', type=int)\n"


def test_an_option_that_the_script_does_not_declare_is_found_with_the_one_that_was_meant(tmp_path):
    chosen = script(tmp_path, ETA, trainer__arguments=("--eta", "0.1", "--niters=3", "--other"))
    typed, other = [one for one in seen(chosen) if one.key == "trainer.arguments" and one.forbids_plan]
    assert typed.message == "the script does not take --niters; it takes --eta, --niter (argparse, line 2)"
    assert (typed.remedy, other.remedy, other.change) == ("Did you mean --niter?", "Leave it out.", None)
    assert apply_change(typed.change, chosen).trainer.arguments == ("--eta", "0.1", "--niter=3", "--other")
    assert arguments_found(script(tmp_path, ETA, trainer__arguments=("--et=0.1", "--niter", "3"))) == []


@pytest.mark.parametrize(
    "more",
    [
        "parser.parse_known_args()\n",
        "parser.add_argument('rest', nargs=argparse.REMAINDER)\n",
        "parser.add_argument('rest', nargs='...')\n",
        "for name in names:\n    parser.add_argument(name)\n",
        "from mylib import add_train_args\nadd_train_args(parser)\n",
        "Model.add_model_specific_args(parser)\n",
        "from models import Net\nNet.add_model_args(parser)\n",
        "arg = parser.add_argument\narg('--niters')\n",
        "extend(parser.add_argument_group('more'))\n",
        "group = parser.add_mutually_exclusive_group()\nlib.extend(parser=group)\n",
        "import lib\ndef add(here):\n    here.add_argument('--more')\n    lib.add(here)\nadd(parser)\n",
        "parser.add_argument('--more', **kwargs)\n",
    ],
)
def test_an_option_that_may_be_taken_is_no_error(tmp_path, more):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("from .net import Net\n")
    assert arguments_found(script(tmp_path, ETA + more, trainer__arguments=("x", "--niters=3"))) == []


def test_a_parser_that_is_given_to_what_was_read_takes_no_more(tmp_path):
    (tmp_path / "own.py").write_text("class Net:\n    def add_to(parser): parser.add_argument('--width')\n")
    text = ETA + "from own import Net\nNet.add_to(parser)\nprint(parser)\nargcomplete.autocomplete(parser)\n"
    found = arguments_found(script(tmp_path, text, trainer__arguments=("--niters=3",)))
    assert found == ["the script does not take --niters; it takes --eta, --niter, --width (argparse, line 2)"]


MAIN = "if __name__ == '__main__':"
REQUIRES = """
import argparse
{0}
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--output_dir", default="x")
    {1}
"""


@pytest.mark.parametrize(
    ("text", "beside", "is_read"),
    [
        (REQUIRES.format("if True:", "parser.parse_args()"), "", True),
        (REQUIRES.format("if True:", "parser.parse_args([])"), "", False),
        (REQUIRES.format("if True:", "parser.parse_args(args=['--data', 'x'])"), "", False),
        (REQUIRES.format("if True:", "parser.parse_args(words)"), "", True),
        (REQUIRES.format("def get():", "return parser.parse_args()"), "", False),
        (REQUIRES.format("def get():", "return parser.parse_args()") + "get()\n", "", True),
        (REQUIRES.format("def get():", "return parser"), "", False),
        (REQUIRES.format("def get():", "return parser") + "get().parse_args()\n", "", True),
        ("import beside", REQUIRES.format(MAIN, "parser.parse_args()"), False),
        ("import beside", REQUIRES.format("def get():", "parser.parse_args()") + MAIN + "\n    get()", False),
        ("import beside\nbeside.get()", REQUIRES.format("def get():", "parser.parse_args()"), True),
    ],
)  # fmt: skip
def test_only_a_parser_that_parses_the_command_line_counts(text, beside, is_read, tmp_path):
    (tmp_path / "beside.py").write_text(beside)
    chosen = script(tmp_path, text, trainer__preset="auto")
    assert bool(arguments_found(chosen)) == is_read
    if is_read:
        chosen = script(tmp_path, text, trainer__preset="auto", trainer__arguments=("--data=d",))
    words = argv(plan(chosen, read(chosen)).attempts[0].command, "/run")
    assert ("--output_dir=/run/output" in words) == is_read


NARGS = (
    PARSER
    + """
N = 2
parser.add_argument("-a", "--betas", type=float, nargs=2)
parser.add_argument("data", nargs=argparse.OPTIONAL)
parser.add_argument("--pair", nargs=2, action="append")
parser.add_argument("--tags", nargs=argparse.ONE_OR_MORE)
parser.add_argument("--seed", type=int)
"""
)


@pytest.mark.parametrize(
    "words",
    [
        ("--betas", "0.9", "0.95", "train.json"),
        ("train.json", "-a", "0.9", "0.95", "--seed=1"),
        ("--pair", "a", "b", "train.json", "--pair", "c", "d"),
        ("train.json", "--tags", "a", "b", "c"),
    ],
)
def test_an_option_takes_as_many_words_as_argparse_gives_it(words):
    found = given_arguments.given_arguments(parse_script_source(NARGS.encode()), words)
    values = {name.lstrip("-"): [*map(str, given.values)] for name, given in found.items()}
    taken = {name: value for name, value in parsed(words, NARGS).items() if value is not None}
    flat = {name: value if isinstance(value, list) else [value] for name, value in taken.items()}
    flat["pair"] = [word for pair in flat.get("pair", []) for word in pair]
    assert values == {name: [*map(str, value)] for name, value in flat.items() if value}


@pytest.mark.parametrize("nargs", ["argparse.REMAINDER", "argparse.OPTIONAL", "argparse.ZERO_OR_MORE", "OPTIONAL", "N"])
def test_what_may_be_left_out_by_its_nargs_is_not_missing(nargs, tmp_path):
    text = f"from argparse import OPTIONAL\nN = '?'\n{PARSER}parser.add_argument('more', nargs={nargs})\n"
    assert parsed((), text) is not None
    assert arguments_found(script(tmp_path, text)) == []


@pytest.mark.parametrize("nargs", ["argparse.ONE_OR_MORE", "2", "None"])
def test_what_must_be_given_by_its_nargs_is_missing(nargs, tmp_path):
    text = f"{PARSER}parser.add_argument('more', nargs={nargs})\nparser.add_argument('last')\n"
    assert parsed((), text) is None
    assert len(arguments_found(script(tmp_path, text))) == 2
    assert parsed(("a", "b"), text.replace("'last'", "'--last'")) is not None or nargs == "None"


@pytest.mark.parametrize("choices", ["['a', *MORE]", "['a', OTHER]", "['a', '']", "(None, 'a')"])
def test_choices_that_are_read_in_part_refuse_nothing(choices, tmp_path):
    text = PARSER + f"parser.add_argument('--opt', choices={choices})\n"
    assert arguments_found(script(tmp_path, text, trainer__arguments=("--opt=b",))) == []
    text = f"import click\n@click.command()\n@click.option('--opt', type=click.Choice({choices}))\ndef main(opt): ...\n"
    assert arguments_found(script(tmp_path, text, trainer__arguments=("--opt=b",))) == []
    text = f"from absl import app, flags\nflags.DEFINE_enum('opt', 'a', {choices}, '')\napp.run(print)\n"
    assert parse_script_source(text.encode()).parameters[0].choices == ()


def test_a_script_that_is_too_deep_to_read_is_python(tmp_path):
    chosen = script(tmp_path, "import torch\nx = a" + ".b()" * 600 + "\n", trainer__launcher="python")
    assert not [one for one in seen(chosen) if "cannot be read as Python" in one.message]


CLICK = """
import click
@click.group()
def cli(): ...
@cli.command("train")
@click.option("--lr", type=float, default=0.1)
@click.option("-q/-Q", "--on/--off", default=True)
@click.option("--tag", "-t", multiple=True)
@click.argument("data")
def train_it(**kept): kept_by_cli.update(kept)
@cli.command()
def export(): ...
"""


def by_click(words):
    """What click itself makes of the arguments."""
    names = {"kept_by_cli": {}}
    exec(CLICK, names)  # noqa: S102 - the script above
    names["cli"].main(list(words), standalone_mode=False)
    return names["kept_by_cli"]


@pytest.mark.parametrize("words", [("train", "d"), ("train", "-Q", "--tag", "a", "d"), ("train", "--off", "d", "-t=z")])
@pytest.mark.parametrize(
    ("name", "values", "becomes"),
    [("--on", ("no",), False), ("--on", ("yes",), True), ("--tag", ("x", "y"), ("x", "y")), ("data", ("n",), "n")],
)
def test_a_flag_and_an_option_of_click_are_written_as_declared(words, name, values, becomes):
    source = parse_script_source(CLICK.encode())
    parameter = next(one for one in source.parameters if one.name == name)
    now = given_arguments.arguments_with_values(source, words, parameter, values)
    assert by_click(now) == by_click(words) | {name.lstrip("-"): becomes}
    assert given_arguments.given_arguments(source, now)[name].values == values


CLICK_COMMAND = "import click\n@click.command()\n{}\ndef main(**kept): kept_by_cli.update(kept)\n"


@pytest.mark.parametrize(
    ("decorator", "more"),
    [
        ("@click.option('--data', required=True, envvar='DATA')", ""),
        ("@click.option('--data', required=True, default=lambda: 'x')", ""),
        ("@click.option('--data', required=True)", "auto_envvar_prefix='T'"),
        ("@click.option('--data', required=True)", "default_map={'data': 'x'}"),
        ("@click.argument('data', envvar='DATA')", ""),
        ("@click.argument('data', required=REQUIRED)", ""),
        ("@click.argument('data', nargs=N)", ""),
        ("@click.argument('data', **MORE)", ""),
    ],
)
def test_a_value_that_click_may_get_otherwise_is_not_missing(decorator, more, tmp_path, monkeypatch):
    monkeypatch.setenv("DATA", "d")
    monkeypatch.setenv("T_DATA", "d")
    text = CLICK_COMMAND.format(decorator)
    names = {"kept_by_cli": {}, "REQUIRED": False, "N": -1, "MORE": {"required": False}}
    exec(f"{text}main([], standalone_mode=False, {more})\n", names)  # noqa: S102 - the script above
    assert "data" in names["kept_by_cli"]
    assert arguments_found(script(tmp_path, f"{text}main({more})\n")) == []


@pytest.mark.parametrize(
    ("decorators", "words"),
    [
        ("@click.option('--dims', nargs=2, type=int)", ("--dims", "1", "2", "d")),
        ("@click.option('--dims', type=(int, int))", ("--dims", "1", "2", "d")),
        ("@click.option('--dims', type=(int, int))", ("--dims=1", "2", "d")),
        ("@click.option('--dims', type=click.Tuple([int, int]))", ("d", "--dims", "1", "2")),
        ("@click.option('--mode', flag_value='fast')", ("--mode", "d")),
        ("@click.option('--mode', is_flag=False, flag_value='fast')", ("--mode", "slow", "d")),
        ("@click.option('--mode', default=True, is_flag=True)", ("--mode", "d")),
    ],
)
def test_an_option_of_click_takes_as_many_words_as_click_gives_it(decorators, words, tmp_path):
    text = CLICK_COMMAND.format(decorators + "\n@click.argument('data')")
    names = {"kept_by_cli": {}}
    exec(text, names)  # noqa: S102 - the script above
    names["main"].main(list(words), standalone_mode=False)
    assert names["kept_by_cli"]["data"] == "d"
    assert given_arguments.given_arguments(parse_script_source(text.encode()), words)["data"].values == ("d",)
    assert arguments_found(script(tmp_path, text, trainer__arguments=words)) == []


def test_an_option_that_appends_is_written_once_for_each_value():
    text = TEXT + 'parser.add_argument("--tag", action="append")\n'
    source = parse_script_source(text.encode())
    tag = next(one for one in source.parameters if one.name == "--tag")
    words = given_arguments.arguments_with_values(source, ("--tag", "a", "d"), tag, ("x", "y"))
    assert parsed(words, text)["tag"] == ["x", "y"]
    assert parsed(words, text)["data"] == "d"


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("import typer\ndef main(n_runs: int = 1, dry_run: bool = False): ...\ntyper.run(main)", "--dry-run",
         ("--no-dry-run",)),
        ("import fire\ndef main(n_runs=1, dry_run: bool = False): ...\nfire.Fire(main)", "--dry_run", ("--nodry_run",)),
    ],
)  # fmt: skip
def test_what_a_signature_declares_is_spelled_as_its_library_does(text, name, words):
    source = parse_script_source(text.encode())
    parameter = source.parameters[1]
    assert parameter.name == name
    assert given_arguments.arguments_with_values(source, (), parameter, ("no",)) == words


SUBCOMMANDS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
sub = parser.add_subparsers(required=True)
fit = sub.add_parser("fit")
fit.add_argument("--lr", type=float, default=0.1)
fit.add_argument("--data", required=True)
test = sub.add_parser("test")
test.add_argument("--lr", type=float)
if __name__ == "__main__":
    parser.parse_args()
"""


@pytest.mark.parametrize(
    ("text", "arguments", "command"),
    [
        (SUBCOMMANDS, ("fit", "--data=d"), ("--seed=3", "fit", "--lr=0.5", "--data=d")),
        (CLICK, ("train", "--off", "d"), ("train", "--lr=0.5", "--off", "d")),
    ],
)
def test_the_arguments_of_the_chosen_subcommand_are_passed_the_recipe(text, arguments, command, tmp_path):
    seed = {"recipe__seed": 3} if "--seed" in text else {}
    chosen = script(tmp_path, text, trainer__preset="auto", trainer__arguments=arguments,
                    recipe__learning_rate=0.5, **seed)  # fmt: skip
    assert tuple(words_after_script(chosen, read(chosen))) == command


GROUP = "import click\n@click.group()\ndef cli(): ...\n{}\ndef {}(lr): kept_by_cli.update(lr=lr)\n"
OPTION = "@click.option('--lr', type=float)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GROUP.format(f"@cli.command(name='train')\n{OPTION}", "train_model"), ("train",)),
        (GROUP.format(f"@cli.command()\n{OPTION}", "train_cmd"), ("train",)),
        (GROUP.format(f"@cli.command()\n{OPTION}", "train_cmd"), ("train-cmd",)),
        (GROUP.format(f"@cli.command()\n{OPTION}", "Train"), ("train",)),
        (GROUP.format(f"@click.command()\n{OPTION}", "train") + "cli.add_command(train)\n", ("train",)),
        (GROUP.format(f"@click.command()\n{OPTION}", "train") + "cli.add_command(train, name='fit')\n", ("fit",)),
    ],
)
def test_the_subcommand_of_click_has_the_name_that_click_gives_it(text, words, tmp_path):
    chosen = script(
        tmp_path, text + "cli()\n", trainer__preset="auto", trainer__arguments=words, recipe__learning_rate=0.5
    )
    assert arguments_found(chosen) == []
    passed = words_after_script(chosen, read(chosen))
    assert passed == [*words, "--lr=0.5"]
    names = {"kept_by_cli": {}}
    exec(text, names)  # noqa: S102 - the script above
    if words[0] in names["cli"].commands:
        names["cli"].main(passed, standalone_mode=False)
        assert names["kept_by_cli"] == {"lr": 0.5}
    else:
        assert words == ("train-cmd",)  # as before click 8.2


def test_an_alias_of_a_subcommand_chooses_it(tmp_path):
    text = SUBCOMMANDS.replace('add_parser("fit")', 'add_parser("fit", aliases=["f"])')
    chosen = script(
        tmp_path, text, trainer__preset="auto", trainer__arguments=("f", "--data=d"), recipe__learning_rate=0.5
    )
    assert arguments_found(chosen) == []
    passed = words_after_script(chosen, read(chosen))
    assert parsed(passed, text) == {"seed": None, "lr": 0.5, "data": "d"}
    assert arguments_found(script(tmp_path, text, trainer__arguments=("f",))) == [
        "missing required argument: --data (line 8)"
    ]


TYPER = "import typer\napp = typer.Typer()\n@app.command()\ndef main({}):\n    pass\napp()\n"
FIRE = "import fire\ndef main({}):\n    pass\nfire.Fire({})\n"


@pytest.mark.parametrize(
    ("text", "words", "missing"),
    [
        (TYPER.format("data: str, steps: int = 3"), (), ["data"]),
        (TYPER.format("data: str, steps: int = 3"), ("--steps=2",), ["data"]),
        (TYPER.format("data: str, steps: int = 3"), ("--steps=2", "d"), []),
        (TYPER.format("data: str, steps: int = 3"), ("--unknown", "d"), []),
        (TYPER.format("data: str, version: bool = typer.Option(False, is_eager=True)"), ("--version",), []),
        (TYPER.format("data: str = typer.Option(...)"), (), ["--data"]),
        (TYPER.format('data: str = typer.Argument(..., envvar="DATA")'), (), []),
        (TYPER.format("data: Annotated[str, typer.Option(default_factory=f)]"), (), []),
        (TYPER.format("data: str, fast: Optional[bool] = None"), ("--fast", "d"), []),
        (TYPER.format("data: str, fast: bool | None = None"), ("--fast", "d"), []),
        (TYPER.format("data: str, fast=False"), ("--fast", "d"), []),
        (TYPER.format('data: str, verbose: int = typer.Option(0, "-v", count=True)'), ("-v", "d"), []),
        (TYPER.format("data: str").replace("@app", "@with_defaults\n@app"), (), []),
        (TYPER.format("data: str").replace("Typer()", "Typer(context_settings={'default_map': {}})"), (), []),
        (FIRE.format("data, steps: int = 3", "main"), (), ["data"]),
        (FIRE.format("data, steps: int = 3", "main"), ("d",), []),
        (FIRE.format("data, steps: int = 3", "main"), ("--data=d",), []),
        (FIRE.format("data", "main, command=['d']"), (), []),
        (FIRE.format("data", "main, 'd'"), (), []),
        (TYPER.format("data: str, ctx: 'typer.Context'"), ("d",), []),
        (TYPER.format("data: str, ctx: Context"), ("d",), []),
        (TYPER.format("data: str, fast: Union[bool, None] = None"), ("--fast", "d"), []),
        (TYPER.format("data: str, fast=FAST"), ("--fast", "d"), []),
        (TYPER.format("data: str") + "argv.append('d')\n", (), []),
        (FIRE.format("data", "main, **words"), (), []),
        (FIRE.format("data", "T().main"), (), []),
        (FIRE.format("data", "main").replace("def", "class A:\n    def main(self, q):\n        pass\ndef"), (), []),
        (FIRE.format("data", "main").replace("fire.Fire", "main = partial(main, 'd')\nfire.Fire"), (), []),
        (FIRE.format("data", "main").replace("fire.Fire", "sys.argv.append('d')\nfire.Fire"), (), []),
        (FIRE.format("data", "main") + "main('d')\n", (), []),
        (TYPER.format("data: str").replace("app()\n", "app(['d'])\n"), (), []),
        (TYPER.format("data: str").replace("\napp()\n", "\nrunner.run(main)\n"), (), []),
        (TYPER.format("data: str") + "CliRunner().invoke(app, ['d'])\n", (), []),
    ],
)
def test_what_typer_and_fire_surely_lack_is_found_before_the_start(text, words, missing, tmp_path):
    found = arguments_found(script(tmp_path, text, trainer__preset="auto", trainer__arguments=words))
    found = [message.partition(" (")[0] for message in found if message.startswith("missing")]
    assert found == [f"missing required argument: {name}" for name in missing]


SHARED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
sub = parser.add_subparsers(required=True)
{}
if __name__ == "__main__":
    parser.parse_args()
"""


@pytest.mark.parametrize(
    "added",
    [
        "def add(p):\n    p.add_argument('--output_dir', required=True)\nadd(sub.add_parser('fit'))",
        "def add(p):\n    p.add_argument_group().add_argument('--output_dir')\np = sub.add_parser('fit')\nadd(p)",
        "for name in ('fit', 'test'):\n    p = sub.add_parser(name)\n    p.add_argument('--output_dir')",
        "for p in map(sub.add_parser, ('fit', 'test')):\n    p.add_argument('--output_dir')",
        "p = argparse.ArgumentParser(add_help=0)\np.add_argument('--output_dir')\nsub.add_parser('fit', parents=[p])",
    ],
)
def test_an_option_of_a_subcommand_that_is_not_known_is_passed_nothing(added, tmp_path):
    text = SHARED.format(added)
    words = ("fit", "--output_dir=o")
    assert parsed(words, text)["output_dir"] == "o"
    assert parsed(("--output_dir=o", "fit"), text) is None
    assert arguments_found(script(tmp_path, text, trainer__arguments=words)) == []
    chosen = script(tmp_path, text, trainer__preset="auto", trainer__arguments=("fit",), recipe__seed=3)
    assert words_after_script(chosen, read(chosen)) == ["--seed=3", "fit"]


@pytest.mark.parametrize(
    ("text", "level"),
    [(SUBCOMMANDS, "error"), (SUBCOMMANDS.replace("required=True", "", 1), "warning"), (CLICK, "error")],
)
def test_a_subcommand_that_no_one_chose_is_one_finding(text, level, tmp_path):
    chosen = script(tmp_path, text, trainer__preset="auto")
    (finding,) = [one for one in seen(chosen) if "needs a subcommand" in one.message]
    assert finding.level == level
    fixed = apply_change(finding.change, chosen)
    assert not [one for one in seen(fixed) if "needs a subcommand" in one.message]


FILE_OR_OPTIONS = """
import sys
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser(TrainingArguments)
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    parser.parse_json_file(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("more", "arguments", "passes"),
    [
        ("", ("c.json",), False),
        ("", (), False),
        ("else:\n    parser.parse_args_into_dataclasses()", ("c.json",), False),
        ("else:\n    parser.parse_args_into_dataclasses()", (), True),
        ("else:\n    parser.parse_args_into_dataclasses()", ("--seed=1",), True),
        ("else:\n    parser.parse_args_into_dataclasses()", ("--deepspeed", "c.json"), True),
        ("else:\n    parser.parse_args_into_dataclasses()", ("--deepspeed=c.json",), True),
    ],
)
def test_a_script_that_takes_a_file_is_passed_no_options_beside_it(more, arguments, passes, tmp_path):
    chosen = script(tmp_path, FILE_OR_OPTIONS + more, trainer__preset="auto", trainer__arguments=arguments)
    assert (len(words_after_script(chosen, read(chosen))) > len(arguments)) == passes


def test_what_has_no_effect_beside_a_file_is_said(tmp_path):
    text = FILE_OR_OPTIONS + "else:\n    parser.parse_args_into_dataclasses()"
    values = {"trainer__output": "/out", "recipe__checkpoint_every": 5, "trainer__preset": "auto"}
    keys_found = {
        words: {one.key for one in seen(script(tmp_path, text, trainer__arguments=words, **values))}
        for words in ((), ("c.json",))
    }
    assert keys_found["c.json",] - keys_found[()] == {"trainer.output", "recipe.checkpoint_every"}


def test_a_long_script_is_read_in_the_time_of_its_length():
    def steps(lines):
        added = "".join(f"x{at} = p.add_argument_group()\nx{at}.add_argument('--a{at}')\n" for at in range(lines))
        module = ScriptModule("", tuple(ast.walk(ast.parse("p = ArgumentParser()\n" + added))))
        counted = itertools.count()
        before = sys.getprofile()
        sys.setprofile(lambda *_: next(counted))
        try:
            assert sum(1 for _ in argparse_arguments(module, beside_subparsers=True)) == lines
        finally:
            sys.setprofile(before)
        return next(counted)

    # Eight times the lines: eight times as many calls, and not sixty-four.
    assert steps(240) < 16 * steps(30)

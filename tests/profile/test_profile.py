"""Profiles: what is written is read back, what is typed is meant, and nothing unknown or out of range gets in."""

import re
import shlex
import string
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support import HOSTILE_VALUES, example_count, make_executable, profile

from tui_train.actions.last_profile import load_last_session_profile, remember_profile_without_secrets
from tui_train.base.app_paths import last_profile_file, profiles_folder
from tui_train.base.errors import BadInput, CannotWrite
from tui_train.cli.app import cli
from tui_train.cli.plans import plans
from tui_train.profile import fields, secret_values, store, typed_lists
from tui_train.profile.changes import Change, apply_change, profile_differences
from tui_train.profile.typed_lists import AmbiguousComma
from tui_train.profile.types import Profile

# What TOML and a program's arguments can hold.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20) | st.sampled_from(
    (*HOSTILE_VALUES, "1,B=2", "x,", "--a=1,--b", "/a:/b,/c:/d", "'1,b.c=2", "\\,")
)


NAME = st.text(string.ascii_letters + "_", min_size=1, max_size=8)


def values(row):
    """Every value that a field can have, as the profile holds it."""
    if row.kind == "choice":
        return st.sampled_from(row.options)
    if row.kind == "integer":
        return st.integers(int(row.minimum), int(row.maximum))
    if row.key == "trainer.preset":
        return st.sampled_from(("custom", "hf-trainer", "total-batch"))
    path = TEXT.map(lambda text: text and fields.absolute_path(f"/base folder/{text}", Path("/elsewhere")))
    return {
        "integers": st.lists(st.integers(int(row.minimum or 0), int(row.maximum or 0)), max_size=3).map(tuple),
        "number": st.floats(row.minimum or 0, row.maximum or 0),
        "numbers": st.lists(st.floats(row.minimum or 0, row.maximum or 0), max_size=3).map(tuple),
        "switch": st.booleans(),
        "text": TEXT.filter(str.strip),
        "path": path,
        "model": st.one_of(path, st.sampled_from(("gpt2", "acme/Tiny-1.5B"))),
        "paths": st.lists(path.filter(bool), max_size=3).map(tuple),
        "rewards": st.lists(path.map(lambda text: f"{text}.py:score" if text else "lib.fn"), max_size=3).map(tuple),
        "words": st.lists(TEXT, max_size=4).map(tuple),
        "names": st.lists(NAME, max_size=3).map(tuple),
        "dotted": st.dictionaries(NAME.map(lambda name: f"model.a{name.lower()}x"), TEXT, max_size=3),
        "table": st.dictionaries(NAME, TEXT, max_size=3),
        "webhook": st.one_of(path, NAME.map(lambda name: f"${name}")),
    }[row.kind]


PROFILES = st.fixed_dictionaries({key: values(row) for key, row in fields.FIELDS.items()})


@settings(max_examples=example_count(60), deadline=None)
@given(PROFILES)
def test_a_profile_is_read_back_as_it_was_written(chosen):
    made = profile(chosen)
    assert store.profile_from_toml(store.profile_to_toml(made), folder=Path("/elsewhere")) == made


@settings(max_examples=example_count(60), deadline=None)
@given(PROFILES)
def test_a_value_is_shown_as_it_would_be_typed(chosen):
    for key, value in chosen.items():
        row = fields.FIELDS[key]
        assert fields.parse_value(row, fields.format_value(value)) == value


def test_the_fields_are_all_of_the_profile():
    """None is forgotten, and each default is one that could be typed."""
    data = msgspec.to_builtins(Profile())
    keys = {name for name, value in data.items() if not isinstance(value, dict)}
    keys |= {f"{name}.{key}" for name, value in data.items() if isinstance(value, dict) for key in value}
    assert keys - {"schema"} == set(fields.FIELDS)
    for key in fields.FIELDS:
        value = fields.get_value(Profile(), key)
        assert fields.get_value(fields.profile_with_value(Profile(), key, value), key) == value


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("recipe.steps", "1_000", 1000),
        ("recipe.steps", " 1 000 ", 1000),
        ("recipe.learning_rate", "3e-4", 0.0003),
        ("recipe.learning_rate", "1", 1.0),
        ("recipe.activation_checkpointing", "YES", True),
        ("recipe.activation_checkpointing", "off", False),
        ("trainer.arguments", "--a 'b c' \"d e\"", ("--a", "b c", "d e")),
        ("trainer.environment", "A=1 B='x y' C=", {"A": "1", "B": "x y", "C": ""}),
        ("trainer.environment", "A=b=c", {"A": "b=c"}),
        ("ladder.rungs", "micro_batch, layers", ("micro_batch", "layers")),
        ("ladder.rungs", "", ()),
        ("trainer.script", "train.py", "/train.py"),
        ("trainer.script", "./a/../train.py", "/a/../train.py"),
        ("trainer.script", "/abs/train.py", "/abs/train.py"),
        ("trainer.script", "", ""),
        ("trainer.script", "~/train.py", "/home/me/train.py"),
        ("trainer.data", "a.txt '/b c/d.txt' ~/e.txt", ("/a.txt", "/b c/d.txt", "/home/me/e.txt")),
        ("hardware.device", " cuda ", "cuda"),
    ],
)
def test_what_is_typed_is_meant(monkeypatch, key, text, value):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir("/")
    found = fields.parse_value(fields.get_field(key), text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("recipe.steps", "0", "from 1 to 1000000000"),
        ("recipe.steps", "ten", "whole number"),
        ("recipe.steps", "1.5", "whole number"),
        ("recipe.steps", "9" * 5000, "whole number"),
        ("recipe.global_batch", "16777217", "from 1 to 16777216"),
        ("recipe.seed", "-1", "from 0 to 2147483647"),
        ("recipe.learning_rate", "nan", "from 1e-12 to 100"),
        ("recipe.learning_rate", "inf", "from 1e-12 to 100"),
        ("recipe.learning_rate", "0", "from 1e-12 to 100"),
        ("recipe.learning_rate", "fast", "such as 0.0003"),
        ("recipe.precision", "fp8", "fp32, bf16, fp16"),
        ("hardware.device", "gpu", "auto, cuda, cpu"),
        ("recipe.activation_checkpointing", "maybe", "yes or no"),
        ("trainer.arguments", "it's", "Close it"),
        ("trainer.environment", "A", "NAME=VALUE"),
        ("trainer.environment", "1A=x", "NAME=VALUE"),
        ("trainer.environment", "Ä=x", "NAME=VALUE"),
        ("name", " ", "a name"),
        ("trainer.arguments", "a\0b", "NUL"),
        ("trainer.script", "/src/\udcff.py", "UTF-8"),
        ("trainer.script", "~nobody-of-that-name/x.py", "nobody-of-that-name"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(key, text, words):
    with pytest.raises(BadInput) as caught:
        fields.parse_value(fields.get_field(key), text)
    assert words in f"{caught.value.message} {caught.value.remedy}"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("key", [key for key, row in fields.FIELDS.items() if row.maximum is not None])
def test_limits_are_inclusive(key):
    row = fields.FIELDS[key]
    several = {"integers": lambda limit: (int(limit), limit), "numbers": lambda limit: (float(limit), limit)}
    kind = {"integer": int, **several}.get(row.kind, float)
    for value in (kind(row.minimum), kind(row.maximum)):
        assert fields.get_value(fields.profile_with_value(Profile(), key, value), key) == value
        assert fields.get_value(store.profile_from_toml(store.profile_to_toml(profile({key: value}))), key) == value
    for value in (kind(row.minimum - 1), kind(row.maximum + 1)):
        with pytest.raises(BadInput):
            fields.profile_with_value(Profile(), key, value)
        section, _, name = key.partition(".")
        with pytest.raises(BadInput, match=key):
            store.profile_from_toml(f"[{section}]\n{name} = {list(value) if isinstance(value, tuple) else value}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[recipe]\nlayer = 2", "recipe.layer is not a key Did you mean recipe.layers?"),
        ("[receipe]\nlayers = 2", "receipe is not a key Did you mean recipe?"),
        ("nmae = 'x'", "nmae is not a key Did you mean name?"),
        ("zzzzzz = 2", "zzzzzz is not a key Known are: schema, name, hardware, trainer, finetune,"),
        ("[recipe]\nlayers = '2'", "recipe.layers: Expected int, got str"),
        ("[recipe]\nlayers = 2.5", "recipe.layers: Expected int, got float"),
        ("[recipe]\nlayers = 0", "recipe.layers is 0 Give a number from 1 to 1000."),
        ("[recipe]\nlayers = 99999999999999999999", "recipe.layers"),
        ("[recipe]\nlearning_rate = nan", "recipe.learning_rate is nan"),
        ("[recipe]\nprecision = 'fp8'", "recipe.precision"),
        ("[trainer]\narguments = 'a b'", "trainer.arguments: Expected array, got str"),
        ("[trainer]\nenvironment = { A = 1 }", "Expected str, got int"),
        ('[trainer]\narguments = ["a\\u0000b"]', "trainer.arguments holds a NUL byte"),
        ("recipe = 3", "recipe: Expected object, got int"),
        ("name = ''", "has no name"),
        ("schema = 3", "has schema 3, this program knows 2 Install a newer tui-train."),
        ("schema = 3\nnew_thing = 1", "Install a newer tui-train."),
        ("schema = 'new'", "schema"),
        ("[trainer]\npreset = 'hf-trainr'", "trainer.preset is 'hf-trainr'"),
        ("[trainer]\nkind = 'script'\npreset = 'builtin'", "trainer.preset is 'builtin'"),
        ("[trainer]\ndata = ['']", "trainer.data holds an empty path"),
        ("[trainer]\npython = 'nopython'", "there is no nopython on PATH"),
        ("name = 'x", "is not TOML"),
        ("\x1b[31m", "is not TOML"),
    ],
)
def test_a_profile_that_cannot_be_used_says_what_and_where(text, words):
    with pytest.raises(BadInput) as caught:
        store.profile_from_toml(text, "my.toml")
    said = f"{caught.value.message} {caught.value.remedy}"
    assert words in said
    assert "my.toml" in said
    assert said.isprintable()


def test_relative_paths_are_meant_from_the_profiles_folder(tmp_path):
    path = tmp_path / "sub folder" / "my.toml"
    path.parent.mkdir()
    path.write_text('[trainer]\nscript = "../train.py"\ndata = ["a.txt", "/b.txt"]\n')
    trainer = store.load_profile_file(str(path)).trainer
    assert trainer.script == str(tmp_path / "sub folder" / ".." / "train.py")
    assert trainer.data == (str(tmp_path / "sub folder" / "a.txt"), "/b.txt")


def test_a_profile_may_leave_out_what_is_default(tmp_path):
    assert store.profile_from_toml("") == Profile()
    (tmp_path / "windows.toml").write_bytes(b"\xef\xbb\xbf[recipe]\r\nsteps = 5\r\n")
    assert store.load_profile_file(str(tmp_path / "windows.toml")).recipe.steps == 5


def test_saving_never_overwrites_unasked():
    first = profile({"name": "my run", "recipe.steps": 5})
    path = store.save_profile(first)
    assert path == profiles_folder() / "my run.toml"
    before = path.read_bytes()
    with pytest.raises(CannotWrite, match="already exists"):
        store.save_profile(profile({"recipe.steps": 6}, first))
    assert path.read_bytes() == before
    store.save_profile(profile({"recipe.steps": 6}, first), overwrite=True)
    assert store.load_profile_file("my run").recipe.steps == 6
    assert store.saved_profile_names() == ("my run",)
    assert [*profiles_folder().iterdir()] == [path]


@pytest.mark.parametrize("name", ["a/b", "../a", ".hidden", "a\nb", "-n", " a", "x" * 81, "a\u202eb", "*", "x.toml"])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(BadInput, match="cannot be a profile's name"):
        store.save_profile(profile({"name": name}))
    assert store.saved_profile_names() == ()


def test_a_name_that_means_a_run_is_refused():
    with pytest.raises(BadInput, match="that is the newest run"):
        store.save_profile(profile({"name": "last"}))


@pytest.mark.parametrize("name", ["a", "my run v1.2_final+x", "实验 一", "x" * 80])
def test_a_usual_name_can_be_saved_and_loaded(name):
    store.save_profile(profile({"name": name}))
    assert store.load_profile_file(name).name == name


def test_a_name_too_long_for_the_disk_is_told():
    with pytest.raises(CannotWrite) as caught:
        store.save_profile(profile({"name": "𠀀" * 80}))
    assert caught.value.remedy == "Choose a shorter name."


def test_a_profile_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(BadInput, match="not UTF-8"):
        store.load_profile_file(str(tmp_path / "latin.toml"))
    with pytest.raises(BadInput, match="is a folder, not a regular file"):
        store.load_profile_file(str(tmp_path / ""))


def test_a_change_is_applied_shown_and_can_be_undone():
    before = Profile()
    change = Change("more", "why not", (("recipe.steps", 7), ("trainer.arguments", ("a b", "c"))))
    after = apply_change(change, before)
    assert after.recipe.steps == 7
    shown = [(item.key, item.label, item.before, item.after) for item in profile_differences(before, after)]
    assert shown == [
        ("trainer.arguments", "Extra arguments", "", "'a b' c"),
        ("recipe.steps", "Steps", "", "7"),
    ]
    assert profile_differences(before, before) == ()
    assert before == Profile()
    with pytest.raises(BadInput):
        apply_change(Change("x", "y", (("recipe.steps", 0),)), before)


@settings(max_examples=example_count(40), deadline=None)
@given(PROFILES)
def test_every_difference_is_shown(chosen):
    made = profile(chosen)
    undone = made
    for item in profile_differences(Profile(), made):
        assert item.before != item.after
        undone = fields.profile_with_value(
            undone, item.key, fields.parse_value(fields.get_field(item.key), item.before)
        )
    assert undone == Profile()


def token(begin, word):
    """A token that holds a word."""
    return begin + "a1B2" * 8 + word + "c3D4" * 4


@pytest.mark.parametrize(
    "values",
    [
        {"trainer.environment": {"DATA_URL": "https://u:pass1234@h/x"}},
        {"trainer.environment": {"DB_PASS": "hunter22"}},
        {"trainer.environment": {"HF_TOKEN": "pass1234"}},
        {"trainer.arguments": ("--url=https://h/x?access_token=pass1234",)},
        {"trainer.arguments": ("--password", "pass1234")},
        {"trainer.arguments": ("--groq", token("gsk_", "pass1234"))},
        {"trainer.secrets": (token("gsk_", "pass1234"),)},
        {"trainer.data": ("https://me:pass1234@files.example.org/x.jsonl",)},
        {"notify.command": ("curl", "-u", "me:pass1234", "https://files.example.org/x")},
        {"notify.command": ("curl", "-d", "done", "https://hooks.slack.com/services/pass1234")},
        {"notify.command": ("sh", "-c", "sshpass -p pass1234 ssh me@box touch done")},
        {"nemo.set": {"trainer.logger.url": "https://me:pass1234@wandb.example.org"}},
        {"tracking.project": token("gsk_", "pass1234")},
        {"slurm.options": ("--export=HF_TOKEN=" + token("hf_", "pass1234"),)},
    ],
)
def test_a_value_that_is_a_secret_is_neither_saved_nor_remembered(values):
    chosen = profile({"name": "one"} | values)
    with pytest.raises(BadInput, match="looks like a secret"):
        store.save_profile(chosen)
    assert store.saved_profile_names() == ()
    remember_profile_without_secrets(chosen)
    shown = "".join(f"{item.before}{item.after}" for item in profile_differences(Profile(), chosen))
    assert not [word for word in ("pass1234", "hunter22") if word in last_profile_file().read_text() + shown]


@pytest.mark.parametrize(
    ("name", "value"), [("-p ", "hunter2"), ("--wandb_api_key=", "correct-horse"), ("--x ", token("q", "aB3cD4"))]
)
def test_what_may_be_a_secret_is_saved_with_a_warning_that_does_not_show_it(name, value, capsys):
    plans.save_new_profile("one", like="quickstart", edits=(f"trainer.arguments={name}{value}",), force=False)
    said = capsys.readouterr().err
    assert f"warning: trainer.arguments: {name[:-1]} looks like a secret" in said
    assert value not in said


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "2222"), ("-p", "/data/x"), ("-p", "bf16-mixed"), ("-p", "gpu.large"), ("-p", "train"), ("-p", "$PASS"),
        ("--groq", "$GROQ"), ("--max_tokens=512",), ("--repo", "https://me@example.org/x"), ("-P", "16"),
        ("--seed", "42", "--run-name", "QWENMOEPRETRAININGA"), ("--mode", "upload", "-p", "8080"),
        ("--role", "bearer", "tokens"), ("--stage", "zip", "-P", "8"), ("--db", "mysql", "-pretrained", "x"),
        ("--tag", "otp", "--vocab", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), ("--hook", "/hooks/forward_hook_1234567890_a"),
        ("--note", "cookie: chocolate chip recipe"), ("--at", "trainer.py:1234:train:loop:0.5"),
        ("--tracker", "wandb", "--revision", "0123456789abcdef0123456789abcdef01234567"), ("--auth", "none"),
        ("--pad_token=<pad>",), ("--eos-token", "</s>"), ("--num_key_value_heads=8",), ("--tokenizer=/t",),
        ("--sort_key=length",), ("--token={model}",), ("--use_auth_token=True",), ("--token", "--next"), ("key=value",),
        ("--image_token", "IMG"), ("--token=$HF_TOKEN",), ("sk-learn",), ("--keyboard=us",), ("--token=",),
    ],
)  # fmt: skip
def test_arguments_that_are_no_secrets_raise_nothing(words):
    assert [*secret_values.find_secret_positions(profile({"trainer.arguments": words, "notify.command": words}))] == []


@pytest.mark.parametrize("words", [("--tool", "curl", "-u", "me:pass1234"), ("--otp", "otp ABCDEFGH234567ABCDEFGH")])
def test_what_only_the_words_around_it_suggest_stops_no_start(words):
    chosen = profile({"name": "one", "trainer.arguments": words})
    assert [found.certain for found in secret_values.find_secret_positions(chosen)] == [False]
    store.save_profile(chosen)
    assert remember_profile_without_secrets(chosen) == ()
    assert load_last_session_profile().trainer.arguments == words


def test_only_the_argument_that_is_a_secret_is_not_remembered():
    words = ("--seed", "42", "--password", "pass1234", f"--groq={token('gsk_', 'x')}", "--steps", "7")
    left = remember_profile_without_secrets(
        profile({"trainer.arguments": words, "trainer.secrets": ("HF_TOKEN", token("gsk_", "y"))})
    )
    assert load_last_session_profile().trainer.arguments == ("--seed", "42", "--steps", "7")
    assert load_last_session_profile().trainer.secrets == ("HF_TOKEN",)
    assert [secret.description for secret in left] == ["--password", "--groq", "trainer.secrets"]


def test_the_last_profile_is_kept_without_secrets_and_for_its_user_only():
    remember_profile_without_secrets(profile({"trainer.environment": {"HF_TOKEN": "hf_x", "WANDB_MODE": "offline"}}))
    assert "hf_x" not in last_profile_file().read_text()
    assert load_last_session_profile().trainer.environment == {"WANDB_MODE": "offline"}
    saved = store.save_profile(profile({"name": "one"}))
    assert [path.stat().st_mode & 0o777 for path in (last_profile_file(), saved)] == [0o600, 0o600]


def test_a_python_without_a_slash_is_the_one_on_path(tmp_path, monkeypatch):
    python = make_executable(tmp_path / "python3", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    row = fields.get_field("trainer.python")
    monkeypatch.chdir("/")
    assert fields.parse_value(row, "python3") == str(python)
    assert fields.parse_value(row, "./python3") == "/python3"
    assert store.profile_from_toml('[trainer]\npython = "python3"', folder=Path("/here")).trainer.python == str(python)


LIST_ROWS = [row for row in fields.FIELDS.values() if row.kind in typed_lists.LIST_FIELD_KINDS]
# One value with a comma in it, two values, and how each kind writes the latter with a comma that could be in a value.
ONE_TWO = {
    "table": ("NCCL_SOCKET_IFNAME=eth0,eth1", "A=1 B=2", "A=1,B=2"),
    "dotted": ("model.betas=(0.9,0.95)", "a.b=1 c.d=2", "a.b=1,c.d=2"),
    "words": ("--gres=gpu:a100:4,shard:2", "--a=1 --b=2", "--a=1,--b=2"),
    "paths": ("'/a,b.jsonl'", "/a.jsonl /b.jsonl", "/a.jsonl,/b.jsonl"),
}


@pytest.mark.parametrize("row", LIST_ROWS, ids=lambda row: row.key)
def test_one_rule_holds_for_all_lists(row):
    """Spaces separate; a comma does where it is part of no value, and is refused where it may be either."""
    if row.kind not in ONE_TWO:
        assert len(LIST_ROWS) > 12
        spaced, *others = (fields.parse_value(row, text) for text in ("2 1", "2,1", " 2, 1 ", "2 ,1"))
        assert len(spaced) == 2
        assert all(other == spaced for other in others)
        return
    one, two, unclear = ONE_TWO[row.kind]
    assert len(fields.parse_value(row, one)) == 1
    assert len(fields.parse_value(row, two)) == 2
    with pytest.raises(AmbiguousComma) as refused:
        fields.parse_value(row, unclear)
    assert refused.value.as_several_values == two
    assert {two, refused.value.as_single_value} <= {*re.split(r" for .*?, or |^Write | for one", refused.value.remedy)}
    # What the error offers as one value is one, and is written back as one.
    whole = fields.parse_value(row, refused.value.as_single_value)
    assert len(whole) == 1
    assert fields.parse_value(row, fields.format_value(whole)) == whole
    with pytest.raises(BadInput, match="may end a value"):
        fields.parse_value(row, two.replace(" ", ", "))
    # What the wizard offers is what was most likely meant.
    assert (
        fields.most_likely_meant_value(row, unclear)
        == fields.most_likely_meant_value(row, two.replace(" ", ", "))
        == fields.parse_value(row, two)
    )


def test_a_variable_is_given_once():
    with pytest.raises(BadInput, match="A is there twice"):
        fields.parse_value(fields.get_field("trainer.environment"), "A=1 B=2 A=1")


def test_a_list_that_is_set_twice_in_a_command_is_added_to():
    made = plans.apply_edits(
        Profile(), ("trainer.data=/a", "trainer.data='/b c' /d", "recipe.steps=1", "recipe.steps=2")
    )
    assert (made.trainer.data, made.recipe.steps) == (("/a", "/b c", "/d"), 2)
    # Of a profile it replaces what is there.
    assert plans.apply_edits(made, ("trainer.data=/e",)).trainer.data == ("/e",)
    assert plans.apply_edits(made, ("trainer.data=", "trainer.data=/f")).trainer.data == ("/f",)


def test_what_the_command_line_offers_for_a_comma_can_be_typed():
    with pytest.raises(BadInput) as refused:
        plans.apply_edits(Profile(), ("trainer.environment=O=name=x,deployment=prod",))
    several, one = re.findall(r"--set (\"[^\"]*\")", refused.value.remedy)
    for offered, meant in (
        (several, {"O": "name=x", "deployment": "prod"}),
        (one, {"O": "name=x,deployment=prod"}),
    ):
        assert plans.apply_edits(Profile(), shlex.split(offered)).trainer.environment == meant


def test_keys_and_the_error_state_the_rule():
    with pytest.raises(BadInput) as refused:
        fields.parse_value(fields.get_field("trainer.environment"), "A")
    shown = CliRunner().invoke(cli, ["keys", "environment"]).output
    assert typed_lists.QUOTING_RULE_TEXT in refused.value.remedy
    assert typed_lists.QUOTING_RULE_TEXT in " ".join(shown.split())
    assert "Lists:" not in CliRunner().invoke(cli, ["keys", "recipe.steps"]).output

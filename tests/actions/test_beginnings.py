"""What a pasted text begins: data, a model, both, a script or a profile; and of all else what it is and what to do."""

import json
import os
from pathlib import Path

import pytest
from support import HOSTILE_VALUES, profile

from tui_train.actions.pasted_text import DATA_FILE_SUFFIXES, profile_content_text, profile_from_pasted_text
from tui_train.base.errors import BadInput
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.programs.data import data_rows


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of all kinds of files, in which one is."""
    for name in (
        *(f"rows{suffix}" for suffix in DATA_FILE_SUFFIXES), "my chats.jsonl", "it's.jsonl", "OLD.CSV", "train.py",
        "book.ipynb", "axolotl.yaml", "start.sh", "rows.jsonl.gz", "rows.json.zst", "weights.safetensors", "q4.gguf",
        "sheet.xlsx", "notes.md", "odd.xyz", "no suffix",
    ):  # fmt: skip
        (tmp_path / name).write_text("x")
    for name, files in {
        "model": {"config.json": "{}", "vocab.json": "{}"},
        "adapter": {"adapter_config.json": json.dumps({"base_model_name_or_path": "acme/base[b]"})},
        "nameless": {"adapter_config.json": "{}"},
        "data": {"a.jsonl": "{}", "README.md": "x"},
        "project": {"train.py": "x", "requirements.txt": "torch"},
        "saved": {"state.json": "{}", "dataset_info.json": "{}"},
        "empty": {},
        "acme/local": {"config.json": "{}"},
    }.items():
        (tmp_path / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    (tmp_path / "mine.toml").write_text(store.profile_to_toml(profile({"name": "mine", "recipe.steps": 7})))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def chosen(text: str) -> tuple[str, str, tuple[str, ...], str]:
    """The trainer, model, data and script of what a text begins, paths without the folder in which one is."""
    trainer = profile_from_pasted_text(text).trainer
    paths = (trainer.model, trainer.script, *trainer.data)
    model, script, *data = (path.removeprefix(f"{Path.cwd()}/") for path in paths)
    assert all(Path(path).is_absolute() for path in (trainer.script, *trainer.data) if path)
    return trainer.kind, model, tuple(data), script


@pytest.mark.parametrize(
    ("text", "model", "data"),
    [
        *((f"rows{suffix}", "", (f"rows{suffix}",)) for suffix in DATA_FILE_SUFFIXES),
        ("OLD.CSV", "", ("OLD.CSV",)),
        ("  rows.csv\n", "", ("rows.csv",)),
        ("./rows.csv", "", ("rows.csv",)),
        ("~/rows.csv", "", ("rows.csv",)),
        ("my chats.jsonl", "", ("my chats.jsonl",)),
        ("it's.jsonl", "", ("it's.jsonl",)),
        ("my\\ chats.jsonl", "", ("my chats.jsonl",)),
        ("'my chats.jsonl' \"rows.csv\"", "", ("my chats.jsonl", "rows.csv")),
        ("my chats.jsonl\nrows.csv\n", "", ("my chats.jsonl", "rows.csv")),
        ("rows.csv rows.csv", "", ("rows.csv",)),
        ("file://{}/my%20chats.jsonl", "", ("my chats.jsonl",)),
        ("file://{}/rows.csv file://{}/rows.txt", "", ("rows.csv", "rows.txt")),
        ("data", "", ("data",)),
        ("data/ rows.csv", "", ("data", "rows.csv")),
        ("model", "model", ()),
        ("model/config.json", "model", ()),
        ("acme/local", "acme/local", ()),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", ()),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main?x=1", "Qwen/Qwen3-0.6B", ()),
        ("Qwen/Qwen3-0.6B rows.csv", "Qwen/Qwen3-0.6B", ("rows.csv",)),
        ("data\nQwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", ("data",)),
    ],
)
def test_data_and_models_begin_a_fine_tune(folder, text, model, data):
    assert chosen(text.replace("{}", str(folder))) == ("finetune", model, data, "")


def test_data_is_what_is_read_as_data():
    assert DATA_FILE_SUFFIXES == data_rows.DATA_FILE_SUFFIXES


def test_a_folder_is_no_name_on_the_hub(folder):
    assert profile_from_pasted_text("acme/local").trainer.model == str(folder / "acme" / "local")
    assert profile_from_pasted_text("acme/other").trainer.model == "acme/other"


def test_a_script_and_a_profile_begin_themselves(folder):
    assert chosen("train.py") == ("script", "", (), "train.py")
    assert profile_from_pasted_text("mine.toml") == store.load_profile_file(str(folder / "mine.toml"))
    assert profile_from_pasted_text("mine.toml").recipe.steps == 7
    assert profile_content_text(Profile()) == "quickstart: a profile"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("nothing to open", ".jsonl")),
        ("x " * 20_000, ("too long",)),
        ("'rows.csv", ("quote",)),
        ("gpt2", ("there is no file", "ORG/NAME")),
        ("acme/rows.jsonl", ("there is no file", "acme/rows.jsonl")),
        ("/nowhere/at all", ("there is no file", "quotes")),
        ("~nobody-of-this-name/x", ("no such user",)),
        ("a--b/c", ("there is no file",)),
        ("book.ipynb", ("notebook", "nbconvert --to script", "book.ipynb")),
        ("axolotl.yaml", ("config file", "trainer.preset", "llama-factory", "trainer.config")),
        ("start.sh", ("shell script", "trainer.arguments")),
        ("rows.jsonl.gz", ("compressed", "gunzip -k")),
        ("rows.json.zst", ("compressed", "zstd -d")),
        ("weights.safetensors", ("weights", "config.json")),
        ("q4.gguf", ("GGUF",)),
        ("sheet.xlsx", ("CSV",)),
        ("notes.md", (".txt",)),
        ("odd.xyz", ("not a kind of file", ".jsonl")),
        ("'no suffix'", ("not a kind of file",)),
        ("adapter", ("adapter of acme/base[b]", "Open its base", "tui-train merge")),
        ("adapter/adapter_config.json", ("adapter of acme/base[b]",)),
        ("nameless", ("is an adapter,", "base model")),
        ("project", ("scripts",)),
        ("saved", ("save_to_disk", "to_json")),
        ("empty", ("neither config.json nor data",)),
        ("train.py rows.csv", ("train.py is a script", "alone")),
        ("mine.toml rows.csv", ("mine.toml is a profile", "alone")),
        ("model Qwen/Qwen3-0.6B", ("two models",)),
        ("https://huggingface.co/datasets/acme/rows", ("acme/rows is a dataset", "hf download")),
        ("https://example.com/a.jsonl", ("no page of a model", "Download")),
        ("http://[::1/x", ("no page of a model",)),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_says_what_it_is_and_what_to_do(text, words):
    with pytest.raises(BadInput) as refused:
        profile_from_pasted_text(text)
    said = f"{refused.value.message}. {refused.value.remedy}"
    assert [word for word in words if word not in said] == []
    assert len(refused.value.message) < 300
    assert refused.value.remedy


def test_what_is_no_file_or_may_not_be_read_is_refused(folder):
    os.mkfifo(folder / "pipe.jsonl")
    for name in ("pipe.jsonl", "x" * 300):
        with pytest.raises(BadInput, match="cannot be read"):
            profile_from_pasted_text(name)


@pytest.mark.parametrize("text", HOSTILE_VALUES)
def test_any_text_is_a_profile_or_refused_in_words_that_are_safe_to_show(text):
    for around in ("{}", "{}.jsonl", "acme/{}", "file://{}", "https://huggingface.co/acme/{}", "rows.csv {}"):
        try:
            begun = profile_from_pasted_text(around.replace("{}", text))
        except BadInput as error:
            said = error.message + error.remedy
        else:
            said = profile_content_text(begun)
        assert said.isprintable()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows.csv", "rows.csv: data for a fine-tune"),
        ("rows.csv rows.txt", "rows.csv, rows.txt: data for a fine-tune"),
        ("model", "model: a model to fine-tune"),
        ("acme/base", "acme/base: a model to fine-tune"),
        ("acme/base rows.csv", "acme/base: the model, rows.csv: data for a fine-tune"),
        ("train.py", "train.py: a script that trains"),
        ("mine.toml", "mine: a profile"),
    ],
)
def test_what_was_recognised_is_said(text, said):
    assert profile_content_text(profile_from_pasted_text(text)) == said

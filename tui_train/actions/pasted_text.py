"""Profiles from pasted or typed text: paths of data, a model, a script or a profile, or a model's name."""

import shlex
from pathlib import Path, PurePath
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from tui_train.base.errors import BadInput
from tui_train.base.text import display_path, nearest_path_clause, visible
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.programs.hub_cache import is_valid_model_id
from tui_train.runner.system.paths import path_state, similar_existing_path
from tui_train.runs.results.weights import ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE, read_weights
from tui_train.setup.profile_summary import UNNAMED_PROFILE_NAME, training_summary

# As data_rows of the programs has them, which import each other by other names than ours.
DATA_FILE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".txt")
# Some hundred paths: more was copied by mistake, such as a whole log.
_MAX_TEXT_CHARACTERS = 20_000
_MAX_SHOWN_CHARACTERS = 80
_FILE_SCHEME = "file://"
_HUB_HOSTS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})
_OPENABLE_KINDS_TEXT = (
    f"Open data ({', '.join(DATA_FILE_SUFFIXES)}), a script (.py), a profile (.toml), a model's folder "
    "or its name on the Hub (ORG/NAME)."
)
_COMPRESSED_REASON = "is compressed, and data is read uncompressed"
_WEIGHTS_REFUSAL = "is a file of weights", "Open its folder, which has config.json."
_CONFIG_REFUSAL = (
    "is a config file of another trainer (such as Axolotl)",
    (
        "Choose My own script on Backend with the preset axolotl or llama-factory (trainer.preset), "
        "and name the file as its config file (trainer.config)."
    ),
)
_SAVED_DATASET_REFUSAL = (
    ("was written by datasets' save_to_disk, which is not read"),
    'Write JSONL instead: dataset.to_json("data.jsonl")',
)
_TABLE_REFUSAL = "is a spreadsheet, which is not read", "Save it as CSV or JSONL."
_DOCUMENT_REFUSAL = "is a document, which is not read", "Save its text as .txt, with one sample a line."
# What is wrong with a file, and what to do; {} is its path as a shell takes it.
_REFUSAL_BY_SUFFIX = {
    ".ipynb": (
        "is a notebook, and only scripts can be started",
        "Convert it, and open the .py file: jupyter nbconvert --to script {}",
    ),
    ".yaml": _CONFIG_REFUSAL,
    ".yml": _CONFIG_REFUSAL,
    ".sh": (
        "is a shell script",
        "Open the Python file that it starts. Its arguments are the Extra arguments on Backend (trainer.arguments).",
    ),
    ".gz": (_COMPRESSED_REASON, "Unpack it: gunzip -k {}"),
    ".zst": (_COMPRESSED_REASON, "Unpack it: zstd -d {}"),
    ".bz2": (_COMPRESSED_REASON, "Unpack it: bunzip2 -k {}"),
    ".xz": (_COMPRESSED_REASON, "Unpack it: unxz -k {}"),
    ".zip": (_COMPRESSED_REASON, "Unpack it: unzip {}"),
    ".safetensors": _WEIGHTS_REFUSAL,
    ".bin": _WEIGHTS_REFUSAL,
    ".pt": _WEIGHTS_REFUSAL,
    ".pth": _WEIGHTS_REFUSAL,
    ".ckpt": _WEIGHTS_REFUSAL,
    ".gguf": ("is a model for inference only (GGUF)", "Open the Hugging Face model that it was made from."),
    ".arrow": _SAVED_DATASET_REFUSAL,
    ".tsv": _TABLE_REFUSAL,
    ".xlsx": _TABLE_REFUSAL,
    ".ods": _TABLE_REFUSAL,
    ".md": _DOCUMENT_REFUSAL,
    ".pdf": _DOCUMENT_REFUSAL,
    ".docx": _DOCUMENT_REFUSAL,
}
# A name that ends so is a file that does not exist, not a model on the Hub.
_KNOWN_FILE_SUFFIXES = (*DATA_FILE_SUFFIXES, *_REFUSAL_BY_SUFFIX, ".py", ".toml")


class _RecognisedWord(NamedTuple):
    """A recognised word of the text: its kind, and its value in a profile (absolute path or model id)."""

    kind: Literal["data", "model", "script", "profile"]
    value: str


def profile_from_pasted_text(text: str) -> Profile:
    """Return the profile that a text begins: of paths, of a model's name on the Hub, or of a model and data.

    BadInput says what cannot be opened, and what to do with it.
    """
    recognised = [*dict.fromkeys(map(_recognise_path_or_name, _split_into_paths_and_names(text)))]
    alone = next((each for each in recognised if each.kind in {"script", "profile"}), None)
    if alone and len(recognised) > 1:
        raise BadInput(
            f"{_truncated_path(alone.value)} is a {alone.kind}, and there is more beside it",
            "Open it alone; the rest can be set on Backend.",
        )
    if alone and alone.kind == "profile":
        return store.load_profile_file(alone.value)
    if alone:
        return _profile_with_values({"trainer.kind": "script", "trainer.script": alone.value})
    models = [each.value for each in recognised if each.kind == "model"]
    if len(models) > 1:
        raise BadInput(
            f"{_truncated_word(models[0])} and {_truncated_word(models[1])} are two models",
            "Name one model, with its data.",
        )
    data = tuple(each.value for each in recognised if each.kind == "data")
    return _profile_with_values({"trainer.kind": "finetune", "trainer.model": "".join(models), "trainer.data": data})


def profile_content_text(profile: Profile) -> str:
    """Return in words what such a profile was made of."""
    trainer, summary = profile.trainer, training_summary(profile)
    if profile.name != UNNAMED_PROFILE_NAME or trainer.kind not in {"finetune", "script"}:
        return visible(f"{profile.name}: a profile")
    if trainer.kind == "script":
        return visible(f"{summary.script}: a script that trains")
    # The id of a model, of a folder its name.
    model = PurePath(trainer.model).name if trainer.model.startswith("/") else trainer.model
    if not trainer.data:
        return visible(f"{model}: a model to fine-tune")
    return visible(f"{f'{model}: the model, ' if model else ''}{summary.data}: data for a fine-tune")


def _profile_with_values(values: dict[str, fields.FieldValue]) -> Profile:
    profile = Profile()
    for key, value in values.items():
        profile = fields.profile_with_value(profile, key, value)
    return profile


def _truncated_word(word: str) -> str:
    return visible(word if len(word) <= _MAX_SHOWN_CHARACTERS else f"{word[:_MAX_SHOWN_CHARACTERS]}…")


def _truncated_path(path: str | Path) -> str:
    """Return a path to show: of a long one its end, which has the name."""
    text = display_path(str(path))
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"…{text[-_MAX_SHOWN_CHARACTERS:]}"


def _split_into_paths_and_names(text: str) -> list[str]:
    """Return the paths and names in a text: its lines if each is a path, with whatever spaces, else as a shell does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput("there is nothing to open", _OPENABLE_KINDS_TEXT)
    if len(text) > _MAX_TEXT_CHARACTERS:
        raise BadInput("that text is too long for paths", _OPENABLE_KINDS_TEXT)
    if all(path_state(_path_without_file_scheme(line)) in {"file", "folder"} for line in lines):
        return lines
    try:
        return shlex.split(" ".join(lines))
    except ValueError:
        raise BadInput("a quote is not closed", "Close the quote, or put a backslash before it.") from None


def _path_without_file_scheme(word: str) -> str:
    """Return the path in the address of a file, which may name a host; other words as they are."""
    if not word.startswith(_FILE_SCHEME):
        return word
    _host, slash, path = word.removeprefix(_FILE_SCHEME).partition("/")
    return unquote(f"{slash}{path}")


def _recognise_path_or_name(word: str) -> _RecognisedWord:
    """Return what a path or name is."""
    if word.startswith(("https://", "http://")):
        return _RecognisedWord("model", _model_id_of_address(word))
    path = fields.absolute_path(_path_without_file_scheme(word), Path.cwd())
    state = path_state(path)
    if state == "unreadable":
        raise BadInput(
            f"{_truncated_path(path)} cannot be read", ("Name a file or folder that exists and that you may read.")
        )
    if state == "folder":
        return _recognise_folder(Path(path))
    if state == "file":
        return _recognise_file(Path(path))
    if "/" in word and is_valid_model_id(word) and not word.lower().endswith(_KNOWN_FILE_SUFFIXES):
        return _RecognisedWord("model", word)
    remedy = "Check the path; one with spaces needs quotes. A model on the Hub is named ORG/NAME."
    beside = nearest_path_clause(path, similar_existing_path(path))
    raise BadInput(f"there is no file or folder {_truncated_word(word)}{beside}", remedy)


def _model_id_of_address(address: str) -> str:
    """Return the id of the model of a page of the Hub; BadInput for other addresses."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    folders = [*filter(None, parts.path.split("/"))]
    model_id = "/".join(folders[:2])
    if parts.netloc in _HUB_HOSTS and folders[:1] == ["datasets"]:
        remedy = "Download it (hf download --repo-type dataset ORG/NAME --local-dir FOLDER), and open its files."
        raise BadInput(
            f"{_truncated_word('/'.join(folders[1:3]))} is a dataset on the Hub, and data is read from disk", remedy
        )
    if parts.netloc not in _HUB_HOSTS or len(folders) < 2 or not is_valid_model_id(model_id):
        remedy = "Download it, and open the file. A model on the Hub is named ORG/NAME."
        raise BadInput(f"{_truncated_word(address)} is no page of a model", remedy)
    return model_id


def _recognise_folder(folder: Path) -> _RecognisedWord:
    names = {entry.name for entry in folder.iterdir()}
    shown = _truncated_path(folder)
    if ADAPTER_CONFIG_FILE in names:
        weights = read_weights(folder)
        base = visible(weights.base) if weights and weights.base else ""
        remedy = f"Open its base, {base}, to fine-tune that" if base else "Open its base model to fine-tune that"
        raise BadInput(
            f"{shown} is an adapter{f' of {base}' if base else ''}, not a whole model",
            f"{remedy}; to train on from a run's adapter, merge it first (tui-train merge RUN FOLDER).",
        )
    if MODEL_CONFIG_FILE in names:
        return _RecognisedWord("model", str(folder))
    if any(name.endswith(".py") for name in names):
        raise BadInput(f"{shown} has scripts in it", "Open the script, or the files of data.")
    if {"state.json", "dataset_info.json"} <= names:
        raise BadInput(f"{shown} {_SAVED_DATASET_REFUSAL[0]}", _SAVED_DATASET_REFUSAL[1])
    if not any(name.endswith(DATA_FILE_SUFFIXES) and not name.startswith(".") for name in names):
        raise BadInput(f"{shown} has neither config.json nor data", _OPENABLE_KINDS_TEXT)
    return _RecognisedWord("data", str(folder))


def _recognise_file(file: Path) -> _RecognisedWord:
    suffix = file.suffix.lower()
    if file.name in {MODEL_CONFIG_FILE, ADAPTER_CONFIG_FILE}:
        return _recognise_folder(file.parent)
    if suffix in DATA_FILE_SUFFIXES:
        return _RecognisedWord("data", str(file))
    if suffix == ".py":
        return _RecognisedWord("script", str(file))
    if suffix == ".toml":
        return _RecognisedWord("profile", str(file))
    why, remedy = _REFUSAL_BY_SUFFIX.get(
        suffix, ("is not a kind of file that can be opened here", _OPENABLE_KINDS_TEXT)
    )
    raise BadInput(f"{_truncated_path(file)} {why}", remedy.replace("{}", visible(shlex.quote(str(file)))))

"""FIELDS: one row a choice, from which come the TOML key, `--set`, the form row, its limits and its help."""

import difflib
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import msgspec
from msgspec import Struct

from tui_train.errors import BadInput
from tui_train.places import expanded
from tui_train.profile.types import Profile
from tui_train.text import visible

FieldKind = Literal["choice", "integer", "number", "switch", "text", "path", "paths", "words", "names", "table"]

_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY|KEY)$|(PASSWORD|PASSWD|PASSPHRASE)$", re.IGNORECASE
)

Value = str | int | float | bool | tuple[str, ...] | dict[str, str]


class Field(Struct, frozen=True, kw_only=True):
    """One choice: `key` is its place in the profile, limits are inclusive, `empty` says what an empty value means."""

    key: str
    label: str
    kind: FieldKind
    help: str
    options: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    empty: str = ""


_ROWS = (
    Field(key="name", label="Profile name", kind="text", help="How runs and the saved profile are called."),
    Field(
        key="hardware.device",
        label="Device",
        kind="choice",
        options=("auto", "cuda", "cpu"),
        help="auto takes the GPUs when there are usable ones, else the CPU.",
    ),
    Field(
        key="hardware.gpus",
        label="GPUs",
        kind="words",
        help="UUIDs of the cards to train on, as `nvidia-smi -L` prints them.",
        empty="the recommended cards",
    ),
    Field(
        key="hardware.processes",
        label="Processes",
        kind="integer",
        minimum=0,
        maximum=64,
        help="Training processes (world size). On GPUs it is one per card: leave 0.",
    ),
    Field(
        key="trainer.kind",
        label="What trains",
        kind="choice",
        options=("builtin", "script"),
        help="The built-in trainer, or a script of your own with a preset that passes it the recipe.",
    ),
    Field(
        key="trainer.launcher",
        label="Launcher",
        kind="choice",
        options=("auto", "python", "torchrun", "accelerate"),
        help="What starts the training processes; auto is python for one, torchrun for several.",
    ),
    Field(
        key="trainer.python",
        label="Python",
        kind="path",
        help="The interpreter that trains. It needs torch; this program itself does not.",
        empty="the best one found",
    ),
    Field(key="trainer.script", label="Script", kind="path", help="The Python file that trains."),
    Field(
        key="trainer.preset",
        label="Preset",
        kind="text",
        help="How the recipe becomes arguments of the script.",
    ),
    Field(
        key="trainer.arguments",
        label="More arguments",
        kind="words",
        help="Passed to the training after the others, quoted as in a shell. {micro_batch} and the like are filled in.",
        empty="none",
    ),
    Field(
        key="trainer.working_directory",
        label="Start in",
        kind="path",
        help="The folder in which the training starts.",
        empty="the folder of the script",
    ),
    Field(
        key="trainer.model",
        label="Model folder",
        kind="path",
        help="A local Hugging Face folder (config, weights, tokenizer). Its size cannot be changed below.",
        empty="a new model of the size below",
    ),
    Field(
        key="trainer.data",
        label="Training data",
        kind="paths",
        help='Text files, or JSONL with a "text" field.',
        empty="the sample text",
    ),
    Field(
        key="trainer.output",
        label="Output folder",
        kind="path",
        help="Where checkpoints and the model go.",
        empty="output/ in the run folder",
    ),
    Field(
        key="trainer.environment",
        label="Environment",
        kind="table",
        help="Variables for the training, NAME=VALUE. Secrets do not belong here: name them below.",
        empty="none",
    ),
    Field(
        key="trainer.secrets",
        label="Secrets by name",
        kind="names",
        help="Variables that must be set where the run is started, such as HF_TOKEN. Their values are never written.",
        empty="none",
    ),
    Field(key="recipe.layers", label="Layers", kind="integer", minimum=1, maximum=1000, help="Transformer layers."),
    Field(
        key="recipe.hidden_size",
        label="Hidden size",
        kind="integer",
        minimum=8,
        maximum=65536,
        help="Width of the model; a multiple of 2 x heads.",
    ),
    Field(key="recipe.heads", label="Heads", kind="integer", minimum=1, maximum=1024, help="Attention heads."),
    Field(
        key="recipe.sequence_length",
        label="Sequence length",
        kind="integer",
        minimum=2,
        maximum=4_194_304,
        help="Tokens in one sample.",
    ),
    Field(
        key="recipe.micro_batch",
        label="Micro batch",
        kind="integer",
        minimum=1,
        maximum=65536,
        help="Samples that one process takes at a time. Memory grows with it.",
    ),
    Field(
        key="recipe.global_batch",
        label="Global batch",
        kind="integer",
        minimum=1,
        maximum=16_777_216,
        help="Samples in one optimizer step over all processes: micro batch x accumulation x processes.",
    ),
    Field(
        key="recipe.learning_rate",
        label="Learning rate",
        kind="number",
        minimum=1e-12,
        maximum=100,
        help="The peak learning rate, before scaling.",
    ),
    Field(
        key="recipe.lr_scaling",
        label="LR scaling",
        kind="choice",
        options=("none", "linear", "sqrt"),
        help="How the learning rate follows the global batch: linear suits SGD, sqrt or none suit Adam.",
    ),
    Field(
        key="recipe.lr_base_batch",
        label="LR was chosen for",
        kind="integer",
        minimum=0,
        maximum=16_777_216,
        help="The global batch for which the learning rate is right; 0 is the one above.",
    ),
    Field(
        key="recipe.precision",
        label="Precision",
        kind="choice",
        options=("fp32", "bf16", "fp16"),
        help="bf16 needs cards of compute capability 8.0 or newer; fp16 needs a GPU.",
    ),
    Field(
        key="recipe.steps",
        label="Steps",
        kind="integer",
        minimum=1,
        maximum=1_000_000_000,
        help="Optimizer steps in the whole training.",
    ),
    Field(
        key="recipe.activation_checkpointing",
        label="Act. checkpointing",
        kind="switch",
        help="Recomputes activations in the backward pass: less memory, about a quarter slower, same results.",
    ),
    Field(
        key="recipe.expandable_segments",
        label="Expandable segments",
        kind="switch",
        help="Lets the CUDA allocator grow its blocks: less memory lost to fragmentation.",
    ),
    Field(
        key="recipe.checkpoint_every",
        label="Checkpoint every",
        kind="integer",
        minimum=1,
        maximum=1_000_000_000,
        help="Optimizer steps between checkpoints; a run resumes from the newest complete one.",
    ),
    Field(key="recipe.seed", label="Seed", kind="integer", minimum=0, maximum=2**31 - 1, help="Fixes order and start."),
    Field(
        key="ladder.rungs",
        label="After out of memory",
        kind="names",
        help="What is tried, in this order, when a GPU runs out of memory.",
        empty="nothing: stop at once",
    ),
    Field(
        key="ladder.consent",
        label="Consent",
        kind="names",
        help="Rungs that change the training itself and that you allow.",
        empty="none",
    ),
)

FIELDS: dict[str, Field] = {field.key: field for field in _ROWS}


def field(key: str) -> Field:
    """Return the row of a key; BadInput names the nearest key when there is none."""
    if key in FIELDS:
        return FIELDS[key]
    raise BadInput(f"{visible(key)} is not a profile key", nearest(key, tuple(FIELDS)))


def nearest(name: str, known: tuple[str, ...]) -> str:
    """Return a remedy that names the most similar known word."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Known are: {', '.join(known)}."


def get(profile: Profile, key: str) -> Value:
    """Return the value at a key such as `recipe.layers`."""
    section, _, name = field(key).key.rpartition(".")
    return cast("Value", getattr(getattr(profile, section) if section else profile, name))


def put(profile: Profile, key: str, value: Value) -> Profile:
    """Return the profile with one value replaced; BadInput when it is outside the field's limits."""
    check(field(key), value)
    section, _, name = key.rpartition(".")
    if not section:
        return msgspec.structs.replace(profile, **{name: value})
    changed = msgspec.structs.replace(getattr(profile, section), **{name: value})
    return msgspec.structs.replace(profile, **{section: changed})


def check(row: Field, value: Value) -> None:
    """Raise BadInput where a value of the right type is outside the limits of its field."""
    if row.options and value not in row.options:
        raise BadInput(f"{row.key} is {visible(str(value))!r}", f"Choose one of: {', '.join(row.options)}.")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = row.minimum, row.maximum
        if not ((low is None or value >= low) and (high is None or value <= high)):
            raise BadInput(f"{row.key} is {value}", f"Give a number from {low} to {high}.")
    if row.key == "name" and not str(value).strip():
        raise BadInput("the profile has no name", "Give it a name.")
    if row.kind == "paths" and isinstance(value, tuple) and "" in value:
        raise BadInput(f"{row.key} holds an empty path", "Remove it, or name a file.")
    if "\0" in repr_text(value):
        raise BadInput(f"{row.key} holds a NUL byte", "Remove it: no program can be passed one.")
    if any("\ud800" <= letter <= "\udfff" for letter in repr_text(value)):
        raise BadInput(f"{row.key} is not UTF-8 text: {visible(repr_text(value))}", "Rename what is not.")


def looks_secret(name: str) -> bool:
    """Tell whether a variable's name is one that secrets have, such as HF_TOKEN or PGPASSWORD."""
    return bool(_SECRET.search(name))


def repr_text(value: Value) -> str:
    """Return all text of a value joined, for searches in it."""
    if isinstance(value, dict):
        return "\n".join([*value, *value.values()])
    return "\n".join(value) if isinstance(value, tuple) else str(value)


def parse(row: Field, text: str, folder: Path | None = None) -> Value:
    """Return what was typed as a value of the field's kind; relative paths are taken from `folder` (default: here)."""
    value = _PARSERS[row.kind](row, text, folder or Path.cwd())
    check(row, value)
    return value


def show(value: Value) -> str:
    """Return a value as it would be typed; parsing it gives the value back."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return shlex.join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, tuple):
        return shlex.join(value)
    return repr(value) if isinstance(value, float) else str(value)


def paths_of(profile: Profile) -> tuple[str, ...]:
    """Return the paths that the profile names, whose state the checks ask for; the Python is probed another way."""
    trainer = profile.trainer
    named = (trainer.script, trainer.working_directory, trainer.model, trainer.output, *trainer.data)
    return tuple(dict.fromkeys(path for path in named if path))


def absolute(path: str, folder: Path) -> str:
    """Return a path as absolute, `~` expanded, without touching links; an empty one stays empty."""
    return str(Path(folder, expanded(path))) if path else ""


def located(row: Field, path: str, folder: Path) -> str:
    """Return a field's path as absolute; a Python without a slash is the one on PATH, as in a shell."""
    if row.key != "trainer.python" or not path or "/" in path or path.startswith("~"):
        return absolute(path, folder)
    found = shutil.which(path)
    if found is None:
        raise BadInput(f"{row.key}: there is no {visible(path)} on PATH", "Write its whole path.")
    return absolute(found, Path.cwd())


def _integer(row: Field, text: str, _folder: Path) -> int:
    try:
        return int(text.replace("_", "").replace(" ", ""))
    except ValueError:
        raise BadInput(f"{row.label} is {visible(text)!r}", "Type a whole number.") from None


def _number(row: Field, text: str, _folder: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{row.label} is {visible(text)!r}", "Type a number such as 0.0003 or 3e-4.") from None


def _switch(row: Field, text: str, _folder: Path) -> bool:
    word = text.strip().lower()
    if word in {"yes", "true", "on", "1"}:
        return True
    if word in {"no", "false", "off", "0"}:
        return False
    raise BadInput(f"{row.label} is {visible(text)!r}", "Type yes or no.")


def _words(row: Field, text: str, _folder: Path) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise BadInput(f"{row.label}: a quote is not closed", "Close it, or put a backslash before it.") from None


def _names(row: Field, text: str, folder: Path) -> tuple[str, ...]:
    return tuple(word for word in _words(row, text.replace(",", " "), folder) if word)


def _paths(row: Field, text: str, folder: Path) -> tuple[str, ...]:
    return tuple(absolute(word, folder) for word in _words(row, text, folder))


def _table(row: Field, text: str, folder: Path) -> dict[str, str]:
    table = {}
    for word in _words(row, text, folder):
        name, equals, value = word.partition("=")
        if not (equals and name.isidentifier() and name.isascii()):
            raise BadInput(f"{row.label}: {visible(word)!r} is not NAME=VALUE", "Write it as WANDB_MODE=offline.")
        table[name] = value
    return table


_PARSERS: dict[FieldKind, Callable[[Field, str, Path], Value]] = {
    "choice": lambda _row, text, _folder: text.strip(),
    "text": lambda _row, text, _folder: text,
    "path": located,
    "paths": _paths,
    "integer": _integer,
    "number": _number,
    "switch": _switch,
    "words": _words,
    "names": _names,
    "table": _table,
}

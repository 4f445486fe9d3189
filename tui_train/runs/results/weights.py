"""Content of a folder of weights, from its small files: a PEFT adapter or a Hugging Face model, and if it is whole.

No library of the training is needed, and nothing in the folder is executed.
"""

import os
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tui_train.base.files import inode_and_size
from tui_train.base.parse import Unparsable, parse_json_object, read_file_to_parse, text_or_empty
from tui_train.base.text import visible
from tui_train.facts.models.safetensors import read_tensor_descriptions

WeightsKind = Literal["adapter", "model"]

# The first one says what the folder is.
ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE = "adapter_config.json", "config.json"
_ADAPTER_WEIGHTS_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_MODEL_WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
_WEIGHTS_INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json")
_MAX_CONFIG_BYTES = 4 << 20
_MAX_INDEX_BYTES = 64 << 20


class Weights(Struct, frozen=True, kw_only=True):
    """An adapter or a model in a folder."""

    path: str
    kind: WeightsKind
    size: int = 0
    """The bytes of its weights."""
    base: str = ""
    """The model that an adapter was trained on: a path or an id of the Hub."""
    task: str = ""
    """PEFT's name of what an adapter is for."""
    method: str = ""
    """PEFT's name of an adapter's kind."""
    rank: int = 0
    """Rank of a LoRA adapter; 0: none."""
    plain: bool = True
    """True if the adapter has only low-rank matrices, as servers require."""
    scores: bool = False
    """True if the model returns a score, not text."""
    quantized: str = ""
    """Quantization of a model's files, empty for none."""
    problem: str = ""
    """The reason why it cannot be loaded, empty if it can."""

    @property
    def has_tokenizer(self) -> bool:
        """True where a tokenizer was saved beside it."""
        return bool(_existing_file_names(Path(self.path), _TOKENIZER_FILES))

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the files with its weights."""
        return tuple(file.name for file in _weights_files(Path(self.path), self.kind))

    @property
    def index_names(self) -> tuple[str, ...]:
        """Name of the index of a model in several files, none for one in one file."""
        return tuple(_existing_file_names(Path(self.path), _WEIGHTS_INDEX_FILES)[:1]) if self.kind == "model" else ()

    @property
    def changed_at(self) -> float:
        """When its weights were written, in seconds since 1970; 0 where they are not there."""
        return max((_modification_time(file) for file in _weights_files(Path(self.path), self.kind)), default=0.0)


def read_weights(folder: Path) -> Weights | None:
    """Return what a folder holds, None for neither an adapter nor a model."""
    is_adapter = bool(inode_and_size(folder / ADAPTER_CONFIG_FILE)[0])
    if not is_adapter and not (
        inode_and_size(folder / MODEL_CONFIG_FILE)[0]
        and _existing_file_names(folder, _MODEL_WEIGHTS_FILES + _WEIGHTS_INDEX_FILES)
    ):
        return None
    try:
        return _read_adapter(folder) if is_adapter else _read_model(folder)
    except ValueError as error:
        return Weights(path=str(folder), kind="adapter" if is_adapter else "model", problem=str(error))


def _read_adapter(folder: Path) -> Weights:
    config = _read_json(folder / ADAPTER_CONFIG_FILE, _MAX_CONFIG_BYTES)
    files = _weights_files(folder, "adapter")
    task, rank = text_or_empty(config.get("task_type")), config.get("r")
    return Weights(
        path=str(folder),
        kind="adapter",
        size=_total_size(files),
        base=text_or_empty(config.get("base_model_name_or_path")),
        task=task,
        method=text_or_empty(config.get("peft_type")),
        rank=rank if isinstance(rank, int) and 0 < rank < 1 << 20 else 0,
        plain=not config.get("modules_to_save") and not config.get("use_dora") and config.get("bias") in {None, "none"},
        scores=task in {"SEQ_CLS", "TOKEN_CLS"},
        problem=_first_damage_text(files) if files else f"{_ADAPTER_WEIGHTS_FILES[0]} is missing",
    )


def _read_model(folder: Path) -> Weights:
    config = _read_json(folder / MODEL_CONFIG_FILE, _MAX_CONFIG_BYTES)
    missing = _missing_weights_text(folder)
    files = _weights_files(folder, "model")
    names = config.get("architectures")
    scores = isinstance(names, list) and any("Classification" in str(name) for name in names)
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else ""
    return Weights(
        path=str(folder),
        kind="model",
        size=_total_size(files),
        scores=scores,
        quantized=visible(str(method or "quantized")) if quantization else "",
        problem=missing or _first_damage_text(files),
    )


def _missing_weights_text(folder: Path) -> str:
    """Return which part of a model in several files is not there, empty if all are; ValueError for a broken index."""
    for part in _file_names_in_index(folder) or ():
        if "/" in part or not inode_and_size(folder / part)[0]:
            return f"{visible(part)} is missing"
    return ""


def _file_names_in_index(folder: Path) -> list[str] | None:
    """Return the names of a model's several files, None where it has no index; ValueError for a broken one."""
    for name in _existing_file_names(folder, _WEIGHTS_INDEX_FILES)[:1]:
        parts = _read_json(folder / name, _MAX_INDEX_BYTES).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
            raise ValueError(f"{name}: it names no files")
        return sorted({*parts.values()})
    return None


def _weights_files(folder: Path, weights_kind: WeightsKind) -> list[Path]:
    """Return the files with the weights of a folder; of two formats the safe one."""
    if weights_kind == "adapter":
        return [folder / name for name in _existing_file_names(folder, _ADAPTER_WEIGHTS_FILES)[:1]]
    try:
        parts = _file_names_in_index(folder)
    except ValueError:
        return []
    names = _existing_file_names(folder, _MODEL_WEIGHTS_FILES)[:1] if parts is None else parts
    return [folder / name for name in names]


def _first_damage_text(files: list[Path]) -> str:
    """Return what is wrong with the first file that is not whole."""
    return next((f"{visible(file.name)}: {why}" for file in files if (why := _why_damaged(file))), "")


def _why_damaged(file: Path) -> str:
    """Return why a file of weights cannot be loaded: of safetensors its header says how long it is."""
    if file.suffix != ".safetensors":
        return "" if inode_and_size(file)[1] else "it is empty"
    try:
        read_tensor_descriptions(file)
    except Unparsable as error:
        return str(error)
    return ""


def _read_json(file: Path, max_bytes: int) -> dict[str, Any]:
    """Return a JSON file's object; ValueError says why there is none."""
    try:
        return parse_json_object(read_file_to_parse(file, max_bytes))
    except Unparsable as error:
        raise ValueError(f"{file.name}: {error}") from None


def _existing_file_names(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if inode_and_size(folder / name)[0]]


def _total_size(files: list[Path]) -> int:
    return sum(inode_and_size(file)[1] for file in files)


def _modification_time(file: Path) -> float:
    try:
        return os.stat(file).st_mtime  # noqa: PTH116 - as elsewhere a missing file is no error
    except OSError:
        return 0.0

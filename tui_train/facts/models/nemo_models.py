"""Sizes of NeMo's models: of the known recipes, of a checkpoint and of a tokenizer, read from their own files."""

import functools
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base.files import read_regular_file
from tui_train.facts.types import NemoCheckpoint, NemoTokenizer
from tui_train.facts.yaml_documents import read_document

NEMO_SIZE_NAMES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups")


@functools.cache
def known_model_and_sizes_by_recipe() -> dict[str, NemoCheckpoint]:
    """Return the model and the sizes of the recipes of NeMo 2.7, by name."""
    text = resources.files("tui_train").joinpath("programs/nemo-sizes.txt").read_text("utf-8")
    recipes = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, model, *numbers = line.split()
            known_sizes = {
                key: int(number) for key, number in zip(NEMO_SIZE_NAMES, numbers, strict=True) if number != "-"
            }
            recipes[name] = NemoCheckpoint(model=model, numbers=known_sizes)
    return recipes


class RecipeDefaults(Struct, frozen=True):
    """Defaults of a recipe: GPUs of each split, steps of warm-up, rows of the vocabulary.

    A `vocabulary` of 0 is that of the tokenizer.
    """

    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    expert_parallel: int
    warmup: int
    vocabulary: int


@functools.cache
def known_defaults_by_recipe_and_task() -> dict[tuple[str, str], RecipeDefaults]:
    """Return the own values of the recipes of NeMo 2.7, by name and by pretrain, lora or none (all weights)."""
    text = resources.files("tui_train").joinpath("programs/nemo-own.txt").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {(name, task): RecipeDefaults(*map(int, numbers)) for name, task, *numbers in rows}


class _TokenizerModel(Struct):
    vocab: dict[str, int] | list[msgspec.Raw] = {}


class _AddedToken(Struct):
    id: int


class _TokenizerFile(Struct):
    model: _TokenizerModel
    added_tokens: tuple[_AddedToken, ...] = ()


class _TokenizerConfig(Struct):
    tokenizer_class: str | None = None


# The largest known tokenizer.json has 33 MB.
_MAX_TOKENIZER_BYTES = 128 << 20


def read_nemo_tokenizer(folder: str) -> NemoTokenizer:
    """Return the class of a Hugging Face tokenizer and how many rows its tokens need, as far as they can be read."""
    path = Path(folder)
    try:
        config = msgspec.json.decode(
            read_regular_file(str(path / "tokenizer_config.json"), _MAX_TOKENIZER_BYTES), type=_TokenizerConfig
        )
        file = msgspec.json.decode(
            read_regular_file(str(path / "tokenizer.json"), _MAX_TOKENIZER_BYTES), type=_TokenizerFile
        )
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return NemoTokenizer()
    vocab = file.model.vocab
    ids = [max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1]
    return NemoTokenizer(
        kind=config.tokenizer_class or "", vocabulary=1 + max(ids + [added.id for added in file.added_tokens])
    )


def read_nemo_checkpoint(folder: str) -> NemoCheckpoint:
    """Return the model class and sizes of a NeMo 2 checkpoint, or the `problem` why it cannot be used."""
    path = Path(folder)
    for name in ("weights/.metadata", "context/io.json"):
        if not (path / name).is_file():
            return NemoCheckpoint(problem=f"it has no {name}")
    if not (path / "context" / "model.yaml").is_file():
        # NeMo reads io.json; this file is a readable copy.
        return NemoCheckpoint()
    model_yaml = read_document(str(path / "context" / "model.yaml"))
    config = model_yaml.values.get("config")
    if model_yaml.problem or not isinstance(config, dict):
        return NemoCheckpoint(problem=f"its model.yaml: {model_yaml.problem or 'it does not describe a model'}")
    numbers = {key: config[key] for key in NEMO_SIZE_NAMES if isinstance(config.get(key), int)}
    return NemoCheckpoint(model=str(model_yaml.values.get("_target_", "")).rpartition(".")[2], numbers=numbers)

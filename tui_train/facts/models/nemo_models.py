"""NeMo's recipes and models: what a Python has, by running it, what the releases have, and the files of a model."""

import functools
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base.files import read_regular_file
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE, ChildResult, run_child
from tui_train.facts.types import Facts, NemoCheckpoint, NemoRecipes, NemoTokenizer
from tui_train.facts.yaml_documents import read_document

# The import alone takes 12 s.
_PROBE_DEADLINE_SECONDS = 180.0
# The largest known tokenizer.json has 33 MB.
_MAX_TOKENIZER_BYTES = 128 << 20
NEMO_SIZE_NAMES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups")


def probe_recipes(python: str, flavour: str | None = None) -> NemoRecipes:
    """Return the recipes of an interpreter ("bridge": of its Megatron-Bridge), or the `problem`."""
    source = resources.files("tui_train").joinpath("programs/nemo_recipes.py").read_text("utf-8")
    command = [python, "-B", "-c", RUN_PROGRAM_TEXT_CODE, source, flavour or "recipes"]
    return parse_recipes(run_child(command, _PROBE_DEADLINE_SECONDS))


def parse_recipes(result: ChildResult) -> NemoRecipes:
    """Return the recipes that an interpreter has listed, or the `problem`."""
    answer = result.last_answer(NemoRecipes)
    if answer is None:
        return NemoRecipes(problem=result.why_unusable())
    if answer.tasks or answer.problem:
        return answer
    return NemoRecipes(problem="the import worked, but no recipe could be loaded: a library is missing or too new")


@functools.cache
def known_tasks_by_recipe(flavour: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the tasks of the known recipes: of NeMo 2.7 (the last with recipes), or Megatron-Bridge 0.3 and 0.6."""
    file = "bridge-recipes.txt" if flavour == "bridge" else "nemo-recipes.txt"
    return {name: tuple(tasks) for name, *tasks in _read_table(file)}


def tasks_by_recipe_and_whether_probed(
    facts: Facts, python: str, flavour: str | None
) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the recipes of a Python and True if it was probed, else the known ones and False."""
    probed = facts.recipes.get(python)
    return (probed.tasks, True) if probed and probed.tasks else (known_tasks_by_recipe(flavour), False)


def _read_table(file: str) -> list[list[str]]:
    text = resources.files("tui_train").joinpath(f"programs/{file}").read_text("utf-8")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@functools.cache
def known_model_and_sizes_by_recipe() -> dict[str, NemoCheckpoint]:
    """Return the model and the sizes of the recipes of NeMo 2.7, by name."""
    recipes = {}
    for name, model, *numbers in _read_table("nemo-sizes.txt"):
        sizes = zip(NEMO_SIZE_NAMES, numbers, strict=True)
        recipes[name] = NemoCheckpoint(model=model, numbers={key: int(size) for key, size in sizes if size != "-"})
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
    rows = _read_table("nemo-own.txt")
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


def read_nemo_tokenizer(folder: str) -> NemoTokenizer:
    """Return the class of a Hugging Face tokenizer and how many rows its tokens need, as far as they can be read."""
    path = Path(folder)
    try:
        config_bytes = read_regular_file(path / "tokenizer_config.json", _MAX_TOKENIZER_BYTES)
        config = msgspec.json.decode(config_bytes, type=_TokenizerConfig)
        file_bytes = read_regular_file(path / "tokenizer.json", _MAX_TOKENIZER_BYTES)
        file = msgspec.json.decode(file_bytes, type=_TokenizerFile)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return NemoTokenizer()
    vocab = file.model.vocab
    last_id = max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1
    last_id = max([last_id, *(added.id for added in file.added_tokens)])
    return NemoTokenizer(kind=config.tokenizer_class or "", vocabulary=1 + last_id)


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

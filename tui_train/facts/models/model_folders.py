"""Reads the shape of a model from its folder: config.json, and the safetensors headers for the exact count."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_train.base.parse import Unparsable, json_table, prepared_type, read_bytes
from tui_train.base.text import visible
from tui_train.facts.models.dimensions import Dimensions, layer_structure_by_type
from tui_train.facts.models.safetensors import read_tensors

_MAX_CONFIG_BYTES = 2**20
_MAX_INDEX_BYTES = 2**26
_MAX_WEIGHT_FILES = 1000
_MAX_CONFIG_NUMBER = 2**40
_SHORT_NAME_BY_DTYPE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# Types in which one element is one weight.
_UNQUANTIZED_TYPES = frozenset({"F64", "F32", "F16", "BF16"})


class DamagedWeightsError(ValueError):
    """A file of weights that cannot be loaded."""


class ModelFolder(Struct, frozen=True):
    """The shape of the model in a folder, or the `problem` why there is none."""

    dimensions: Dimensions | None = None
    problem: str = ""
    path: str = ""
    """The folder of a model that was named by its id on the Hub."""
    limit: int = 0
    """How many tokens it takes by its config.json; 0: it does not say."""
    layers: tuple[str, ...] = ()
    """Paths of its weight matrices as in its safetensors, each number 0 (model.layers.0.mlp.up_proj), if read."""
    damaged: str = ""
    """A file of weights that cannot be loaded, and why."""

    def has_layer(self, name: str) -> bool:
        """Return whether a weight matrix has this name, as PEFT compares them: by the end of its path."""
        ending = _with_numbers_as_0(name)
        return any(f".{path}".endswith(f".{ending}") for path in self.layers)


def _with_numbers_as_0(path: str) -> str:
    return ".".join("0" if part.isdigit() else part for part in path.split("."))


def read_model_folder(path: str) -> ModelFolder:
    """Return the shape of the model in a folder."""
    try:
        config = json_table(read_bytes(Path(path, "config.json"), _MAX_CONFIG_BYTES))
    except Unparsable as error:
        return ModelFolder(problem=f"its config.json cannot be read: {error}")
    max_tokens = token_limit(config)
    try:
        shape = parse_dimensions(config, Path(path).name)
    except (ValueError, msgspec.ValidationError) as error:
        return ModelFolder(problem=visible(f"its config.json: {str(error)[:200]}"), limit=max_tokens)
    try:
        elements, layers = _count_weights_and_layers(Path(path))
    except DamagedWeightsError as error:
        damaged = visible(str(error)[:200])
        return ModelFolder(problem=f"its weights cannot be read: {damaged}", limit=max_tokens, damaged=damaged)
    except ValueError as error:
        return ModelFolder(problem=visible(f"its weights cannot be read: {str(error)[:200]}"), limit=max_tokens)
    return ModelFolder(msgspec.structs.replace(shape, exact=elements), limit=max_tokens, layers=layers)


def token_limit(config: dict[str, Any]) -> int:
    """Return how many tokens a model takes by its config.json, 0 where that does not say."""
    inner = config.get("text_config")
    for table in (inner if isinstance(inner, dict) else {}, config):
        for name in ("max_position_embeddings", "n_positions"):
            if isinstance(value := table.get(name), int) and 0 < value <= _MAX_CONFIG_NUMBER:
                return value
    return 0


def parse_dimensions(config: dict[str, Any], name: str = "") -> Dimensions:
    """Return the shape in a config.json; ValueError for an unknown type or an invalid number."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in layer_structure_by_type():
        raise ValueError(f"unknown model type {kind}")
    if "quantization_config" in config:
        raise ValueError("this quantization is not modelled")

    def integer(*names: str, default: int = 0) -> int:
        value = next((config[key] for key in names if config.get(key) is not None), default)
        if not isinstance(value, int) or not 0 <= value <= _MAX_CONFIG_NUMBER:
            raise ValueError(f"{names[0]} is {value!r}")
        return value

    hidden = integer("hidden_size", "n_embd")
    heads = integer("num_attention_heads", "n_head")
    layers, vocab = integer("num_hidden_layers", "n_layer"), integer("vocab_size")
    if not hidden or not heads or not layers or not vocab:
        raise ValueError("it lacks layers, heads, hidden size or vocabulary")
    values: dict[str, Any] = {
        **layer_structure_by_type()[kind],
        "name": name,
        "type": kind,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocab": vocab,
        "kv": 1 if config.get("multi_query") else integer("num_key_value_heads", "num_kv_heads"),
        "head_dim": integer("head_dim"),
        "ffn": integer("intermediate_size", "n_inner", "ffn_hidden_size", default=4 * hidden),
        "experts": integer("num_local_experts", "num_experts"),
        "experts_used": integer("num_experts_per_tok"),
        "dtype": _SHORT_NAME_BY_DTYPE.get(str(config.get("dtype") or config.get("torch_dtype")), ""),
    }
    if isinstance(config.get("tie_word_embeddings"), bool):
        values["tied"] = config["tie_word_embeddings"]
    if kind in {"gpt2", "gpt_bigcode"}:
        values["positions"] = integer("n_positions", default=1024)
    if kind == "falcon" and config.get("new_decoder_architecture"):
        values["kv"] = integer("num_kv_heads")
    return msgspec.convert(values | _layer_structure(kind, config), prepared_type(Dimensions))


def _layer_structure(model_type: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the structure of the layers of a type, as far as config.json decides it."""
    if model_type == "stablelm":
        return {"qkv_bias": bool(config.get("use_qkv_bias"))}
    if model_type == "gpt_neox":
        return {"parallel": config.get("use_parallel_residual") is not False}
    if model_type == "falcon":
        new = bool(config.get("new_decoder_architecture"))
        parallel = new or config.get("parallel_attn") is not False
        return {"parallel": parallel, "norms": 2 if new or not parallel else 1}
    return {}


def _count_weights_and_layers(path: Path) -> tuple[int, tuple[str, ...]]:
    """Return the number of weights in the safetensors of a folder, 0 without any, and the layers as in ModelFolder.

    ValueError for damaged ones.
    """
    index = path / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        weight_map = json_table(read_bytes(index, _MAX_INDEX_BYTES)).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError("model.safetensors.index.json has no weight_map")
        names = sorted({str(name) for name in weight_map.values()})
    if len(names) > _MAX_WEIGHT_FILES or any("/" in name or name.startswith(".") for name in names):
        raise ValueError("model.safetensors.index.json refers to files in other folders, or to too many")
    total, layers = 0, set[str]()
    for name in names:
        if (path / name).is_file():
            total += _count_weights_in_file(path / name, layers)
    return total, tuple(sorted(layers))


def _count_weights_in_file(path: Path, layers: set[str]) -> int:
    """Return the number of weights in a safetensors file, and add its layers."""
    total = 0
    try:
        file_tensors = read_tensors(path)
    except Unparsable as error:
        raise DamagedWeightsError(f"{path.name}: {error}") from None
    for name, tensor in file_tensors.items():
        if tensor.dtype not in _UNQUANTIZED_TYPES:
            raise ValueError(f"{name} in {path.name} is {tensor.dtype}: quantized weights are not modelled")
        total += tensor.elements
        if len(tensor.shape) > 1:
            layers.add(_with_numbers_as_0(visible(name.removesuffix(".weight"))))
    return total

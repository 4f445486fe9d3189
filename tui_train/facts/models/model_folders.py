"""Reads the shape of a model from its folder: config.json, and the safetensors headers for the exact count."""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base.parse import Unparsable, parse_json_object, read_file_to_parse
from tui_train.base.text import visible
from tui_train.facts.models.config_json import max_tokens_of_config, parse_model_dimensions
from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.facts.models.safetensors import read_tensor_descriptions

_SINGLE_WEIGHT_FILE = "model.safetensors"
_MAX_CONFIG_BYTES = 2**20
_MAX_INDEX_BYTES = 2**26
_MAX_WEIGHT_FILES = 1000
# Types in which one element is one weight.
_UNQUANTIZED_TYPES = frozenset({"F64", "F32", "F16", "BF16"})


class DamagedWeightsError(ValueError):
    """A file of weights that cannot be loaded."""


class ModelFolder(Struct, frozen=True):
    """The shape of the model in a folder, or the `problem` why there is none."""

    dimensions: ModelDimensions | None = None
    problem: str = ""
    path: str = ""
    """The folder of a model that was named by its id on the Hub."""
    max_tokens: int = 0
    """The most tokens that it takes by its config.json; 0: unknown."""
    layer_paths: tuple[str, ...] = ()
    """Paths of its weight matrices as in its safetensors, each number 0 (model.layers.0.mlp.up_proj), if read."""
    bad_weights: str = ""
    """A file of weights that cannot be loaded, and why."""

    def has_layer(self, name: str) -> bool:
        """Return whether a weight matrix has this name, as PEFT compares them: by the end of its path."""
        ending = _path_with_layer_numbers_as_0(name)
        return any(f".{path}".endswith(f".{ending}") for path in self.layer_paths)


def _path_with_layer_numbers_as_0(path: str) -> str:
    return ".".join("0" if part.isdigit() else part for part in path.split("."))


def read_model_folder(path: str) -> ModelFolder:
    """Return the shape of the model in a folder."""
    try:
        config = parse_json_object(read_file_to_parse(Path(path, "config.json"), _MAX_CONFIG_BYTES))
    except Unparsable as error:
        return ModelFolder(problem=f"its config.json cannot be read: {error}")
    max_tokens = max_tokens_of_config(config)
    try:
        shape = parse_model_dimensions(config, Path(path).name)
    # A list where a word is meant is no key of a table.
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        return ModelFolder(problem=visible(f"its config.json: {str(error)[:200]}"), max_tokens=max_tokens)
    if config.get("quantization_config"):
        # Its files do not have what is trained: one element of them is not one weight.
        return ModelFolder(shape, max_tokens=max_tokens)
    try:
        names = _expected_safetensors_names(Path(path))
        elements, layers = _count_weights_and_list_layers(Path(path), names)
    except DamagedWeightsError as error:
        damaged = visible(str(error)[:200])
        return ModelFolder(problem=f"its weights cannot be read: {damaged}", max_tokens=max_tokens, bad_weights=damaged)
    except ValueError as error:
        return ModelFolder(problem=visible(f"its weights cannot be read: {str(error)[:200]}"), max_tokens=max_tokens)
    if missing := _missing_weight_files_text(Path(path), names):
        elements, layers = 0, ()  # others are in what is missing
    exact_shape = msgspec.structs.replace(shape, exact_parameters=elements)
    return ModelFolder(exact_shape, max_tokens=max_tokens, layer_paths=layers, bad_weights=missing)


def _missing_weight_files_text(path: Path, names: Collection[str]) -> str:
    """Return which of some files are missing beside the others, as a clause; empty where all are there, or none."""
    missing = [name for name in names if not (path / name).is_file()]
    if not 0 < len(missing) < len(names) or (path / _SINGLE_WEIGHT_FILE).is_file():
        return ""
    return visible(f"{missing[0]} is missing ({len(missing)} of {len(names)} files are)")


def _expected_safetensors_names(path: Path) -> list[str]:
    """Return the safetensors of a model in this folder, by its index if there is one; ValueError for a bad one."""
    index = path / "model.safetensors.index.json"
    names = [_SINGLE_WEIGHT_FILE]
    if index.is_file():
        weight_map = parse_json_object(read_file_to_parse(index, _MAX_INDEX_BYTES)).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError("model.safetensors.index.json has no weight_map")
        names = sorted({str(name) for name in weight_map.values()})
    if len(names) > _MAX_WEIGHT_FILES or any("/" in name or name.startswith(".") for name in names):
        raise ValueError("model.safetensors.index.json refers to files in other folders, or to too many")
    return names


def _count_weights_and_list_layers(path: Path, names: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    """Return the number of weights in these safetensors, 0 where none is there, and the layers as in ModelFolder.

    ValueError for damaged ones.
    """
    total, layers = 0, set[str]()
    for file in filter(Path.is_file, (path / name for name in names)):
        try:
            tensors = read_tensor_descriptions(file)
        except Unparsable as error:
            raise DamagedWeightsError(f"{file.name}: {error}") from None
        for name, tensor in tensors.items():
            if tensor.dtype not in _UNQUANTIZED_TYPES:
                raise ValueError(f"{name} in {file.name} is {tensor.dtype}: quantized weights are not modelled")
            total += tensor.element_count
            if len(tensor.shape) > 1:
                layers.add(_path_with_layer_numbers_as_0(visible(name.removesuffix(".weight"))))
    return total, tuple(sorted(layers))

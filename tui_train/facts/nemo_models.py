"""Sizes of NeMo's models: of the known recipes, and of a checkpoint, read from its saved configuration."""

import functools
from importlib import resources
from pathlib import Path

from tui_train.facts.documents import document
from tui_train.facts.types import NemoCheckpoint

SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups")


@functools.cache
def sizes() -> dict[str, NemoCheckpoint]:
    """Return the model and the sizes of the recipes of NeMo 2.7, by name."""
    text = resources.files("tui_train").joinpath("target/nemo-sizes.txt").read_text("utf-8")
    recipes = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, model, *numbers = line.split()
            known_sizes = {key: int(number) for key, number in zip(SIZES, numbers, strict=True) if number != "-"}
            recipes[name] = NemoCheckpoint(model=model, numbers=known_sizes)
    return recipes


def checkpoint(folder: str) -> NemoCheckpoint:
    """Return the model class and sizes of a NeMo 2 checkpoint, or the `problem` why it cannot be used."""
    path = Path(folder)
    for name in ("weights/.metadata", "context/io.json"):
        if not (path / name).is_file():
            return NemoCheckpoint(problem=f"it has no {name}")
    if not (path / "context" / "model.yaml").is_file():
        # NeMo reads io.json; this file is a readable copy.
        return NemoCheckpoint()
    told = document(str(path / "context" / "model.yaml"))
    config = told.values.get("config")
    if told.problem or not isinstance(config, dict):
        return NemoCheckpoint(problem=f"its model.yaml: {told.problem or 'it does not describe a model'}")
    numbers = {key: config[key] for key in SIZES if isinstance(config.get(key), int)}
    return NemoCheckpoint(model=str(told.values.get("_target_", "")).rpartition(".")[2], numbers=numbers)

"""Sizes of NeMo's models: of its recipes, which are known, and of a checkpoint, by reading what it was saved from."""

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
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, model, *numbers = line.split()
            known = {key: int(number) for key, number in zip(SIZES, numbers, strict=True) if number != "-"}
            found[name] = NemoCheckpoint(model=model, numbers=known)
    return found


def checkpoint(folder: str) -> NemoCheckpoint:
    """Return the model of a checkpoint of NeMo 2 and its sizes; `problem` says why it cannot be used."""
    path = Path(folder)
    for name in ("weights/.metadata", "context/io.json"):
        if not (path / name).is_file():
            return NemoCheckpoint(problem=f"it has no {name}")
    if not (path / "context" / "model.yaml").is_file():
        # NeMo itself reads io.json: this one is a copy for people.
        return NemoCheckpoint()
    told = document(str(path / "context" / "model.yaml"))
    config = told.values.get("config")
    if told.problem or not isinstance(config, dict):
        return NemoCheckpoint(problem=f"its model.yaml: {told.problem or 'it describes no model'}")
    numbers = {key: config[key] for key in SIZES if isinstance(config.get(key), int)}
    return NemoCheckpoint(model=str(told.values.get("_target_", "")).rpartition(".")[2], numbers=numbers)

"""Dimensions: the shape of a causal language model and its parameter count; and the known models."""

import functools
import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_train.base.parse import prepared_type


class Dimensions(Struct, frozen=True, kw_only=True):
    """The shape of a decoder."""

    name: str = ""
    type: str = "llama"
    """The type that transformers gives it."""
    layers: int
    hidden: int
    heads: int
    ffn: int
    """The width inside its MLP."""
    vocab: int
    kv: int = 0
    """The heads of keys and values; 0: as many as `heads`."""
    head_dim: int = 0
    tied: bool = False
    gated: bool = True
    parallel: bool = False
    norm: Literal["rms", "layer", "plain"] = "rms"
    norms: int = 2
    """The norms of a layer."""
    qk_norm: Literal["", "head", "all"] = ""
    qkv_bias: bool = False
    bias: bool = False
    head_bias: bool = False
    positions: int = 0
    """The learned positions."""
    experts: int = 0
    """The experts of a layer, each with an MLP of its own."""
    experts_used: int = 0
    """The experts that a token goes to."""
    dtype: str = ""
    exact: int = 0
    """The parameter count of its files."""

    @property
    def query_width(self) -> int:
        """The width of the queries of all heads."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def key_width(self) -> int:
        """The width of the keys of all heads, and of the values."""
        return (self.kv or self.heads) * (self.head_dim or self.hidden // self.heads)

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Input and output widths of the linear layers of one layer, by PEFT's names."""
        hidden, ffn = self.hidden, self.ffn
        attention = {
            "q_proj": (hidden, self.query_width),
            "k_proj": (hidden, self.key_width),
            "v_proj": (hidden, self.key_width),
            "o_proj": (self.query_width, hidden),
        }
        mlp = {"up_proj": (hidden, ffn), "down_proj": (ffn, hidden)}
        return attention | ({"gate_proj": (hidden, ffn)} if self.gated else {}) | mlp

    @property
    def mlp_parameters(self) -> int:
        """Parameters of a layer's MLP (or of all experts and the router), without biases."""
        expert = self.hidden * self.ffn * (3 if self.gated else 2)
        return expert * self.experts + self.hidden * self.experts if self.experts else expert

    @property
    def linear_parameters(self) -> int:
        """Parameters of the linear layers of one layer, the ones that are quantized."""
        return sum(a * b for name, (a, b) in self.linear_shapes.items() if name[0] in "qkvo") + self.mlp_parameters

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        norms = self.norms * self.norm_parameters
        sizes = {
            "": 0,
            "head": 2 * (self.head_dim or self.hidden // self.heads),
            "all": self.query_width + self.key_width,
        }
        biases = (self.query_width + 2 * self.key_width) * self.qkv_bias
        biases += (self.hidden + self.hidden + self.ffn * (2 if self.gated else 1)) * self.bias
        return self.linear_parameters + norms + sizes[self.qk_norm] + biases

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm."""
        return {"rms": 1, "layer": 2, "plain": 0}[self.norm] * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, or of the head."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; tied embeddings count once."""
        if self.exact:
            return self.exact
        tables = (
            self.embedding_parameters * (1 if self.tied else 2)
            + self.positions * self.hidden
            + self.vocab * self.head_bias
        )
        return self.layers * self.layer_parameters + tables + self.norm_parameters


class _ModelTables(Struct, frozen=True):
    types: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]


@functools.cache
def _load_model_tables() -> _ModelTables:
    from importlib import resources

    text = resources.files("tui_train").joinpath("facts/models/models.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=prepared_type(_ModelTables))


def layer_structure_by_type() -> dict[str, dict[str, Any]]:
    """Return the structure of the layers of each known type."""
    return _load_model_tables().types


@functools.cache
def known_models() -> dict[str, Dimensions]:
    """Return the models in models.toml, by name."""
    tables = _load_model_tables()
    models = {}
    for name, row in tables.models.items():
        values = {"name": name, **tables.types[row["type"]], **{key: row[key] for key in row if key != "also"}}
        models[name] = msgspec.convert(values, prepared_type(Dimensions))
    return models


@functools.cache
def _names_by_alias() -> dict[str, str]:
    """Return the known names by their simplified names and aliases."""
    rows = _load_model_tables().models.items()
    return {_simplified_name(word): name for name, row in rows for word in (name, *row.get("also", ()))}


def dimensions_by_name(name: str) -> Dimensions | None:
    """Return the shape of a model by its name on the Hub or in a paper, None if unknown."""
    known_name = _names_by_alias().get(_simplified_name(name))
    return known_models()[known_name] if known_name else None


# Parts of a name that describe training or quantization, not the shape.
_NON_SHAPE_WORDS_PATTERN = re.compile(r"\b(hf|instruct|chat|it|pt|base|gptq|awq|bnb|4bit|v0\.1)\b")


def _simplified_name(name: str) -> str:
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    return re.sub(r"[^a-z0-9]|^meta", "", _NON_SHAPE_WORDS_PATTERN.sub("", last).removeprefix("meta-"))

"""Dimensions: the shape of a causal language model and its parameter count; and the known models."""

import functools
import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_train.base.parse import type_prepared_for_msgspec


class ModelDimensions(Struct, frozen=True, kw_only=True):
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
    kv_heads: int = 0
    """The heads of keys and values; 0: as many as `heads`."""
    head_dim: int = 0
    ties_embeddings: bool = False
    has_gated_mlp: bool = True
    has_parallel_attention: bool = False
    norm: Literal["rms", "layer", "plain"] = "rms"
    norms_per_layer: int = 2
    """The norms of a layer."""
    qk_norm: Literal["", "head", "all"] = ""
    qkv_bias: bool = False
    bias: bool = False
    head_bias: bool = False
    learned_positions: int = 0
    """The learned positions."""
    query_gate: bool = False
    """The projection of the queries also gives a gate for what attention returns."""
    query_rank: int = 0
    """The width to which queries are compressed; 0: they are not."""
    key_rank: int = 0
    """The width to which keys and values are compressed, all heads of queries having their own; 0: they are not."""
    rotary_dim: int = 0
    """The part of a compressed head that all heads share."""
    value_dim: int = 0
    """The width of a head's compressed values."""
    experts: int = 0
    """The experts of a layer, each with an MLP of its own."""
    experts_per_token: int = 0
    """The experts that a token goes to."""
    expert_ffn: int = 0
    """The width inside an expert."""
    shared_ffn: int = 0
    """The width inside the MLP beside the experts, to which all tokens go."""
    dense_layers: int = 0
    """The layers that have a plain MLP in place of experts."""
    mixer_layers: int = 0
    """The layers that have something else in place of attention: linear attention, a convolution."""
    mixer_linear: int = 0
    """The parameters of the linear layers of that."""
    mixer_other: int = 0
    """Its other parameters."""
    other_parameters: int = 0
    """Parameters besides layers, tables and norms, or fewer of them than is counted there."""
    caveats: tuple[str, ...] = ()
    """Parts of the model that are unknown or not modelled."""
    dtype: str = ""
    exact_parameters: int = 0
    """The parameter count of its files."""

    @property
    def head_width(self) -> int:
        """The width of a head of queries or keys."""
        return self.head_dim or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """The width of the queries of all heads."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """The width of the keys of all heads, and of the values."""
        return (self.kv_heads or self.heads) * self.head_width

    @property
    def attention_output_width(self) -> int:
        """The width of what attention returns."""
        return self.heads * self.value_dim if self.value_dim else self.query_width

    @property
    def ffn_width_per_token(self) -> int:
        """The width inside the MLPs that a token goes through in a layer."""
        return self.experts_per_token * self.expert_ffn + self.shared_ffn if self.experts else self.ffn

    @property
    def attention_shapes(self) -> dict[str, tuple[int, int]]:
        """Input and output widths of the linear layers of attention, by PEFT's names."""
        hidden, query = self.hidden, self.query_width * (2 if self.query_gate else 1)
        if not self.key_rank:
            keys = dict.fromkeys(("k_proj", "v_proj"), (hidden, self.key_width))
            return {"q_proj": (hidden, query), **keys, "o_proj": (self.query_width, hidden)}
        own = self.query_width - self.heads * self.rotary_dim + self.attention_output_width
        rank = self.query_rank
        return {
            **({"q_a_proj": (hidden, rank), "q_b_proj": (rank, query)} if rank else {"q_proj": (hidden, query)}),
            "kv_a_proj_with_mqa": (hidden, self.key_rank + self.rotary_dim),
            "kv_b_proj": (self.key_rank, own),
            "o_proj": (self.attention_output_width, hidden),
        }

    def mlp_shapes(self, ffn: int) -> dict[str, tuple[int, int]]:
        """Return input and output widths of the linear layers of an MLP of a width, by PEFT's names."""
        gate = {"gate_proj": (self.hidden, ffn)} if self.has_gated_mlp else {}
        return gate | {"up_proj": (self.hidden, ffn), "down_proj": (ffn, self.hidden)}

    @property
    def linear_shapes_per_layer(self) -> dict[str, tuple[int, int]]:
        """Input and output widths of the linear layers of one layer, by PEFT's names."""
        return self.attention_shapes | self.mlp_shapes(self.ffn)

    @property
    def expert_layers(self) -> int:
        """The layers that have experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_parameters_per_layer(self) -> int:
        """Parameters of the experts of one layer, without biases."""
        return self.experts * _count_weights(self.mlp_shapes(self.expert_ffn))

    @property
    def linear_parameters_per_layer(self) -> int:
        """Parameters of the linear layers of one layer, experts among them; the mean where layers differ."""
        attention = (
            _count_weights(self.attention_shapes) * (self.layers - self.mixer_layers)
            + self.mixer_linear * self.mixer_layers
        )
        shared = _count_weights(self.mlp_shapes(self.shared_ffn))
        sparse = self.expert_parameters_per_layer + shared + self.hidden * self.experts
        plain = _count_weights(self.mlp_shapes(self.ffn))
        mlp = sparse * self.expert_layers + plain * (self.layers - self.expert_layers)
        return (attention + mlp) // self.layers

    @property
    def parameters_per_layer(self) -> int:
        """Parameters of one layer, the mean where layers differ."""
        norms = self.norms_per_layer * self.parameters_per_norm
        norms += {"": 0, "head": 2 * self.head_width, "all": self.query_width + self.key_width}[self.qk_norm]
        biases = (self.query_width + 2 * self.key_width) * self.qkv_bias
        biases += (2 * self.hidden + self.ffn * (2 if self.has_gated_mlp else 1)) * self.bias
        mixers = self.mixer_other * self.mixer_layers // self.layers
        return self.linear_parameters_per_layer + norms + biases + mixers

    @property
    def parameters_per_norm(self) -> int:
        """Parameters of one norm."""
        return {"rms": 1, "layer": 2, "plain": 0}[self.norm] * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, or of the head."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; tied embeddings count once."""
        if self.exact_parameters:
            return self.exact_parameters
        tables = (
            self.embedding_parameters * (1 if self.ties_embeddings else 2)
            + self.learned_positions * self.hidden
            + self.vocab * self.head_bias
        )
        return self.layers * self.parameters_per_layer + tables + self.parameters_per_norm + self.other_parameters


def _count_weights(shapes: dict[str, tuple[int, int]]) -> int:
    return sum(a * b for a, b in shapes.values())


class _ModelTables(Struct, frozen=True):
    types: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]


@functools.cache
def _load_model_tables() -> _ModelTables:
    from importlib import resources

    text = resources.files("tui_train").joinpath("facts/models/models.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=type_prepared_for_msgspec(_ModelTables))


def layer_structure_by_model_type() -> dict[str, dict[str, Any]]:
    """Return the structure of the layers of each known type."""
    return _load_model_tables().types


@functools.cache
def known_models() -> dict[str, ModelDimensions]:
    """Return the models in models.toml, by name."""
    tables = _load_model_tables()
    models = {}
    for name, row in tables.models.items():
        values = {"name": name, **tables.types[row["type"]], **{key: row[key] for key in row if key != "also"}}
        models[name] = msgspec.convert(values, type_prepared_for_msgspec(ModelDimensions))
    return models


@functools.cache
def _known_name_by_alias() -> dict[str, str]:
    """Return the known names by their simplified names and aliases."""
    rows = _load_model_tables().models.items()
    return {_simplified_model_name(word): name for name, row in rows for word in (name, *row.get("also", ()))}


def find_known_dimensions(name: str) -> ModelDimensions | None:
    """Return the shape of a model by its name on the Hub or in a paper, None if unknown."""
    return known_models().get(_known_name_by_alias().get(_simplified_model_name(name), ""))


# Parts of a name that describe training or quantization, not the shape.
_NON_SHAPE_WORDS_PATTERN = re.compile(r"\b(hf|instruct|chat|it|pt|base|gptq|awq|bnb|4bit|v0\.1)\b")


def _simplified_model_name(name: str) -> str:
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    return re.sub(r"[^a-z0-9]|^meta", "", _NON_SHAPE_WORDS_PATTERN.sub("", last).removeprefix("meta-"))

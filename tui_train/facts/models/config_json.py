"""Reads the shape of a model from its config.json, by rules about fields; a part that they do not count is refused."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.facts.models.dimensions import ModelDimensions, layer_structure_by_model_type

_MAX_CONFIG_NUMBER = 2**40
_MAX_LAYERS = 10_000
_SHORT_NAME_BY_DTYPE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})
# Parts that no rule counts where they are on.
_FIELDS_OF_UNSUPPORTED_PARTS = frozenset(
    {"attention_k_eq_v", "use_double_wide_mlp", "enable_moe_block", "is_encoder_decoder"}
)
# Tables that are read, or have no weights.
_SUPPORTED_SUBTABLES = frozenset({"text_config", "vision_config", "quantization_config", "per_layer_config"})
# Activation functions whose MLP is gated; of others only the type tells.
_GATED_ACTIVATIONS = frozenset({"silu", "swish"})
# Image models are counted by their sizes. Up to this share of all, what that leaves out changes little; of these it is
# next to nothing. A model of two has one table for both.
_MAX_APPROXIMATE_TOWER_SHARE = 0.1
_PREFIXES_OF_COUNTED_TOWERS = ("qwen", "siglip")
_MODEL_TYPES_WITH_TWO_TOWERS = frozenset({"video_llava"})
# Fields without weights of their own, and those that are read here. Any other could mean a part that is not counted.
_SUPPORTED_FIELD_PATTERN = re.compile(
    r"_.*|.*(token_ids?|_eps|epsilon|dropout|pdrop|_range|_std|_multiplier|_scaling|_softcapping|_coef|_dtype|_version"
    r"|_window|_window_size|_window_layers|_theta|_factor|_activation|_act|_position_embeddings|_length|_groups?|_topk)"
    r"|(rope|rotary|router|output|return|use_cache|use_bias|use_qk|logit|norm|attn_temperature|mup|topk|pretraining)_?.*"
    r"|architectures|auto_map|id2label|label2id|dtype|model_type|name|bias|is_decoder|n_group|scoring_func|layer_types"
    r"|activation_function|partial_rotary_factor|no_rope_layers?|hidden_size|intermediate_size|num_hidden_layers"
    r"|num_attention_heads|num_key_value_heads|vocab_size|head_dim|tie_word_embeddings|attention_bias|mlp_bias"
    r"|num_local_experts|num_experts|n_routed_experts|moe_num_experts|num_experts_per_tok(en)?|moe_k"
    r"|moe_intermediate_size|shared_expert_intermediate_size|shared_intermediate_size"
    r"|n_shared_experts|num_shared_experts|moe_num_shared_experts|first_k_dense_replace|num_dense_layers|mlp_only_layers"
    r"|decoder_sparse_step|mlp_layer_types|(q|kv)_lora_rank|qk_(nope_|rope_)?head_dim|v_head_dim"
    r"|num_nextn_predict_layers|text_config|vision_config|quantization_config|moe_layer_(start|end)_index"
    r"|moe_layer_interval|moe_norm_min|route_scale|is_moe|(.*_)?sliding_window_pattern|global_attn_every_n_layers"
)


def max_tokens_of_config(config: dict[str, Any]) -> int:
    """Return how many tokens a model takes by its config.json, 0 where that does not say."""
    inner = config.get("text_config")
    for table in (inner if isinstance(inner, dict) else {}, config):
        for name in ("max_position_embeddings", "n_positions"):
            if isinstance(value := table.get(name), int) and 0 < value <= _MAX_CONFIG_NUMBER:
                return value
    return 0


def parse_model_dimensions(config: dict[str, Any], name: str = "") -> ModelDimensions:
    """Return the shape in a config.json; ValueError for a part that is not modelled, or an invalid number."""
    inner = config.get("text_config")
    fields = _ConfigFields(inner if isinstance(inner, dict) else config, is_nested=isinstance(inner, dict))
    kind = fields.values.get("model_type", config.get("model_type"))
    if not isinstance(kind, str):
        raise ValueError(f"unknown model type {kind}")  # noqa: TRY004 - of the file, as all that is wrong there
    tables, known = (config, fields.values), layer_structure_by_model_type()
    for table in tables:
        _refuse_unsupported_parts(table)
    tied = next((each for table in tables if isinstance(each := table.get("tie_word_embeddings"), bool)), None)
    rows = (known[name] for name in (kind, f"{kind}_text") if name in known)
    structure: dict[str, Any] | None = next(rows, None)
    if structure is None:
        _refuse_unclear_layers(kind, fields, tied=tied)
        structure = {"caveats": (f"model type {kind}: its layers are counted as config.json describes them",)}
    fields = fields.with_defaults(structure.get("absent", {}))
    values = {
        **{key: value for key, value in structure.items() if key != "absent"},
        "name": name,
        "type": kind,
        **_model_sizes(fields),
        **_latent_attention_sizes(fields),
        **_expert_sizes(kind, fields),
        **_sizes_of_layers_without_attention(fields),
        "dtype": _dtype_in_config(config, fields),
    }
    if tied is not None:
        values["ties_embeddings"] = tied
    if kind in {"gpt2", "gpt_bigcode"}:
        values["learned_positions"] = fields.first_integer("n_positions", default=1024)
    shape = msgspec.convert(values | _layer_structure_of_type(kind, fields), type_prepared_for_msgspec(ModelDimensions))
    return _with_image_tower_and_layer_embeddings(shape, config, fields)


class _ConfigFields:
    """The fields of a config.json."""

    def __init__(self, values: dict[str, Any], *, is_nested: bool) -> None:
        self.values, self.is_nested = values, is_nested

    def with_defaults(self, defaults: dict[str, Any]) -> "_ConfigFields":
        """Return the fields with those of a type where they are absent."""
        return _ConfigFields({**defaults, **self.values}, is_nested=self.is_nested)

    def first_integer(self, *names: str, default: int = 0) -> int:
        """Return the first of these that is there; ValueError for what is no size."""
        name = next((each for each in names if self.values.get(each) is not None), "")
        value = self.values[name] if name else default
        if isinstance(value, list) and value and all(each == value[0] for each in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_CONFIG_NUMBER:
            raise ValueError(f"{name} is {value!r}")
        return value

    def list_or_empty(self, name: str) -> Sequence[object]:
        """Return a list, empty if there is none."""
        value = self.values.get(name)
        return value if isinstance(value, list) else ()


def _refuse_unclear_layers(kind: str, fields: _ConfigFields, *, tied: bool | None) -> None:
    """Raise ValueError where the fields of a type without a row do not tell how its layers are built."""
    live = (name for name, value in fields.values.items() if value)
    if unclear := next((name for name in live if not _SUPPORTED_FIELD_PATTERN.fullmatch(name)), ""):
        raise ValueError(f"unknown model type {kind}: how many weights {unclear} means is not known")
    if tied is None:
        raise ValueError(f"unknown model type {kind}: it does not say whether the embeddings are tied")
    if fields.values.get("hidden_act") not in _GATED_ACTIVATIONS:
        raise ValueError(f"unknown model type {kind}: it does not say whether its MLP is gated")


def _refuse_unsupported_parts(table: dict[str, Any]) -> None:
    for name, value in table.items():
        is_part = name.endswith("_config") and isinstance(value, dict) and name not in _SUPPORTED_SUBTABLES
        if (name in _FIELDS_OF_UNSUPPORTED_PARTS and value) or is_part:
            raise ValueError(f"how many weights {name} means is not known")
    quantized = table.get("quantization_config")
    if quantized and not (isinstance(quantized, dict) and quantized.get("quant_method") == "mxfp4"):
        raise ValueError("this quantization is not modelled")


def _model_sizes(fields: _ConfigFields) -> dict[str, Any]:
    hidden = fields.first_integer("hidden_size", "n_embd")
    heads = fields.first_integer("num_attention_heads", "n_head")
    layers, vocab = fields.first_integer("num_hidden_layers", "n_layer"), fields.first_integer("vocab_size")
    if not hidden or not heads or not layers or not vocab or layers > _MAX_LAYERS:
        raise ValueError("it lacks layers, heads, hidden size or vocabulary")
    width = {"intermediate_size", "moe_intermediate_size"} & fields.values.keys()
    if fields.is_nested and not (width and fields.values.get("num_key_value_heads")):
        # Nested tables were written without the defaults of their type.
        raise ValueError("it lacks heads of keys and values, or the width of the MLP")
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocab": vocab,
        "kv_heads": 1
        if fields.values.get("multi_query")
        else fields.first_integer("num_key_value_heads", "num_kv_heads"),
        "head_dim": fields.first_integer("head_dim"),
        "ffn": fields.first_integer("intermediate_size", "n_inner", "ffn_hidden_size", default=4 * hidden),
    }


def _latent_attention_sizes(fields: _ConfigFields) -> dict[str, Any]:
    """Return the sizes of attention whose keys and values are compressed, empty for any other."""
    rank = fields.first_integer("kv_lora_rank")
    if not rank:
        return {}
    rotary = fields.first_integer("qk_rope_head_dim")
    return {
        "query_rank": fields.first_integer("q_lora_rank"),
        "key_rank": rank,
        "rotary_dim": rotary,
        "head_dim": fields.first_integer("qk_nope_head_dim") + rotary,
        "value_dim": fields.first_integer("v_head_dim"),
        "kv_heads": 0,
    }


def _expert_sizes(kind: str, fields: _ConfigFields) -> dict[str, Any]:
    """Return the experts, their widths, and the layers without them; a plain MLP where there are none."""
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    experts = 0 if fields.values.get("is_moe") is False else fields.first_integer(*names)
    shared = fields.first_integer("shared_expert_intermediate_size", "shared_intermediate_size")
    if not experts:
        # Granite's layers without experts have the shared MLP alone.
        return {"ffn": shared} if shared else {}
    width = fields.first_integer("moe_intermediate_size", "intermediate_size")
    shared = shared or width * fields.first_integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    found = {
        "experts": experts,
        "experts_per_token": fields.first_integer("num_experts_per_tok", "num_experts_per_token", "moe_k"),
        "expert_ffn": width,
        "shared_ffn": shared,
        "dense_layers": _count_dense_layers(fields),
    }
    if kind.startswith("llama4"):
        # It gives all tokens to all experts, most of them as zeros.
        found |= {
            "shared_ffn": width,
            "ffn": fields.first_integer("intermediate_size_mlp"),
            "experts_per_token": experts,
        }
    return found


def _count_dense_layers(fields: _ConfigFields) -> int:
    """Return how many layers of a model of experts have a plain MLP."""
    layers = fields.first_integer("num_hidden_layers")
    if kinds := fields.list_or_empty("mlp_layer_types"):
        return kinds.count("dense")
    if every := fields.first_integer("interleave_moe_layer_step"):
        return layers - layers // every
    first = fields.first_integer("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    dense = fields.list_or_empty("mlp_only_layers")
    step = fields.first_integer("decoder_sparse_step", "moe_layer_interval", default=1) or 1
    end = fields.values.get("moe_layer_end_index")
    last = end if isinstance(end, int) and end >= 0 else layers
    return sum(index < first or index > last or index in dense or (index + 1) % step != 0 for index in range(layers))


def _sizes_of_layers_without_attention(fields: _ConfigFields) -> dict[str, Any]:
    """Return how many layers have something else in its place, and the weights of that."""
    kinds = fields.list_or_empty("layer_types")
    count = sum(each not in _ATTENTION_LAYER_TYPES for each in kinds)
    if (every := fields.first_integer("full_attention_interval")) and not kinds:
        count = fields.first_integer("num_hidden_layers") // every * (every - 1)
    if not count:
        return {}
    hidden = fields.first_integer("hidden_size")
    if values := fields.first_integer("linear_num_value_heads"):
        keys = fields.first_integer("linear_num_key_heads") * fields.first_integer("linear_key_head_dim")
        width = values * fields.first_integer("linear_value_head_dim")
        linear = hidden * (2 * keys + 3 * width + 2 * values)
        convolution = (2 * keys + width) * fields.first_integer("linear_conv_kernel_dim")
    elif state := fields.first_integer("mamba_d_state"):
        heads = fields.first_integer("mamba_n_heads")
        width = heads * fields.first_integer("mamba_d_head") or fields.first_integer("mamba_expand") * hidden
        groups = 2 * fields.first_integer("mamba_n_groups") * state
        linear = hidden * (2 * width + groups + heads + width)
        convolution = (width + groups) * (fields.first_integer("mamba_d_conv") + 1)
    elif kernel := fields.first_integer("conv_L_cache"):
        linear, convolution = 4 * hidden * hidden, hidden * kernel
    else:
        unknown = next((each for each in kinds if each not in _ATTENTION_LAYER_TYPES), "linear_attention")
        raise ValueError(f"how many weights a layer of {unknown} has is not known")
    caveat = "layers without attention: their activations are not modelled"
    return {"mixer_layers": count, "mixer_linear": linear, "mixer_other": convolution, "caveats": (caveat,)}


def _layer_structure_of_type(model_type: str, fields: _ConfigFields) -> dict[str, Any]:
    """Return the structure of the layers of a type, as far as config.json decides it."""
    values = fields.values
    if model_type == "stablelm":
        return {"qkv_bias": bool(values.get("use_qkv_bias"))}
    if model_type == "gpt_neox":
        return {"has_parallel_attention": values.get("use_parallel_residual") is not False}
    if model_type == "falcon":
        new = bool(values.get("new_decoder_architecture"))
        parallel = new or values.get("parallel_attn") is not False
        return {"has_parallel_attention": parallel, "norms_per_layer": 2 if new or not parallel else 1} | (
            {"kv_heads": fields.first_integer("num_kv_heads")} if new else {}
        )
    return {}


def _dtype_in_config(config: dict[str, Any], fields: _ConfigFields) -> str:
    if isinstance(config.get("quantization_config"), dict):
        # To be trained, mxfp4 is loaded as bf16.
        return "bf16"
    named = (table.get(name) for table in (config, fields.values) for name in ("dtype", "torch_dtype"))
    return _SHORT_NAME_BY_DTYPE.get(str(next((each for each in named if each), "")), "")


def _with_image_tower_and_layer_embeddings(
    shape: ModelDimensions, config: dict[str, Any], fields: _ConfigFields
) -> ModelDimensions:
    """Return the shape with the weights outside of plain layers: an image tower, and embeddings of each layer."""
    caveats, others = shape.caveats, _extra_gemma_weights(shape, fields)
    if others:
        caveats += ("embeddings of each layer: their activations are not modelled",)
    vision = config.get("vision_config")
    if isinstance(vision, dict) and vision:
        tower = _image_tower_weights(vision)
        is_rough = not str(vision.get("model_type", config.get("model_type"))).startswith(_PREFIXES_OF_COUNTED_TOWERS)
        too_rough = is_rough and tower > _MAX_APPROXIMATE_TOWER_SHARE * shape.parameters
        if too_rough or config.get("model_type") in _MODEL_TYPES_WITH_TWO_TOWERS:
            raise ValueError("how many weights vision_config means is not known well enough")
        others += tower
        caveats += ("an image part: its weights are counted, its activations are not modelled",)
    if config.get("quantization_config"):
        caveats += ("its files are mxfp4: counted as bf16, as which it can be trained",)
    return msgspec.structs.replace(shape, other_parameters=others, caveats=caveats)


def _extra_gemma_weights(shape: ModelDimensions, fields: _ConfigFields) -> int:
    """Return the weights that gemma3n and gemma4 have besides; negative where heads are fewer than counted."""
    width, layers, hidden = fields.first_integer("hidden_size_per_layer_input"), shape.layers, shape.hidden
    found = 0
    if width:
        rows = fields.first_integer("vocab_size_per_layer_input", "vocab_size")
        found += layers * width * (rows + 3 * hidden)
        found += 2 * max(0, fields.first_integer("altup_num_inputs") - 1) * hidden * hidden
        found += layers * 2 * fields.first_integer("laurel_rank") * hidden
    if (shared := fields.first_integer("num_kv_shared_layers")) > layers:
        raise ValueError(f"num_kv_shared_layers is {shared}, more than its {layers} layers")
    found -= shared * 2 * shape.key_width * hidden
    differing = fields.values.get("per_layer_config") or {}
    for other in differing.values() if isinstance(differing, dict) else (differing,):
        if not isinstance(other, dict) or other.keys() - {"head_dim"}:
            raise ValueError("how many weights per_layer_config means is not known")
        wider = _ConfigFields(other, is_nested=False).first_integer("head_dim") - shape.head_width
        found += 2 * (shape.heads + (shape.kv_heads or shape.heads)) * wider * hidden
    return found


def _image_tower_weights(table: dict[str, Any]) -> int:
    """Return the weights of a vision transformer, with what merges its patches."""
    fields = _ConfigFields(table, is_nested=False)
    # Where both are there, the second is the width of what is merged.
    hidden = fields.first_integer("embed_dim", "hidden_size")
    out = fields.first_integer("out_hidden_size", "hidden_size")
    layers = fields.first_integer("num_hidden_layers", "depth", "num_layers")
    if not hidden or not layers:
        raise ValueError("how many weights vision_config means is not known")
    ffn = fields.first_integer("intermediate_size", default=hidden * fields.first_integer("mlp_ratio", default=4))
    gated = table.get("hidden_act") == "silu" or table.get("model_type") == "pixtral"
    heads = fields.first_integer("num_attention_heads", "num_heads", default=1)
    keys = hidden * fields.first_integer("num_key_value_heads", default=heads) // max(1, heads)
    merged = hidden * fields.first_integer("spatial_merge_size") ** 2
    mergers = 1 + len(fields.list_or_empty("deepstack_visual_indexes"))
    return layers * hidden * (2 * hidden + 2 * keys + (3 if gated else 2) * ffn) + mergers * merged * (merged + out)

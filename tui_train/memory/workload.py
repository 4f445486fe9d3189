"""The model and the settings that determine memory, from a profile, its arguments and its YAML file."""

import math
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from tui_train.base.versions import is_at_least_or_unknown
from tui_train.facts.data.data_use import have_images
from tui_train.facts.models.dimensions import ModelDimensions, find_known_dimensions
from tui_train.facts.types import YamlDocument
from tui_train.memory.trainer_conventions import (
    adapter_dtype,
    frozen_weight_quantization,
    loss_and_kernels,
    unquantized_weight_dtype,
)
from tui_train.memory.types import (
    ALL_LORA_TARGETS,
    ATTENTION_LORA_TARGETS,
    OTHER_NAMES_BY_LORA_TARGET,
    QUERY_VALUE_LORA_TARGETS,
    AttentionKind,
    Dtype,
    MemorySettings,
    OptimizerKind,
    ShardingKind,
)
from tui_train.profile.presets import SCRIPT_LABEL
from tui_train.profile.rewards import generates_answers
from tui_train.profile.types import Precision, Profile, Recipe
from tui_train.programs import hub_cache
from tui_train.setup.recipe.options import TrainerOptions, script_options, user_options_for_value
from tui_train.setup.recipe.placeholder_values import effective_accumulation
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo as nemo_trainer
from tui_train.trainers import trainer_has_own_field, trainer_of

# Vocabulary of the built-in trainer: bytes, an end of text, and padding.
_BUILTIN_VOCABULARY_SIZE = 264
_WHY_GENERATION_UNKNOWN = "the model writes answers while it trains, whose memory is not modelled"
_WHY_IMAGES_UNKNOWN = "the data has images, whose memory is not modelled"
# Assumed if the script does not set it.
_ASSUMED_SEQUENCE_LENGTH = 1024
_OPTIMIZER_BY_NAME: dict[str, OptimizerKind] = {
    "adamw_torch": "adamw_foreach",
    "adamw_torch_fused": "adamw_fused",
    "adamw_fused": "adamw_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
_AUTOCAST_BY_PRECISION: dict[Precision, Literal["", "bf16", "fp16"]] = {"fp32": "", "bf16": "bf16", "fp16": "fp16"}
_ATTENTION_BY_NAME: dict[str, AttentionKind] = {"eager": "eager", "sdpa": "sdpa", "fa2": "flash", "true": "flash"}


class MemoryWorkload(Struct, frozen=True):
    """The model and how it is trained; `why_unknown` is what is missing if either is None.

    `unknown_model` is the model of the Hub whose config.json would tell the sizes that are missing.
    """

    model: ModelDimensions | None = None
    settings: MemorySettings | None = None
    model_folder: str = ""
    why_unknown: str = ""
    unknown_model: str = ""


def derive_workload(setup: Setup) -> MemoryWorkload:
    """Return the model and settings of an attempt; pure."""
    profile = setup.effective_profile
    if trainer_has_own_field(profile, "nemo"):
        return _nemo_workload(setup)
    if trainer_of(profile).can_create_model and not profile.trainer.model:
        return MemoryWorkload(new_model_dimensions(profile.recipe), _memory_settings(setup))
    return _loaded_model_workload(setup)


def _loaded_model_workload(setup: Setup) -> MemoryWorkload:
    profile, facts, document = setup.effective_profile, setup.facts, setup.config_document
    if why := _why_finetuning_not_modelled(setup):
        return MemoryWorkload(why_unknown=why)
    if _effective_micro_batch(setup) is None:
        return MemoryWorkload(why_unknown=_why_batch_unknown(setup))
    if document and document.problem:
        return MemoryWorkload(why_unknown=f"{profile.trainer.config}: {document.problem}")
    name = chosen_model_name(profile, setup.trainer_options)
    if not name:
        own = (
            trainer_has_own_field(profile, "trainer.script")
            and "model" not in setup.ladder_context.accepted_placeholders
        )
        return MemoryWorkload(
            why_unknown="the script's own model is not known" if own else "no model is set (trainer.model)"
        )
    model_folder = facts.models.get(name)
    folder = (model_folder.path or name) if model_folder and model_folder.dimensions else ""
    model = (model_folder.dimensions if model_folder else None) or find_known_dimensions(name)
    if model is None:
        problem = model_folder.problem if model_folder else ""
        fetchable = not problem and hub_cache.is_valid_model_id(name)
        problem = problem or ("its sizes are not known here" if fetchable else "unknown model: give its folder")
        return MemoryWorkload(why_unknown=f"{name}: {problem}", unknown_model=name if fetchable else "")
    if not name.startswith("/"):
        # The folder of a model in the cache is called after its commit.
        model = structs.replace(model, name=name)
    return MemoryWorkload(model, _memory_settings(setup, model), folder)


def _why_finetuning_not_modelled(setup: Setup) -> str:
    """Return which part of a fine-tuning is not modelled, empty where all of it is."""
    profile = setup.effective_profile
    if not trainer_has_own_field(profile, "finetune"):
        return ""
    if generates_answers(profile.finetune):
        return _WHY_GENERATION_UNKNOWN
    return _WHY_IMAGES_UNKNOWN if have_images(profile.trainer.data, setup.facts.data) else ""


def _why_batch_unknown(setup: Setup) -> str:
    if "micro_batch" in setup.ladder_context.accepted_placeholders:
        return "the micro batch is not known: set recipe.micro_batch"
    if setup.preset.label == SCRIPT_LABEL:
        return "the script's own batch is not known"
    return f"{setup.preset.name_in_sentence} passes no micro batch, and the script's own is not known"


def chosen_model_name(profile: Profile, options: TrainerOptions) -> str:
    """Return the folder or name of the model, empty if none is set."""
    return profile.trainer.model or options.text("model")


def models_to_read(profile: Profile, documents: Mapping[str, YamlDocument]) -> tuple[str, ...]:
    """Return the model in the profile, its arguments or its YAML file, a folder or an id, to read its shape."""
    name = chosen_model_name(profile, script_options(profile, documents))
    return (name,) if name.startswith("/") or hub_cache.is_valid_model_id(name) else ()


def new_model_dimensions(recipe: Recipe) -> ModelDimensions:
    """Return the new model of the built-in trainer for the sizes of an effective recipe."""
    hidden = recipe.hidden_size or 0
    return ModelDimensions(
        name="a new model",
        layers=recipe.layers or 0,
        hidden=hidden,
        heads=recipe.heads or 0,
        ffn=math.ceil(8 * hidden / 3 / 32) * 32,
        vocab=_BUILTIN_VOCABULARY_SIZE,
        ties_embeddings=True,
    )


def _effective_micro_batch(setup: Setup) -> int | None:
    """Return the micro batch of the recipe, or of an option with a common name."""
    return setup.effective_profile.recipe.micro_batch or setup.trainer_options.integer("micro_batch") or None


def _memory_settings(setup: Setup, model: ModelDimensions | None = None) -> MemorySettings:
    """Return how a model is trained, a new one where none is given."""
    profile, options = setup.effective_profile, setup.trainer_options
    recipe, packing = profile.recipe, frozen_weight_quantization(options)
    lora, precision = _trains_adapter(setup), _effective_precision(setup)
    filed = unquantized_weight_dtype(setup, model.dtype if model else "", trains_lora=lora)
    sharding = _sharding_kind(setup)
    # With mixed precision accelerate keeps weights that FSDP trains in fp32.
    widened = sharding == "fsdp" and precision != "fp32" and not lora
    loaded_dtype: Dtype = "fp32" if widened else filed or "fp32"
    kind, kernels = loss_and_kernels(setup, liger=bool(recipe.fused_cross_entropy or options.is_on("liger")))
    checkpointing = _recomputes_activations(setup)
    finetune_method = profile.finetune.method if trainer_has_own_field(profile, "finetune") else ""
    return MemorySettings(
        micro_batch=_effective_micro_batch(setup) or 1,
        sequences_per_sample=2 if finetune_method in {"dpo", "reward"} else 1,
        has_reference_model=finetune_method in {"dpo", "kto"} and not lora,
        sequence_length=recipe.sequence_length or options.integer("length", _ASSUMED_SEQUENCE_LENGTH),
        eval_batch=_effective_eval_batch(setup),
        weight_dtype=loaded_dtype,
        autocast=_AUTOCAST_BY_PRECISION[precision],
        trained="lora" if lora else "full",
        quantization=packing,
        lora_rank=options.integer("lora_rank", 8 if "finetuning_type" in options else 16),
        lora_targets=_lora_targets(
            TrainerOptions({"lora_target": "all", **options}) if _is_lora_by_fallback(setup) else options
        ),
        adapter_dtype=adapter_dtype(setup, quantization=packing, sharding=sharding, loaded_dtype=loaded_dtype),
        lora_dropout=0.05 if lora else 0.0,
        optimizer=_optimizer_kind(setup),
        attention=_attention_kind(options),
        checkpoints_activations=checkpointing,
        loss=kind,
        fused_kernels=kernels,
        sharding=sharding,
        shard_count=setup.model_copies,
        offload=profile.trainer.offload,
        accumulates_gradients=(effective_accumulation(profile, setup.model_copies) or 0) > 1,
        fused_experts=is_at_least_or_unknown(setup.toolchain.transformers if setup.toolchain else None, "5.0"),
        keeps_quantized_unsharded=_holds_all_quantized_weights(setup),
        holds_frozen_layers=lora and checkpointing and _uses_fsdp1(options) and _has_reentrant_checkpointing(setup),
        caveats=_workload_caveats(setup, weights_known=widened or filed is not None),
    )


def _is_lora_by_fallback(setup: Setup) -> bool:
    return setup.effective_profile.recipe.lora and "lora" in setup.ladder_context.accepted_placeholders


def _trains_adapter(setup: Setup) -> bool:
    """Return whether an adapter is trained: as the fallback or the options say, and always on quantized weights."""
    options = setup.trainer_options
    named = any("lora" in text for text in options.texts("adapter"))
    return (
        _is_lora_by_fallback(setup) or options.is_on("use_peft") or bool(frozen_weight_quantization(options)) or named
    )


def _effective_precision(setup: Setup) -> Precision:
    """Return the precision of the recipe, or else of the options."""
    options = setup.trainer_options
    by_option: Precision = "bf16" if options.is_on("bf16") else "fp16" if options.is_on("fp16") else "fp32"
    return setup.effective_profile.recipe.precision or by_option


def _recomputes_activations(setup: Setup) -> bool:
    chosen = setup.effective_profile.recipe.activation_checkpointing
    return setup.trainer_options.is_on("gradient_checkpointing") if chosen is None else chosen


def _holds_all_quantized_weights(setup: Setup) -> bool:
    """Return whether each process holds all quantized weights.

    FSDP2 does not shard the weights of bitsandbytes, unless they are stored as numbers.
    """
    packing = frozen_weight_quantization(setup.trainer_options)
    sharded = setup.effective_profile.trainer.strategy == "fsdp2"
    return packing in {"nf4", "nf4-dq"} and sharded and "bnb_4bit_quant_storage" not in setup.trainer_options


def _effective_eval_batch(setup: Setup) -> int:
    """Return the evaluation batch; 0 (the micro batch) if no evaluation is requested."""
    recipe, options = setup.effective_profile.recipe, setup.trainer_options
    if recipe.eval_batch and "eval_batch" in setup.ladder_context.accepted_placeholders:
        return recipe.eval_batch
    by_strategy = any(text not in {"", "no", "none"} for text in options.texts("eval_strategy"))
    evaluates = options.is_on("evaluates") or by_strategy
    return options.integer("eval_batch", setup.ladder_context.eval_batch) if evaluates else 0


def _lora_targets(options: TrainerOptions) -> tuple[str, ...]:
    text = options.text("lora_targets")
    if "all" in text or options.is_on("lora_target_linear"):
        return ALL_LORA_TARGETS
    words = set(re.findall(r"\w+", text))
    named = tuple(name for name in ALL_LORA_TARGETS if words & {name, *OTHER_NAMES_BY_LORA_TARGET[name]})
    return named or (QUERY_VALUE_LORA_TARGETS if not text else ATTENTION_LORA_TARGETS)


def _optimizer_kind(setup: Setup) -> OptimizerKind:
    recipe, options = setup.effective_profile.recipe, setup.trainer_options
    if recipe.optimizer_8bit:
        return "adamw_8bit"
    named = options.text("optimizer").lower()
    if named in _OPTIMIZER_BY_NAME:
        return _OPTIMIZER_BY_NAME[named]
    # On the CPU torch steps one parameter at a time; transformers uses fused AdamW since torch 2.8.
    fused = setup.device == "cpu" or recipe.fused_optimizer
    fused = fused or is_at_least_or_unknown(setup.toolchain.torch if setup.toolchain else None, "2.8")
    return "adamw_fused" if fused else "adamw_foreach"


def _attention_kind(options: TrainerOptions) -> AttentionKind:
    named = options.text("attention").lower()
    return "flash" if "flash" in named else _ATTENTION_BY_NAME.get(named, "sdpa")


def _sharding_kind(setup: Setup) -> ShardingKind:
    if setup.model_copies < 2:
        return ""
    strategy = setup.effective_profile.trainer.strategy
    return "fsdp" if strategy == "fsdp2" or _uses_fsdp1(setup.trainer_options) else strategy


def _uses_fsdp1(options: TrainerOptions) -> bool:
    """Return whether the script shards by itself, which means FSDP1 without a config file."""
    return "full_shard" in str(options.get("fsdp", ""))


def _has_reentrant_checkpointing(setup: Setup) -> bool:
    """Return whether checkpointing is reentrant, the default of transformers before 5.0."""
    named = re.search(r"use_reentrant\W+(\w+)", str(setup.trainer_options.get("gradient_checkpointing_kwargs", "")))
    if named:
        return named[1].lower() == "true"
    return not is_at_least_or_unknown(setup.toolchain.transformers if setup.toolchain else None, "5.0")


def _workload_caveats(setup: Setup, *, weights_known: bool) -> tuple[str, ...]:
    """Return what is not known, and so assumed, or not modelled."""
    profile, options = setup.effective_profile, setup.trainer_options
    length = profile.recipe.sequence_length or options.integer("length")
    precision = profile.recipe.precision or options.is_on("bf16") or options.is_on("fp16")
    batches = () if setup.preset.user_arguments_first else user_options_for_value("micro_batch", profile, setup.preset)
    conditions = {
        "your arguments set a batch: the recipe's is used here": bool(batches),
        "type of the weights: fp32 is assumed, set --dtype otherwise": not weights_known,
        "torch.compile: its memory is not modelled": options.is_on("compile"),
        f"{_ASSUMED_SEQUENCE_LENGTH} tokens per sample are assumed: the script does not set it": not length,
        "fp32 is assumed: the script does not set a precision": not precision,
        "FSDP1: some programs load the full model on each GPU": _uses_fsdp1(options),
        "your own script: assumed to train like transformers' Trainer": trainer_has_own_field(profile, "trainer.script")
        and not setup.preset.module,
    }
    return tuple(words for words, holds in conditions.items() if holds)


def _nemo_workload(setup: Setup) -> MemoryWorkload:
    """Return the model and settings of a NeMo recipe: sharded optimizer, fused layers."""
    profile = setup.effective_profile
    nemo, recipe = profile.nemo, profile.recipe
    if nemo_trainer.gpus_per_model_copy(nemo, setup.nemo_flavour) > 1:
        return MemoryWorkload(why_unknown="tensor, pipeline and context parallel are not modelled")
    model = find_known_dimensions(nemo.recipe)
    if model is None:
        return MemoryWorkload(
            why_unknown="the model size of this recipe is unknown" if nemo.recipe else "set a recipe (nemo.recipe)"
        )
    if nemo_trainer.can_set_model_size(profile, setup.nemo_flavour):
        model = _with_recipe_sizes(model, recipe)
    if recipe.micro_batch is None or recipe.sequence_length is None:
        return MemoryWorkload(why_unknown="the recipe's batch is unknown: set micro batch and sequence length")
    lora = nemo.task == "finetune" and nemo.peft == "lora"
    how = MemorySettings(
        micro_batch=recipe.micro_batch,
        sequence_length=recipe.sequence_length,
        weight_dtype="bf16",
        trained="lora" if lora else "full",
        lora_rank=32,
        adapter_dtype="bf16",
        lora_targets=ALL_LORA_TARGETS,
        optimizer="adamw_fused",
        attention="flash",
        checkpoints_activations=bool(recipe.activation_checkpointing),
        sharding="" if lora else "zero1",
        shard_count=setup.model_copies,
        fused_kernels="liger",
        caveats=("NeMo: estimated with transformers' layers, not Megatron's",),
    )
    return MemoryWorkload(model, how)


def _with_recipe_sizes(model: ModelDimensions, recipe: Recipe) -> ModelDimensions:
    """Return the model of a recipe with the sizes that its file sets instead, as the file sets them."""
    if recipe.layers:
        model = structs.replace(model, layers=recipe.layers, exact_parameters=0)
    if recipe.hidden_size and recipe.heads:
        hidden, heads = recipe.hidden_size, recipe.heads
        model = structs.replace(
            model,
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            ffn=4 * hidden,
            exact_parameters=0,
        )
    return structs.replace(model, ffn=recipe.ffn_hidden_size, exact_parameters=0) if recipe.ffn_hidden_size else model

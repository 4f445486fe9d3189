"""From a profile to what is trained and how, as far as memory is concerned: its values, arguments and YAML file."""

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from tui_train.base.versions import at_least
from tui_train.facts.dimensions import Dimensions, by_name
from tui_train.facts.types import Document, Facts
from tui_train.memory.trainers import loss, on, packed, weights
from tui_train.memory.types import (
    ALSO,
    ATTENTION,
    EVERY,
    QUERIES_VALUES,
    Attention,
    How,
    Optimizer,
    Sharding,
)
from tui_train.profile.types import Profile, Recipe
from tui_train.resolve.options import arguments, user_arguments
from tui_train.resolve.resolve import Resolved
from tui_train.resolve.values import accumulation
from tui_train.trainers import takes_field, trainer_of

# As the built-in trainer has it: bytes, an end of text, and room.
_BYTES = 264
_MODEL = ("model_name_or_path", "base_model", "model_name", "model")
_LENGTH = ("max_length", "max_seq_length", "block_size", "cutoff_len", "sequence_len")
# What is assumed of scripts that do not say it.
_USUAL_LENGTH = 1024
_MICRO_BATCH = ("per_device_train_batch_size", "micro_batch_size", "micro_batch")
_EVAL_BATCH = ("per_device_eval_batch_size", "eval_batch_size")
# What a trainer does where nothing is said, and others do not.
_USUAL = {"llama-factory": {"finetuning_type": "lora", "lora_target": "all"}}
_OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_torch": "adamw_foreach",
    "adamw_torch_fused": "adamw_fused",
    "adamw_fused": "adamw_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
_ATTENTIONS: dict[str, Attention] = {"eager": "eager", "sdpa": "sdpa", "fa2": "flash", "true": "flash"}


class Asked(Struct, frozen=True):
    """The model and how it is trained; `why_not` says, where either is missing, what would be needed."""

    model: Dimensions | None = None
    how: How | None = None
    folder: str = ""
    why_not: str = ""


def asked(facts: Facts, resolved: Resolved) -> Asked:
    """Return what a settled profile trains and how; pure."""
    profile = resolved.settled
    if takes_field(profile, "nemo"):
        return _nemo(profile, resolved)
    shipped = trainer_of(profile).shipped
    if shipped and not profile.trainer.model:
        return Asked(own_model(profile.recipe), _how(profile, resolved, {}))
    told = {} if shipped else settings(profile, facts.documents)
    return _loaded(profile, facts, resolved, told)


def _loaded(profile: Profile, facts: Facts, resolved: Resolved, told: dict[str, Any]) -> Asked:
    """Return what is asked of a model that is loaded by its name or folder."""
    if _micro_batch(profile, told) is None:
        return Asked(why_not="the micro batch is not known: set recipe.micro_batch")
    document = facts.documents.get(profile.trainer.config)
    if document and document.problem:
        return Asked(why_not=f"{profile.trainer.config}: {document.problem}")
    name = model_of(profile, told)
    if not name:
        return Asked(why_not="name a model: trainer.model, or the script's own argument for it")
    found = facts.models.get(name)
    model = found.dimensions if found else None
    folder = name if model else ""
    shape = by_name(name)
    model = model or (structs.replace(shape, name=name) if shape else None)
    if model is None:
        problem = found.problem if found and found.problem else "this model is not known, name its folder"
        return Asked(why_not=f"{name}: {problem}")
    return Asked(model, _how(profile, resolved, told, model), folder)


def model_of(profile: Profile, told: Mapping[str, Any]) -> str:
    """Return the folder or the name of the model that is trained, empty where none is named."""
    return profile.trainer.model or next((str(told[key]) for key in _MODEL if told.get(key)), "")


def models_of(profile: Profile, documents: Mapping[str, Document]) -> tuple[str, ...]:
    """Return the folders of models that the profile names, itself or in its YAML file, for someone to read."""
    name = model_of(profile, settings(profile, documents))
    return (name,) if name.startswith("/") else ()


def own_model(recipe: Recipe) -> Dimensions:
    """Return the new model that the built-in trainer makes of the sizes of a settled recipe."""
    hidden = recipe.hidden_size or 0
    return Dimensions(
        name="a new model",
        layers=recipe.layers or 0,
        hidden=hidden,
        heads=recipe.heads or 0,
        ffn=math.ceil(8 * hidden / 3 / 32) * 32,
        vocab=_BYTES,
        tied=True,
    )


def settings(profile: Profile, documents: Mapping[str, Document]) -> dict[str, Any]:
    """Return what is told to a script: the values of its YAML file, and over them those of the arguments."""
    document = documents.get(profile.trainer.config)
    usual = _USUAL.get(profile.trainer.preset, {})
    own = arguments(profile.trainer.arguments, bare=bool(profile.trainer.config))
    told = {said.option: said.value for said in own}
    return {**usual, **(document.values if document else {}), **told}


def _number(told: Mapping[str, Any], names: tuple[str, ...], usual: int) -> int:
    found = next((str(told[name]) for name in names if re.fullmatch(r"\d{1,9}", str(told.get(name, "")))), "")
    return int(found) if int(found or 0) else usual


def _micro_batch(profile: Profile, told: Mapping[str, Any]) -> int | None:
    """Return the micro batch, or what arguments say by the names that most trainers have for it."""
    return profile.recipe.micro_batch or _number(told, _MICRO_BATCH, 0) or None


def _how(profile: Profile, resolved: Resolved, told: Mapping[str, Any], model: Dimensions | None = None) -> How:
    recipe, own = profile.recipe, trainer_of(profile).shipped
    steps = accumulation(profile, resolved.copies)
    packing = packed(told)
    words = " ".join(str(told.get(name, "")) for name in ("adapter", "finetuning_type", "peft_method")).lower()
    taken = resolved.context.takes
    made_lora = recipe.lora and "lora" in taken
    lora = not own and (made_lora or on(told, "use_peft") or bool(packing) or "lora" in words)
    precision = recipe.precision or next((name for name in ("bf16", "fp16") if on(told, name)), "fp32")
    precise = precision == "fp32"
    loaded = weights(profile, resolved, told, model.dtype if model else "", lora=lora)
    sharding = _sharding(profile, resolved, told)
    if sharding == "fsdp" and not precise and not lora:
        # With mixed precision accelerate keeps in fp32 what FSDP trains.
        loaded = "fp32"
    liger = recipe.fused_cross_entropy or on(
        told, "use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy"
    )
    kind, kernels = loss(profile, resolved, told, liger=liger)
    checkpointing = recipe.activation_checkpointing
    if checkpointing is None:
        checkpointing = on(told, "gradient_checkpointing")
    return How(
        micro_batch=_micro_batch(profile, told) or 1,
        sequence_length=recipe.sequence_length or _number(told, _LENGTH, _USUAL_LENGTH),
        eval_batch=_eval_batch(profile, resolved, told),
        weights=loaded or "fp32",
        autocast="" if precise else precision,  # type: ignore[arg-type]
        method="lora" if lora else "full",
        packed=packing,
        rank=_number(told, ("lora_r", "lora_rank", "r"), 8 if "finetuning_type" in told else 16),
        targets=_targets({"lora_target": "all", **told} if made_lora else told),
        dropout=0.05 if lora else 0.0,
        optimizer=_optimizer(profile, resolved, told, own=own),
        attention=_attention(told),
        checkpointing=checkpointing,
        loss=kind,
        kernels=kernels,
        sharding=sharding,
        shards=resolved.copies,
        offload=profile.trainer.offload,
        gather=steps is not None and steps > 1,
        # accelerate leaves bitsandbytes' weights out of what FSDP 2 shares, unless they are stored as numbers.
        keeps_packed=packing in {"nf4", "nf4-dq"}
        and profile.trainer.strategy == "fsdp2"
        and "bnb_4bit_quant_storage" not in told,
        holds_layers=lora and checkpointing and _first_fsdp(told) and _reentrant(resolved, told),
        caveats=_caveats(profile, resolved, told, known=loaded is not None),
    )


def _eval_batch(profile: Profile, resolved: Resolved, told: Mapping[str, Any]) -> int:
    """Return how many samples are evaluated at a time; 0, a micro batch, where it is not told that any are."""
    if profile.recipe.eval_batch and "eval_batch" in resolved.context.takes:
        return profile.recipe.eval_batch
    evaluates = on(told, "do_eval", "eval_on_start") or any(
        str(told.get(name, "no")).lower() not in {"", "no", "none"} for name in ("eval_strategy", "evaluation_strategy")
    )
    return _number(told, _EVAL_BATCH, resolved.context.eval_batch) if evaluates else 0


def _targets(told: Mapping[str, Any]) -> tuple[str, ...]:
    value = told.get("lora_target_modules") or told.get("lora_target") or told.get("target_modules") or ""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    if "all" in text or on(told, "lora_target_linear"):
        return EVERY
    words = set(re.findall(r"\w+", text))
    found = tuple(name for name in EVERY if words & {name, *ALSO[name]})
    return found or (QUERIES_VALUES if not text else ATTENTION)


def _optimizer(profile: Profile, resolved: Resolved, told: Mapping[str, Any], *, own: bool) -> Optimizer:
    if profile.recipe.optimizer_8bit:
        return "adamw_8bit"
    named = str(told.get("optim") or told.get("optimizer") or "").lower()
    if named in _OPTIMIZERS:
        return _OPTIMIZERS[named]
    # On the CPU torch takes one parameter after the other; transformers takes the fused one since torch 2.8.
    fused = own or resolved.device == "cpu" or profile.recipe.fused_optimizer
    fused = fused or at_least(resolved.toolchain.torch if resolved.toolchain else None, "2.8")
    return "adamw_fused" if fused else "adamw_foreach"


def _attention(told: Mapping[str, Any]) -> Attention:
    named = str(told.get("attn_implementation") or told.get("flash_attn") or told.get("flash_attention") or "").lower()
    return "flash" if "flash" in named else _ATTENTIONS.get(named, "sdpa")


def _sharding(profile: Profile, resolved: Resolved, told: Mapping[str, Any]) -> Sharding:
    if resolved.copies < 2:
        return ""
    strategy = profile.trainer.strategy
    return "fsdp" if strategy == "fsdp2" or _first_fsdp(told) else strategy


def _first_fsdp(told: Mapping[str, Any]) -> bool:
    """Tell whether the script is told to shard by itself, which without a file for it is FSDP's first version."""
    return "full_shard" in str(told.get("fsdp", ""))


def _reentrant(resolved: Resolved, told: Mapping[str, Any]) -> bool:
    """Tell whether layers are recomputed reentrantly: transformers' default before 5.0."""
    named = re.search(r"use_reentrant\W+(\w+)", str(told.get("gradient_checkpointing_kwargs", "")))
    if named:
        return named[1].lower() == "true"
    return not at_least(resolved.toolchain.transformers if resolved.toolchain else None, "5.0")


def _caveats(profile: Profile, resolved: Resolved, told: Mapping[str, Any], *, known: bool) -> tuple[str, ...]:
    own = trainer_of(profile).shipped
    length = profile.recipe.sequence_length or _number(told, _LENGTH, 0)
    precision = profile.recipe.precision or on(told, "bf16", "fp16")
    first = own or resolved.preset.user_arguments_first
    batches = () if first else user_arguments("micro_batch", profile, resolved.preset)
    found = {
        "a batch of your own among the arguments: the recipe's is taken": bool(batches),
        "what its files are kept in: fp32 is taken, --dtype says otherwise": not known,
        "torch.compile: what it keeps is not known": on(told, "torch_compile", "compile"),
        f"{_USUAL_LENGTH} tokens a sample are assumed: the script does not say how many": not length,
        "fp32 is assumed: the script does not say its precision": not precision,
        "FSDP's first version: some programs load the whole model on each card": _first_fsdp(told),
        "an own script: taken to train as transformers' Trainer does": not own and not resolved.preset.module,
    }
    return tuple(words for words, holds in found.items() if holds)


def _nemo(profile: Profile, resolved: Resolved) -> Asked:
    """Return what a NeMo recipe trains: Megatron's optimizer is shared out, its layers are fused."""
    nemo, recipe = profile.nemo, profile.recipe
    if max(nemo.tensor_parallel, nemo.pipeline_parallel, nemo.context_parallel) > 1:
        return Asked(why_not="tensor, pipeline and context parallel are not modelled")
    model = by_name(nemo.recipe)
    if model is None:
        return Asked(why_not="the sizes of this recipe are not known" if nemo.recipe else "name a recipe (nemo.recipe)")
    if recipe.layers or recipe.hidden_size or recipe.heads:
        return Asked(why_not="recipes with sizes of your own are not modelled")
    if recipe.micro_batch is None or recipe.sequence_length is None:
        return Asked(why_not="the recipe's own batch is not known: set the micro batch and the sequence length")
    lora = nemo.task == "finetune" and nemo.peft == "lora"
    how = How(
        micro_batch=recipe.micro_batch,
        sequence_length=recipe.sequence_length,
        weights="bf16",
        method="lora" if lora else "full",
        rank=32,
        adapters="bf16",
        targets=EVERY,
        optimizer="adamw_fused",
        attention="flash",
        checkpointing=bool(recipe.activation_checkpointing),
        sharding="" if lora else "zero1",
        shards=resolved.copies,
        kernels="liger",
        caveats=("NeMo: its layers are Megatron's, the sums those of transformers",),
    )
    return Asked(model, how)

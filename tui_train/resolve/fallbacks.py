"""Why a fallback cannot help a trainer: a library that is not there, words of the user's own, the host's memory."""

from tui_train.base.text import size
from tui_train.base.versions import known_since
from tui_train.facts.types import Document, Gpu, Toolchain
from tui_train.presets import Preset, condition, takes
from tui_train.profile.types import Profile
from tui_train.resolve.own_words import at, own_arguments, own_batch
from tui_train.trainers import trainer_of

# The library without which a fallback cannot start.
_LIBRARIES = {"fused_cross_entropy": "liger-kernel", "optimizer_8bit": "bitsandbytes", "lora": "peft"}
# Values of the user's own file in whose place a fallback may put another, as it changes nothing else then: any value
# where none is listed.
_REPLACED: dict[str, tuple[object, ...]] = {
    "fused_optimizer": (None, "adamw_torch"),
    "fused_cross_entropy": (None, False),
    "optimizer_8bit": (None, "adamw_torch", "adamw_torch_fused"),
    "eval_batch": (),
    "lora": (None, "full"),
}
# Fallbacks that change a value of the recipe, and bear its name.
_VALUES = frozenset({"activation_checkpointing", "sequence_length", "layers"})
_ONLY_GPUS = frozenset({"fused_optimizer", "fused_cross_entropy", "optimizer_8bit"})
_BY_HAND = "machines that are started by hand do not fall back: nothing coordinates them"
_FUSED = "the trainer's optimizer is fused already"
_OF_SHIPPED = {"fused_optimizer": _FUSED, "eval_batch": "the trainer evaluates nothing"}


def refuses_all(profile: Profile) -> str:
    """Return why a profile has no fallbacks at all, empty where it may have some."""
    return _BY_HAND if profile.nodes.count > 1 else ""


def refused(
    profile: Profile, preset: Preset, tool: Toolchain | None, document: Document | None, gpus: tuple[Gpu, ...]
) -> dict[str, str]:
    """Return what is refused to a trainer with this preset, Python and file on these GPUs, and why."""
    taken = takes(preset, profile.trainer.arguments)
    reasons = _OF_SHIPPED if trainer_of(profile).shipped else {}
    reasons = reasons | {name: _why_not(name, profile, preset, tool, document) for name in _REPLACED.keys() & taken}
    reasons = reasons | dict.fromkeys(_ONLY_GPUS if not gpus else (), "only for GPUs")
    for name in () if preset.yours_first else _VALUES & taken:
        if own := own_arguments(name, profile, preset):
            reasons[name] = f"your own {' '.join(own[0].words)} stands"
    reasons["micro_batch"] = _why_not_batch(profile, preset)
    return {name: why for name, why in reasons.items() if why}


def eval_batch(preset: Preset, document: Document | None) -> int:
    """Return how many samples the trainer evaluates at a time by itself or by its file; 0 is as many as it trains on.

    What the user passes as an argument is kept, so it need not be known.
    """
    for value in preset.file.values if preset.file else ():
        batch = _value_in(document, value.key) if value.value == "{eval_batch}" else None
        if isinstance(batch, int) and batch > 0:
            return batch
    return preset.eval_batch


def too_little_host_memory(gpus: tuple[Gpu, ...], host: int | None) -> str:
    """Return why the host, of so many bytes, cannot take over what fills these GPUs; empty where it can."""
    cards = sum(gpu.memory_total or 0 for gpu in gpus)
    if host is None or host >= cards:
        return ""
    return f"the host's {size(host)} cannot hold what fills {size(cards)} of GPU memory"


def _why_not(name: str, profile: Profile, preset: Preset, tool: Toolchain | None, document: Document | None) -> str:
    library = _LIBRARIES.get(name)
    if library and tool and library not in tool.packages:
        return f"the chosen Python has no {library}"
    new = tool and known_since(tool.transformers, "5.0") and known_since(tool.torch, "2.8")
    if name == "fused_optimizer" and new:
        return _FUSED
    if name == "lora" and preset.module.startswith("llamafactory") and not _value_in(document, "finetuning_type"):
        return "it trains LoRA already: finetuning_type is not full"
    if own := yours(name, profile, preset, document):
        return f"your own {own} stands"
    return ""


def _why_not_batch(profile: Profile, preset: Preset) -> str:
    """Return why a fallback cannot lower the micro batch of a settled profile and keep the global one."""
    own = own_batch(profile, preset)
    if own and not preset.yours_first:
        return f"your own {' '.join(own[0].words)} stands"
    if profile.recipe.micro_batch is None or profile.recipe.global_batch is None:
        return "the batch is not known: set the micro batch and the global batch"
    return ""


def yours(name: str, profile: Profile, preset: Preset, document: Document | None) -> str:
    """Return the user's own setting of what the fallback would set, empty where there is none."""
    for argument in own_arguments(name, profile, preset):
        return " ".join(argument.words)
    for value in preset.file.values if preset.file else ():
        set_value = _value_in(document, value.key) if condition(value.when) == name else None
        if _REPLACED.get(name) and set_value not in _REPLACED[name]:
            return f"{value.key}: {set_value}"
    return ""


def _value_in(document: Document | None, key: str) -> object:
    return at(document.values, key) if document else None

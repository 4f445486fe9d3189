"""The facts that fallbacks depend on, and why one cannot help: a missing library, a user's setting, little memory."""

from collections.abc import Mapping

from msgspec import Struct

from tui_train.base.text import size_text
from tui_train.base.versions import is_known_at_least
from tui_train.facts.types import Facts, Gpu, Toolchain, YamlDocument
from tui_train.profile.presets import Preset, accepted_placeholders, condition_placeholder
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_patterns import FALLBACK_PHASES
from tui_train.setup.recipe.options import get_nested_value, user_batch_options, user_options_for_value
from tui_train.trainers import trainer_of

# The library that a fallback needs.
NEEDED_LIBRARY_BY_FALLBACK = {"fused_cross_entropy": "liger-kernel", "optimizer_8bit": "bitsandbytes", "lora": "peft"}
# Values in the user's file that a fallback may replace without changing anything else; empty: any value.
_REPLACEABLE_FILE_VALUES_BY_FALLBACK: dict[str, tuple[object, ...]] = {
    "fused_optimizer": (None, "adamw_torch"),
    "fused_cross_entropy": (None, False),
    "optimizer_8bit": (None, "adamw_torch", "adamw_torch_fused"),
    "eval_batch": (),
    "lora": (None, "full"),
}
# Fallbacks that are named as the value of the recipe that they change.
_FALLBACKS_NAMED_LIKE_RECIPE_VALUES = frozenset({"activation_checkpointing", "sequence_length", "layers"})
_GPU_ONLY_FALLBACKS = frozenset({"fused_optimizer", "fused_cross_entropy", "optimizer_8bit"})
_UNCOORDINATED_MACHINES_REASON = "no fallbacks with several machines: each would decide for itself"
BATCH_NOT_SET_REASON = "set Micro batch and Global batch first: those of the script are not known"
_ALREADY_FUSED_REASON = "the optimizer is already fused"


class LadderContext(Struct, frozen=True, kw_only=True):
    """Facts that a rung may depend on."""

    world_size: int
    on_cuda: bool
    accepted_placeholders: frozenset[str]
    """The placeholders that the trainer accepts."""
    loads_model: bool
    refusal_by_rung: Mapping[str, str] = {}
    """By rung, why it cannot help here."""
    why_no_fallbacks: str = ""
    """Why no rung can help."""
    eval_batch: int = 0
    """The trainer's own evaluation batch; 0: the micro batch."""
    evaluates: bool = True
    """Memory can run out in an evaluation."""
    is_batch_unset: bool = False
    """The batch is not lowered because the user did not set it."""
    min_micro_batch: int = 1
    """The smallest micro batch that trains."""

    def why_rung_refused(self, rung: str) -> str:
        """Return why a rung cannot help here, empty where it can."""
        return self.why_no_fallbacks or self.refusal_by_rung.get(rung, "")

    @property
    def out_of_memory_phases(self) -> tuple[str, ...]:
        """Phases in which memory can run out."""
        return tuple(phase for phase in FALLBACK_PHASES if phase != "eval" or self.evaluates)


def why_no_fallbacks(profile: Profile, facts: Facts) -> str:
    """Return why a profile can have no fallbacks, empty if it can."""
    by_hand = profile.nodes.machine_count > 1 and not profile.nodes.hosts
    return _UNCOORDINATED_MACHINES_REASON if by_hand and not facts.scheduler else ""


def refusal_by_fallback(
    profile: Profile, preset: Preset, tool: Toolchain | None, document: YamlDocument | None, gpus: tuple[Gpu, ...]
) -> dict[str, str]:
    """Return the fallbacks that cannot help with this preset, Python, file and GPUs, each with the reason."""
    accepted = accepted_placeholders(preset, profile.trainer.arguments)
    reasons = {
        name: _why_fallback_refused(name, profile, preset, tool, document)
        for name in _REPLACEABLE_FILE_VALUES_BY_FALLBACK.keys() & accepted
    }
    if not trainer_of(profile).may_evaluate():
        reasons["eval_batch"] = "nothing is evaluated: no validation data"
    reasons = reasons | dict.fromkeys(_GPU_ONLY_FALLBACKS if not gpus else (), "only for GPUs")
    if not preset.user_arguments_first:
        named = _FALLBACKS_NAMED_LIKE_RECIPE_VALUES & accepted
        own = {name: user_options_for_value(name, profile, preset) for name in named}
        own["micro_batch"] = user_batch_options(profile, preset)
        reasons |= {name: you_set_reason(" ".join(options[0].words)) for name, options in own.items() if options}
    return {name: why for name, why in reasons.items() if why}


def eval_batch_of_file_or_preset(preset: Preset, document: YamlDocument | None) -> int:
    """Return the evaluation batch of the trainer's file or its default; 0: same as the micro batch.

    A value in the user's arguments is not replaced, so it is not needed.
    """
    for value in preset.file.values if preset.file else ():
        batch = _document_value(document, value.key) if value.value == "{eval_batch}" else None
        if isinstance(batch, int) and batch > 0:
            return batch
    return preset.eval_batch


def why_host_memory_below_gpu_memory(gpus: tuple[Gpu, ...], host_bytes: int | None) -> str:
    """Return why a host with that many bytes of memory cannot hold the content of these GPUs, empty if it can."""
    cards = sum(gpu.memory_total or 0 for gpu in gpus)
    if host_bytes is None or host_bytes >= cards:
        return ""
    return f"{size_text(host_bytes)} of host memory are less than {size_text(cards)} of GPU memory"


def _why_fallback_refused(
    fallback: str, profile: Profile, preset: Preset, tool: Toolchain | None, document: YamlDocument | None
) -> str:
    library = NEEDED_LIBRARY_BY_FALLBACK.get(fallback)
    if library and tool and library not in tool.packages:
        return f"the chosen Python has no {library}"
    new = tool and is_known_at_least(tool.transformers, "5.0") and is_known_at_least(tool.torch, "2.8")
    if fallback == "fused_optimizer" and new:
        return _ALREADY_FUSED_REASON
    if (
        fallback == "lora"
        and preset.module.startswith("llamafactory")
        and not _document_value(document, "finetuning_type")
    ):
        return "it already trains with LoRA: finetuning_type is not full"
    if setting := user_setting_against_fallback(fallback, profile, preset, document):
        return you_set_reason(setting)
    return ""


def you_set_reason(setting: str) -> str:
    """Return the reason that the user's own setting, in these words, has precedence."""
    return f"you set {setting}"


def user_setting_against_fallback(
    fallback: str, profile: Profile, preset: Preset, document: YamlDocument | None
) -> str:
    """Return the user's own setting of a value that the fallback would change, empty if there is none."""
    for argument in user_options_for_value(fallback, profile, preset):
        return " ".join(argument.words)
    for value in preset.file.values if preset.file else ():
        set_value = _document_value(document, value.key) if condition_placeholder(value.when) == fallback else None
        if (
            _REPLACEABLE_FILE_VALUES_BY_FALLBACK.get(fallback)
            and set_value not in _REPLACEABLE_FILE_VALUES_BY_FALLBACK[fallback]
        ):
            return f"{value.key}: {set_value}"
    return ""


def _document_value(document: YamlDocument | None, key: str) -> object:
    return get_nested_value(document.values, key) if document else None

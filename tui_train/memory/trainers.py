"""What trainers load weights as and how they compute the loss, by the preset and the versions of its libraries."""

from collections.abc import Mapping
from typing import Any

from tui_train.base.versions import at_least, older
from tui_train.memory.types import Kernels, Loss, Number, Packing
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved
from tui_train.trainers import takes_field, trainer_of

_DTYPES = ("torch_dtype", "dtype", "model_init_dtype")
_SHORT: dict[str, Number] = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"
}  # fmt: skip


def on(told: Mapping[str, Any], *names: str) -> bool:
    """Tell whether one of these is switched on."""
    return any(str(told.get(name, "")).lower() in {"true", "yes", "1", "auto"} for name in names)


def packed(told: Mapping[str, Any]) -> Packing:
    """Return how frozen weights are quantized."""
    if told.get("auto_gptq"):
        return "gptq"
    four = on(told, "load_in_4bit") or str(told.get("quantization_bit")) == "4" or told.get("bitsandbytes") == "nf4"
    doubly = on(told, "use_bnb_nested_quant", "bnb_4bit_use_double_quant", "double_quantization")
    return ("nf4-dq" if doubly else "nf4") if four else ""


def weights(profile: Profile, resolved: Resolved, told: Mapping[str, Any], filed: str, *, lora: bool) -> Number | None:
    """Return what weights that are not packed are kept in; None: what their files are in, where that is not `filed`."""
    if trainer_of(profile).shipped:
        return "fp32"
    decided = _decided(profile, resolved, told, lora=lora)
    if decided in _SHORT:
        return _SHORT[decided]
    # Since 5.0 transformers loads weights as they are kept in the file; bitsandbytes takes 16 bits otherwise.
    if decided == "auto" or at_least(_version(resolved, "transformers"), "5.0"):
        return _SHORT.get(filed) or ("bf16" if packed(told) else None)
    return "bf16" if packed(told) else "fp32"


def _decided(profile: Profile, resolved: Resolved, told: Mapping[str, Any], *, lora: bool) -> str:
    """Return what the trainer makes of weights whatever transformers would; "auto": what their files are in."""
    precision = profile.recipe.precision or "fp32"
    if profile.trainer.preset == "llama-factory":
        if not lora and not on(told, "pure_bf16"):
            return "fp32"
        first = older(_version(resolved, "llamafactory"), "0.9.4") and precision != "fp32"
        return precision if first else "auto"
    named = next((str(told[key]).lower() for key in _DTYPES if told.get(key)), "")
    if named:
        return named
    if profile.trainer.preset == "axolotl":
        return precision
    if profile.trainer.preset == "trl":
        trl = _version(resolved, "trl")
        return "fp32" if at_least(trl, "0.27") else "auto" if at_least(trl, "0.26") else ""
    return ""


def loss(profile: Profile, resolved: Resolved, told: Mapping[str, Any], *, liger: bool) -> tuple[Loss, Kernels]:
    """Return how the loss and the layers are computed: by TRL, the kernels of Liger or fms-hf-tuning, or plainly."""
    if takes_field(profile, "trainer.preset") and profile.trainer.preset == "trl":
        trl = _version(resolved, "trl")
        if at_least(trl, "1.15"):
            return "tiled", "liger" if liger else ""
        if at_least(trl, "1.7") and not liger and str(told.get("loss_type", "chunked_nll")) == "chunked_nll":
            return "checkpointed", ""
    if liger:
        return "fused", "liger"
    version = _version(resolved, "transformers")
    copied = at_least(version, "4.46") and not at_least(version, "4.49")
    if told.get("fast_kernels"):
        fast: Loss = "fast-copied" if copied else "fast"
        return "fused" if "liger" in str(told["fast_kernels"]) else fast, "norms"
    return "copied" if copied else "upcast", ""


def _version(resolved: Resolved, library: str) -> str | None:
    tool = resolved.toolchain
    if tool is None:
        return None
    return tool.transformers if library == "transformers" else tool.packages.get(library)

"""The type in which trainers load weights, and their loss, by preset and library versions."""

from tui_train.base.versions import is_at_least_or_unknown, is_known_older
from tui_train.memory.types import Dtype, FusedKernels, LossComputation, Quantization, ShardingKind
from tui_train.setup.recipe.options import TrainerOptions
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field, trainer_of

DTYPE_BY_NAME: dict[str, Dtype] = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"
}  # fmt: skip


def frozen_weight_quantization(options: TrainerOptions) -> Quantization:
    """Return the quantization of frozen weights."""
    if options.get("auto_gptq"):
        return "gptq"
    in_4_bits = (
        options.is_on("load_in_4bit")
        or str(options.get("quantization_bit")) == "4"
        or options.get("bitsandbytes") == "nf4"
    )
    doubly = options.is_on("double_quantization")
    return ("nf4-dq" if doubly else "nf4") if in_4_bits else ""


def unquantized_weight_dtype(setup: Setup, file_dtype: str, *, trains_lora: bool) -> Dtype | None:
    """Return the type of weights that are not quantized; None: the unknown type of their files."""
    options, decided = setup.trainer_options, _load_dtype_set_by_trainer(setup, lora=trains_lora)
    if frozen_weight_quantization(options) not in {"", "gptq"} and _upcasts_unquantized_weights(setup):
        return "fp32"
    if decided in DTYPE_BY_NAME:
        return DTYPE_BY_NAME[decided]
    # Since 5.0 transformers keeps the type of the files; otherwise bitsandbytes uses 16 bits.
    if decided == "auto" or is_at_least_or_unknown(_library_version(setup, "transformers"), "5.0"):
        return DTYPE_BY_NAME.get(file_dtype) or ("bf16" if frozen_weight_quantization(options) else None)
    return "bf16" if frozen_weight_quantization(options) else "fp32"


def adapter_dtype(setup: Setup, *, quantization: Quantization, sharding: ShardingKind, loaded_dtype: Dtype) -> Dtype:
    """Return the type of an adapter's weights: PEFT's, fp32, but where TRL makes them as QLoRA or ZeRO-3 wants them."""
    profile = setup.effective_profile
    if trainer_of(profile).library_preset_name() != "trl" or is_known_older(
        _library_version(setup, "trl") or "1.0", "1.0"
    ):
        return "fp32"
    return "bf16" if quantization else loaded_dtype if sharding == "zero3" else "fp32"


def _upcasts_unquantized_weights(setup: Setup) -> bool:
    """Return whether PEFT's prepare_model_for_kbit_training is called: by the script, or by TRL before 0.26."""
    if trainer_of(setup.effective_profile).library_preset_name() == "trl":
        shares_out = setup.effective_profile.trainer.strategy == "fsdp2" or "fsdp" in setup.trainer_options
        return is_known_older(_library_version(setup, "trl") or "1.0", "0.26") and not shares_out
    source = setup.script_source
    return source is not None and source.upcasts_unquantized_weights


def _load_dtype_set_by_trainer(setup: Setup, *, lora: bool) -> str:
    """Return the type that the trainer sets; "auto": that of the files, empty: the default of transformers."""
    profile, options = setup.effective_profile, setup.trainer_options
    precision = profile.recipe.precision or "fp32"
    conventions = trainer_of(profile).library_preset_name()
    if conventions == "llama-factory":
        if not lora and not options.is_on("pure_bf16"):
            return "fp32"
        keeps_precision = is_known_older(_library_version(setup, "llamafactory"), "0.9.4") and precision != "fp32"
        return precision if keeps_precision else "auto"
    if named := options.text("dtype"):
        return named.lower()
    if conventions == "axolotl":
        return precision
    if conventions == "trl":
        trl = _library_version(setup, "trl")
        return "fp32" if is_at_least_or_unknown(trl, "0.27") else "auto" if is_at_least_or_unknown(trl, "0.26") else ""
    return ""


def loss_and_kernels(setup: Setup, *, liger: bool) -> tuple[LossComputation, FusedKernels]:
    """Return the kind of loss and kernels: of TRL, Liger, fms-hf-tuning, or plain."""
    profile, options = setup.effective_profile, setup.trainer_options
    method = profile.finetune.method if trainer_has_own_field(profile, "finetune") else "sft"
    if method == "reward":
        return "none", "liger" if liger else ""
    if trainer_of(profile).library_preset_name() == "trl":
        trl = _library_version(setup, "trl")
        if is_at_least_or_unknown(trl, "1.15"):
            return "tiled", "liger" if liger else ""
        # Of pairs of answers all logits were there at once until then.
        chunked = method == "sft" and str(options.get("loss_type", "chunked_nll")) == "chunked_nll"
        if is_at_least_or_unknown(trl, "1.7") and not liger and chunked:
            return "checkpointed", ""
    if liger:
        return "fused", "liger"
    version = _library_version(setup, "transformers")
    copied = is_at_least_or_unknown(version, "4.46") and not is_at_least_or_unknown(version, "4.49")
    if options.get("fast_kernels"):
        fast: LossComputation = "fast-copied" if copied else "fast"
        return "fused" if "liger" in str(options["fast_kernels"]) else fast, "norms"
    return "copied" if copied else "upcast", ""


def _library_version(setup: Setup, library: str) -> str | None:
    tool = setup.toolchain
    if tool is None:
        return None
    return tool.transformers if library == "transformers" else tool.packages.get(library)

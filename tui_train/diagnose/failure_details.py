"""Details in the lines around a failure, as details.toml lists: sizes, versions, counts and settings."""

import functools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.base.text import duration_text, size_text
from tui_train.checks.trainer.module_packages import PIP_PACKAGE_BY_MODULE
from tui_train.diagnose.traceback_lines import class_refusing_argument
from tui_train.diagnose.types import TRACEBACK_REMEDY_PREFIX, LogLine, Signature

# A traceback's chain stands before an error, and lists of what differs after it.
_DETAIL_LINES_BEFORE_FAILURE, _DETAIL_LINES_AFTER_FAILURE = 24, 40
_DIMENSION_NUMBER_PATTERN = re.compile(r"\d+")
# What names no class in errors of Python before 3.10.
_CONSTRUCTORS = frozenset({"__init__", "__new__"})
_MAX_NUMBER = 10**12  # of a number that is calculated with


class FailureDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A form in which lines say more of a failure; an empty text leaves what the signature says.

    A plain one says what its kind of error means, where no other entry knows more.
    """

    failure: str
    when: tuple[str, ...] = ()
    cause: str = ""
    remedy: str = ""
    plain: bool = False


class _DetailsFile(msgspec.Struct, frozen=True):
    detail: tuple[FailureDetail, ...]


@functools.cache
def load_details() -> tuple[tuple[FailureDetail, re.Pattern[str]], ...]:
    """Return each detail with each of its compiled expressions."""
    data = (Path(__file__).parent / "details.toml").read_bytes()
    entries = msgspec.toml.decode(data, type=type_prepared_for_msgspec(_DetailsFile)).detail
    return tuple((entry, re.compile(text, re.MULTILINE)) for entry in entries for text in entry.when)


def matching_detail_and_values(
    signature: Signature, lines: Sequence[LogLine], failure_line: LogLine
) -> tuple[FailureDetail, dict[str, str]] | None:
    """Return what the line that shows a failure says of it, else what lines of its rank near it say, and the values."""
    ours = [(entry, pattern) for entry, pattern in load_details() if entry.failure == signature.failure]
    if not ours:
        return None
    at = next((index for index, line in enumerate(lines) if line is failure_line), None)
    near = lines[max(0, at - _DETAIL_LINES_BEFORE_FAILURE) : at + _DETAIL_LINES_AFTER_FAILURE] if at is not None else ()
    texts = [failure_line.text, "\n".join(line.text for line in near if line.rank == failure_line.rank)]
    tries = [(text, entry, pattern) for text in texts for entry, pattern in ours if not entry.plain]
    if signature.remedy.startswith(TRACEBACK_REMEDY_PREFIX):
        tries += [(failure_line.text, entry, pattern) for entry, pattern in ours if entry.plain]
    for text, entry, pattern in tries:
        if match := pattern.search(text):
            values = {name: value for name, value in match.groupdict().items() if value}
            if values.get("function") in _CONSTRUCTORS:
                made = class_refusing_argument(lines, failure_line, values.get("argument", "").strip("'"))
                values["function"] = made or values["function"]
            derive = _VALUE_DERIVER_BY_FAILURE.get(signature.failure)
            return entry, {**values, **(derive(values) if derive else {})}
    return None


def _capped_number(values: dict[str, str], name: str) -> int:
    text = values.get(name, "")
    return min(int(text), _MAX_NUMBER) if text.isdecimal() and len(text) < 16 else 0


def _cuda_version_values(values: dict[str, str]) -> dict[str, str]:
    """Return 11040, as CUDA counts its versions, as 11.4."""
    version = _capped_number(values, "found")
    return {"found": f"{version // 1000}.{version % 1000 // 10}"} if version >= 1000 else {}


def _fitting_batch_size_values(values: dict[str, str]) -> dict[str, str]:
    """Return the product that the batch should be, or the multiples nearest to it."""
    if "micro" in values:
        parts = [_capped_number(values, name) for name in ("micro", "accumulation", "world")]
        return {"product": str(math.prod(parts))}
    batch = _capped_number(values, "batch") * max(1, _capped_number(values, "world"))
    divisor = _capped_number(values, "of") * max(1, _capped_number(values, "devices"))
    if not divisor:
        return {}
    below = batch // divisor * divisor
    return {"nearest": f"{below} or {below + divisor}" if below else str(divisor)}


def _wait_time_values(values: dict[str, str]) -> dict[str, str]:
    ms = _capped_number(values, "ms")
    return {"waited": duration_text(ms / 1000), "seconds": str(ms // 1000)} if ms >= 1000 else {}


def _differing_size_values(values: dict[str, str]) -> dict[str, str]:
    """Return the first dimension in which two shapes differ, and what it is by the parameter's name."""
    saved, ours = (_DIMENSION_NUMBER_PATTERN.findall(values.get(name, "")) for name in ("saved", "ours"))
    differ = [(a, b) for a, b in zip(saved, ours, strict=False) if a != b] if len(saved) == len(ours) else []
    if not differ:
        return {}
    name, first = values.get("name", ""), saved[0] != ours[0]
    what = "size"
    if first and re.search(r"embed_tokens|wte|word_embeddings|lm_head|embed_in|embed_out|tok_embeddings", name):
        what = "vocabulary"
    elif min(int(text[:12]) for pair in differ for text in pair) <= 512 and re.search(r"lora_[AB]", name):
        # The rank is the first of A's dimensions and the second of B's.
        what = "rank of the adapter" if first == ("lora_A" in name) else what
    elif first and re.search(r"classifier|score\.|out_proj|qa_outputs", name):
        what = "number of classes"
    return {"what": what, "theirs": differ[0][0], "own": differ[0][1]}


def _package_to_install_values(values: dict[str, str]) -> dict[str, str]:
    """Return what to install, where the package is one that trainings use; a name from a log alone is none."""
    name = re.sub(r"[-_]+", "-", values.get("package", "")).lower()
    limit = values.get("limit", "").replace(" ", "")
    return {"install": f"'{PIP_PACKAGE_BY_MODULE[name]}{limit}'"} if name in PIP_PACKAGE_BY_MODULE and limit else {}


def _requested_size_values(values: dict[str, str]) -> dict[str, str]:
    asked = _capped_number(values, "bytes")
    return {"asked": size_text(asked)} if asked else {}


_BYTES_BY_UNIT = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _memory_note_values(values: dict[str, str]) -> dict[str, str]:
    """Return what stands out where enough memory was free, or more was requested than there is."""
    asked, free, total = (
        float(number) * _BYTES_BY_UNIT[unit]
        if re.fullmatch(r"\d{1,6}(\.\d{1,4})?", number) and unit in _BYTES_BY_UNIT
        else 0.0
        for number, _, unit in (values.get(name, "").partition(" ") for name in ("asked", "free", "total"))
    )
    if asked > total:
        return {"note": " That is more than the GPU has: it is one tensor too large, as of scores, logits or a length."}
    if asked <= free:
        return {
            "note": " Enough was free in all: in pieces (PYTORCH_ALLOC_CONF=expandable_segments:True joins them), or "
            "another process had just taken it."
        }
    return {}


def _needed_torch_build_values(values: dict[str, str]) -> dict[str, str]:
    """Return which torch has code for a GPU of a compute capability."""
    number = int(re.sub(r"\D", "", values.get("capability", ""))[:4] or 0)
    if number >= 100:
        return {"where": ": a build for CUDA 12.8 or later"}
    if 0 < number < 75:
        return {"where": ": a build for CUDA 12.6 or older"}
    return {"where": ": a build for CUDA 11.8 or later" if number >= 89 else ""} if number else {}


_LIBRARY_CLASS_PATTERN = re.compile(
    r"(Trainer|TrainingArguments|Config|Accelerator|from_pretrained|load_dataset|ForCausalLM)\b"
)
# By what an argument is called: what it is called in other versions.
_NEW_NAME_BY_ARGUMENT = {
    "evaluation_strategy": "eval_strategy (transformers 4.41 and later)",
    "eval_strategy": "evaluation_strategy (before transformers 4.41)",
    "tokenizer": "processing_class (transformers 5, TRL 0.16 and later)",
    "processing_class": "tokenizer (before transformers 4.46 and TRL 0.12)",
    "max_seq_length": "max_length, an argument of SFTConfig (TRL 0.20 and later)",
    "no_cuda": "use_cpu",
    "use_auth_token": "token",
    "logging_dir": "the variable TENSORBOARD_LOGGING_DIR",
    "warmup_ratio": "warmup_steps, which takes a share below 1 as well",
    "load_in_8bit": "quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
    "load_in_4bit": "quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "group_by_length": 'train_sampling_strategy="group_by_length"',
    "dispatch_batches": "accelerator_config",
    "split_batches": "accelerator_config",
    "include_inputs_for_metrics": "include_for_metrics",
    "use_flash_attention_2": 'attn_implementation="flash_attention_2"',
}
# Arguments that TRL's trainers took before their configurations did.
_ARGUMENTS_MOVED_TO_CONFIG = frozenset({
    "dataset_text_field", "packing", "dataset_num_proc", "dataset_kwargs", "neftune_noise_alpha", "model_init_kwargs",
    "beta", "loss_type", "label_smoothing", "max_prompt_length", "max_target_length", "truncation_mode",
    "precompute_ref_log_probs", "max_length", "eval_packing", "num_of_sequences", "dataset_batch_size",
    "generate_during_eval", "label_pad_token_id",
})  # fmt: skip


def _argument_replacement_values(values: dict[str, str]) -> dict[str, str]:
    """Return by what an argument is replaced, where that is known."""
    name, function = values.get("argument", ""), values.get("function", "")
    trainer = re.match(r"(SFT|DPO|KTO|Reward|GRPO|ORPO|CPO)Trainer\b", function)
    if trainer and name in _ARGUMENTS_MOVED_TO_CONFIG:
        return {"instead": f"{trainer[1]}Config({name}=…)"}
    known = name in _NEW_NAME_BY_ARGUMENT and (not function or _LIBRARY_CLASS_PATTERN.search(function))
    return {"instead": _NEW_NAME_BY_ARGUMENT[name]} if known else {}


_VALUE_DERIVER_BY_FAILURE: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "cuda_driver_too_old": _cuda_version_values,
    "cuda_oom": _memory_note_values,
    "no_kernel_image": _needed_torch_build_values,
    "batch_config": _fitting_batch_size_values,
    "collective_timeout": _wait_time_values,
    "nccl_timeout": _wait_time_values,
    "rendezvous_timeout": _wait_time_values,
    "checkpoint_mismatch": _differing_size_values,
    "import_mismatch": _package_to_install_values,
    "host_alloc_failed": _requested_size_values,
    "api_mismatch": _argument_replacement_values,
}

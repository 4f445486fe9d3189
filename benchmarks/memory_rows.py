"""The rows of a file of measurements, each as the training that it tells of, and as a profile that asks for it."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.facts.models.dimensions import ModelDimensions, find_known_dimensions
from tui_train.facts.types import Facts, Gpu, Machine, Toolchain
from tui_train.memory.types import ALL_LORA_TARGETS, ATTENTION_LORA_TARGETS, MemoryEstimate, MemorySettings
from tui_train.profile import fields
from tui_train.profile.types import Profile

GIB = 2**30
SHORT_TYPE_NAMES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}


class Case(Struct, frozen=True, kw_only=True):
    """A row: what was measured, and what is predicted; `left_out` says why nothing is.

    `counts` is what `measured` is (allocated, reserved, or card for what nvidia-smi shows), `counted` the prediction of
    just that; `on_card` was measured besides, `shown` is its prediction.
    """

    row: dict[str, str]
    source: str
    model: ModelDimensions | None = None
    how: MemorySettings | None = None
    measured: float | None = None
    counts: str = ""
    on_card: float | None = None
    left_out: str = ""
    predicted: float | None = None
    counted: float | None = None
    shown: float | None = None
    by_profile: float | None = None
    traced: float | None = None
    verdict: str = ""
    profile_verdict: str = ""
    estimate: MemoryEstimate | None = None

    @property
    def kind(self) -> str:
        """How the row trains, in a word or two."""
        how = self.how or MemorySettings(micro_batch=1, sequence_length=1)
        method = how.quantization.removesuffix("-dq") or how.trained
        return f"{method}, FSDP" if how.sharding == "fsdp" else method

    def error(self, field: str) -> float | None:
        """Return how much one of the answers is off, as a part of what was measured."""
        value = getattr(self, field)
        measured = self.on_card if field == "shown" else self.measured
        return value / measured - 1 if value and measured else None


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the rows with what they say of model and training."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            source = re.split(r"[@ ]", row["source"])[0]
            smi, trained = row["nvidia_smi_gib"], not row["outcome"].startswith("oom")
            measured = float(row["peak_alloc_gib"] or (smi if trained else "") or 0) or None
            counts = "reserved" if "reserved" in row["outcome"] else "allocated" if row["peak_alloc_gib"] else "card"
            both = bool(row["peak_alloc_gib"] and smi and trained)
            if measured and source == "Lightning-AI/litgpt":
                # It prints bytes / 1e9.
                measured *= 1e9 / GIB
            model = find_known_dimensions(row["model"])
            case = Case(row=row, source=source, model=model, measured=measured, counts=counts)
            case = msgspec.structs.replace(case, on_card=float(smi) if both else None)
            how = SETTINGS_READER_BY_SOURCE.get(source, settings_by_row_alone)(row)
            if model and source == "Lightning-AI/litgpt":
                # Its attention is one projection, as in these.
                model = msgspec.structs.replace(model, type="gpt_neox" if model.norm == "layer" else "phi3")
            case = msgspec.structs.replace(case, model=model)
            if model is None:
                case = msgspec.structs.replace(case, left_out="the model is not in models.toml")
            elif isinstance(how, str):
                case = msgspec.structs.replace(case, left_out=how)
            else:
                case = msgspec.structs.replace(case, how=how)
            yield case


def settings_by_row_alone(row: dict[str, str]) -> MemorySettings | str:
    """Any other program: what the row itself says, and where it is silent what PEFT and transformers do."""
    words = " ".join(row[name] or "" for name in ("mode", "kernels", "dtype", "parallel", "optimizer", "attn")).lower()
    if not row["mode"]:
        return "the method is not told"
    if not re.search(r"\d", row["micro_bs"]) or not re.search(r"\d", row["seq"]):
        return "batch or length is not told"
    if re.search(r"\b[tpc]p ?=?[2-9]|tensor.parallel|pipeline", words):
        return "tensor, pipeline and context parallel are not modelled"
    packed = _meaning_of_first_match(words, _PACKING_BY_PATTERN)
    lora = bool(packed) or bool(row["lora_r"]) or "lora" in words or "adapter" in words
    numbers = re.findall(r"bf16|bfloat16|fp16|float16|half|fp32|float32", f"{row['dtype']} {row['amp']}".lower())
    types = [SHORT_TYPE_NAMES.get(name, name) for name in numbers]
    mixed = (bool(row["amp"]) and row["amp"].lower() not in {"false", "no", "none"}) or "mixed" in words
    computed = next((name for name in reversed(types) if name != "fp32"), "")
    weights = "fp32" if mixed and not lora and "pure" not in words else next(iter(types), "bf16" if lora else "fp32")
    if (
        packed.startswith("nf4")
        and computed
        and not re.search("unsloth|torchtune|litgpt|fsdp", words + row["source"].lower())
    ):
        # PEFT's way: prepare_model_for_kbit_training makes fp32 of what is not quantized.
        weights, mixed = "fp32", True
    told = _common_settings({**row, "micro_bs": re.sub(r"\D.*", "", row["micro_bs"]), "grad_ckpt": "no"})
    every = not re.search(r"[qkvo]_proj|attention", words)
    return MemorySettings(
        **told
        | {
            "trained": "lora" if lora else "full",
            "quantization": packed,
            "weight_dtype": weights,
            "autocast": computed if mixed and computed != weights else "",
            "checkpoints_activations": (row["grad_ckpt"] or "no").lower() not in {"no", "false", "none", "off", "0"},
            "checkpoints_whole_layers": "selective" not in row["grad_ckpt"],
            "optimizer": _meaning_of_first_match(words, _OPTIMIZER_BY_PATTERN) or "adamw_foreach",
            "attention": _meaning_of_first_match(words, _ATTENTION_BY_PATTERN) or "sdpa",
            "loss": _meaning_of_first_match(words, _LOSS_BY_PATTERN) or "upcast",
            "fused_kernels": "liger" if "liger" in words else "",
            "lora_targets": ALL_LORA_TARGETS
            if every
            else tuple(name for name in ALL_LORA_TARGETS if name in words) or ATTENTION_LORA_TARGETS,
            "sharding": _meaning_of_first_match(row["parallel"].lower(), _SHARDING_BY_PATTERN)
            or ("ddp" if told["shard_count"] != 1 else ""),
            "keeps_quantized_unsharded": bool(packed),
        }
    )


def _meaning_of_first_match(words: str, meanings: dict[str, str]) -> str:
    """Return what the first of these patterns means that a text has, empty where it has none."""
    return next((meant for pattern, meant in meanings.items() if re.search(pattern, words)), "")


_PACKING_BY_PATTERN = {
    "gptq": "gptq", "dq|double": "nf4-dq", r"qlora.?8|int8|(?<!adamw.)8.?bit(?!.?adam)": "int8",
    "qlora|nf4|4.?bit|int4|bnb": "nf4",
}  # fmt: skip
_OPTIMIZER_BY_PATTERN = {
    r"8.?bit.?adam|adam\w*.?8.?bit|bnb_8": "adamw_8bit", "adafactor": "adafactor", "sgd": "sgd", "fused": "adamw_fused",
}  # fmt: skip
_ATTENTION_BY_PATTERN = {"eager": "eager", "flash|fa2": "flash", "sdpa": "sdpa"}
_LOSS_BY_PATTERN = {"liger|unsloth|fused.?c|cut.?c": "fused", "tiled|chunk": "tiled"}
_SHARDING_BY_PATTERN = {"fsdp": "fsdp", "zero.?3": "zero3", "zero.?2": "zero2", "zero.?1": "zero1", "ddp": "ddp"}


def _common_settings(row: dict[str, str]) -> dict[str, object]:
    gpus = int(row["gpus"] or 1)
    sharded = "fsdp" if row["parallel"] == "fsdp" else "ddp" if gpus > 1 else ""
    return {
        "micro_batch": int(row["micro_bs"]),
        "sequence_length": int(re.sub(r"\D", "", row["seq"])),
        "weight_dtype": SHORT_TYPE_NAMES.get(row["dtype"], "fp32"),
        "checkpoints_activations": row["grad_ckpt"] in {"yes", "full", "selective"},
        "checkpoints_whole_layers": row["grad_ckpt"] != "selective",
        "caveats": ("torch.compile",) * ("compile" in row["kernels"] or row["kernels"] == "cumulative"),
        "sharding": sharded,
        "shard_count": gpus,
        "lora_rank": int(float(row["lora_r"] or 16)),
    }


def fms_settings(row: dict[str, str]) -> MemorySettings | str:
    """fms-acceleration: Hugging Face's Trainer, FSDP through accelerate for several GPUs, PEFT on attention."""
    kernels, lora = row["kernels"], row["mode"] == "lora"
    told = _common_settings(row)
    # transformers 4.46 to 4.48, with which the first of its tables was made, copied the shifted logits.
    copied = "/a100_80gb.csv" in row["source"]
    fast = "foak" in kernels
    losses = (("upcast", "copied"), ("fast", "fast-copied"))
    told |= {
        "trained": "lora" if lora else "full",
        "attention": "flash",
        "autocast": row["amp"] or "",
        "fused_kernels": "norms" if fast else "",
        "loss": "fused" if "liger" in kernels else losses[fast][copied],
        "quantization": "gptq" if "autogptq" in kernels else "nf4" if "bnb" in kernels else "",
        "lora_targets": ATTENTION_LORA_TARGETS,
    }
    if "santacoder" in row["model"]:
        # Its class did not compute the loss in fp32 then.
        told["loss"] = "copied" if row["amp"] else "chunked" if fast else "plain"
    if kernels == "baseline-peft-bnb" and told["sharding"] != "fsdp":
        # TRL called prepare_model_for_kbit_training then.
        told["weight_dtype"] = "fp32"
    if told["sharding"] == "fsdp" and row["amp"] and not lora:
        # accelerate keeps what FSDP trains in fp32 then.
        told["weight_dtype"] = "fp32"
    told["holds_frozen_layers"] = told["sharding"] == "fsdp" and lora
    return MemorySettings(**told)


def litgpt_settings(row: dict[str, str]) -> MemorySettings | str:
    """LitGPT: its own model, LoRA in bf16 on queries and values, logits in chunks of which all are held."""
    told = _common_settings(row)
    several = told["shard_count"] != 1
    told |= {
        "trained": "lora",
        "adapter_dtype": told["weight_dtype"],
        "lora_targets": ALL_LORA_TARGETS
        if row["mode"] == "adapter_v2"
        else ("q_proj", "v_proj")
        if "LoRA" in row["mode"]
        else (),
        "trains_output_scales": row["mode"] == "adapter_v2",
        # With several GPUs: FSDP's first version, a whole state dict, and each block recomputed.
        "loads_whole_model": several,
        "checkpoints_activations": several,
        "lora_dropout": 0.05,
        "attention": "sdpa",
        "loss": "chunked",
        "keeps_quantized_layer_inputs": True,
        "quantization": {"bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-dq"}.get(row["kernels"], ""),
    }
    return MemorySettings(**told)


def peft_settings(row: dict[str, str]) -> MemorySettings | str:
    """PEFT's comparison of methods: fp32 adapters on queries and values, the most that was reserved."""
    told = _common_settings(row)
    method, _, more = row["mode"].partition("--")
    if method == "full-finetuning":
        return MemorySettings(**told | {"trained": "full"})
    found = re.search(r"rank(\d+)", more)
    targets = ("gate_proj", "up_proj", "down_proj") if "target-mlp" in more else ("q_proj", "v_proj")
    # Without LoRA's matrices, gradients pass through all layers as with it.
    return MemorySettings(
        **told | {"trained": "lora", "lora_rank": int(found[1]) if found else 8, "lora_targets": targets}
    )


def torchtune_settings(row: dict[str, str]) -> MemorySettings | str:
    """torchtune: its recipes' fused AdamW and recomputed layers, logits in chunks; a row adds to the one before."""
    mode = row["mode"].lower()
    steps = ("packed", "compile", "chunk", "checkpoint", "fuse", "offload", "8-bit", "lora")
    cumulative = row["kernels"] == "cumulative"
    done = max((place for place, step in enumerate(steps) if step in mode), default=-1) if cumulative else len(steps)
    lora = "lora" in mode
    told = _common_settings(row) | {
        "trained": "lora" if lora else "full",
        "optimizer": "adamw_8bit" if done >= steps.index("8-bit") and cumulative and not lora else "adamw_fused",
        "loss": "compiled" if done >= steps.index("chunk") else "upcast",
        "steps_in_backward_pass": steps.index("fuse") <= done and cumulative and not lora,
        "offloads_activations": done >= steps.index("offload") and cumulative,
        "checkpoints_activations": done >= steps.index("checkpoint"),
        "adapter_dtype": "bf16",
        "lora_rank": 64,
        "quantization": "nf4-dq" if "qlora" in mode else "",
        "lora_targets": ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj") if lora else (),
    }
    if cumulative and done < 0:
        return "samples of other lengths, of which nothing is told"
    return MemorySettings(**told)


def torchtitan_settings(row: dict[str, str]) -> MemorySettings | str:
    """torchtitan: FSDP2 with fp32 weights computed in bf16, fused AdamW; what was reserved."""
    if re.search(r"[TPC]P[2-9]", row["kernels"]):
        return "tensor, pipeline and context parallel are not modelled"
    return MemorySettings(
        **_common_settings(row) | {"weight_dtype": "fp32", "autocast": "bf16", "optimizer": "adamw_fused"}
    )


SETTINGS_READER_BY_SOURCE = {
    "foundation-model-stack/fms-acceleration": fms_settings,
    "Lightning-AI/litgpt": litgpt_settings,
    "huggingface/peft": peft_settings,
    "meta-pytorch/torchtune": torchtune_settings,
    "pytorch/torchtitan": torchtitan_settings,
}


def card_bytes(row: dict[str, str]) -> int:
    """Return the bytes of the card that a row names."""
    found = re.search(r"(\d+)GB", row["gpu"])
    known = {"L40S": 48, "A6000": 48, "A100": 80}
    size = int(found[1]) if found else next((gb for name, gb in known.items() if name in row["gpu"]), 80)
    # What the driver leaves of it.
    return int(size * GIB * 0.989)


def asking_profile_and_facts(row: dict[str, str], how: MemorySettings) -> tuple[Profile, Facts]:
    """Return a profile that asks for the row's training, as far as one can, and a machine that could train it."""
    told = {
        "model_name_or_path": row["model"],
        "dtype": row["dtype"].split()[0],
        "optim": {"adamw_foreach": "adamw_torch", "adamw_fused": "adamw_torch_fused"}.get(how.optimizer, how.optimizer),
        "attn_implementation": "flash_attention_2" if how.attention == "flash" else how.attention,
        "max_length": how.sequence_length,
    }
    if how.trained == "lora":
        told |= {"use_peft": True, "lora_r": how.lora_rank, "lora_target_modules": ",".join(how.lora_targets)}
    if how.quantization:
        told |= {"auto_gptq": "triton_v2"} if how.quantization == "gptq" else {"load_in_4bit": True}
    if how.fused_kernels:
        told |= {"fast_kernels": "fused_ce_liger" if how.loss == "fused" else True}
    own = how.sharding == "fsdp" and "torchtitan" not in row["source"]
    told |= {"fsdp": "full_shard"} if own else {}
    values = {
        "trainer.kind": "script",
        "trainer.script": "/train.py",
        "trainer.arguments": tuple(f"--{name}={value}" for name, value in told.items()),
        "trainer.strategy": "fsdp2" if how.sharding == "fsdp" and not own else "ddp",
        "recipe.micro_batch": how.micro_batch,
        "recipe.global_batch": how.micro_batch * how.shard_count,
        "recipe.sequence_length": how.sequence_length,
        "recipe.precision": how.autocast or "fp32",
        "recipe.activation_checkpointing": how.checkpoints_activations,
    }
    profile = Profile()
    for key, value in values.items():
        profile = fields.profile_with_value(profile, key, value)
    cards = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", name=row["gpu"], compute_capability="8.0", memory_free=card_bytes(row))
        for index in range(how.shard_count)
    )
    # The versions that decide how the logits are treated, and which AdamW is taken.
    versions = {"torch": "2.4.0", "transformers": "4.47.0" if "copied" in how.loss else "4.45.0", "cuda": "12.1"}
    tool = Toolchain(python="/python", version="3.11", arch_list=("sm_80",), accelerate="1.6.0", **versions)
    return profile, Facts(machine=Machine(hostname="", cpu_count=8, memory_total=GIB, gpus=cards), toolchains=(tool,))

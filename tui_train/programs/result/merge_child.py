"""Merges an adapter into its base model: `python merge_child.py REQUEST` writes a folder and checks it.

The request, in JSON: `folder` (the adapter), `base` (a folder or an id), its `revision` (empty: main), `into` (an empty
folder), `trusted` (whether Python code of the model may run). It sends `step` for what it does, then `done` with the
difference between the logits of the adapter and of the merged model, or `error`.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import result_load as load
from result_find import request_with_found_weights
from result_load import MessagePipe, RefusedError

# The difference that a logit may have, as a share of the largest one: an adapter computes in float32 beside its base,
# the merged weights are rounded to the type of the model.
TOLERANCE_BY_DTYPE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 6e-2}
_TEST_PROMPT = "The capital of France is"
# Beside the weights: tokenizer, configuration.
_DISK_BYTES_LEFT_FREE = 64 << 20


def merge_adapter(request: dict[str, Any], messages: MessagePipe) -> bool:
    """Write the merged model, and return whether it answers like the adapter."""
    request = request_with_found_weights(request, messages)
    if not request.get("adapter", True):
        raise RefusedError("full", request["folder"])
    adapter, into, trusted = request["folder"], request["into"], request["trusted"]
    messages.send("step", what="reading", of=request["base"])
    base = load.find_model_folder(request["base"], request["revision"])
    _refuse_quantized(base)
    need, free = load.weights_bytes(base) + _DISK_BYTES_LEFT_FREE, shutil.disk_usage(into).free
    if free < need:
        raise RefusedError("space", f"the model takes {need / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free")
    tokenizer = load.load_tokenizer(adapter, base, trusted=trusted)
    messages.send("step", what="loading", of=base)
    labels = _count_classification_labels(Path(adapter))
    model = load.add_adapter(load.load_model(base, "cpu", labels, trusted=trusted), adapter, len(tokenizer))
    if not hasattr(model.base_model, "merge_and_unload"):
        raise RefusedError("failed", f"an adapter of the kind {model.peft_type} has nothing to merge")
    with_adapter = _logits_of_test_prompt(model, tokenizer)
    with model.disable_adapter():
        without = _logits_of_test_prompt(model, tokenizer)
    messages.send("step", what="merging", of=adapter)
    merged = model.merge_and_unload(safe_merge=True)
    _copy_end_tokens(merged, adapter)
    messages.send("step", what="writing", of=into)
    merged.save_pretrained(into)
    if load.sees_images(base):
        load.load_processor(adapter, base, trusted=trusted).save_pretrained(into)
    tokenizer.save_pretrained(into)
    dtype = load.weights_dtype_name(merged)
    del model, merged
    messages.send("step", what="checking", of=into)
    written = _logits_of_test_prompt(load.load_model(into, "cpu", labels, trusted=trusted), tokenizer)
    largest = float(with_adapter.abs().max()) or 1.0
    difference = float((written - with_adapter).abs().max()) / largest
    change = float((without - with_adapter).abs().max()) / largest
    tolerance = TOLERANCE_BY_DTYPE.get(dtype, TOLERANCE_BY_DTYPE["bfloat16"])
    messages.send("done", dtype=dtype, difference=difference, change=change, tolerance=tolerance)
    return difference <= tolerance


def _refuse_quantized(base_folder: str) -> None:
    try:
        config = json.loads(Path(base_folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise RefusedError("missing", f"there is no config.json in {base_folder}") from None
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "quantized")
        raise RefusedError("quantized", f"the weights of {base_folder} are quantized ({method})")


def _copy_end_tokens(merged: Any, adapter_folder: str) -> None:
    """Have the merged model stop where its adapter was trained to."""
    path = Path(adapter_folder, "generation_config.json")
    if path.is_file() and hasattr(merged, "generation_config"):
        merged.generation_config.eos_token_id = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")


def _count_classification_labels(adapter_folder: Path) -> int:
    """Return how many scores a model for classification gives, by what its adapter holds; 0 for a language model."""
    config = json.loads((adapter_folder / "adapter_config.json").read_text(encoding="utf-8"))
    if config.get("task_type") not in {"SEQ_CLS", "TOKEN_CLS"}:
        return 0
    weights = adapter_folder / "adapter_model.safetensors"
    if not weights.is_file():
        import torch

        tensors = torch.load(adapter_folder / "adapter_model.bin", map_location="cpu", weights_only=True)
        return next((int(tensors[name].shape[0]) for name in tensors if _is_head_weight(name)), 1)
    from safetensors import safe_open

    with safe_open(weights, framework="pt") as file:
        heads = [name for name in file.keys() if _is_head_weight(name)]  # noqa: SIM118 - no mapping
        return int(file.get_slice(heads[0]).get_shape()[0]) if heads else 1


def _is_head_weight(name: str) -> bool:
    return "score" in name or "classifier" in name


def _logits_of_test_prompt(model: Any, tokenizer: Any) -> Any:
    """Return a model's logits for a short prompt, in float32."""
    import torch

    made = load.encode_messages(tokenizer, [{"role": "user", "content": _TEST_PROMPT}], model.device)
    with torch.inference_mode():
        return model(**made).logits.float()


if __name__ == "__main__":
    load.answer_request(lambda request, messages: sys.exit(not merge_adapter(request, messages)))

"""Measures the memory of two real steps on the first visible GPU, or on the CPU without one.

Runs in the training interpreter, on the model that the trace counts: its weights are random, and no data is
read. On a card it tells what was allocated, reserved, and is used of the card; on the CPU what lived at a time.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from memory_loss import loss_with_reference_also_run
from memory_model import PackedOrAdaptedLinear, build_model, build_preference_reference_model
from memory_trace import TRACED_PHASES, AllocationCounter, MemoryAccount


def _make_optimizer(optimizer_kind: str, trained: list[Any], *, on_card: bool) -> Any:
    if optimizer_kind == "sgd":
        return torch.optim.SGD(trained, lr=1e-5)
    if optimizer_kind == "adafactor":
        from transformers.optimization import Adafactor

        make: Any = Adafactor
        return make(trained, lr=1e-5, scale_parameter=False, relative_step=False)
    if optimizer_kind == "adamw_8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(trained, lr=1e-5)
    fused = optimizer_kind == "adamw_fused"
    return torch.optim.AdamW(trained, lr=1e-5, fused=fused and on_card, foreach=not fused)


def _quantize_packed_weights(model: Any, request: dict[str, Any]) -> None:
    """Have bitsandbytes quantize random weights, layer by layer, in place of the bytes that stand for them."""
    import bitsandbytes

    def product_with(packed: Any, state: Any, bias: Any) -> Any:
        return lambda x: bitsandbytes.matmul_4bit(x, packed.t(), bias=bias, quant_state=state)

    for module in model.modules():
        if isinstance(module, PackedOrAdaptedLinear):
            weight = torch.randn(module.shape, dtype=module.compute, device=module.packed.device) / 50
            module.packed = None
            packed, state = bitsandbytes.functional.quantize_4bit(
                weight, quant_type="nf4", compress_statistics=request["quantization"].endswith("-dq")
            )
            setattr(module, "packed_product", product_with(packed, state, module.bias))  # noqa: B010


def measure_memory(request: dict[str, Any]) -> dict[str, Any]:
    """Return the most bytes of each phase over two steps, and on a card what it holds besides."""
    torch.manual_seed(1)
    on_card = torch.cuda.is_available()
    device = "cuda" if on_card else "cpu"
    account = MemoryAccount(1)
    peaks = dict.fromkeys(TRACED_PHASES, 0)

    def record_peak(phase: str) -> None:
        peaks[phase] = max(peaks[phase], torch.cuda.max_memory_allocated() if on_card else account.peaks[phase])
        if on_card:
            torch.cuda.reset_peak_memory_stats()

    with contextlib.nullcontext() if on_card else AllocationCounter(account):
        with torch.device(device):
            model, frozen_reference = build_model(request), build_preference_reference_model(request)
            if request["packed"]:
                _quantize_packed_weights(model, request)
        for held in (model, frozen_reference) if frozen_reference else (model,):
            for tensor in (*held.parameters(), *held.buffers()):
                account.add(tensor)
        account.peaks["load"] = account.live_bytes
        record_peak("load")
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = _make_optimizer(request["optimizer"], trained, on_card=on_card)
        shape = (request["micro_batch"], request["sequence_length"])
        for _ in range(2):
            account.phase = "forward"
            tokens = torch.randint(0, model.config.vocab_size, shape, device=device)
            loss = loss_with_reference_also_run(model, frozen_reference, tokens, request, device)
            record_peak("forward")
            account.phase = "backward"
            loss.backward()
            record_peak("backward")
            account.phase = "step"
            del loss
            optimizer.step()
            if not request.get("gather"):
                optimizer.zero_grad()
            record_peak("step")
    numbers = [sum(p.numel() for p in which) for which in (model.parameters(), trained)]
    result: dict[str, Any] = {"phases": peaks, "parameters": numbers[0], "trained": numbers[1], "device": "cpu"}
    if on_card:
        free, total = torch.cuda.mem_get_info()
        result |= {"device": torch.cuda.get_device_name(), "reserved": torch.cuda.max_memory_reserved()}
        result["used"] = total - free
    return result

"""The loss of a step, by how the logits are treated: only the loss outlives the call."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

# Whether a kernel writes gradients over the logits, they are brought to fp32, and those before they are cut are held.
LOSSES = {
    "copied": (False, True, True),
    "plain": (False, False, False),
    "fast": (True, True, False),
    "fast-copied": (True, True, True),
}


class Fast(torch.autograd.Function):
    """A loss whose gradient is written over the logits."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _grad: Any) -> Any:
        return ctx.saved_tensors[0]


class FusedLoss(torch.autograd.Function):
    """Liger's fused linear cross entropy: gradients are computed with the loss, a part of the logits at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any) -> Any:
        flat = hidden.reshape(-1, hidden.shape[-1])
        count, width = flat.shape
        parts = 1 << (-(-weight.shape[0] // width) - 1).bit_length()
        chunk = min(count, 1 << max(0, -(-count // parts) - 1).bit_length())
        grad = torch.empty_like(flat)
        grad_weight = torch.empty_like(weight) if weight.requires_grad else None
        logits = torch.empty(chunk, weight.shape[0], dtype=flat.dtype, device=flat.device)
        del logits
        ctx.save_for_backward(grad.view_as(hidden), grad_weight)
        return hidden.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _grad: Any) -> Any:
        return ctx.saved_tensors


# torch does not say what these return.
_fast: Any = Fast.apply
_fusedloss: Any = FusedLoss.apply


def loss_of(model: Any, tokens: Any, asked: dict[str, Any], device: str = "cpu") -> Any:
    """Return the loss as the trainer computes it; only the loss outlives the call."""
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = kinds.get(asked["autocast"])
    context = torch.autocast(device, dtype=kind) if kind else contextlib.nullcontext()
    if asked["loss"] == "fused":
        with context:
            hidden = model.base_model(input_ids=tokens).last_hidden_state
            weight = model.get_output_embeddings().weight
            return _fusedloss(hidden, weight)
    if asked["loss"] in LOSSES:
        with context:
            return loss_over(model, tokens, asked["loss"])
    with context:
        out = model(input_ids=tokens, labels=tokens)
    if kind:
        # accelerate gives all outputs back in fp32.
        out = {name: value.float() for name, value in out.items() if isinstance(value, torch.Tensor)}
    return out["loss"]


def loss_over(model: Any, tokens: Any, kind: str) -> Any:
    """Return the loss as transformers before 4.49 computed it, or a fused kernel, or a script without fp32."""
    fast, upcast, held = LOSSES[kind]
    logits = model(input_ids=tokens).logits
    kept = [logits] if held else []
    if upcast:
        logits = logits.float()
        kept += [logits] if held else []
    # Each predicts the next token: what is left of all but the last is a copy.
    logits = logits[:, :-1].contiguous().flatten(0, 1)
    loss = _fast(logits) if fast else torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    del kept
    return loss

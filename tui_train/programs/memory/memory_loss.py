"""The loss of a step, by kind; only the loss outlives the call."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.utils.checkpoint

# Whether a kernel writes gradients over the logits, they are brought to fp32, and those before they are cut are held.
LOGITS_TRAITS_BY_LOSS = {
    "copied": (False, True, True),
    "plain": (False, False, False),
    "fast": (True, True, False),
    "fast-copied": (True, True, True),
}

# Tokens and words of TRL's tiles since 1.15, and tokens of its parts before.
TILE_TOKENS_AND_VOCABULARY = (4096, 32768)
TOKENS_PER_LOSS_PART = 256


class FastLossAllocations(torch.autograd.Function):
    """A loss whose gradient is written over the logits."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _grad: Any) -> Any:
        return ctx.saved_tensors[0]


class FusedLossAllocations(torch.autograd.Function):
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


class TiledLossAllocations(torch.autograd.Function):
    """TRL's loss since 1.15: the logits a tile at a time, both ways, and gradients that are summed in fp32."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, dtype: Any) -> Any:
        ctx.save_for_backward(hidden, weight)
        ctx.dtype = dtype
        held = _tile_tensors(hidden, weight, dtype)
        del held
        return hidden.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _grad: Any) -> Any:
        hidden, weight = ctx.saved_tensors
        grads = [torch.zeros_like(hidden, dtype=torch.float32)]
        grads += [torch.zeros_like(weight, dtype=torch.float32)] if weight.requires_grad else []
        held = [_tile_tensors(hidden, weight, ctx.dtype)]
        if len(hidden) > TILE_TOKENS_AND_VOCABULARY[0] or len(weight) > TILE_TOKENS_AND_VOCABULARY[1]:
            # The words of one tile are still there when those of the next are cast.
            held.append(weight[: TILE_TOKENS_AND_VOCABULARY[1]].to(ctx.dtype))
        given = [grad.to(x.dtype) for grad, x in zip(grads, (hidden, weight), strict=False)]
        del held
        return given[0], given[1] if len(given) > 1 else None, None


def _tile_tensors(hidden: Any, weight: Any, dtype: Any) -> tuple[Any, ...]:
    """Return what works on one tile: its logits, its tokens and its words."""
    tokens, words = min(len(hidden), TILE_TOKENS_AND_VOCABULARY[0]), TILE_TOKENS_AND_VOCABULARY[1]
    logits = torch.empty(tokens, words, dtype=dtype, device=hidden.device)
    return logits, hidden[:tokens].to(dtype), weight[:words].to(dtype)


# torch does not say what these return.
_fast_loss: Any = FastLossAllocations.apply
_fused_loss: Any = FusedLossAllocations.apply
_tiled_loss: Any = TiledLossAllocations.apply


def trainer_loss(model: Any, tokens: Any, request: dict[str, Any], device: str = "cpu") -> Any:
    """Return the loss as the trainer computes it; only the loss outlives the call."""
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = dtypes.get(request["autocast"])
    with torch.autocast(device, dtype=dtype) if dtype else contextlib.nullcontext():
        if request["loss"] == "fused":
            hidden = model.base_model(input_ids=tokens).last_hidden_state
            return _fused_loss(hidden, model.get_output_embeddings().weight)
        if request["loss"] in {"tiled", "checkpointed"}:
            return loss_in_parts(model, tokens, request["loss"], dtype)
        if request["loss"] in LOGITS_TRAITS_BY_LOSS:
            return loss_over_all_logits(model, tokens, request["loss"])
        out = model(input_ids=tokens, labels=tokens)
    if dtype:
        # accelerate gives all outputs back in fp32.
        out = {name: value.float() for name, value in out.items() if isinstance(value, torch.Tensor)}
    return out["loss"]


def loss_with_reference_also_run(
    model: Any, reference: Any, tokens: Any, request: dict[str, Any], device: str = "cpu"
) -> Any:
    """Return the loss, after the `reference` model (None: there is none) was run as well."""
    loss = trainer_loss(model, tokens, request, device)
    if reference is not None:
        with torch.no_grad():
            trainer_loss(reference, tokens, request, device)
    return loss


def loss_over_all_logits(model: Any, tokens: Any, name: str) -> Any:
    """Return the loss as transformers before 4.49 computed it, or a fused kernel, or a script without fp32."""
    fast, upcast, holds_logits = LOGITS_TRAITS_BY_LOSS[name]
    logits = model(input_ids=tokens).logits
    kept = [logits] if holds_logits else []
    if upcast:
        logits = logits.float()
        kept += [logits] if holds_logits else []
    # Each predicts the next token: what is left of all but the last is a copy.
    logits = logits[:, :-1].contiguous().flatten(0, 1)
    loss = _fast_loss(logits) if fast else torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    del kept
    return loss


def loss_in_parts(model: Any, tokens: Any, name: str, dtype: Any) -> Any:
    """Return the loss as TRL computes it since 1.7, without all the logits at a time."""
    hidden = model.base_model(input_ids=tokens).last_hidden_state[:, :-1]
    weight = model.get_output_embeddings().weight
    # Those whose next token counts, which is a copy.
    flat = torch.cat(hidden.unbind())
    if name == "tiled":
        return _tiled_loss(flat, weight, dtype or flat.dtype)
    loss = flat.new_zeros((), dtype=torch.float32)
    following = tokens[:, 1:].flatten()
    for part, wanted in zip(
        torch.split(flat, TOKENS_PER_LOSS_PART), torch.split(following, TOKENS_PER_LOSS_PART), strict=True
    ):
        loss = (
            loss
            + torch.utils.checkpoint.checkpoint(_part_loss_and_entropy, part, weight, wanted, use_reentrant=False)[0]
        )
    return loss


def _part_loss_and_entropy(hidden: Any, weight: Any, labels: Any) -> tuple[Any, Any]:
    logits = hidden.float() @ weight.float().t()
    # In fp32 as autocast has it on CUDA.
    sums = torch.nn.functional.log_softmax(logits.float(), dim=-1)
    loss = torch.nn.functional.nll_loss(sums, labels, reduction="sum")
    entropy = (sums.exp() * sums).sum(-1).neg()
    return loss, (entropy * labels.ge(0)).sum()

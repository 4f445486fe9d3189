"""Counts the memory of the first two steps of a training, without GPU and weights.

Runs in the training interpreter, with the model class that would train. Tensors are fake ones: they have a size
and no memory. What lives at the same time is counted by storages, in blocks of 512 bytes as the CUDA allocator does.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
from memory_loss import loss_with_reference_also_run
from memory_model import (
    build_model,
    build_preference_reference_model,
    keep_tensors_like_cuda,
    model_layers,
    release_layer_input_gradients,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALLOCATION_BLOCK_BYTES = 512
TRACED_PHASES = ("load", "forward", "backward", "step")


class MemoryAccount:
    """Bytes that live now and the most that lived in each phase; what is shared out counts with its share.

    That is one of `shards`, fewer where it is wider than what is computed with.
    """

    def __init__(self, shards: float) -> None:
        self.shards = shards
        self.live_bytes = 0
        self.phase = "load"
        self.peaks = dict.fromkeys(TRACED_PHASES, 0)
        self.sizes: dict[int, int] = {}

    def add(self, tensor: Any, shards: float = 1) -> None:
        """Count a tensor's storage, once, or the part of it that one of `shards` has."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.sizes:
            return
        self.sizes[key] = size = math.ceil(storage.nbytes() / shards / ALLOCATION_BLOCK_BYTES) * ALLOCATION_BLOCK_BYTES
        self.live_bytes += size
        weakref.finalize(storage, self._forget_storage, key)
        self.peaks[self.phase] = max(self.peaks[self.phase], self.live_bytes)

    def count_as_shard(self, tensor: Any) -> None:
        """Count a storage from now on with its share: it was gathered, or not yet scattered."""
        key = tensor.untyped_storage()._cdata
        old = self.sizes.get(key)
        if old is not None:
            self.sizes[key] = math.ceil(old / self.shards / ALLOCATION_BLOCK_BYTES) * ALLOCATION_BLOCK_BYTES
            self.live_bytes += self.sizes[key] - old

    def _forget_storage(self, key: int) -> None:
        self.live_bytes -= self.sizes.pop(key, 0)


class AllocationCounter(TorchDispatchMode):
    """Tells an account of all that operators return."""

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.account = account

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count what it returns."""
        del types
        out = func(*args, **(kwargs or {}))
        shards = self.account.shards if self.account.phase in {"load", "step"} else 1
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.account.add(leaf, shards)
        return out


class SimulatedOptimizerStep:
    """AdamW, Adafactor or SGD as the optimizer allocates: states in the first step, and what foreach holds besides."""

    def __init__(self, parameters: list[Any], request: dict[str, Any]) -> None:
        self.parameters = parameters
        self.kind = request["optimizer"]
        # FSDP may cast what it keeps in fp32: what is shared out is counted as wide as it is kept.
        self.kept_bytes = request["kept"]
        self.states: list[Any] = []

    def __call__(self, *, keep: bool = False) -> None:
        """Take a step: states, temporaries; then the gradients go, unless they are to `keep`."""
        grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not self.states and self.kind != "sgd":
            for parameter in self.parameters:
                self.states += self._new_states(parameter)
        if self.kind == "adamw_foreach":
            held = [torch.empty_like(grad) for grad in grads]
            del held
        if self.kind == "adafactor":
            widest = max(grads, key=lambda grad: grad.numel())
            copies, dtype = (2, widest.dtype) if self.kept_bytes == 4 else (4, torch.float32)
            held = [torch.empty_like(widest, dtype=dtype) for _ in range(copies)]
            del held
        for parameter in () if keep else self.parameters:
            parameter.grad = None

    def _new_states(self, parameter: Any) -> list[Any]:
        if self.kind == "adafactor" and parameter.dim() > 1:
            # A number for each row, and one for each column.
            return [parameter.new_empty(size) for size in parameter.shape]
        byte = self.kind == "adamw_8bit" and parameter.numel() >= 4096
        dtype = torch.uint8 if byte else None
        return [torch.empty_like(parameter, dtype=dtype) for _ in range(1 if self.kind == "adafactor" else 2)]


def unsharded_bytes(model: Any, request: dict[str, Any]) -> int:
    """Return the bytes that are whole besides the shares: two layers at a time and what belongs to no layer."""
    if not request.get("shared"):
        return 0
    width = 2 if request["autocast"] or request["weights"] != "float32" else 4
    layers = model_layers(model)

    def size(parameters: Any) -> int:
        return sum(p.numel() * (1 if p.element_size() == 1 else width) for p in parameters)

    layer = size(layers[0].parameters()) if layers else 0
    inside = {id(p) for block in layers for p in block.parameters()}
    return 2 * layer + size(p for p in model.parameters() if id(p) not in inside)


def trace_memory(request: dict[str, Any]) -> dict[str, Any]:
    """Return the most bytes of each phase over two steps, and the number of parameters."""
    account = MemoryAccount(request.get("shards", 1))
    with keep_tensors_like_cuda(), FakeTensorMode(allow_non_fake_inputs=True), AllocationCounter(account):
        model, frozen_reference = build_model(request), build_preference_reference_model(request)
        for held in (model, frozen_reference) if frozen_reference else (model,):
            for tensor in (*held.parameters(), *held.buffers()):
                account.add(tensor, account.shards)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(lambda p: account.count_as_shard(p.grad))
        loaded = account.live_bytes
        account.peaks["load"] = loaded
        account.phase = "forward"
        # DistributedDataParallel's copy of the gradients, there from before the first step.
        buckets = [torch.empty_like(parameter) for parameter in trained] if request.get("buckets") else []
        step = SimulatedOptimizerStep(trained, request)
        whole_bytes = unsharded_bytes(model, request)
        for _ in range(2):
            account.phase = "forward"
            tokens = torch.zeros(request["micro_batch"], request["sequence_length"], dtype=torch.int64)
            loss = loss_with_reference_also_run(model, frozen_reference, tokens, request)
            account.phase = "backward"
            loss.backward()
            del loss
            release_layer_input_gradients(model)
            account.phase = "step"
            account.peaks["step"] = max(account.peaks["step"], account.live_bytes)
            # With accumulation the gradients of the micro batches before are there in the forward pass.
            step(keep=request.get("gather", False))
        del buckets
        peaks = {
            name: peak + (whole_bytes if name in {"forward", "backward"} else 0) for name, peak in account.peaks.items()
        }
        numbers = [sum(p.numel() for p in which) for which in (model.parameters(), trained)]
    return {"phases": peaks, "parameters": numbers[0], "trained": numbers[1]}

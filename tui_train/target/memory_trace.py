"""Say in one line of JSON what memory the first two steps of a training would take, without a GPU and without weights.

Runs in the training interpreter, with the model class that would train; its text is passed on the command line, as that
of probe.py is, with one JSON object that says what is trained and how. Tensors are fake ones: they have a size and no
memory. What lives at the same time is counted by storages, in blocks of 512 bytes as the CUDA allocator does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
import weakref
from typing import Any

BLOCK = 512
DEVICE = "cpu"
# Whether a kernel writes gradients over the logits, they are brought to fp32, and those before that are held.
LOSSES = {
    "copied": (False, True, True),
    "plain": (False, False, False),
    "fast": (True, True, False),
    "fast-copied": (True, True, True),
}
PHASES = ("load", "forward", "backward", "step")


def _torch() -> Any:
    import torch

    return torch


class Account:
    """Bytes that live now and the most that lived in each phase; what is shared out counts with its share."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.live = 0
        self.phase = "load"
        self.peaks = dict.fromkeys(PHASES, 0)
        self.sizes: dict[int, int] = {}

    def add(self, tensor: Any, share: int = 1) -> None:
        """Count a tensor's storage, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.sizes:
            return
        self.sizes[key] = size = -(-storage.nbytes() // share // BLOCK) * BLOCK
        self.live += size
        weakref.finalize(storage, self._end, key)
        self.peaks[self.phase] = max(self.peaks[self.phase], self.live)

    def share(self, tensor: Any) -> None:
        """Count a storage from now on with its share: it was gathered, or not yet scattered."""
        key = tensor.untyped_storage()._cdata
        old = self.sizes.get(key)
        if old is not None:
            self.sizes[key] = -(-old // self.shards // BLOCK) * BLOCK
            self.live += self.sizes[key] - old

    def _end(self, key: int) -> None:
        self.live -= self.sizes.pop(key, 0)


def mode_of(account: Account) -> Any:
    """Return the dispatch mode that tells the account of all that operators return."""
    torch = _torch()
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            share = account.shards if account.phase in {"load", "step"} else 1
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    account.add(leaf, share)
            return out

    return Watch()


def configuration(asked: dict[str, Any]) -> Any:
    """Return the model's configuration, of a folder or of values, with the attention and depth that were asked for."""
    from transformers import AutoConfig

    if asked.get("folder"):
        config = AutoConfig.from_pretrained(asked["folder"], local_files_only=True)
    else:
        values = dict(asked["config"])
        config = AutoConfig.for_model(values.pop("model_type"), **values)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    config.use_cache = False
    if asked.get("layers"):
        config.num_hidden_layers = asked["layers"]
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: asked["layers"]]
    return config


@contextlib.contextmanager
def as_on_cuda() -> Any:
    """Keep what CUDA's attention and dropout keep: the CPU's repeat keys, and have masks of four bytes."""
    torch = _torch()
    functional = torch.nn.functional

    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
            batch, heads, count, _ = query.shape
            # As flash attention lays it out: tokens before heads.
            out = query.new_empty(batch, count, heads, value.shape[-1]).transpose(1, 2)
            ctx.save_for_backward(query, key, value, out, query.new_empty(batch, heads, count, dtype=torch.float32))
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            del grad
            return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])

    class Drop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(torch.empty_like(x, dtype=torch.bool))
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            del ctx
            return torch.empty_like(grad)

    def attend(query: Any, key: Any, value: Any, *_rest: Any, **_more: Any) -> Any:
        if torch.is_autocast_enabled("cpu"):
            query, key, value = (each.to(torch.get_autocast_dtype("cpu")) for each in (query, key, value))
        return Attend.apply(query, key, value)

    def drop(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        del inplace
        return Drop.apply(x) if training and p else x

    usual = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention, functional.dropout = attend, drop
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = usual


def build(asked: dict[str, Any]) -> Any:
    """Return the model as the training has it: its class, precision, frozen and quantized parts, adapters."""
    torch = _torch()
    from transformers import AutoModelForCausalLM

    config = configuration(asked)
    attention = asked["attention"]
    if attention == "flash":
        # Of what is installed, sdpa keeps the same, but for keys and values that it may repeat for each query head.
        attention = "sdpa"
        os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] = "1"
    usual = torch.get_default_dtype()
    # Not by `model.to`, which cannot swap fake weights.
    torch.set_default_dtype(getattr(torch, asked["weights"]))
    try:
        try:
            model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        except ValueError:
            # Some classes have only their own.
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    finally:
        torch.set_default_dtype(usual)
    if asked["method"] != "full":
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        if asked["method"] == "lora":
            adapt(model, asked)
    if asked.get("kernels"):
        fuse(model, swiglu=asked["kernels"] == "liger")
    if asked["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if asked["method"] != "full":
            # As the Trainer does: without it nothing before the first adapter would be differentiated.
            model.get_input_embeddings().register_forward_hook(lambda _m, _i, out: out.requires_grad_(True))
    model.train()
    return model


def adapt(model: Any, asked: dict[str, Any]) -> None:
    """Put LoRA's matrices beside the targets, and packed weights in place of those that are quantized."""
    torch = _torch()
    head = model.get_output_embeddings()
    targets = set(asked["targets"])
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            fan = getattr(child, "weight", None)
            if fan is None or fan.dim() != 2 or isinstance(child, torch.nn.Embedding) or child is head:
                continue
            aimed = name in targets or not targets
            if asked["packed"] or aimed:
                setattr(module, name, adapter_class()(child, asked, aimed=aimed))


def fuse(model: Any, *, swiglu: bool) -> None:
    """Have norms, and with `swiglu` gated activations, keep what fused kernels keep: their inputs."""
    torch = _torch()

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return torch.empty_like(inputs[0])

        @staticmethod
        def backward(ctx: Any, _grad: Any) -> Any:
            return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)

    for module in model.modules():
        names = dict(module.named_children())
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, module=module: Fused.apply(x, module.weight)
        elif swiglu and {"gate_proj", "up_proj", "down_proj"} <= names.keys():
            module.forward = lambda x, module=module: module.down_proj(
                Fused.apply(module.gate_proj(x), module.up_proj(x))
            )


def adapter_class() -> Any:
    """Return the class of a frozen linear layer, packed or not, with or without LoRA beside it, as PEFT's is."""
    torch = _torch()

    class Unpacked(torch.autograd.Function):
        """As bitsandbytes' MatMul4Bit: unpacks for each use and keeps only what is packed."""

        @staticmethod
        def forward(ctx: Any, x: Any, packed: Any, shape: Any, bias: Any) -> Any:
            ctx.save_for_backward(packed)
            ctx.shape = shape
            return torch.nn.functional.linear(x, torch.empty(shape, dtype=x.dtype, device=x.device), bias)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad @ torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device), None, None, None

    class Adapted(torch.nn.Module):
        def __init__(self, base: Any, asked: dict[str, Any], *, aimed: bool) -> None:
            super().__init__()
            rows, columns = base.weight.shape
            if type(base).__name__ == "Conv1D":
                rows, columns = columns, rows
            self.shape = (rows, columns)
            self.bias = base.bias
            self.compute = base.weight.dtype
            if asked["packed"]:
                count = int(rows * columns * asked["packed"])
                self.packed = torch.nn.Parameter(torch.empty(count, dtype=torch.uint8), requires_grad=False)
            else:
                self.weight = torch.nn.Parameter(base.weight.new_empty(self.shape), requires_grad=False)
            self.rank = asked["rank"] if aimed else 0
            if self.rank:
                kind = getattr(torch, asked["adapters"])
                self.dropout = torch.nn.Dropout(asked["dropout"])
                self.down = torch.nn.Linear(columns, self.rank, bias=False, dtype=kind)
                self.up = torch.nn.Linear(self.rank, rows, bias=False, dtype=kind)

        def forward(self, x: Any) -> Any:
            if hasattr(self, "packed"):
                out = Unpacked.apply(x.to(self.compute), self.packed, self.shape, self.bias)
            else:
                out = torch.nn.functional.linear(x, self.weight, self.bias)
            if not self.rank:
                return out
            beside = self.up(self.down(self.dropout(x.to(self.down.weight.dtype)))) * 2.0
            return (out + beside).to(out.dtype)

    return Adapted


class Steps:
    """AdamW or SGD as the optimizer allocates: states in the first step, and what foreach holds besides."""

    def __init__(self, parameters: list[Any], kind: str) -> None:
        self.parameters = parameters
        self.kind = kind
        self.states: list[Any] = []

    def __call__(self, *, keep: bool = False) -> None:
        """Take a step: states, temporaries; then the gradients go, unless they are to `keep`."""
        torch = _torch()
        grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not self.states and self.kind != "sgd":
            byte = {"adamw_8bit": torch.uint8}.get(self.kind)
            for parameter in self.parameters:
                dtype = byte if byte and parameter.numel() >= 4096 else None
                self.states += [torch.empty_like(parameter, dtype=dtype) for _ in range(2)]
        if self.kind == "adamw_foreach":
            held = [torch.empty_like(grad) for grad in grads]
            del held
        for parameter in () if keep else self.parameters:
            parameter.grad = None


def loss_of(model: Any, tokens: Any, asked: dict[str, Any]) -> Any:
    """Return the loss as the trainer computes it; only the loss outlives the call."""
    torch = _torch()
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = kinds.get(asked["autocast"])
    context = torch.autocast(DEVICE, dtype=kind) if kind else contextlib.nullcontext()
    if asked["loss"] == "fused":
        with context:
            hidden = model.base_model(input_ids=tokens).last_hidden_state
            weight = model.get_output_embeddings().weight
            return fused_loss().apply(hidden, weight)
    if asked["loss"] in LOSSES:
        with context:
            logits = model(input_ids=tokens).logits
            return loss_over(logits, tokens, asked["loss"])
    with context:
        out = model(input_ids=tokens, labels=tokens)
    if kind:
        # accelerate gives all outputs back in fp32.
        out = {name: value.float() for name, value in out.items() if isinstance(value, torch.Tensor)}
    return out["loss"]


def loss_over(logits: Any, tokens: Any, kind: str) -> Any:
    """Return the loss as transformers before 4.49 computed it, or a fused kernel, or a script without fp32."""
    torch = _torch()

    class Fast(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.new_zeros((), dtype=torch.float32)

        @staticmethod
        def backward(ctx: Any, _grad: Any) -> Any:
            return ctx.saved_tensors[0]

    fast, upcast, held = LOSSES[kind]
    kept = logits if held else None
    if upcast:
        logits = logits.float()
    # Each predicts the next token: what is left of all but the last is a copy.
    logits = logits[:, :-1].contiguous().flatten(0, 1)
    loss = Fast.apply(logits) if fast else torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    del kept
    return loss


def fused_loss() -> Any:
    """Return a function with the memory of Liger's fused linear cross entropy: gradients are computed with the loss."""
    torch = _torch()

    class Fused(torch.autograd.Function):
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

    return Fused


def gathered(model: Any, account: Account, asked: dict[str, Any]) -> int:
    """Return the bytes that are whole besides the shares: two layers at a time and what belongs to no layer."""
    if account.shards == 1:
        return 0
    width = 2 if asked["autocast"] or asked["weights"] != "float32" else 4
    blocks = next((m for m in model.modules() if type(m).__name__ == "ModuleList"), None)

    def size(parameters: Any) -> int:
        return sum(p.numel() * (1 if p.element_size() == 1 else width) for p in parameters)

    layer = size(blocks[0].parameters()) if blocks else 0
    inside = {id(p) for block in blocks or () for p in block.parameters()}
    return 2 * layer + size(p for p in model.parameters() if id(p) not in inside)


def trace(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the most bytes of each phase over two steps, and the number of parameters."""
    torch = _torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    account = Account(asked.get("shards", 1))
    with as_on_cuda(), FakeTensorMode(allow_non_fake_inputs=True), mode_of(account):
        model = build(asked)
        for tensor in (*model.parameters(), *model.buffers()):
            account.add(tensor, account.shards)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(lambda p: account.share(p.grad))
        loaded = account.live
        account.peaks["load"] = loaded
        step = Steps(trained, asked["optimizer"])
        more = gathered(model, account, asked)
        for _ in range(2):
            account.phase = "forward"
            tokens = torch.zeros(asked["micro_batch"], asked["sequence_length"], dtype=torch.int64)
            loss = loss_of(model, tokens, asked)
            account.phase = "backward"
            loss.backward()
            del loss
            account.phase = "step"
            # With accumulation the gradients of the micro batches before are there in the forward pass.
            step(keep=asked.get("gather", False))
        peaks = {name: peak + (more if name in {"forward", "backward"} else 0) for name, peak in account.peaks.items()}
        numbers = [sum(p.numel() for p in which) for which in (model.parameters(), trained)]
    return {"phases": peaks, "parameters": numbers[0], "trained": numbers[1]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        told = trace(json.loads(sys.argv[-1]))
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, the answer is that it cannot be traced
        told = {"problem": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
    sys.stdout.write("\n" + json.dumps(told) + "\n")

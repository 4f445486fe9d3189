"""The model of a training: frozen, quantized and adapted parts, with the activations that CUDA keeps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch


class FlashAttention(torch.autograd.Function):
    """Attention as flash attention keeps it: what came in, what goes out, and a sum for each query."""

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


class ByteMaskDropout(torch.autograd.Function):
    """Dropout with a mask of one byte a number."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(torch.empty_like(x, dtype=torch.bool))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        del ctx
        return torch.empty_like(grad)


class InputKeepingKernel(torch.autograd.Function):
    """A kernel that keeps its inputs, and computes the rest again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        return torch.empty_like(inputs[0])

    @staticmethod
    def backward(ctx: Any, _grad: Any) -> Any:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


class UnpackingLinear(torch.autograd.Function):
    """As bitsandbytes' MatMul4Bit: unpacks for each use and keeps only what is packed."""

    @staticmethod
    def forward(ctx: Any, x: Any, packed: Any, shape: Any, bias: Any) -> Any:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return torch.nn.functional.linear(x, torch.empty(shape, dtype=x.dtype, device=x.device), bias)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad @ torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device), None, None, None


class PackedOrAdaptedLinear(torch.nn.Module):
    """A frozen linear layer, packed or not, with or without LoRA beside it, as PEFT's is."""

    def __init__(self, base: Any, request: dict[str, Any], *, is_target: bool) -> None:
        super().__init__()
        rows, columns = base.weight.shape
        if type(base).__name__ == "Conv1D":
            rows, columns = columns, rows
        self.shape = (rows, columns)
        self.bias = base.bias
        self.compute = base.weight.dtype
        if request["packed"]:
            count = int(rows * columns * request["packed"])
            self.packed = torch.nn.Parameter(torch.empty(count, dtype=torch.uint8), requires_grad=False)
        else:
            self.weight = torch.nn.Parameter(base.weight.new_empty(self.shape), requires_grad=False)
        self.rank = request["rank"] if is_target else 0
        if self.rank:
            dtype = getattr(torch, request["adapters"])
            self.dropout = torch.nn.Dropout(request["dropout"])
            self.down = torch.nn.Linear(columns, self.rank, bias=False, dtype=dtype)
            self.up = torch.nn.Linear(self.rank, rows, bias=False, dtype=dtype)

    def packed_product(self, x: Any) -> Any:
        """Return the product with the packed weights, for which bytes stand."""
        return _unpacking_linear(x, self.packed, self.shape, self.bias)

    def forward(self, x: Any) -> Any:
        if hasattr(self, "packed"):
            out = self.packed_product(x.to(self.compute)).to(x.dtype)
        else:
            out = torch.nn.functional.linear(x, self.weight, self.bias)
        if not self.rank:
            return out
        beside = self.up(self.down(self.dropout(x.to(self.down.weight.dtype)))) * 2.0
        return (out + beside).to(out.dtype)


# torch does not say what these return.
_flash_attention: Any = FlashAttention.apply
_byte_mask_dropout: Any = ByteMaskDropout.apply
_fused_kernel: Any = InputKeepingKernel.apply
_unpacking_linear: Any = UnpackingLinear.apply


@contextlib.contextmanager
def keep_tensors_like_cuda() -> Iterator[None]:
    """Keep what CUDA's attention, dropout and autocast keep.

    The CPU's repeat keys, have masks of four bytes, and leave norms, powers and softmax in 16 bits.
    """
    functional: Any = torch.nn.functional

    def attend(query: Any, key: Any, value: Any, *_rest: Any, **_more: Any) -> Any:
        if torch.is_autocast_enabled("cpu"):
            query, key, value = (each.to(torch.get_autocast_dtype("cpu")) for each in (query, key, value))
        return _flash_attention(query, key, value)

    def drop(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        del inplace
        return _byte_mask_dropout(x) if training and p else x

    def norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        if torch.is_autocast_enabled("cpu"):
            x, weight, bias = (each if each is None else each.float() for each in (x, weight, bias))
        return layer_norm(x, shape, weight, bias, eps)

    def power(x: Any, exponent: Any) -> Any:
        return usual_power(x.float() if torch.is_autocast_enabled("cpu") else x, exponent)

    def softmax(x: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        wide = torch.float32 if dtype is None and torch.is_autocast_enabled("cpu") else dtype
        return usual_softmax(x, dim, dtype=wide)

    layer_norm, usual_softmax, usual_power = functional.layer_norm, functional.softmax, torch.pow
    ours = {"scaled_dot_product_attention": attend, "dropout": drop, "layer_norm": norm, "softmax": softmax}
    usual = {name: getattr(functional, name) for name in ours}
    vars(functional).update(ours)
    setattr(torch, "pow", power)  # noqa: B010
    try:
        yield
    finally:
        vars(functional).update(usual)
        setattr(torch, "pow", usual_power)  # noqa: B010


def model_configuration(request: dict[str, Any]) -> Any:
    """Return the model's configuration, of a folder or of values, with the attention and depth that were asked for."""
    from transformers import AutoConfig

    if request.get("folder"):
        config = AutoConfig.from_pretrained(request["folder"], local_files_only=True, trust_remote_code=False)
    else:
        values = dict(request["config"])
        config = AutoConfig.for_model(values.pop("model_type"), **values)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    config.use_cache = False
    if request.get("layers"):
        config.num_hidden_layers = request["layers"]
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: request["layers"]]
    return config


def build_model(request: dict[str, Any]) -> Any:
    """Return the model as the training has it: its class, precision, frozen and quantized parts, adapters."""
    from transformers import AutoModelForCausalLM

    causal: Any = AutoModelForCausalLM

    config = model_configuration(request)
    attention = request["attention"]
    if attention == "flash":
        # Of what is installed, sdpa keeps the same, but for keys and values that it may repeat for each query head.
        attention = "sdpa"
        os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] = "1"
    dtype = getattr(torch, request["weights"])
    # What the folder says of its files is not what is trained in; transformers 5 has renamed it.
    config.torch_dtype = config.dtype = dtype
    usual = torch.get_default_dtype()
    # Not by `model.to`, which cannot swap fake weights.
    torch.set_default_dtype(dtype)
    try:
        try:
            model = causal.from_config(config, attn_implementation=attention, trust_remote_code=False)
        except ValueError:
            # Some classes have only their own.
            model = causal.from_config(config, attn_implementation="eager", trust_remote_code=False)
    finally:
        torch.set_default_dtype(usual)
    if request["method"] != "full":
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        if request["method"] == "lora":
            add_adapters_and_pack_weights(model, request)
    if request.get("kernels"):
        use_fused_kernels(model, swiglu=request["kernels"] == "liger")
    if request["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": bool(request.get("holds_layers"))})
        if request.get("holds_layers"):
            hold_layer_input_gradients(model)
        if request["method"] != "full":
            # As the Trainer does: without it nothing before the first adapter would be differentiated.
            model.get_input_embeddings().register_forward_hook(lambda _m, _i, out: out.requires_grad_(True))
    model.train()
    return model


def build_preference_reference_model(request: dict[str, Any]) -> Any:
    """Return the frozen copy of the model that DPO and KTO compare with; None where there is none."""
    plain = {"method": "frozen", "checkpointing": False}
    return build_model({**request, **plain}) if request.get("reference") else None


def model_layers(model: Any) -> Any:
    """Return the layers of a model."""
    return next((module for module in model.modules() if type(module).__name__ == "ModuleList"), ())


def hold_layer_input_gradients(model: Any) -> None:
    """Wait for the gradients of each layer's input as FSDP's first version does for frozen layers, which holds both.

    It waits in what is recomputed, where the input is a leaf, as transformers before 5 has it.
    """

    def wrapped(block: Any) -> Any:
        recompute = block._gradient_checkpointing_func

        def begin(call: Any, *inputs: Any) -> Any:
            def forward(*inputs: Any) -> Any:
                leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
                if torch.is_grad_enabled() and leaves and not hasattr(block, "waits"):
                    block.waits = torch.autograd.graph.register_multi_grad_hook(leaves, lambda _gradients: None)
                return call(*inputs)

            return recompute(forward, *inputs)

        return begin

    for block in model_layers(model):
        block._gradient_checkpointing_func = wrapped(block)


def release_layer_input_gradients(model: Any) -> None:
    """End at the end of a backward pass what `hold_layer_input_gradients` began."""
    for block in model_layers(model):
        if hasattr(block, "waits"):
            block.waits.remove()
            del block.waits


def add_adapters_and_pack_weights(model: Any, request: dict[str, Any]) -> None:
    """Put LoRA's matrices beside the targets, and packed weights in place of those that are quantized."""
    head = model.get_output_embeddings()
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = {word for name, also in request["targets"].items() for word in ({name} & names or {*also} & names)}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            weight = getattr(child, "weight", None)
            if weight is None or weight.dim() != 2 or isinstance(child, torch.nn.Embedding) or child is head:
                continue
            is_target = name in targets or not request["targets"]
            if request["packed"] or is_target:
                setattr(module, name, PackedOrAdaptedLinear(child, request, is_target=is_target))


def use_fused_kernels(model: Any, *, swiglu: bool) -> None:
    """Have norms, and with `swiglu` gated activations, keep what fused kernels keep: their inputs."""
    for module in model.modules():
        names = dict(module.named_children())
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, module=module: _fused_kernel(x, module.weight)
        elif swiglu and {"gate_proj", "up_proj", "down_proj"} <= names.keys():
            module.forward = lambda x, module=module: module.down_proj(
                _fused_kernel(module.gate_proj(x), module.up_proj(x))
            )

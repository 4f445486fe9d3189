"""Makes what libraries ask of CUDA harmless in a process without a GPU; to be called before they are imported."""

import contextlib
import re

import torch
from torch.overrides import TorchFunctionMode


class DummyCudaObject:
    """A CUDA stream or event where there is no CUDA."""

    def __init__(self, *_, **__):
        pass

    def wait(self, *_):
        pass

    wait_stream = wait_event = synchronize = record = record_event = wait

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def query(self):
        return True

    def elapsed_time(self, *_):
        return 0.0


def cpu_instead_of_cuda(device):
    if isinstance(device, str) and device.startswith("cuda"):
        return "cpu"
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("cpu")
    return device


class CudaIsCpu(TorchFunctionMode):
    """Takes the CPU wherever a CUDA device is asked for."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = cpu_instead_of_cuda(kwargs["device"])
        kwargs.pop("pin_memory", None)
        if getattr(func, "__name__", "") == "to":
            args = tuple(cpu_instead_of_cuda(word) for word in args)
        return func(*args, **kwargs)


def patch_out_cuda():
    """Make what NeMo and Megatron ask of CUDA harmless; the training itself is theirs."""
    cuda = torch.cuda
    cuda.Stream = cuda.Event = DummyCudaObject
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.current_stream = cuda.default_stream = DummyCudaObject
    cuda.current_device = lambda: torch.device("cpu")
    for name in ("synchronize", "set_device", "set_stream", "empty_cache"):
        setattr(cuda, name, lambda *_, **__: None)
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: 0
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    # Megatron knows weights only by the names that their types have on a GPU.
    named = torch.Tensor.type
    torch.Tensor.type = lambda self, *to, **how: (
        named(self, *to, **how) if to or how else re.sub(r"^torch\.(?!cuda)", "torch.cuda.", named(self))
    )
    for name in ("FloatTensor", "LongTensor", "IntTensor", "BFloat16Tensor", "HalfTensor", "DoubleTensor"):
        setattr(cuda, name, getattr(torch, name))
    CudaIsCpu().__enter__()

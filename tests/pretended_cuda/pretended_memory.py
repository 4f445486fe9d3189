"""The memory of a card that is the CPU: which tensors lie on it, and that it ends."""

import weakref

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NO_CODE = "CUDA error: no kernel image is available for execution on the device"


def is_card(device):
    return str(device).startswith("cuda")


class CardMemory:
    """Bytes that live on the card, the most that did, and how many may."""

    def __init__(self, total, computes):
        self.total = self.allowed = total
        self.computes = computes
        self.live = self.peak = self.peak_ever = 0
        self.sizes = {}

    def put(self, tensors):
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, torch.Tensor):
                self.put_storage(tensor.untyped_storage())

    def put_storage(self, storage):
        key = storage._cdata
        if key in self.sizes:
            return
        if not self.computes:
            raise RuntimeError(NO_CODE)
        size = storage.nbytes()
        if self.live + size > self.allowed:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size >> 20} MiB. GPU 0 has a total capacity of "
                f"{self.total >> 30} GiB of which {self.total - self.live >> 20} MiB is free."
            )
        self.sizes[key] = size
        self.live += size
        self.peak, self.peak_ever = max(self.peak, self.live), max(self.peak_ever, self.live)
        weakref.finalize(storage, self.forget, key)

    def forget(self, key):
        self.live -= self.sizes.pop(key, 0)

    def has(self, tensors):
        return any(
            isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata in self.sizes
            for tensor in tree_leaves(tensors)
        )

    def pretend(self, torch_module):
        cuda = torch_module.cuda
        cuda.max_memory_allocated = lambda *_: self.peak
        cuda.max_memory_reserved = lambda *_: self.peak_ever
        cuda.mem_get_info = lambda *_: (self.total - self.peak_ever, self.total)
        cuda.reset_peak_memory_stats = lambda *_: setattr(self, "peak", self.live)
        cuda.set_per_process_memory_fraction = lambda share, *_: setattr(self, "allowed", share * self.total)
        Placed(self).__enter__()
        Computed(self).__enter__()


class Placed(TorchFunctionMode):
    """Puts on the card what is asked for there, above what makes it the CPU."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        asked = is_card(kwargs.get("device")) or (
            getattr(func, "__name__", "") == "to"
            and any(isinstance(word, (str, torch.device)) and is_card(word) for word in args[1:])
        )
        made = func(*args, **kwargs)
        if asked:
            self.memory.put(made)
        return made


class Computed(TorchDispatchMode):
    """Leaves on the card what is computed of what lies there."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        there = self.memory.has((args, kwargs))
        made = func(*args, **kwargs)
        if there:
            self.memory.put(made)
        return made

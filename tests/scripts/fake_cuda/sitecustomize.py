"""Has torch say that there are two GPUs, on a machine without: what a script asks of NCCL is then seen."""

import sys


def fake(torch):
    """Have each process see two cards and put its tensors on the CPU all the same."""
    torch.version.cuda = "12.8"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 2
    torch.cuda.set_device = lambda _device: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_bf16_supported = lambda *_, **__: False
    torch.cuda.get_device_capability = lambda *_: (8, 6)


class Finder:
    """Runs `fake` once torch is imported."""

    def find_spec(self, name, path=None, target=None):
        """Find torch as the others do, and act after it."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec("torch")
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            fake(module)

        spec.loader.exec_module = exec_module
        return spec


if "torch" in sys.modules:
    fake(sys.modules["torch"])
else:
    sys.meta_path.insert(0, Finder())

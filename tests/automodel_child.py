"""AutoModel's command line on the CPU, under torchrun: automodel_child.py CONFIG [--KEY=VALUE ...]."""

import torch

CPU = torch.device("cpu")


class TorchWithoutCuda:
    """torch, but for its CUDA devices."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def device(*words, **named):
        return CPU if words and str(words[0]).startswith("cuda") else torch.device(*words, **named)


for name in ("reset_peak_memory_stats", "empty_cache", "synchronize"):
    setattr(torch.cuda, name, lambda *_, **__: None)
torch.cuda.max_memory_allocated = lambda *_, **__: 0
torch.cuda.current_device = lambda: CPU

import nemo_automodel.recipes.llm.train_ft as recipe  # noqa: E402
from nemo_automodel._transformers import auto_model  # noqa: E402
from nemo_automodel.cli.app import main  # noqa: E402

auto_model.torch = recipe.torch = TorchWithoutCuda()
main()

"""The variables that a training inherits and that tell its libraries how to communicate or allocate; never values."""

import os
import re
from pathlib import Path

from tui_train.facts.types import Inherited
from tui_train.supervisor import regular

_NAMES = re.compile(
    r"NCCL_|TORCH_NCCL_|TORCH_DIST_|GLOO_|ACCELERATE_|NVTE_|MASTER_|PYTORCH_(CUDA_)?ALLOC_|CUDA_DEVICE_MAX"
)
_OTHERS = frozenset({"WANDB_DISABLED"})
_NCCL_FILES = ("~/.nccl.conf", "/etc/nccl.conf")
_MOST = 1 << 16


def variables() -> tuple[Inherited, ...]:
    """Return those of this process, then those of NCCL's own files; a file that cannot be read has none.

    Source: NCCL's documentation, "Environment Variables": the file that NCCL_CONF_FILE names takes the home's place.
    """
    found = [Inherited(name, "the environment") for name in os.environ if _NAMES.match(name) or name in _OTHERS]
    own = os.environ.get("NCCL_CONF_FILE") or _NCCL_FILES[0]
    for file in (own, _NCCL_FILES[1]):
        found += [Inherited(name, file) for name in _names_in(file)]
    return tuple(found)


def _names_in(file: str) -> list[str]:
    try:
        text = regular.read(Path(file).expanduser(), _MOST).decode("utf-8", "replace")
    except (OSError, RuntimeError):
        return []
    lines = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return [name.strip() for name, equals, _ in lines if equals and name.strip()]

"""Inherited variables that configure communication or allocation of a training; names only, never values."""

import os
import re
from pathlib import Path

from tui_train.facts.types import InheritedVariable
from tui_train.runner import safe_open

_CONFIGURING_NAME_PATTERN = re.compile(
    r"NCCL_|TORCH_NCCL_|TORCH_DIST_|GLOO_|ACCELERATE_|NVTE_|MASTER_|PYTORCH_(CUDA_)?ALLOC_|CUDA_DEVICE_MAX"
)
_OTHER_CONFIGURING_NAMES = frozenset({"WANDB_DISABLED"})
_NCCL_CONFIG_FILES = ("~/.nccl.conf", "/etc/nccl.conf")
_MAX_CONFIG_BYTES = 1 << 16


def read_inherited_variables() -> tuple[InheritedVariable, ...]:
    """Return those of this process, then those in NCCL's config files; unreadable files have none.

    Source: NCCL's documentation, "Environment Variables": NCCL_CONF_FILE replaces the file in the home folder.
    """
    inherited = [
        InheritedVariable(name, "the environment")
        for name in os.environ
        if _CONFIGURING_NAME_PATTERN.match(name) or name in _OTHER_CONFIGURING_NAMES
    ]
    user_file = os.environ.get("NCCL_CONF_FILE") or _NCCL_CONFIG_FILES[0]
    for file in (user_file, _NCCL_CONFIG_FILES[1]):
        inherited += [InheritedVariable(name, file) for name in _names_in_nccl_config(file)]
    return tuple(inherited)


def _names_in_nccl_config(file: str) -> list[str]:
    try:
        text = safe_open.read_bounded(Path(file).expanduser(), _MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError):
        return []
    lines = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return [name.strip() for name, equals, _ in lines if equals and name.strip()]

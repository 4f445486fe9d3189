"""Settings that a training inherits: variables for communication or allocation, and a W&B key.

Values are not kept, but for that of CUDA_VISIBLE_DEVICES.
"""

import os
import re
from pathlib import Path

from tui_train.facts.machine.variable_problems import variable_problem
from tui_train.facts.types import InheritedVariable
from tui_train.runner.system import safe_open

_CONFIGURING_VARIABLE_PATTERN = re.compile(
    r"NCCL_|TORCH_NCCL_|TORCH_DIST_|GLOO_|ACCELERATE_|NVTE_|MASTER_|PYTORCH_(CUDA_)?ALLOC_|CUDA_DEVICE_MAX"
)
_VISIBLE_GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
_OTHER_CONFIGURING_VARIABLES = frozenset({"WANDB_DISABLED", _VISIBLE_GPUS_VARIABLE})
_SPACES_AROUND_EQUALS_PROBLEM = "NCCL takes the spaces around = for a part of the name and the value"
_NCCL_CONFIG_FILES = ("~/.nccl.conf", "/etc/nccl.conf")
_MAX_FILE_BYTES = 1 << 16
_WANDB_MODES_WITHOUT_KEY = {"offline", "disabled", "dryrun"}
_NETRC_HOST_PATTERN = re.compile(r"(?m)^\s*machine\s+(\S+)")
_WANDB_KEY_SETTING_PATTERN = re.compile(r"(?m)^\s*(api_key|anonymous)\s*[=:]\s*\S")


def read_inherited_variables() -> tuple[InheritedVariable, ...]:
    """Return those of this process, then those in NCCL's config files; unreadable files have none.

    Source: NCCL's documentation, "Environment Variables": NCCL_CONF_FILE replaces the file in the home folder.
    """
    inherited = [
        InheritedVariable(
            name,
            "the environment",
            _variable_problem_text(name, value),
            value if name == _VISIBLE_GPUS_VARIABLE else "",
        )
        for name, value in os.environ.items()
        if _CONFIGURING_VARIABLE_PATTERN.match(name)
        or name in _OTHER_CONFIGURING_VARIABLES
        or _variable_problem_text(name, value)
    ]
    user_file = os.environ.get("NCCL_CONF_FILE") or _NCCL_CONFIG_FILES[0]
    for file in (user_file, _NCCL_CONFIG_FILES[1]):
        lines = (line.partition("#")[0].partition("=") for line in _read_text_or_empty(file).splitlines())
        inherited += [
            InheritedVariable(name.strip(), file, _problem_in_nccl_file(name, value))
            for name, equals, value in lines
            if equals and name.strip()
        ]
    return tuple(inherited)


def _variable_problem_text(name: str, value: str) -> str:
    found = variable_problem(name, value)
    return found.why if found else ""


def _problem_in_nccl_file(name: str, value: str) -> str:
    """Return the problem of a variable in a file of NCCL, which passes on each line as it is."""
    return _SPACES_AROUND_EQUALS_PROBLEM if name.endswith((" ", "\t")) else _variable_problem_text(name.strip(), value)


def starts_without_wandb_prompt() -> bool:
    """Return whether a training that reports to W&B would start without a prompt.

    Source: W&B's documentation of its variables: WANDB_API_KEY, then the netrc file, then its own settings.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE", "").lower() in _WANDB_MODES_WITHOUT_KEY:
        return True
    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    host = server.partition("//")[2].partition("/")[0].partition(":")[0]
    names = [os.environ.get("NETRC") or "~/.netrc", "~/_netrc"]
    if any(host in _NETRC_HOST_PATTERN.findall(_read_text_or_empty(name)) for name in names):
        return True
    folder = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    return bool(_WANDB_KEY_SETTING_PATTERN.search(_read_text_or_empty(f"{folder}/settings")))


def _read_text_or_empty(path: str) -> str:
    try:
        return safe_open.read_bounded(Path(path).expanduser(), _MAX_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError):
        return ""

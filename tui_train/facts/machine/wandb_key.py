"""Detection of a W&B key of this user; the key itself is never read into the program."""

import os
import re
from pathlib import Path

from tui_train.runner import safe_open

_MAX_FILE_BYTES = 1 << 16
_MODES_WITHOUT_KEY = {"offline", "disabled", "dryrun"}
_NETRC_HOST_PATTERN = re.compile(r"(?m)^\s*machine\s+(\S+)")
_KEY_SETTING_PATTERN = re.compile(r"(?m)^\s*(api_key|anonymous)\s*[=:]\s*\S")


def starts_without_wandb_prompt() -> bool:
    """Return whether a training that reports to W&B would start without a prompt.

    Source: W&B's documentation of its variables: WANDB_API_KEY, then the netrc file, then its own settings.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE", "").lower() in _MODES_WITHOUT_KEY:
        return True
    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    host = server.partition("//")[2].partition("/")[0].partition(":")[0]
    names = [os.environ.get("NETRC") or "~/.netrc", "~/_netrc"]
    if any(host in _NETRC_HOST_PATTERN.findall(_read_text_or_empty(name)) for name in names):
        return True
    folder = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    return bool(_KEY_SETTING_PATTERN.search(_read_text_or_empty(f"{folder}/settings")))


def _read_text_or_empty(path: str) -> str:
    try:
        return safe_open.read_bounded(Path(path).expanduser(), _MAX_FILE_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError):
        return ""

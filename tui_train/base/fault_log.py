"""The log of internal errors, which a report can include."""

import os
import time
import traceback

from tui_train import __version__
from tui_train.base.app_paths import faults_log
from tui_train.base.text import display_path

# Bytes; enough for a few dozen tracebacks.
_MAX_LOG_BYTES = 2**20


def record_fault(error: BaseException) -> str:
    """Append a traceback without secrets to the log; return its path, or why it could not be written."""
    from tui_train.base.secrets import mask_secrets

    path = faults_log()
    lines = "".join(traceback.format_exception(error))
    timestamp = time.strftime("%Y-%m-%d %H:%M:%S")
    text, _ = mask_secrets(f"{timestamp}  tui-train {__version__}\n{lines}\n")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            if file.tell() > _MAX_LOG_BYTES:
                file.truncate(0)
            file.write(text)
    except OSError as failed:
        return f"not written ({failed.strerror})"
    return display_path(str(path))

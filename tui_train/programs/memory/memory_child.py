"""The child that traces or measures: `trace` or `measure` and a request; prints one line of JSON.

Runs in the training interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import warnings

_PR_SET_PDEATHSIG = 1


def main(action: str, request_text: str) -> None:
    """Print the result, or the `problem`."""
    with contextlib.suppress(OSError, AttributeError):
        # Nobody would read the result when the parent is gone.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    try:
        answer = getattr(importlib.import_module(f"memory_{action}"), f"{action}_memory")(json.loads(request_text))
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, the answer is that there is none
        answer = {"problem": f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

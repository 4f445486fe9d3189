"""The child that traces or measures: `trace` or `measure` and a question, one line of JSON in answer.

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


def main(kind: str, asked: str) -> None:
    """Print the answer, or the `problem` that there is none for."""
    _end_with_whoever_asked()
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    try:
        told = getattr(importlib.import_module(f"memory_{kind}"), kind)(json.loads(asked))
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, the answer is that there is none
        told = {"problem": f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"}
    sys.stdout.write("\n" + json.dumps(told) + "\n")


def _end_with_whoever_asked() -> None:
    """Have Linux kill this process when the one that started it is gone, for nobody would read the answer."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])

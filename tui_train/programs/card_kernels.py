"""Multiplies matrices on the first visible GPU, or on the CPU without one, in each precision; prints a line of JSON.

With a number as its argument it computes on for so many seconds, so that the card is busy.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

# A power of two: each precision has it exactly.
_MATRIX_SIZE = 1024
_TORCH_NAME_BY_PRECISION = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def matrix_product_problem(device: str, precision: str) -> str:
    """Return why a product is not right in a precision, empty if it is."""
    options: Any = {"device": device, "dtype": getattr(torch, _TORCH_NAME_BY_PRECISION[precision])}
    try:
        ones = torch.ones(_MATRIX_SIZE, _MATRIX_SIZE, **options)
        ends = (ones @ ones).float().flatten()[[0, -1]].tolist()
    except Exception as error:  # noqa: BLE001 - whatever the driver or torch raises is the answer
        return f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"[:300]
    return (
        ""
        if ends == [_MATRIX_SIZE, _MATRIX_SIZE]
        else f"wrong result: {ends[0]} and {ends[1]} instead of {_MATRIX_SIZE}"
    )


def describe_card() -> dict[str, Any]:
    """Return what torch says of the first visible GPU."""
    about = torch.cuda.get_device_properties(0)
    try:
        native_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    except TypeError:  # older ones count emulation in
        native_bf16 = None
    return {
        "name": about.name,
        "uuid": str(getattr(about, "uuid", "")),
        "capability": f"{about.major}.{about.minor}",
        "native_bf16": native_bf16,
        "visible_cards": torch.cuda.device_count(),
    }


def main(seconds: float) -> None:
    """Print what came of each precision, then compute on."""
    try:
        device, about = ("cuda", describe_card()) if torch.cuda.is_available() else ("cpu", {})
    except RuntimeError as error:
        # A driver that is too old, or a card that is lost, fails as CUDA starts.
        device, about = "cuda", {"problem": str(error).strip().splitlines()[0][:300]}
    problems = {name: matrix_product_problem(device, name) for name in _TORCH_NAME_BY_PRECISION}
    sys.stdout.write("\n" + json.dumps({"device": device, "problems": problems, **about}) + "\n")
    sys.stdout.flush()
    until, factor = (
        time.monotonic() + seconds,
        torch.ones(4 * _MATRIX_SIZE, 4 * _MATRIX_SIZE, device=device) if seconds else None,
    )
    while factor is not None and time.monotonic() < until:
        factor = factor @ factor / (4 * _MATRIX_SIZE)
        factor[0, 0].item()


if __name__ == "__main__":
    main(float(sys.argv[-1]) if len(sys.argv) > 1 and sys.argv[-1].isdigit() else 0.0)

"""Reads the header of a safetensors file: which tensors it holds, and whether the file is complete."""

import math
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tui_train.base.files import error_reason
from tui_train.base.parse import Missing, Unparsable, json_as
from tui_train.base.text import visible
from tui_train.supervisor.regular import open_regular

# As the library itself allows.
_MOST_HEADER = 100_000_000
# Bytes of the number before the header.
_LENGTH = 8
# Bits of the types of which an element has always so many.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_Size = Annotated[int, Meta(ge=0, le=2**62)]


class Tensor(Struct, frozen=True):
    """A tensor in a file: its type, its shape, and the bytes where it begins and ends after the header."""

    dtype: str
    shape: Annotated[tuple[_Size, ...], Meta(max_length=64)]
    data_offsets: tuple[_Size, _Size]

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a complete file by name; Unparsable for any other, Missing if there is none."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH), "little")
            if size == 0:
                raise Unparsable("it is empty")
            if length > min(_MOST_HEADER, size - _LENGTH):
                raise Unparsable("it is not a safetensors file, or it is truncated")
            header = file.read(length)
    except FileNotFoundError:
        raise Missing("it does not exist") from None
    except OSError as error:
        raise Unparsable(error_reason(error)) from None
    try:
        found = _tensors(header)
    except Unparsable as error:
        raise Unparsable(f"its header is damaged: {error}") from None
    expected = _LENGTH + length + max((tensor.data_offsets[1] for tensor in found.values()), default=0)
    if size != expected:
        raise Unparsable(
            f"it has only {size:,} of {expected:,} bytes"
            if size < expected
            else f"it has {size:,} bytes, not {expected:,}"
        )
    return found


def _tensors(header: bytes) -> dict[str, Tensor]:
    described = json_as(header, dict[str, msgspec.Raw])
    described.pop("__metadata__", None)
    found: dict[str, Tensor] = {}
    for name, text in described.items():
        try:
            found[name] = json_as(bytes(text), Tensor)
        except Unparsable as error:
            raise Unparsable(f"{visible(name)[:80]}: {error}") from None
    at = 0
    for name, tensor in sorted(found.items(), key=lambda item: item[1].data_offsets):
        begin, end = tensor.data_offsets
        bits = _BITS.get(tensor.dtype, 0)
        if begin != at or end < begin or (bits and tensor.count * bits != 8 * (end - begin)):
            raise Unparsable(f"the size or place of {visible(name)[:80]} is wrong")
        at = end
    return found

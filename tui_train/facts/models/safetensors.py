"""Reads the header of a safetensors file: which tensors it holds, and whether the file is complete."""

import math
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tui_train.base.files import read_error_reason
from tui_train.base.parse import MissingFile, Unparsable, parse_json_as
from tui_train.base.text import visible
from tui_train.runner.system.safe_open import open_regular_file

# As the library itself allows.
_MAX_HEADER_BYTES = 100_000_000
# Bytes of the number before the header.
_HEADER_LENGTH_BYTES = 8
# How such a file of text begins: with the version of its specification.
_LFS_POINTER_BEGIN = b"version "
# Bits of the types of which an element has always so many.
_BITS_BY_DTYPE = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_TensorSize = Annotated[int, Meta(ge=0, le=2**62)]


class StoredTensor(Struct, frozen=True):
    """A tensor in a file: its type, its shape, and the bytes where it begins and ends after the header."""

    dtype: str
    shape: Annotated[tuple[_TensorSize, ...], Meta(max_length=64)]
    data_offsets: tuple[_TensorSize, _TensorSize]

    @property
    def element_count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_tensor_descriptions(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a complete file by name; Unparsable for any other, MissingFile if there is none."""
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            begin = file.read(_HEADER_LENGTH_BYTES)
            length = int.from_bytes(begin, "little")
            if size == 0:
                raise Unparsable("it is empty")
            if begin == _LFS_POINTER_BEGIN:
                raise Unparsable("it is only a pointer of Git LFS (git lfs pull)")
            if length > min(_MAX_HEADER_BYTES, size - _HEADER_LENGTH_BYTES):
                raise Unparsable("it is not a safetensors file, or it is truncated")
            header = file.read(length)
    except FileNotFoundError:
        raise MissingFile("it does not exist") from None
    except OSError as error:
        raise Unparsable(read_error_reason(error)) from None
    try:
        by_name = _parse_header(header)
    except Unparsable as error:
        raise Unparsable(f"its header is damaged: {error}") from None
    expected = _HEADER_LENGTH_BYTES + length + max((tensor.data_offsets[1] for tensor in by_name.values()), default=0)
    if size != expected:
        raise Unparsable(
            f"it has only {size:,} of {expected:,} bytes"
            if size < expected
            else f"it has {size:,} bytes, not {expected:,}"
        )
    return by_name


def _parse_header(header: bytes) -> dict[str, StoredTensor]:
    described = parse_json_as(header, dict[str, msgspec.Raw])
    described.pop("__metadata__", None)
    by_name: dict[str, StoredTensor] = {}
    for name, text in described.items():
        try:
            by_name[name] = parse_json_as(bytes(text), StoredTensor)
        except Unparsable as error:
            raise Unparsable(f"{visible(name)[:80]}: {error}") from None
    expected_begin = 0
    for name, tensor in sorted(by_name.items(), key=lambda item: item[1].data_offsets):
        begin, end = tensor.data_offsets
        bits = _BITS_BY_DTYPE.get(tensor.dtype, 0)
        if begin != expected_begin or end < begin or (bits and tensor.element_count * bits != 8 * (end - begin)):
            raise Unparsable(f"the size or place of {visible(name)[:80]} is wrong")
        expected_begin = end
    return by_name

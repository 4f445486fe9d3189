"""Processes that hold a card's memory, read from torch's own message of a full card."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

_BYTES_BY_UNIT = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MEMORY_SIZE_PATTERN = r"(?P<size>[\d.]{1,12}) (?P<unit>[KMG]iB)"
_HOLDER_PATTERN = re.compile(rf"Process (?P<pid>\d{{1,10}}) has {_MEMORY_SIZE_PATTERN} memory in use")
_OWN_PROCESS_TEXT = "this process has"
_CARD_TOTAL_PATTERN = re.compile(rf"total capac(?:i)?ty of {_MEMORY_SIZE_PATTERN}")
_ALLOCATED_PATTERN = re.compile(rf"{_MEMORY_SIZE_PATTERN} is allocated by PyTorch")
_RESERVED_PATTERN = re.compile(rf"{_MEMORY_SIZE_PATTERN} is reserved by PyTorch")
# Less of a card than this is a desktop or a monitor, and no reason for a full card.
_MIN_HOLDER_SHARE_OF_CARD = 0.1
# As much is none either, however small the card.
_MIN_HOLDER_BYTES = 2**30
# What a process holds beside torch's allocator: its CUDA context and libraries.
_MAX_CUDA_CONTEXT_BYTES = 3 * 2**30


class MemoryHolder(NamedTuple):
    """A process, and what it holds in torch's words (`20.50 GiB`) and in bytes."""

    pid: str
    shown_size: str
    size: float


def largest_other_holder(message: str, own_pids: Container[int] = ()) -> MemoryHolder | None:
    """Return the largest holder that is none of the run's own processes, None where others hold little.

    In a container torch does not know its own process id, and lists itself among the others: then the holder whose
    memory is what torch says to have itself is no other.
    """
    holders = [
        MemoryHolder(match["pid"], f"{match['size']} {match['unit']}", _size_in_bytes(match))
        for match in _HOLDER_PATTERN.finditer(message)
    ]
    if _OWN_PROCESS_TEXT not in message:
        own_bytes = sum(
            _size_in_bytes(match)
            for match in (_ALLOCATED_PATTERN.search(message), _RESERVED_PATTERN.search(message))
            if match
        )
        nearest = min(
            (holder.size for holder in holders if own_bytes <= holder.size <= own_bytes + _MAX_CUDA_CONTEXT_BYTES),
            default=None,
        )
        holders = [holder for holder in holders if holder.size != nearest]
    others = [holder for holder in holders if int(holder.pid) not in own_pids]
    total = _CARD_TOTAL_PATTERN.search(message)
    if not others or (
        total and sum(holder.size for holder in others) < _MIN_HOLDER_SHARE_OF_CARD * _size_in_bytes(total)
    ):
        return None
    return max(others, key=lambda holder: holder.size)


def other_holder_pid_if_certain(message: str, own_pids: Container[int]) -> str:
    """Return the id of another process that fills the card, empty where there is none for certain.

    Where torch does not tell its own process apart, any that it lists may be the training.
    """
    own_is_known = _OWN_PROCESS_TEXT in message or any(
        int(match["pid"]) in own_pids for match in _HOLDER_PATTERN.finditer(message)
    )
    other = largest_other_holder(message, own_pids) if own_is_known else None
    return other.pid if other and other.size >= _MIN_HOLDER_BYTES else ""


def _size_in_bytes(match: re.Match[str]) -> float:
    try:
        return float(match["size"]) * _BYTES_BY_UNIT[match["unit"]]
    except ValueError:
        return 0.0

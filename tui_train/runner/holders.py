"""Who holds a card's memory, as torch's own message of a full card tells it."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"(?P<size>[\d.]{1,12}) (?P<unit>[KMG]iB)"
_HOLDER = re.compile(rf"Process (?P<pid>\d{{1,10}}) has {_SIZE} memory in use")
_OWN_PROCESS = "this process has"
_TOTAL = re.compile(rf"total capac(?:i)?ty of {_SIZE}")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch")
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch")
# Less of a card than this is a desktop or a monitor, and no reason for a full card.
_MIN_SHARE = 0.1
# As much is none either, however small the card.
_MIN_BYTES = 2**30
# What a process holds beside torch's allocator: its CUDA context and libraries.
_MAX_CONTEXT_BYTES = 3 * 2**30


class Holder(NamedTuple):
    """A process, and what it holds in torch's words (`20.50 GiB`) and in bytes."""

    pid: str
    shown_size: str
    size: float


def other_holder(message: str, own: Container[int] = ()) -> Holder | None:
    """Return the largest holder that is none of the run's own processes, None where others hold little.

    In a container torch does not know its own process id, and lists itself among the others: then the holder whose
    memory is what torch says to have itself is no other.
    """
    holders = [_holder(match) for match in _HOLDER.finditer(message)]
    if _OWN_PROCESS not in message:
        own_bytes = sum(_bytes(match) for match in (_ALLOCATED.search(message), _RESERVED.search(message)) if match)
        nearest = min(
            (holder.size for holder in holders if own_bytes <= holder.size <= own_bytes + _MAX_CONTEXT_BYTES),
            default=None,
        )
        holders = [holder for holder in holders if holder.size != nearest]
    others = [holder for holder in holders if int(holder.pid) not in own]
    total = _TOTAL.search(message)
    if not others or (total and sum(holder.size for holder in others) < _MIN_SHARE * _bytes(total)):
        return None
    return max(others, key=lambda holder: holder.size)


def foreign_pid(message: str, own: Container[int]) -> str:
    """Return the id of another process that fills the card, empty where there is none for certain.

    Where torch does not tell its own process apart, any that it lists may be the training.
    """
    own_is_known = _OWN_PROCESS in message or any(int(match["pid"]) in own for match in _HOLDER.finditer(message))
    other = other_holder(message, own) if own_is_known else None
    return other.pid if other and other.size >= _MIN_BYTES else ""


def _holder(match: re.Match[str]) -> Holder:
    return Holder(match["pid"], f"{match['size']} {match['unit']}", _bytes(match))


def _bytes(match: re.Match[str]) -> float:
    try:
        return float(match["size"]) * _UNITS[match["unit"]]
    except ValueError:
        return 0.0

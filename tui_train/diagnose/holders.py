"""Who holds a card's memory, as torch's own message of a full card tells it."""

import re

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"(?P<size>[\d.]{1,12}) (?P<unit>[KMG]iB)"
_HOLDER = re.compile(rf"Process (?P<pid>\d+) has {_SIZE} memory in use")
_OWN = "this process has"
_TOTAL = re.compile(rf"total capac(?:i)?ty of {_SIZE}")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch")
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch")
# Less of a card than this is a desktop or a monitor, and no reason for a full card.
_SHARE = 0.1
# What a process holds beside torch's allocator: its CUDA context and libraries.
_CONTEXT = 3 * 2**30


def other_holder(message: str) -> dict[str, str] | None:
    """Return `pid` and `held` of the largest other process, None where others hold little.

    In a container torch does not know its own process id, and lists itself among the others: then the holder whose
    memory is what torch says to have itself is no other.
    """
    holders = [(_bytes(match), match) for match in _HOLDER.finditer(message)]
    if _OWN not in message:
        own = sum(_bytes(match) for match in (_ALLOCATED.search(message), _UNUSED.search(message)) if match)
        mine = min((size for size, _ in holders if own <= size <= own + _CONTEXT), default=None)
        holders = [(size, match) for size, match in holders if size != mine]
    total = _TOTAL.search(message)
    held = sum(size for size, _ in holders)
    if not holders or (total and held < _SHARE * _bytes(total)):
        return None
    _, most = max(holders, key=lambda holder: holder[0])
    return {"pid": most["pid"], "held": f"{most['size']} {most['unit']}"}


def _bytes(match: re.Match[str]) -> float:
    return float(match["size"].strip(".") or 0) * _UNITS[match["unit"]]

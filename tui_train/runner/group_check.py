"""Check that the processes of one training found each other and did not train apart."""

from __future__ import annotations

import re

from . import safe_open

# Every rank says where it computes before the first step.
_HEAD_BYTES = 4_000_000
_TOGETHER = re.compile(rb"rank \d+/(?:[2-9]|[1-9]\d+) \| host ")
_ALONE = re.compile(rb"rank 0/1 \| host ")


def trained_apart(log: str, world_size: int) -> bool:
    """Tell whether several processes were to train together, and each says in its log that it is alone."""
    if world_size < 2:
        return False
    try:
        head = safe_open.read(log, _HEAD_BYTES).replace(b"\0", b"")
    except OSError:
        return False
    return _TOGETHER.search(head) is None and _ALONE.search(head) is not None

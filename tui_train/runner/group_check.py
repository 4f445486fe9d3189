"""Check that the processes of one training found each other and did not train apart."""

from __future__ import annotations

import re

from . import safe_open

# Every rank says where it computes before the first step.
_LOG_HEAD_BYTES = 4_000_000
_RANK_IN_GROUP_PATTERN = re.compile(rb"rank \d+/(?:[2-9]|[1-9]\d+) \| host ")
_RANK_ALONE_PATTERN = re.compile(rb"rank 0/1 \| host ")


def has_each_process_trained_alone(log: str, world_size: int) -> bool:
    """Tell whether several processes were to train together, and each says in its log that it is alone."""
    if world_size < 2:
        return False
    try:
        head = safe_open.read_bounded(log, _LOG_HEAD_BYTES).replace(b"\0", b"")
    except OSError:
        return False
    return _RANK_IN_GROUP_PATTERN.search(head) is None and _RANK_ALONE_PATTERN.search(head) is not None

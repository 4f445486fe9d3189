"""The NUMA nodes of this machine: which have memory, and how many of their CPUs this process may use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from .cgroup_limits import read_text

_NODES_FOLDER = Path("/sys/devices/system/node")
_TOTAL_MEMORY_PATTERN = re.compile(r"MemTotal:\s*(\d{1,15}) kB")
_MAX_CPU_NUMBER = 1 << 16


def read_numa_nodes(nodes_folder: Path = _NODES_FOLDER) -> list[dict[str, Any]]:
    """Return the nodes in their order, none where there is only one or they cannot be read."""
    try:
        usable_cpus = os.sched_getaffinity(0)
        numbers = sorted(int(path.name[len("node") :]) for path in nodes_folder.glob("node[0-9]*"))
    except (OSError, ValueError):
        return []
    nodes = []
    for number in numbers:
        cpus = parse_cpu_list(read_text(nodes_folder / f"node{number}" / "cpulist"))
        total = _TOTAL_MEMORY_PATTERN.search(read_text(nodes_folder / f"node{number}" / "meminfo") or "")
        if cpus is None or total is None:
            return []
        usable = len(cpus & usable_cpus)
        nodes.append({
            "number": number, "has_memory": int(total.group(1)) > 0, "cpus": len(cpus), "usable_cpus": usable,
        })  # fmt: skip
    return nodes if len(nodes) > 1 else []


def parse_cpu_list(text: str | None) -> set[int] | None:
    """Return the CPUs in a list of the kernel such as 0-3,8; None for what is no such list."""
    cpus: set[int] = set()
    if text is None:
        return None
    for part in filter(None, text.strip().split(",")):
        bounds = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
        if not bounds:
            return None
        first, last = int(bounds.group(1)), int(bounds.group(2) or bounds.group(1))
        cpus.update(range(first, min(last, _MAX_CPU_NUMBER) + 1))
    return cpus

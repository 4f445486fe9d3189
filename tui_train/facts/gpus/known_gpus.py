"""GPUs known by the names that administrators give them in Slurm, such as `a100`, `nvidia_a100-sxm4-80gb`."""

import re

from tui_train.facts.types import Gpu

_GIB = 2**30
_NAME_WORD_PATTERN = re.compile(
    r"nvidia|geforce|tesla|quadro|titan|rtx|gtx|\d+g(?:i?b)?(?![a-z0-9])|[a-z]{0,2}\d+s?|[a-z]+", re.ASCII
)
_MEMORY_SIZE_PATTERN = re.compile(r"(\d{1,3})(?:gi?b)?", re.ASCII)
_MIG_PROFILE_PATTERN = re.compile(r"(?<!\d)\dg[._-]?(\d{1,3})gb", re.ASCII)


# Name, compute capability, memory in GiB, SMs, clock. Where one name has several memories, the least comes first.
# Source: NVIDIA's data sheets.
_GPU_TABLE: tuple[tuple[str, str, tuple[int, ...], int, int], ...] = (
    ("K80", "3.7", (12,), 13, 824),
    ("M40", "5.2", (12, 24), 24, 1112),
    ("GTX 1080 Ti", "6.1", (11,), 28, 1582),
    ("GTX 1080", "6.1", (8,), 20, 1733),
    ("P100", "6.0", (12, 16), 56, 1329),
    ("P4", "6.1", (8,), 20, 1531),
    ("P40", "6.1", (24,), 30, 1531),
    ("V100", "7.0", (16, 32), 80, 1380),
    ("V100S", "7.0", (32,), 80, 1597),
    ("T4", "7.5", (16,), 40, 1590),
    ("RTX 2080 Ti", "7.5", (11,), 68, 1545),
    ("RTX 6000", "7.5", (24,), 72, 1770),
    ("RTX 8000", "7.5", (48,), 72, 1770),
    ("A2", "8.6", (16,), 10, 1770),
    ("A10", "8.6", (24,), 72, 1695),
    ("A16", "8.6", (16,), 10, 1755),
    ("A30", "8.0", (24,), 56, 1440),
    ("A40", "8.6", (48,), 84, 1740),
    ("A100", "8.0", (40, 80), 108, 1410),
    ("A4000", "8.6", (16,), 48, 1560),
    ("A5000", "8.6", (24,), 64, 1695),
    ("A6000", "8.6", (48,), 84, 1800),
    ("RTX 3070", "8.6", (8,), 46, 1725),
    ("RTX 3080", "8.6", (10, 12), 68, 1710),
    ("RTX 3090", "8.6", (24,), 82, 1695),
    ("RTX 3090 Ti", "8.6", (24,), 84, 1860),
    ("L4", "8.9", (24,), 58, 2040),
    ("L40", "8.9", (48,), 142, 2490),
    ("L40S", "8.9", (48,), 142, 2490),
    ("RTX 4080", "8.9", (16,), 76, 2505),
    ("RTX 4090", "8.9", (24,), 128, 2520),
    ("RTX 6000 Ada", "8.9", (48,), 142, 2505),
    ("RTX 5090", "12.0", (32,), 170, 2407),
    ("RTX PRO 6000", "12.0", (96,), 188, 2617),
    ("H100", "9.0", (80, 94), 114, 1620),
    ("H200", "9.0", (141,), 132, 1830),
    ("GH200", "9.0", (96, 144), 132, 1830),
    ("B200", "10.0", (180,), 148, 1855),
)
_BRAND_WORDS = frozenset({"nvidia", "geforce", "tesla", "quadro", "titan", "rtx", "gtx"})


def _name_words(name: str) -> frozenset[str]:
    return frozenset(_NAME_WORD_PATTERN.findall(name.lower())) - _BRAND_WORDS


def gpu_of_slurm_type(slurm_type: str) -> Gpu:
    """Return what is known of a type of GPU in Slurm, nothing of one that is not in the table.

    A size in it counts as its memory; without one it is the least that such cards have.
    """
    words = _name_words(slurm_type)
    rows = [
        row for row in _GPU_TABLE if _name_words(row[0]) <= words and ("ti" in words) == ("ti" in _name_words(row[0]))
    ]
    row = max(rows, key=lambda row: len(_name_words(row[0])), default=None)
    if part := _MIG_PROFILE_PATTERN.search(slurm_type.lower()):
        # A part of a card (MIG): how many SMs it has is not in its name.
        capability, memory = row[1] if row else None, int(part[1]) * _GIB
        return Gpu(index=0, name=f"MIG {part[0]}", compute_capability=capability, memory_total=memory)
    if row is None:
        return Gpu(index=0)
    name, capability, memories, sms, clock = row
    sizes = {int(match[1]) for word in words if (match := _MEMORY_SIZE_PATTERN.fullmatch(word))}
    memory = next(iter(sizes.intersection(memories)), memories[0]) * _GIB
    return Gpu(index=0, name=name, compute_capability=capability, memory_total=memory, sm_count=sms, sm_clock_max=clock)

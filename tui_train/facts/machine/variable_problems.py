"""Variables that libraries do not read as meant: misspelt names, and values that they refuse or take for another.

Sources: NCCL's `ncclLoadParam` and `setEnvFile`, torch's `AcceleratorAllocatorConfig`, `getCvarInt` and `debug.cpp`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class VariableProblem(NamedTuple):
    """Why a variable lacks the intended effect, and the name and value that have it (empty: unknown).

    `ends_training`: the training ends for it, on a GPU or with several processes.
    """

    why: str
    name: str = ""
    value: str = ""
    ends_training: bool = False


_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# Those that are set most: a name is compared with no others, as an unknown one may be that of another version.
_COMMONLY_SET_VARIABLES = (
    "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_DISABLE",
    "NCCL_IB_HCA", "NCCL_IB_TIMEOUT", "NCCL_IB_GID_INDEX", "NCCL_IB_RETRY_CNT", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_NVLS_ENABLE",
    "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_CROSS_NIC", "NCCL_TOPO_FILE",
    "NCCL_CONF_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_DISTRIBUTED_DEBUG", "GLOO_SOCKET_IFNAME",
    *_ALLOCATOR_VARIABLES, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
    "HF_HUB_DISABLE_XET", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ENABLE_HF_TRANSFER", "HF_DATASETS_CACHE",
    "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY", "TOKENIZERS_PARALLELISM",
    "WANDB_PROJECT", "WANDB_ENTITY", "OMP_NUM_THREADS",
)  # fmt: skip
_MAX_DIFFERING_END_LETTERS = 2
_TRUE_WORDS, _FALSE_WORDS = frozenset({"true", "yes", "on", "y"}), frozenset({"false", "no", "off", "n", "none"})
_NUMBER_PATTERN = re.compile(r"\s*[+-]?\d", re.ASCII)
_NCCL_SWITCH_PATTERN = re.compile(r"NCCL_\w+_(DISABLE|ENABLE)")
_ALLOCATOR_ENTRY_PATTERN = re.compile(r"\s*(\w+)\s*:\s*(\[[^\]]*\]\s*|[^,:=\[\s][^,:=\[]*)(?:,\s*|$)")
_ALLOCATOR_SWITCHES = ("expandable_segments", "pinned_use_background_threads")
_MIN_SPLIT_MIB = 20
_NUMBER_PATTERN_AND_PROBLEM = (
    re.compile(r"\s*[+-]?\d.*", re.ASCII | re.DOTALL),
    VariableProblem("torch reads a number there, and refuses anything else", ends_training=True),
)
# The values that a variable may have, and what is wrong with any other.
_VALUES_AND_PROBLEM_BY_NAME: Mapping[str, tuple[re.Pattern[str], VariableProblem]] = {
    "NCCL_DEBUG": (
        re.compile(rf"\s*(|0|version|warn|abort|info|trace|{'|'.join(_FALSE_WORDS)})\s*", re.IGNORECASE),
        VariableProblem("NCCL knows WARN, INFO and TRACE, and logs nothing for another word", value="INFO"),
    ),
    "CUDA_LAUNCH_BLOCKING": (
        re.compile(r"\s*0?\s*"),
        VariableProblem("it is for finding a kernel that fails, and slows every step"),
    ),
    "TORCH_DISTRIBUTED_DEBUG": (
        re.compile("OFF|INFO|DETAIL", re.IGNORECASE),
        VariableProblem(
            "torch knows OFF, INFO and DETAIL, and refuses another word", value="DETAIL", ends_training=True
        ),
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _NUMBER_PATTERN_AND_PROBLEM,
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": _NUMBER_PATTERN_AND_PROBLEM,
    "TORCH_NCCL_TRACE_BUFFER_SIZE": _NUMBER_PATTERN_AND_PROBLEM,
}


def variable_problem(name: str, value: str) -> VariableProblem | None:
    """Return what is wrong with a variable, None if nothing is known to be."""
    if intended := _intended_name(name):
        return VariableProblem(f"nothing reads a variable of that name: {intended} is meant", intended, value)
    if name in _ALLOCATOR_VARIABLES:
        return _allocator_problem(value)
    if name in _VALUES_AND_PROBLEM_BY_NAME:
        values, problem = _VALUES_AND_PROBLEM_BY_NAME[name]
        return None if values.fullmatch(value) else problem
    return _number_problem(value) if _NCCL_SWITCH_PATTERN.fullmatch(name) else None


def _intended_name(name: str) -> str:
    """Return the variable of which a name is a misspelling, empty for none."""
    if name in _COMMONLY_SET_VARIABLES:
        return ""
    return next((common for common in _COMMONLY_SET_VARIABLES if _is_likely_typo(name, common)), "")


def _is_likely_typo(typed: str, meant: str) -> bool:
    """Return whether two names differ in one letter, two that changed places, or some letters at the end."""
    shorter, longer = sorted((typed, meant), key=len)
    if longer.startswith(shorter):
        return len(longer) - len(shorter) <= _MAX_DIFFERING_END_LETTERS
    at = next(index for index, letter in enumerate(shorter) if letter != longer[index])
    swapped = shorter[at : at + 2] == longer[at : at + 2][::-1] and shorter[at + 2 :] == longer[at + 2 :]
    return swapped or longer[at + 1 :] in (shorter[at:], shorter[at + 1 :])


def _number_problem(value: str) -> VariableProblem | None:
    """Return that NCCL takes a word for 0."""
    if not value.strip() or _NUMBER_PATTERN.match(value):
        return None
    meant = "1" if value.strip().lower() in _TRUE_WORDS else ""
    is_zero = value.strip().lower() in _FALSE_WORDS
    return None if is_zero else VariableProblem("NCCL reads a number there, and takes any word for 0", value=meant)


def _allocator_problem(value: str) -> VariableProblem | None:
    why = _why_allocator_refuses(value)
    if not why:
        return None
    corrected = value.replace("=", ":").replace(";", ",")
    for switch in _ALLOCATOR_SWITCHES:
        corrected = re.sub(rf"({switch}\s*:\s*)(true|1|on|yes)\b", r"\1True", corrected, flags=re.IGNORECASE)
        corrected = re.sub(rf"({switch}\s*:\s*)(false|0|off|no)\b", r"\1False", corrected, flags=re.IGNORECASE)
    return VariableProblem(why, value="" if _why_allocator_refuses(corrected) else corrected, ends_training=True)


def _why_allocator_refuses(value: str) -> str:
    """Return why torch cannot parse its allocator's options, empty if it can; options that are not known here pass."""
    at = 0
    while at < len(value):
        entry = _ALLOCATOR_ENTRY_PATTERN.match(value, at)
        if entry is None:
            return "torch reads NAME:VALUE, several with commas between them, and refuses anything else"
        at = entry.end()
        option, given = entry[1], entry[2].strip()
        if option in _ALLOCATOR_SWITCHES and given not in {"True", "False"}:
            return f"torch knows True and False for {option}, and refuses another word"
        if option == "max_split_size_mb" and not (given.isdecimal() and int(given) >= _MIN_SPLIT_MIB):
            return f"torch refuses {option} below {_MIN_SPLIT_MIB}"
        if option == "garbage_collection_threshold" and not _is_fraction(given):
            return f"torch refuses {option} outside of 0 to 1"
    return ""


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False

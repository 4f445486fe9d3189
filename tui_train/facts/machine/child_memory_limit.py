"""Starts programs that read what others wrote (data, models, templates, scripts) with a bound on memory, and ends them.

The bound is RLIMIT_DATA: private memory that can be written to, which is what such a program fills. RLIMIT_AS also
counts what is only reserved, and a CUDA context reserves more than the machine has, glibc 64 MiB a thread. The kernel
enforces it at once, and Python sees a MemoryError. It is set from here: a function between fork and exec may hang in a
program with threads. Where memory ends all the same, the kernel takes these programs first, and no training.
"""

import contextlib
import functools
import os
import resource
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tui_train.runner.system.host_facts import usable_memory_total

_GIB = 2**30
# torch, TRL and datasets take 1.5 GiB of it once they are imported; a thread of a library has a stack of 8 MiB.
_MIN_READING_MEMORY_BYTES, _MAX_READING_MEMORY_BYTES = 2 * _GIB, 4 * _GIB
_BYTES_PER_THREAD = 16 * 2**20
# Weights may be mapped privately, cast to fp32, and merged at the same time.
_MAX_WEIGHT_COPIES_IN_MEMORY = 4
# A CUDA context, its libraries and pinned memory, for each of eight cards.
_CUDA_ADDRESS_SPACE_BYTES = 64 * _GIB
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".distcp"}
_OOM_SCORE_ADJUSTMENT = "1000"


@functools.cache
def memory_limit_for_reading() -> int:
    """Return the bytes that a program may take to read data, settings or a tokenizer: half of a small machine's."""
    total = usable_memory_total() or 2 * _MAX_READING_MEMORY_BYTES
    return max(_MIN_READING_MEMORY_BYTES, min(_MAX_READING_MEMORY_BYTES, total // 2)) + _BYTES_PER_THREAD * (
        os.cpu_count() or 1
    )


def memory_limit_for_loading(model_folders: Iterable[str], *, uses_cuda: bool) -> int:
    """Return the bytes that a program may take to load the weights in some folders and compute with them."""
    weights = sum(_weight_bytes(Path(folder)) for folder in model_folders if folder)
    return (
        2 * memory_limit_for_reading()
        + _MAX_WEIGHT_COPIES_IN_MEMORY * weights
        + (_CUDA_ADDRESS_SPACE_BYTES if uses_cuda else 0)
    )


def _weight_bytes(folder: Path) -> int:
    """Return the bytes of the files in a folder, or one below it as NeMo has them, that may be weights."""
    with contextlib.suppress(OSError, ValueError):
        inside = (path for below in ("*", "weights/*") for path in folder.glob(below))
        return sum(path.stat().st_size for path in inside if path.suffix in _WEIGHT_SUFFIXES and path.is_file())
    return 0


def start_with_memory_limit(
    command: Sequence[str], memory_limit: int, env_changes: Mapping[str, str], folder: str | None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own that may take `memory_limit` bytes (0: any); its outputs are pipes."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env_changes},
        cwd=folder,
        start_new_session=True,
    )
    # It may have ended already, or belong to another user, as `sudo` does.
    with contextlib.suppress(OSError, ValueError):
        if memory_limit:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory_limit, memory_limit))
        Path(f"/proc/{process.pid}/oom_score_adj").write_text(_OOM_SCORE_ADJUSTMENT, encoding="ascii")
    return process


def kill_and_close(process: subprocess.Popen[bytes], max_wait_seconds: float) -> None:
    """Kill a program with its group, and close its pipes; one that hangs in a driver is left after that time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # It is not reaped yet, so the number of its group cannot have been reused.
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=max_wait_seconds)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


# How programs end that got no memory: Rust, C++ and Python say so before they do.
_OUT_OF_MEMORY_TEXTS = ("MemoryError", "memory allocation of", "bad_alloc", "Cannot allocate memory", "malloc of size")


def out_of_memory_reason(exit_code: int | None, last_line: str, memory_limit: int) -> str:
    """Return in words that a program ran out of memory, judged by its `last_line`; empty where it ended otherwise."""
    if exit_code and any(words in last_line for words in _OUT_OF_MEMORY_TEXTS):
        allowed = f"it took more than the {memory_limit / _GIB:.0f} GiB of memory that it may"
        return allowed if memory_limit else "out of memory"
    return "it was killed (signal 9): the machine has too little memory" if exit_code == -signal.SIGKILL else ""

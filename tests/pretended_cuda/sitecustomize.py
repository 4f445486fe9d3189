"""For the communication test where no GPU is: CUDA is the CPU, NCCL is Gloo, and a fault that FAULT names happens.

`garbled`: NCCL fails at its first exchange as with a broken name of a file in /dev/shm, unless cuMem in host memory is
off. `shm`: it needs 10 MB in /dev/shm, and fails as NCCL does where it cannot have them. `hang`, `die`: so does the
second process there. `wrong`: sums are wrong.
"""

import contextlib
import os
import signal
import sys
import time
import types
from pathlib import Path

GARBLED = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.27.7\nncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-Ќ "
    "(size 9637888), error: No such file or directory (2)"
)
SEGMENT_BYTES = 9637888


def use_shared_memory() -> None:
    """Take a file in /dev/shm, as NCCL does where it is not told to do without."""
    name = f"/dev/shm/nccl-{os.getpid()}"  # noqa: S108 - where NCCL has it
    try:
        with Path(name).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
    except OSError as error:
        raise RuntimeError(
            f"{GARBLED.partition('Last error')[0]}Last error:\nError while creating shared memory segment {name} "
            f"(size {SEGMENT_BYTES}), error: {error.strerror} ({error.errno})"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def fail(fault: str) -> None:
    nccl = os.environ.get("TUI_TRAIN_BACKEND") != "gloo" and os.environ.get("PRETEND") == "cuda"
    second = os.environ.get("RANK") == "1"
    if fault == "garbled" and nccl and os.environ.get("NCCL_CUMEM_HOST_ENABLE") != "0":
        raise RuntimeError(GARBLED)
    if fault == "shm" and nccl and os.environ.get("NCCL_SHM_DISABLE") != "1":
        use_shared_memory()
    if fault == "hang" and second:
        time.sleep(1000)
    if fault == "die" and second:
        os.kill(os.getpid(), signal.SIGKILL)


def pretend() -> None:
    import no_cuda
    import torch
    from torch import distributed

    exchange = distributed.all_reduce

    def all_reduce(tensor, *words, **more):
        fail(os.environ.get("FAULT", ""))
        work = exchange(tensor, *words, **more)
        if os.environ.get("FAULT") == "wrong":
            tensor.add_(1)
        return work

    distributed.all_reduce = all_reduce
    if os.environ.get("PRETEND") == "cuda":
        join = distributed.init_process_group
        distributed.init_process_group = lambda _backend, **more: join("gloo", **more)
        distributed.get_backend = lambda: "nccl"
        no_cuda.pretend()
        torch.cuda.is_available = lambda: True
        torch.cuda.get_device_properties = lambda number: types.SimpleNamespace(name=f"GPU {number}", uuid="")


if any(word.endswith("communication_test.py") for word in sys.orig_argv[1:3]):
    sys.path.append(str(Path(__file__).parents[1]))
    pretend()

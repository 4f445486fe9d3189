"""For what trains or computes where no GPU is: CUDA is the CPU, NCCL is Gloo, and a fault that FAULT names happens.

With PRETEND=cuda: the cards are those of TUI_TRAIN_TEST_MACHINE that CUDA_VISIBLE_DEVICES names, and run
the code of PRETEND_ARCHS, such as `75 86`. Their memory is counted, and ends where it is limited.

`garbled`: NCCL fails at its first exchange as with a broken name of a file in /dev/shm, unless cuMem in host memory is
off. `shm`: it needs 10 MB in /dev/shm, and fails as NCCL does where it cannot have them. `hang`, `die`: so does the
second process there. `once`: so does it the first time, until FAULT_FILE is there. `wrong`: sums are wrong.
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
    if fault == "once" and second:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(os.environ["FAULT_FILE"], os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)


def pretend_faults() -> None:
    from torch import distributed

    exchange = distributed.all_reduce

    def all_reduce(tensor, *words, **more):
        fail(os.environ.get("FAULT", ""))
        work = exchange(tensor, *words, **more)
        if os.environ.get("FAULT") == "wrong":
            tensor.add_(1)
        return work

    distributed.all_reduce = all_reduce


def pretend_nccl() -> None:
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    join = distributed.init_process_group

    def init_process_group(*_, **more):
        return join("gloo", **{name: value for name, value in more.items() if name not in {"backend", "device_id"}})

    begin = DistributedDataParallel.__init__

    def begin_on_cpu(self, module, device_ids=None, output_device=None, **more):
        begin(self, module, **more)

    DistributedDataParallel.__init__ = begin_on_cpu
    gather = distributed.all_gather_into_tensor
    # Gloo takes tensors of one dimension.
    distributed.all_gather_into_tensor = lambda out, tensor, **more: gather(out, tensor.reshape(-1), **more)
    distributed.init_process_group = init_process_group
    distributed.get_backend = lambda *_: "nccl"


def visible_cards() -> list:
    """The cards of the machine file by what torch calls their properties; two without a name where there is none."""
    machine = os.environ.get("TUI_TRAIN_TEST_MACHINE")
    if not machine:
        return [types.SimpleNamespace(name=f"GPU {number}", uuid="", major=8, minor=6) for number in range(2)]
    found = {}
    for section in Path(machine).read_text().split("[card]")[1:]:
        told = dict(line.split(" = ", 1) for line in section.splitlines() if " = " in line)
        major, minor = map(int, told["compute"].split("."))
        found[told["uuid"]] = types.SimpleNamespace(
            name=told["name"], uuid=told["uuid"].removeprefix("GPU-"), major=major, minor=minor,
            total_memory=int(told["memory"].split()[0]) << 20,
        )  # fmt: skip
    return [found[uuid] for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid in found]


def pretend_cards(cards: list) -> None:
    import no_cuda
    import torch
    from pretended_memory import CardMemory

    cuda, first = torch.cuda, cards[int(os.environ.get("LOCAL_RANK", "0"))]
    no_cuda.patch_out_cuda()
    memory = CardMemory(getattr(first, "total_memory", 1 << 40), has_code_for(first))
    torch.version.cuda = "13.0"
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count = lambda: len(cards)
    cuda.get_device_properties = lambda number=0: cards[getattr(number, "index", number) or 0]
    cuda.get_device_name = lambda number=0: cuda.get_device_properties(number).name
    cuda.get_device_capability = lambda *_: (first.major, first.minor)
    cuda.is_bf16_supported = lambda including_emulation=True: including_emulation or first.major >= 8
    memory.pretend(torch)
    # What the shim of a run does as CUDA starts.
    for call, _ in cuda._queued_calls:
        if call.__module__ == "sitecustomize":
            call()


def has_code_for(card) -> bool:
    archs = os.environ.get("PRETEND_ARCHS", "").split()
    return not archs or any(int(arch) // 10 == card.major and int(arch) % 10 <= card.minor for arch in archs)


def is_pretended() -> bool:
    programs = ("communication_test.py", "pretrain.py", "memory_child.py")
    return any(word.endswith(programs) or "Multiplies matrices" in word for word in sys.orig_argv[1:5])


if is_pretended():
    sys.path.append(str(Path(__file__).parents[1]))
    sys.path.append(str(Path(__file__).parent))
    pretend_faults()
    if os.environ.get("PRETEND") == "cuda" and (found := visible_cards()):
        pretend_nccl()
        pretend_cards(found)

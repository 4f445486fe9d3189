"""The cards as NVML describes them: each card and each field is asked by itself, so that a sick one hides no other."""

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
import pynvml

from tui_train.facts import pci
from tui_train.facts.host import clean
from tui_train.facts.types import ComputeMode, Gap, Gpu, GpuProcess

# What a call raises when the driver answers nonsense: text that is not UTF-8, a value or a struct that does not fit.
_NONSENSE = (ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*")
_KINDS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "module",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission",
}
_PROBLEMS = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it has fallen off the bus (lost): reboot, then look at its power and its slot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset: stop what uses it, then `nvidia-smi --gpu-reset`, or reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open it: see the rights of /dev/nvidia*",
    pynvml.NVML_ERROR_IRQ_ISSUE: "its interrupts do not arrive: see `dmesg`",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "its power cable is not connected",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "its inforom is corrupted: the card needs repair",
}
_MODES: dict[int, ComputeMode] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
}


class Cards(NamedTuple):
    """What NVML tells: the cards in its order, what it could not tell, the driver ("580.95") and its CUDA ("13.0")."""

    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[Gap, ...] = ()
    driver_version: str | None = None
    driver_cuda: str | None = None


class _Asker:
    """Asks NVML about one card, or none; keeps in `problem` an answer that says that the whole card is out of use."""

    def __init__(self, handle: Any = None) -> None:
        self.about = () if handle is None else (handle,)
        self.problem = ""

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `call` answers, None where the driver does not tell or answers nonsense."""
        try:
            return call(*self.about, *arguments)
        except pynvml.NVMLError as error:
            if _code(error) in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}:
                self.problem = _PROBLEMS[_code(error)]
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")
        except _NONSENSE:
            pass
        return None


def _code(error: pynvml.NVMLError) -> int:
    """Return NVML's number of an error, which the binding sets where no type checker sees it."""
    return int(getattr(error, "value", 0))


def read() -> Cards:
    """Return all cards; never fails, but may hang for as long as the driver does.

    Source: NVML API reference, through nvidia-ml-py, which loads `libnvidia-ml.so.1` by the system's search path.
    """
    on_bus = pci.cards()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Cards(gaps=(pci.no_driver(_KINDS.get(_code(error), ""), str(error), on_bus),))
    except _NONSENSE as error:
        return Cards(gaps=(pci.no_driver("", f"its library is broken: {error}", on_bus),))
    try:
        return _read_all(on_bus)
    finally:
        with contextlib.suppress(pynvml.NVMLError, *_NONSENSE):
            pynvml.nvmlShutdown()


def _read_all(on_bus: tuple[pci.Card, ...]) -> Cards:
    ask = _Asker()
    version, cuda = ask(pynvml.nvmlSystemGetDriverVersion), ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = str(version) if version else None
    driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda > 0 else None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except (pynvml.NVMLError, *_NONSENSE) as error:
        gap = Gap("The NVIDIA driver does not list its cards", str(error), "See what `nvidia-smi` says; reboot.")
        return Cards((), (gap,), driver, driver_cuda)
    gpus = tuple(gpu for index in range(count) for gpu in _open(index))
    unopened = sum(not gpu.pci_bus for gpu in gpus)
    gaps = pci.not_shown(on_bus, (gpu.pci_bus for gpu in gpus), unopened)
    if not gpus and not gaps:
        gaps = (Gap("No NVIDIA GPU", "the NVIDIA driver runs and lists no card", "Trainings run on the CPU here."),)
    return Cards(gpus, gaps, driver, driver_cuda)


def _open(index: int) -> Iterator[Gpu]:
    """Yield the card with this NVML index, or its instances where it is divided by MIG."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        yield Gpu(index=index, problem=_PROBLEMS.get(_code(error), f"the driver cannot open it: {error}"))
        return
    except _NONSENSE as error:
        yield Gpu(index=index, problem=f"the driver cannot open it: {error}")
        return
    ask = _Asker(handle)
    mode = ask(pynvml.nvmlDeviceGetMigMode)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        yield _card(index, ask, ask)
        return
    instances = []
    for number in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        instance = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number)
        if instance is not None:
            instances.append(_card(index, _Asker(instance), ask))
    if instances:
        yield from instances
        return
    # The undivided card cannot be used in this mode.
    ask.problem = (
        "MIG mode is on and it has no instance: `nvidia-smi mig -cgi ... -C` makes one, `-mig 0` ends the mode"
    )
    yield _card(index, ask, ask)


def _card(index: int, ask: _Asker, board: _Asker) -> Gpu:
    """Return the card or MIG instance that `ask` asks about; `board` asks about the whole card."""
    uuid = ask(pynvml.nvmlDeviceGetUUID)
    capability = board(pynvml.nvmlDeviceGetCudaComputeCapability)
    bus = board(pynvml.nvmlDeviceGetPciInfo)
    display = board(pynvml.nvmlDeviceGetDisplayActive)
    mode = board(pynvml.nvmlDeviceGetComputeMode)
    name = ask(pynvml.nvmlDeviceGetName)
    total, free = _memory(ask)
    processes = _processes(ask)
    sms = _sm_count(ask, capability)
    known = isinstance(uuid, str) and _UUID.fullmatch(uuid)
    problem = ask.problem or board.problem or ("" if known else "the driver gives it no identity (UUID)")
    return Gpu(
        index=index,
        uuid=uuid if known else "",
        name=name or "",
        pci_bus=_address(bus),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory_total=total,
        memory_free=free,
        sm_count=sms,
        display_active=None if display is None else bool(display),
        compute_mode=None if mode is None else _MODES.get(mode),
        processes=processes,
        problem=problem,
    )


def _address(info: Any) -> str | None:
    """Return the PCI address in an `nvmlPciInfo_t`, as "00000000:01:00.0"."""
    bus = getattr(info, "busId", b"")
    text = bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)
    return text or None


def _memory(ask: _Asker) -> tuple[int | None, int | None]:
    """Return total and free bytes; drivers before 510 know only the first form of the call."""
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2) or ask(pynvml.nvmlDeviceGetMemoryInfo)
    if memory is None or not memory.total:
        return None, None
    return int(memory.total), int(memory.free)


def _sm_count(ask: _Asker, capability: tuple[int, int] | None) -> int | None:
    """Return the number of streaming multiprocessors; NVML tells it for MIG, else cores are divided by cores of each.

    Source: CUDA programming guide, "Compute Capabilities"; generations it does not list give None.
    """
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2)
    if attributes is not None and attributes.multiprocessorCount:
        return int(attributes.multiprocessorCount)
    cores = ask(pynvml.nvmlDeviceGetNumGpuCores)
    if not cores or not capability:
        return None
    of_major = {3: 192, 5: 128, 6: 128, 7: 64, 8: 128, 9: 128, 10: 128, 11: 128, 12: 128}
    each = {(6, 0): 64, (8, 0): 64}.get((capability[0], capability[1]), of_major.get(capability[0]))
    return int(cores) // each if each else None


def _processes(ask: _Asker) -> tuple[GpuProcess, ...]:
    """Return the processes on a card by pid; one that both computes and draws counts once, as graphics."""
    memory: dict[int, int | None] = {}
    drawing = set()
    for kind in ("Compute", "Graphics"):
        entries = ask(getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses"))
        if entries is None:
            entries = ask(getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v2"))
        for entry in entries or ():
            memory[entry.pid] = max(memory.get(entry.pid) or 0, entry.usedGpuMemory or 0) or None
            if kind == "Graphics":
                drawing.add(entry.pid)
    return tuple(_process(pid, used, pid in drawing) for pid, used in sorted(memory.items()))


def _process(pid: int, memory: int | None, graphics: bool) -> GpuProcess:
    name = user = ""
    try:
        process = psutil.Process(pid)
        name = process.name()
        user = process.username()
    except (psutil.Error, OSError, ValueError):
        name = name or str(_Asker()(pynvml.nvmlSystemGetProcessName, pid) or "")
    return GpuProcess(pid, clean(name), clean(user), memory, graphics)

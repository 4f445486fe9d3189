"""One card as NVML describes it; each field is asked by itself, so that what fails or hangs takes no other with it."""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import psutil
import pynvml

from tui_train.facts import pci
from tui_train.facts.capability import CHIPS
from tui_train.facts.host import clean
from tui_train.facts.types import ComputeMode, Gpu, GpuProcess, Pcie

# What a call raises when the driver answers nonsense: text that is not UTF-8, a value or a struct that does not fit.
NONSENSE = (ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*")
PROBLEMS = {
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
_THROTTLES = {
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "a clock set by hand",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "its power limit",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "a slowdown by the hardware",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "the clock of a group",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "heat",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "too much heat",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "the power supply",
    pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "the clock of a display",
}
_SILENT = "it does not answer: `sudo dmesg | grep -i xid` may say why; stop what uses it and reset it, or reboot"


class Asker:
    """Asks NVML about one card, or none; keeps in `problem` an answer that says that the whole card is out of use."""

    def __init__(self, handle: Any = None) -> None:
        self.about = () if handle is None else (handle,)
        self.problem = ""

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `call` answers, None where the driver does not tell or answers nonsense."""
        try:
            return call(*self.about, *arguments)
        except pynvml.NVMLError as error:
            if code_of(error) in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}:
                self.problem = PROBLEMS[code_of(error)]
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")
        except NONSENSE:
            pass
        return None


def code_of(error: pynvml.NVMLError) -> int:
    """Return NVML's number of an error, which the binding sets where no type checker sees it."""
    return int(getattr(error, "value", 0))


class Card:
    """A card that is being asked: `gpus` gives at any time what is known of it, or of its MIG instances."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.problem = ""
        self._told: list[dict[str, Any]] = []
        self._complete = False

    def ask(self) -> None:
        """Ask for all; never fails, but may hang for as long as the driver does."""
        try:
            self._ask(Asker(pynvml.nvmlDeviceGetHandleByIndex(self.index)))
        except pynvml.NVMLError as error:
            self.problem = PROBLEMS.get(code_of(error), f"the driver cannot open it: {error}")
        except Exception as error:  # noqa: BLE001  # whatever it is, the other cards are wanted
            self.problem = f"the driver cannot open it: {error}"
        self._complete = True

    def gpus(self) -> tuple[Gpu, ...]:
        """Return what has been told so far; a card that is not done has the problem that it does not answer."""
        problem = self.problem if self._complete else _SILENT
        told = tuple(self._told) or ({},)
        return tuple(Gpu(index=self.index, **{**each, **({"problem": problem} if problem else {})}) for each in told)

    def _ask(self, ask: Asker) -> None:
        mode = ask(pynvml.nvmlDeviceGetMigMode)
        if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            self._fill(ask, ask)
            return
        for number in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
            instance = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number)
            if instance is not None:
                self._fill(Asker(instance), ask)
        if not self._told:
            # The undivided card cannot be used in this mode.
            ask.problem = (
                "MIG mode is on and it has no instance: `nvidia-smi mig -cgi ... -C` makes one, `-mig 0` ends the mode"
            )
            self._fill(ask, ask)

    def _fill(self, ask: Asker, board: Asker) -> None:
        """Note what `ask` tells of the card or instance, and `board` of the whole card; who it is comes first."""
        told: dict[str, Any] = {}
        uuid = ask(pynvml.nvmlDeviceGetUUID)
        known = isinstance(uuid, str) and bool(_UUID.fullmatch(uuid))
        told["uuid"] = uuid if known else ""
        self._told.append(told)
        told["name"] = ask(pynvml.nvmlDeviceGetName) or ""
        told["pci_bus"] = address = _address(board(pynvml.nvmlDeviceGetPciInfo))
        capability = board(pynvml.nvmlDeviceGetCudaComputeCapability)
        told["compute_capability"] = f"{capability[0]}.{capability[1]}" if capability else None
        told["memory_total"], told["memory_free"] = _memory(ask)
        told["sm_count"] = _sm_count(ask, capability)
        display = board(pynvml.nvmlDeviceGetDisplayActive)
        told["display_active"] = None if display is None else bool(display)
        told["compute_mode"] = _MODES.get(board(pynvml.nvmlDeviceGetComputeMode))
        told["processes"] = _processes(ask)
        told["sm_clock_max"] = board(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM) or None
        ecc = board(pynvml.nvmlDeviceGetEccMode)
        told["ecc"] = None if ecc is None else bool(ecc[0])
        told["throttled_by"] = _throttles(board)
        told["pcie"] = _pcie(board)
        told["nvlinks"] = _nvlinks(board)
        told["numa_node"] = pci.numa_node(address)
        told["problem"] = ask.problem or board.problem or ("" if known else "the driver gives it no identity (UUID)")


def _throttles(ask: Asker) -> tuple[str, ...]:
    """Return in words what keeps the clock down now, other than having nothing to do."""
    bits = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return tuple(words for bit, words in _THROTTLES.items() if bits and bits & bit)


def _pcie(ask: Asker) -> Pcie | None:
    link = Pcie(
        ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    )
    return None if link == Pcie() else link


def _nvlinks(ask: Asker) -> int | None:
    """Return how many NVLinks are active, None where the card has none or does not tell."""
    states: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = ask(pynvml.nvmlDeviceGetNvLinkState, link)
        if state is None:
            break
        states.append(state)
    return sum(map(bool, states)) if states else None


def _address(info: Any) -> str | None:
    """Return the PCI address in an `nvmlPciInfo_t`, as "00000000:01:00.0"."""
    bus = getattr(info, "busId", b"")
    text = bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)
    return text or None


def _memory(ask: Asker) -> tuple[int | None, int | None]:
    """Return total and free bytes; drivers before 510 know only the first form of the call."""
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2) or ask(pynvml.nvmlDeviceGetMemoryInfo)
    if memory is None or not memory.total:
        return None, None
    return int(memory.total), int(memory.free)


def _sm_count(ask: Asker, capability: tuple[int, int] | None) -> int | None:
    """Return the number of streaming multiprocessors; NVML tells it for MIG, else cores are divided by cores of each.

    Source: CUDA programming guide, "Compute Capabilities"; generations it does not list give None.
    """
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2)
    if attributes is not None and attributes.multiprocessorCount:
        return int(attributes.multiprocessorCount)
    cores = ask(pynvml.nvmlDeviceGetNumGpuCores)
    if not cores or not capability:
        return None
    chip = CHIPS.get(10 * capability[0] + capability[1])
    return int(cores) // chip.cores if chip else None


def _processes(ask: Asker) -> tuple[GpuProcess, ...]:
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
        name = name or str(Asker()(pynvml.nvmlSystemGetProcessName, pid) or "")
    return GpuProcess(pid, clean(name), clean(user), memory, graphics)

"""One card as NVML describes it; fields are queried one by one, so that one failure does not affect the others."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from typing import Any, Callable

from ..system.processes import command_text, process_age_seconds, process_start_ticks
from ..system.safe_open import user_name
from ..system.safe_text import as_valid_utf8
from . import pci


def _import_bundled_or_installed_nvml() -> Any:
    """Return the module of nvidia-ml-py: it lies beside this one in runner.pyz, else it is installed."""
    try:
        return importlib.import_module(f"{__name__.rpartition('.')[0]}.pynvml")
    except ModuleNotFoundError:
        return importlib.import_module("pynvml")


pynvml = _import_bundled_or_installed_nvml()
# Raised if the driver returns garbage: text that is not UTF-8, a value or struct of the wrong size.
MALFORMED_ANSWER_ERRORS = (ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)
_UUID_PATTERN = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*")
_PROBLEM_BY_NVML_CODE = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it is lost (has fallen off the bus): reboot, then check its power supply and slot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it needs a reset: stop its processes, then `nvidia-smi --gpu-reset`, or reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission denied: check the permissions of /dev/nvidia*",
    pynvml.NVML_ERROR_IRQ_ISSUE: "its interrupts are lost: see `dmesg`",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "its power cable is not connected",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "its inforom is corrupted: the GPU needs a repair",
}
_COMPUTE_MODE_BY_NVML_VALUE = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
}
_THROTTLE_REASON_BY_BIT = {
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "an application clock limit",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "the power limit",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "a hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "heat",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "overheating",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "the power supply",
    pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "the display clock setting",
}
# The kernel cuts longer names.
_KERNEL_NAME_LENGTH = 15
_NO_RESPONSE_PROBLEM = (
    "it does not respond: check `sudo dmesg | grep -i xid`; stop the processes on it and reset it, or reboot"
)


class NvmlCardCalls:
    """Queries NVML about one card, or the system; `problem` is set if the card turns out to be unusable."""

    def __init__(self, handle: Any = None) -> None:
        self.handle_arguments = () if handle is None else (handle,)
        self.problem = ""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `function`, None if the driver does not report it or returns garbage."""
        try:
            return function(*self.handle_arguments, *arguments)
        except pynvml.NVMLError as error:
            if nvml_code(error) in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}:
                self.problem = _PROBLEM_BY_NVML_CODE[nvml_code(error)]
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")
        except MALFORMED_ANSWER_ERRORS:
            pass
        return None


def nvml_code(error: Exception) -> int:
    """Return the NVML code of an error; the binding sets it dynamically."""
    return int(getattr(error, "value", 0))


class CardBeingQueried:
    """A card that is being queried: `gpus` returns what is known so far of it, or of its MIG instances."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.problem = ""
        self._instances: list[dict[str, Any]] = []
        self._complete = False

    def query(self) -> None:
        """Query everything; never raises, but hangs if the driver does."""
        try:
            self._query_board(NvmlCardCalls(pynvml.nvmlDeviceGetHandleByIndex(self.index)))
        except pynvml.NVMLError as error:
            self.problem = _PROBLEM_BY_NVML_CODE.get(nvml_code(error), f"the driver cannot open it: {error}")
        except Exception as error:  # noqa: BLE001  # one card must not affect the others
            self.problem = f"the driver cannot open it: {error}"
        self._complete = True

    def gpus(self) -> list[dict[str, Any]]:
        """Return what is known so far; an incomplete card has the problem that it does not respond."""
        problem = self.problem if self._complete else _NO_RESPONSE_PROBLEM
        fields = self._instances or [{}]
        return [{"index": self.index, **each, **({"problem": problem} if problem else {})} for each in fields]

    def _query_board(self, board_query: NvmlCardCalls) -> None:
        instances = mig_instance_calls(board_query)
        if instances == []:
            # The card itself cannot be used in MIG mode.
            board_query.problem = (
                "MIG mode is on, without instances: create one (`nvidia-smi mig -cgi ... -C`) or turn it off"
            )
        for instance_query in instances or [board_query]:
            self._query_instance(instance_query, board_query)

    def _query_instance(self, instance_query: NvmlCardCalls, board_query: NvmlCardCalls) -> None:
        """Query the card or instance, and by `board_query` the full card; its identity comes first."""
        fields: dict[str, Any] = {}
        fields["uuid"] = read_uuid(instance_query)
        self._instances.append(fields)
        fields["name"] = instance_query(pynvml.nvmlDeviceGetName) or ""
        fields["pci_bus"] = address = _pci_address(board_query(pynvml.nvmlDeviceGetPciInfo))
        capability = board_query(pynvml.nvmlDeviceGetCudaComputeCapability)
        fields["compute_capability"] = f"{capability[0]}.{capability[1]}" if capability else None
        fields["memory_total"], fields["memory_free"] = read_total_and_free_memory(instance_query)
        attributes = instance_query(pynvml.nvmlDeviceGetAttributes_v2)
        fields["sm_count"] = getattr(attributes, "multiprocessorCount", None) or None
        fields["cores"] = instance_query(pynvml.nvmlDeviceGetNumGpuCores) or None
        display = board_query(pynvml.nvmlDeviceGetDisplayActive)
        fields["display_active"] = None if display is None else bool(display)
        fields["compute_mode"] = _COMPUTE_MODE_BY_NVML_VALUE.get(board_query(pynvml.nvmlDeviceGetComputeMode))
        fields["processes"] = _read_gpu_processes(instance_query)
        fields["sm_clock_max"] = board_query(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM) or None
        ecc = board_query(pynvml.nvmlDeviceGetEccMode)
        fields["ecc"] = None if ecc is None else bool(ecc[0])
        fields["uncorrected_errors"] = board_query(
            pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
        fields["repair"] = _read_memory_repair(board_query)
        fields["power_limit"] = _in_watts(board_query(pynvml.nvmlDeviceGetEnforcedPowerLimit))
        fields["power_limit_default"] = _in_watts(board_query(pynvml.nvmlDeviceGetPowerManagementDefaultLimit))
        fields["throttled_by"] = _read_throttle_reasons(board_query)
        fields["pcie"] = _read_pcie_link(board_query, address)
        fields["nvlinks"] = _count_active_nvlinks(board_query)
        fields["numa_node"] = pci.read_numa_node(address)
        fields["problem"] = (
            instance_query.problem
            or board_query.problem
            or ("" if fields["uuid"] else "the driver reports no UUID for it")
        )


def mig_instance_calls(board_query: NvmlCardCalls) -> list[NvmlCardCalls] | None:
    """Return what queries each MIG instance of a card, None where MIG mode is off."""
    mode = board_query(pynvml.nvmlDeviceGetMigMode)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    count = board_query(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
    handles = [board_query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number) for number in range(count)]
    return [NvmlCardCalls(handle) for handle in handles if handle is not None]


def read_uuid(query: NvmlCardCalls) -> str:
    """Return the UUID by which a card or an instance is selected, empty where the driver reports none."""
    uuid = query(pynvml.nvmlDeviceGetUUID)
    return uuid if isinstance(uuid, str) and _UUID_PATTERN.fullmatch(uuid) else ""


def _read_throttle_reasons(query: NvmlCardCalls) -> list[str]:
    """Return what limits the clock now, other than being idle."""
    bits = query(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return [words for bit, words in _THROTTLE_REASON_BY_BIT.items() if bits and bits & bit]


def _read_memory_repair(query: NvmlCardCalls) -> str | None:
    """Return "failed", "pending" (until the card is reset), "none", or None where the driver does not report it."""
    rows = query(pynvml.nvmlDeviceGetRemappedRows)
    if rows:
        _, _, is_pending, has_failed = rows
        return "failed" if has_failed else "pending" if is_pending else "none"
    # Cards before Ampere retire pages instead of rows.
    is_pending = query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus)
    return None if is_pending is None else "pending" if is_pending else "none"


def _in_watts(milliwatts: int | None) -> int | None:
    return round(milliwatts / 1000) if milliwatts else None


def _read_pcie_link(query: NvmlCardCalls, address: str | None) -> dict[str, int | None] | None:
    link = {
        "generation": query(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "width": query(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        "generation_max": query(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "width_max": query(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    }
    if set(link.values()) == {None}:
        return None
    return {**link, "slot_width_max": pci.read_slot_width(address, link["width"])}


def _count_active_nvlinks(query: NvmlCardCalls) -> int | None:
    """Return the number of active NVLinks, None if there are none or that is not reported."""
    states: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = query(pynvml.nvmlDeviceGetNvLinkState, link)
        if state is None:
            break
        states.append(state)
    return sum(map(bool, states)) if states else None


def _pci_address(pci_info: Any) -> str | None:
    """Return the PCI address in an `nvmlPciInfo_t`, as "00000000:01:00.0"."""
    bus = getattr(pci_info, "busId", b"")
    text = bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)
    return text or None


def read_total_and_free_memory(query: NvmlCardCalls) -> tuple[int | None, int | None]:
    """Return total and free bytes; drivers before 510 have only the first version of the call."""
    memory = query(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2) or query(pynvml.nvmlDeviceGetMemoryInfo)
    if memory is None or not memory.total:
        return None, None
    return int(memory.total), int(memory.free)


def read_memory_and_graphics_pids(query: NvmlCardCalls) -> tuple[dict[int, int | None], set[int]]:
    """Return the bytes that each process uses on a card, None if unknown; and which have graphics, alone or as well."""
    memory: dict[int, int | None] = {}
    graphics_pids = set()
    for kind in ("Compute", "Graphics"):
        entries = query(getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses"))
        if entries is None:
            entries = query(getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v2"))
        for entry in entries or ():
            memory[entry.pid] = max(memory.get(entry.pid) or 0, entry.usedGpuMemory or 0) or None
            if kind == "Graphics":
                graphics_pids.add(entry.pid)
    return memory, graphics_pids


def _read_gpu_processes(query: NvmlCardCalls) -> list[dict[str, Any]]:
    """Return the processes on a card; one with both compute and graphics counts once, as graphics."""
    memory, graphics_pids = read_memory_and_graphics_pids(query)
    return [
        {"pid": pid, **process_facts(pid), "memory": used, "graphics": pid in graphics_pids}
        for pid, used in sorted(memory.items())
    ]


def process_facts(pid: int) -> dict[str, Any]:
    """Return the name, user, command and age of a process, empty where they are not to be seen."""
    ticks = process_start_ticks(pid)
    age = {"seconds": int(process_age_seconds(ticks))} if ticks else {}
    return {**process_and_user_name(pid), "command": command_text(pid), **age}


def process_and_user_name(pid: int) -> dict[str, str]:
    """Return the name of a process and of its user, empty where they are not to be seen."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().rstrip(b"\n")
        user = user_name(os.stat(f"/proc/{pid}").st_uid)
        if len(name) >= _KERNEL_NAME_LENGTH:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                whole = os.path.basename(file.read().split(b"\0")[0])
            name = whole if whole.startswith(name) else name
        return {"name": as_valid_utf8(os.fsdecode(name)), "user": as_valid_utf8(user)}
    except OSError:
        return {"name": as_valid_utf8(str(NvmlCardCalls()(pynvml.nvmlSystemGetProcessName, pid) or "")), "user": ""}

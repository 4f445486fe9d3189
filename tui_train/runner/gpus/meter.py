"""Meters what cards draw: `python meter.py PARENT UUID …` prints joules and cards on SIGTERM, and ends.

A program of its own, for a driver may hang: nothing else waits for it. It also ends with its parent, by its pid.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

# Seconds between two readings: a counter is exact whenever it is read, power is taken to be steady in between.
_READ_INTERVAL_SECONDS = 10.0
# Seconds for the last reading.
_FINAL_READ_SECONDS = 0.5
_PRCTL_SET_PDEATHSIG = 1
_MILLI_PER_UNIT = 1000.0


class CardEnergyMeter(threading.Thread):
    """The energy that a card has drawn since this began; `joules` is None as long as nothing was read.

    Cards since Volta count it themselves (in mJ); of older ones it is the power (in mW) over time.
    """

    def __init__(self, library: ctypes.CDLL, uuid: str) -> None:
        super().__init__(daemon=True)
        self.library, self.uuid = library, uuid
        self.joules: float | None = None
        self.stop_requested, self.finished = threading.Event(), threading.Event()

    def run(self) -> None:
        """Read until asked for the end."""
        handle = ctypes.c_void_p()
        if self.library.nvmlDeviceGetHandleByUUID(self.uuid.encode(), ctypes.byref(handle)) == 0:
            counts = self._energy_counter(handle) is not None
            read = self._energy_counter if counts else self._power_draw
            before, at = read(handle), time.monotonic()
            ended = False
            while not ended:
                ended = self.stop_requested.wait(_READ_INTERVAL_SECONDS)
                now, then = read(handle), time.monotonic()
                if now is not None and before is not None:
                    # A driver that was loaded again counts from 0.
                    counted = now - before if now >= before else now
                    more = counted if counts else (before + now) / 2 * (then - at)
                    self.joules = (self.joules or 0.0) + more / _MILLI_PER_UNIT
                before, at = now, then
        self.finished.set()

    def _energy_counter(self, handle: ctypes.c_void_p) -> int | None:
        return self._read_driver_number("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.c_ulonglong())

    def _power_draw(self, handle: ctypes.c_void_p) -> int | None:
        return self._read_driver_number("nvmlDeviceGetPowerUsage", handle, ctypes.c_uint())

    def _read_driver_number(
        self, function_name: str, handle: ctypes.c_void_p, value: ctypes.c_uint | ctypes.c_ulonglong
    ) -> int | None:
        # A driver before the function has none of its name.
        function = getattr(self.library, function_name, None)
        return value.value if function and function(handle, ctypes.byref(value)) == 0 else None


def _start_card_meters(uuids: list[str], meters: list[CardEnergyMeter]) -> None:
    """Load the driver's library, and meter each card in a thread of its own."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return
    except (OSError, AttributeError):
        return
    for uuid in uuids:
        meter = CardEnergyMeter(library, uuid)
        meter.start()
        meters.append(meter)


def main(parent_pid: int, uuids: list[str]) -> None:
    """Print the joules that were metered until SIGTERM, and for how many cards to the end; nothing where none were."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).prctl(_PRCTL_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        return
    meters: list[CardEnergyMeter] = []
    threading.Thread(target=_start_card_meters, args=(uuids, meters), daemon=True).start()
    signal.sigwait({signal.SIGTERM})
    for meter in meters:
        meter.stop_requested.set()
    ends = time.monotonic() + _FINAL_READ_SECONDS
    for meter in meters:
        meter.finished.wait(max(0.0, ends - time.monotonic()))
    read = [meter for meter in meters if meter.joules is not None]
    complete = sum(meter.finished.is_set() for meter in read)
    os.write(1, f"{sum(meter.joules or 0 for meter in read):.1f} {complete}\n".encode() if read else b"\n")
    # A thread that hangs in the driver is not waited for.
    os._exit(0)

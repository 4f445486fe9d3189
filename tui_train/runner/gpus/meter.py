"""Meters what cards draw: `meter PARENT UUID …` prints joules and cards on SIGTERM, and ends.

A program of its own, for a driver may hang: nothing else waits for it. It also ends with its parent, by its pid.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from ..system.processes import end_with_parent
from .nvml_card import MALFORMED_ANSWER_ERRORS, NvmlCardCalls, pynvml

# Seconds between two readings: a counter is exact whenever it is read, power is taken to be steady in between.
_READ_INTERVAL_SECONDS = 10.0
# Seconds for the last reading.
_FINAL_READ_SECONDS = 0.5
_MILLI_PER_UNIT = 1000.0


class CardEnergyMeter(threading.Thread):
    """The energy that a card has drawn since this began; `joules` is None as long as nothing was read.

    Cards since Volta count it themselves (in mJ); of older ones it is the power (in mW) over time.
    """

    def __init__(self, uuid: str) -> None:
        super().__init__(daemon=True)
        self.uuid = uuid
        self.joules: float | None = None
        self.stop_requested, self.finished = threading.Event(), threading.Event()

    def run(self) -> None:
        """Read until asked for the end."""
        handle = NvmlCardCalls()(pynvml.nvmlDeviceGetHandleByUUID, self.uuid)
        if handle is not None:
            query = NvmlCardCalls(handle)
            counts = query(pynvml.nvmlDeviceGetTotalEnergyConsumption) is not None
            read = pynvml.nvmlDeviceGetTotalEnergyConsumption if counts else pynvml.nvmlDeviceGetPowerUsage
            before, at = query(read), time.monotonic()
            ended = False
            while not ended:
                ended = self.stop_requested.wait(_READ_INTERVAL_SECONDS)
                now, then = query(read), time.monotonic()
                if now is not None and before is not None:
                    # A driver that was loaded again counts from 0.
                    counted = now - before if now >= before else now
                    more = counted if counts else (before + now) / 2 * (then - at)
                    self.joules = (self.joules or 0.0) + more / _MILLI_PER_UNIT
                before, at = now, then
        self.finished.set()


def _start_card_meters(uuids: list[str], meters: list[CardEnergyMeter]) -> None:
    """Load the driver's library, and meter each card in a thread of its own."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
        return
    for uuid in uuids:
        meter = CardEnergyMeter(uuid)
        meter.start()
        meters.append(meter)


def main(parent_pid: int, uuids: list[str]) -> None:
    """Print the joules that were metered until SIGTERM, and for how many cards to the end; nothing where none were."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    end_with_parent()
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

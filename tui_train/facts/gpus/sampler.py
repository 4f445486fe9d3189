"""Program that samples the cards: one line of JSON per second, until its input is closed.

Each card is queried in its own thread, so that a hanging one does not stop the others.
"""

import contextlib
import os
import sys
from threading import Thread
from time import monotonic, sleep
from typing import Any

import msgspec

from tui_train.facts.gpus.samples import NO_RESPONSE_PROBLEM, CardSample, CardSamples, samples_with_problem
from tui_train.runner.gpus.nvml_card import (
    MALFORMED_ANSWER_ERRORS,
    NvmlCardCalls,
    mig_instance_calls,
    pynvml,
    read_total_and_free_memory,
    read_uuid,
)

_NOT_REPORTED_PROBLEM = "the driver does not report it"
_MIB = 2**20
_SAMPLE_INTERVAL_SECONDS = 1.0
# A card that takes longer is reported a second later; after this many seconds it counts as hanging.
_MAX_QUERY_WAIT_SECONDS = 0.5
_MAX_SECONDS_WITHOUT_RESPONSE = 3.0
# Opening a broken card may be slow, and the kernel logs each attempt.
_REOPEN_DELAY_SECONDS = 10.0


class _SampledCard:
    """A card that is queried repeatedly, in threads that may be abandoned."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._handle: Any = None
        self._opened = float("-inf")
        self._last_samples: CardSamples = ()
        self._thread: Thread | None = None
        self._query_started = 0.0

    def start_query(self) -> bool:
        """Start a query; return False if the last one is still running."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._query_started = monotonic()
        self._thread = Thread(target=self._query_card, daemon=True)
        self._thread.start()
        return True

    def wait_for_query(self, end_time: float) -> None:
        """Wait for the result until that time."""
        if self._thread is not None:
            self._thread.join(max(0.0, end_time - monotonic()))

    def last_samples(self) -> CardSamples:
        """Return the last samples, with a problem if the card hangs since."""
        hangs = (
            self._thread is not None
            and self._thread.is_alive()
            and monotonic() - self._query_started > _MAX_SECONDS_WITHOUT_RESPONSE
        )
        return samples_with_problem(self._last_samples, NO_RESPONSE_PROBLEM) if hangs else self._last_samples

    def _query_card(self) -> None:
        """Query everything; never raises, but hangs if the driver does."""
        if self._handle is None and not self._open_handle():
            return
        board_query = NvmlCardCalls(self._handle)
        uuid = read_uuid(board_query)
        if uuid and not self._last_samples:
            # First, so that a card that hangs later is known by name.
            self._last_samples = (CardSample(uuid=uuid),)
        temperature, power = _read_temperature(board_query), board_query(pynvml.nvmlDeviceGetPowerUsage)
        new_samples = []
        for instance_query in mig_instance_calls(board_query) or [board_query]:
            uuid = read_uuid(instance_query)
            if uuid:
                total, free = read_total_and_free_memory(instance_query)
                rates = board_query(pynvml.nvmlDeviceGetUtilizationRates) if instance_query is board_query else None
                sample = CardSample(
                    uuid=uuid,
                    memory_free=None if free is None else free // _MIB * _MIB,
                    memory_total=None if total is None else total // _MIB * _MIB,
                    utilization=None if rates is None else rates.gpu,
                    temperature=temperature,
                    power=None if power is None else round(power / 1000),
                    problem=instance_query.problem or board_query.problem,
                )
                new_samples.append(sample)
        self._last_samples = tuple(new_samples) or samples_with_problem(
            self._last_samples, board_query.problem or _NOT_REPORTED_PROBLEM
        )

    def _open_handle(self) -> bool:
        if monotonic() - self._opened < _REOPEN_DELAY_SECONDS:
            return False
        self._opened = monotonic()
        with contextlib.suppress(pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        return self._handle is not None


def _read_temperature(query: NvmlCardCalls) -> int | None:
    """Return the temperature of the chip; CUDA 14 drops the only call that older drivers have."""
    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        call = getattr(pynvml, name, None)
        reading = query(call, pynvml.NVML_TEMPERATURE_GPU) if call else None
        if reading is not None:
            return int(reading)
    return None


def _print_samples_each_second() -> None:
    """Print samples each second; return if there is no driver or no card."""
    try:
        pynvml.nvmlInit()
        cards = [_SampledCard(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except (pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
        return
    while cards:
        started = monotonic()
        for card in [card for card in cards if card.start_query()]:
            card.wait_for_query(started + _MAX_QUERY_WAIT_SECONDS)
        samples = tuple(sample for card in cards for sample in card.last_samples())
        sys.stdout.buffer.write(msgspec.json.encode(samples) + b"\n")
        sys.stdout.buffer.flush()
        sleep(max(0.0, started + _SAMPLE_INTERVAL_SECONDS - monotonic()))


def _exit_when_input_closes() -> None:
    """Exit when the input is closed, which means that the reader is gone."""
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(4096):
            pass
    os._exit(0)


def main() -> None:
    """Print samples until the reader is gone, and exit without waiting for the driver."""
    Thread(target=_exit_when_input_closes, daemon=True).start()
    with contextlib.suppress(OSError):
        _print_samples_each_second()
    os._exit(0)


if __name__ == "__main__":
    main()

"""The program that samples the cards: a line of JSON with what all of them do, each second, until its input ends.

Each card is asked in a thread of its own, so that one that hangs stops no other.
"""

import contextlib
import os
import sys
from threading import Thread
from time import monotonic, sleep
from typing import Any

import msgspec
import pynvml

from tui_train.facts.card import NONSENSE, Asker
from tui_train.facts.samples import SILENT, Sample, Samples, with_problem

_UNTOLD = "the driver does not report it"
_MIB = 2**20
_EVERY = 1.0
# A card that takes longer is told of a second later; one that takes much longer hangs.
_PATIENCE = 0.5
_HANGS_AFTER = 3.0
# To open a sick card may be slow, and the kernel notes each attempt.
_REOPEN = 10.0


class _Card:
    """A card that is asked again and again, each time in a thread that may be left behind."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._handle: Any = None
        self._opened = float("-inf")
        self._known: Samples = ()
        self._thread: Thread | None = None
        self._asked = 0.0

    def ask(self) -> bool:
        """Begin to ask the card; return False where it still owes an answer."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._asked = monotonic()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return True

    def wait(self, ends: float) -> None:
        """Wait for its answer until that time at most."""
        if self._thread is not None:
            self._thread.join(max(0.0, ends - monotonic()))

    def samples(self) -> Samples:
        """Return what it told last, and whether it hangs since."""
        hangs = self._thread is not None and self._thread.is_alive() and monotonic() - self._asked > _HANGS_AFTER
        return with_problem(self._known, SILENT) if hangs else self._known

    def _look(self) -> None:
        """Ask for all; never fails, but may hang for as long as the driver does."""
        if self._handle is None and not self._open():
            return
        board = Asker(self._handle)
        uuid = _uuid(board)
        if uuid and not self._known:
            # Who hangs at the first question after this one has a name.
            self._known = (Sample(uuid=uuid),)
        temperature, power = _temperature(board), board(pynvml.nvmlDeviceGetPowerUsage)
        told = []
        for part in _instances(board) or [board]:
            uuid = _uuid(part)
            if uuid:
                memory = part(pynvml.nvmlDeviceGetMemoryInfo)
                rates = board(pynvml.nvmlDeviceGetUtilizationRates) if part is board else None
                sample = Sample(
                    uuid=uuid,
                    memory_free=memory.free // _MIB * _MIB if memory and memory.total else None,
                    memory_total=memory.total // _MIB * _MIB if memory and memory.total else None,
                    use=None if rates is None else rates.gpu,
                    temperature=temperature,
                    power=None if power is None else round(power / 1000),
                    problem=part.problem or board.problem,
                )
                told.append(sample)
        self._known = tuple(told) or with_problem(self._known, board.problem or _UNTOLD)

    def _open(self) -> bool:
        if monotonic() - self._opened < _REOPEN:
            return False
        self._opened = monotonic()
        with contextlib.suppress(pynvml.NVMLError, *NONSENSE):
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        return self._handle is not None


def _uuid(ask: Asker) -> str:
    """Return the card's or instance's identity, empty where it is none that could be selected."""
    uuid = ask(pynvml.nvmlDeviceGetUUID)
    known = isinstance(uuid, str) and uuid.isascii() and uuid.replace("-", "").replace("/", "").isalnum()
    return uuid if known else ""


def _temperature(ask: Asker) -> int | None:
    """Return the temperature of the chip; CUDA 14 is to drop the call that older drivers know only."""
    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        call = getattr(pynvml, name, None)
        told = ask(call, pynvml.NVML_TEMPERATURE_GPU) if call else None
        if told is not None:
            return int(told)
    return None


def _instances(board: Asker) -> list[Asker]:
    """Return the MIG instances of a divided card, none of any other."""
    mode = board(pynvml.nvmlDeviceGetMigMode)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    count = board(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
    handles = [board(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number) for number in range(count)]
    return [Asker(handle) for handle in handles if handle is not None]


def _print_samples() -> None:
    """Print what the cards do, each second; return where there is no driver or no card."""
    try:
        pynvml.nvmlInit()
        cards = [_Card(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except (pynvml.NVMLError, *NONSENSE):
        return
    while cards:
        started = monotonic()
        for card in [card for card in cards if card.ask()]:
            card.wait(started + _PATIENCE)
        told = tuple(sample for card in cards for sample in card.samples())
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.buffer.flush()
        sleep(max(0.0, started + _EVERY - monotonic()))


def _end_with_input() -> None:
    """End this process when its input does: then its reader is gone, however that ended."""
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.buffer.read(4096):
            pass
    os._exit(0)


def main() -> None:
    """Print samples until the reader is gone, and end without waiting for the driver."""
    Thread(target=_end_with_input, daemon=True).start()
    with contextlib.suppress(OSError):
        _print_samples()
    os._exit(0)


if __name__ == "__main__":
    main()

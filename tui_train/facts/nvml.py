"""The cards as NVML describes them, each asked in a thread of its own: a sick one neither hides nor delays others."""

import contextlib
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import NamedTuple

import msgspec
import pynvml

from tui_train.facts import pci
from tui_train.facts.card import NONSENSE, Asker, Card, code_of
from tui_train.facts.types import Gap, Gpu

_KINDS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "module",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission",
}
# A driver that was idle wakes its cards one after the other; after the first answer the next comes within this time.
_PATIENCE = 2.0
_PAIRS_PATIENCE = 1.0
# The binding's own constant is a tuple, by a stray comma.
_P2P_READ = 0


class Cards(NamedTuple):
    """What NVML tells: the cards in its order, what it could not tell, the driver ("580.95") and its CUDA ("13.0")."""

    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[Gap, ...] = ()
    driver_version: str | None = None
    driver_cuda: str | None = None


def read(seconds: float = 6.0) -> Cards:
    """Return all cards; never fails, waits at most `seconds` for a card, but hangs where the driver does as a whole.

    Source: NVML API reference, through nvidia-ml-py, which loads `libnvidia-ml.so.1` by the system's search path.
    """
    ends = monotonic() + seconds
    on_bus = pci.cards()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Cards(gaps=(pci.no_driver(_KINDS.get(code_of(error), ""), str(error), on_bus),))
    except NONSENSE as error:
        return Cards(gaps=(pci.no_driver("", f"its library is broken: {error}", on_bus),))
    threads: list[Thread] = []
    try:
        return _read_all(on_bus, ends, threads)
    finally:
        # With a call under way an end of the library may wait for it.
        if not any(thread.is_alive() for thread in threads):
            with contextlib.suppress(pynvml.NVMLError, *NONSENSE):
                pynvml.nvmlShutdown()


def _read_all(on_bus: tuple[pci.Card, ...], ends: float, threads: list[Thread]) -> Cards:
    ask = Asker()
    version, cuda = ask(pynvml.nvmlSystemGetDriverVersion), ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = str(version) if version else None
    driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda > 0 else None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except (pynvml.NVMLError, *NONSENSE) as error:
        what, remedy = "The NVIDIA driver does not list its cards", "See what `nvidia-smi` says; reboot."
        gap = Gap(what, str(error), remedy, hides=True)
        return Cards((), (gap,), driver, driver_cuda)
    gpus = tuple(gpu for card in _asked(count, ends, threads) for gpu in card.gpus())
    gpus = _with_peers(gpus, ends, threads)
    unopened = sum(not gpu.pci_bus for gpu in gpus)
    gaps = pci.not_shown(on_bus, (gpu.pci_bus for gpu in gpus), unopened)
    if not gpus and not gaps:
        gaps = (Gap("No NVIDIA GPU", "the NVIDIA driver runs and lists no card", "Trainings run on the CPU here."),)
    return Cards(gpus, gaps, driver, driver_cuda)


def _asked(count: int, ends: float, threads: list[Thread]) -> list[Card]:
    """Return the cards, asked all at once; those that are not done in time are left as far as they are."""
    cards = [Card(index) for index in range(count)]
    done: SimpleQueue[int] = SimpleQueue()

    def ask(card: Card) -> None:
        card.ask()
        done.put(card.index)

    for card in cards:
        threads.append(Thread(target=ask, args=(card,), daemon=True))
        threads[-1].start()
    for answered in range(count):
        left = ends - monotonic()
        try:
            done.get(timeout=max(0.0, min(left, _PATIENCE) if answered else left))
        except Empty:
            break
    return cards


def _with_peers(gpus: Sequence[Gpu], ends: float, threads: list[Thread]) -> tuple[Gpu, ...]:
    """Return the cards with their `peers`, if all of them answer and the driver tells in time about each pair."""
    indices = [gpu.index for gpu in gpus]
    if len(gpus) < 2 or len(set(indices)) < len(gpus) or any(gpu.problem for gpu in gpus):
        return tuple(gpus)
    found: dict[int, tuple[int, ...]] = {}

    def ask() -> None:
        with contextlib.suppress(pynvml.NVMLError, *NONSENSE):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
            links = {
                (one, other): Asker(handles[one])(pynvml.nvmlDeviceGetP2PStatus, handles[other], _P2P_READ)
                for one in range(len(handles))
                for other in range(one)
            }
            if None in links.values():
                return
            pairs = {frozenset(pair) for pair, status in links.items() if status == pynvml.NVML_P2P_STATUS_OK}
            told = {one: tuple(other for other in indices if {one, other} in pairs and other != one) for one in indices}
            found.update(told)

    threads.append(Thread(target=ask, daemon=True))
    threads[-1].start()
    threads[-1].join(max(0.0, min(ends - monotonic(), _PAIRS_PATIENCE)))
    return tuple(msgspec.structs.replace(gpu, peers=found.get(gpu.index)) for gpu in gpus)

"""The cards as NVML describes them, each queried in its own thread: a broken one does not affect the others."""

import contextlib
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import NamedTuple

import msgspec
import pynvml

from tui_train.facts.gpus import pci
from tui_train.facts.gpus.nvml_card import GARBAGE_ERRORS, CardQuery, NvmlQuery, nvml_code
from tui_train.facts.types import Gap, Gpu

_ERROR_KIND_BY_CODE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "module",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission",
}
# An idle driver wakes its cards one by one; after the first response the next one comes within these seconds.
_NEXT_CARD_SECONDS = 2.0
_PEER_PAIRS_SECONDS = 1.0
# The constant of the binding is a tuple, because of a stray comma.
_P2P_READ_INDEX = 0


class NvmlReport(NamedTuple):
    """The report of NVML: cards in its order, gaps, driver version ("580.95") and its CUDA version ("13.0")."""

    gpus: tuple[Gpu, ...] = ()
    gaps: tuple[Gap, ...] = ()
    driver_version: str | None = None
    driver_cuda: str | None = None


def read_cards(max_seconds: float = 6.0) -> NvmlReport:
    """Return all cards; never raises, waits at most `max_seconds` for a card, but hangs if the whole driver does.

    Source: NVML API reference, through nvidia-ml-py, which loads `libnvidia-ml.so.1` from the system's search path.
    """
    end_time = monotonic() + max_seconds
    on_bus = pci.read_pci_cards()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlReport(gaps=(pci.no_driver_gap(_ERROR_KIND_BY_CODE.get(nvml_code(error), ""), str(error), on_bus),))
    except GARBAGE_ERRORS as error:
        return NvmlReport(gaps=(pci.no_driver_gap("", f"the NVML library is broken: {error}", on_bus),))
    threads: list[Thread] = []
    try:
        return _read_all_cards(on_bus, end_time, threads)
    finally:
        # Shutdown could wait for a running call.
        if not any(thread.is_alive() for thread in threads):
            with contextlib.suppress(pynvml.NVMLError, *GARBAGE_ERRORS):
                pynvml.nvmlShutdown()


def _read_all_cards(cards_on_bus: tuple[pci.PciCard, ...], end_time: float, threads: list[Thread]) -> NvmlReport:
    query = NvmlQuery()
    version, cuda = query(pynvml.nvmlSystemGetDriverVersion), query(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = str(version) if version else None
    driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda > 0 else None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except (pynvml.NVMLError, *GARBAGE_ERRORS) as error:
        problem, remedy = "The NVIDIA driver cannot list its GPUs", "Check `nvidia-smi`; reboot."
        gap = Gap(problem, str(error), remedy, hides=True)
        return NvmlReport((), (gap,), driver, driver_cuda)
    gpus = tuple(gpu for card in _query_cards(count, end_time, threads) for gpu in card.gpus())
    gpus = _with_peers(gpus, end_time, threads)
    unopened = sum(not gpu.pci_bus for gpu in gpus)
    gaps = pci.unlisted_card_gaps(cards_on_bus, (gpu.pci_bus for gpu in gpus), unopened)
    if not gpus and not gaps:
        gaps = (
            Gap("No NVIDIA GPU", "the NVIDIA driver is running, but lists no GPU", "Trainings run on the CPU here."),
        )
    return NvmlReport(gpus, gaps, driver, driver_cuda)


def _query_cards(count: int, end_time: float, threads: list[Thread]) -> list[CardQuery]:
    """Return the cards, queried in parallel; those not complete in time are returned as they are."""
    cards = [CardQuery(index) for index in range(count)]
    done: SimpleQueue[int] = SimpleQueue()

    def query_card(card: CardQuery) -> None:
        card.query()
        done.put(card.index)

    for card in cards:
        threads.append(Thread(target=query_card, args=(card,), daemon=True))
        threads[-1].start()
    for answered in range(count):
        remaining = end_time - monotonic()
        try:
            done.get(timeout=max(0.0, min(remaining, _NEXT_CARD_SECONDS) if answered else remaining))
        except Empty:
            break
    return cards


def _with_peers(gpus: Sequence[Gpu], end_time: float, threads: list[Thread]) -> tuple[Gpu, ...]:
    """Return the cards with their `peers`, if the driver reports all pairs in time."""
    indices = [gpu.index for gpu in gpus]
    if len(gpus) < 2 or len(set(indices)) < len(gpus) or any(gpu.problem for gpu in gpus):
        return tuple(gpus)
    peers: dict[int, tuple[int, ...]] = {}

    def read_pairs() -> None:
        with contextlib.suppress(pynvml.NVMLError, *GARBAGE_ERRORS):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
            links = {
                (first, second): NvmlQuery(handles[first])(
                    pynvml.nvmlDeviceGetP2PStatus, handles[second], _P2P_READ_INDEX
                )
                for first in range(len(handles))
                for second in range(first)
            }
            if None in links.values():
                return
            pairs = {frozenset(pair) for pair, status in links.items() if status == pynvml.NVML_P2P_STATUS_OK}
            by_index = {
                first: tuple(second for second in indices if {first, second} in pairs and second != first)
                for first in indices
            }
            peers.update(by_index)

    threads.append(Thread(target=read_pairs, daemon=True))
    threads[-1].start()
    threads[-1].join(max(0.0, min(end_time - monotonic(), _PEER_PAIRS_SECONDS)))
    return tuple(msgspec.structs.replace(gpu, peers=peers.get(gpu.index)) for gpu in gpus)

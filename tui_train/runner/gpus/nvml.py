"""The cards as NVML describes them, each queried in its own thread: a broken one does not affect the others."""

from __future__ import annotations

import contextlib
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Sequence

from . import pci
from .nvml_card import MALFORMED_ANSWER_ERRORS, CardBeingQueried, NvmlCardCalls, nvml_code, pynvml
from .pci import FactGap

_ERROR_KIND_BY_CODE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "module",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission",
}
# An idle driver wakes its cards one by one; after the first response the next one comes within these seconds.
_MAX_SECONDS_BETWEEN_CARDS = 2.0
_PEER_QUERY_SECONDS = 1.0
# The constant of the binding is a tuple, because of a stray comma.
_P2P_READ_INDEX = 0


def read_cards(max_seconds: float = 6.0) -> dict[str, Any]:
    """Return all `gpus`, in the driver's order; never raises, waits at most `max_seconds` for one, but hangs if all do.

    They have the fields of facts/types.py; so do the `gaps`. `driver_version` is as "580.95", `driver_cuda` as "13.0".
    Source: NVML API reference, through nvidia-ml-py, which loads `libnvidia-ml.so.1` from the system's search path.
    """
    end_time = monotonic() + max_seconds
    on_bus = pci.read_pci_cards()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _cards_report(
            gaps=[pci.nvml_failure_gap(_ERROR_KIND_BY_CODE.get(nvml_code(error), ""), str(error), on_bus)]
        )
    except MALFORMED_ANSWER_ERRORS as error:
        return _cards_report(gaps=[pci.nvml_failure_gap("", f"the NVML library is broken: {error}", on_bus)])
    threads: list[Thread] = []
    try:
        return _read_all_cards(on_bus, end_time, threads)
    finally:
        # Shutdown could wait for a running call.
        if not any(thread.is_alive() for thread in threads):
            with contextlib.suppress(pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
                pynvml.nvmlShutdown()


def _cards_report(
    gpus: Sequence[dict[str, Any]] = (),
    gaps: Sequence[FactGap] = (),
    driver: str | None = None,
    cuda: str | None = None,
) -> dict[str, Any]:
    named = [gap._asdict() for gap in gaps]
    return {"gpus": list(gpus), "gaps": named, "driver_version": driver, "driver_cuda": cuda}


def _read_all_cards(cards_on_bus: tuple[pci.PciCard, ...], end_time: float, threads: list[Thread]) -> dict[str, Any]:
    query = NvmlCardCalls()
    version, cuda = query(pynvml.nvmlSystemGetDriverVersion), query(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = str(version) if version else None
    driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda > 0 else None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except (pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS) as error:
        problem, remedy = "The NVIDIA driver cannot list its GPUs", "Check `nvidia-smi`; reboot."
        gap = FactGap(problem, str(error), remedy, hides=True)
        return _cards_report((), (gap,), driver, driver_cuda)
    gpus = [gpu for card in _query_cards(count, end_time, threads) for gpu in card.gpus()]
    _add_peers(gpus, end_time, threads)
    gaps = pci.unlisted_card_gaps(cards_on_bus, [gpu.get("pci_bus") for gpu in gpus])
    if not gpus and not gaps:
        gaps = (
            FactGap(
                "No NVIDIA GPU", "the NVIDIA driver is running, but lists no GPU", "Trainings run on the CPU here."
            ),
        )
    return _cards_report(gpus, gaps, driver, driver_cuda)


def _query_cards(count: int, end_time: float, threads: list[Thread]) -> list[CardBeingQueried]:
    """Return the cards, queried in parallel; those not complete in time are returned as they are."""
    cards = [CardBeingQueried(index) for index in range(count)]
    done: SimpleQueue[int] = SimpleQueue()

    def query_card(card: CardBeingQueried) -> None:
        card.query()
        done.put(card.index)

    for card in cards:
        threads.append(Thread(target=query_card, args=(card,), daemon=True))
        threads[-1].start()
    for answered in range(count):
        remaining = end_time - monotonic()
        try:
            done.get(timeout=max(0.0, min(remaining, _MAX_SECONDS_BETWEEN_CARDS) if answered else remaining))
        except Empty:
            break
    return cards


def _add_peers(gpus: Sequence[dict[str, Any]], end_time: float, threads: list[Thread]) -> None:
    """Give the cards their `peers`, if the driver reports all pairs in time."""
    indices = [gpu["index"] for gpu in gpus]
    if len(gpus) < 2 or len(set(indices)) < len(gpus) or any(gpu.get("problem") for gpu in gpus):
        return
    peers: dict[int, list[int]] = {}

    def read_pairs() -> None:
        with contextlib.suppress(pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
            links = {
                (first, second): NvmlCardCalls(handles[first])(
                    pynvml.nvmlDeviceGetP2PStatus, handles[second], _P2P_READ_INDEX
                )
                for first in range(len(handles))
                for second in range(first)
            }
            if None in links.values():
                return
            pairs = {frozenset(pair) for pair, status in links.items() if status == pynvml.NVML_P2P_STATUS_OK}
            by_index = {
                first: [second for second in indices if {first, second} in pairs and second != first]
                for first in indices
            }
            peers.update(by_index)

    threads.append(Thread(target=read_pairs, daemon=True))
    threads[-1].start()
    threads[-1].join(max(0.0, min(end_time - monotonic(), _PEER_QUERY_SECONDS)))
    for gpu in gpus:
        gpu["peers"] = peers.get(gpu["index"])

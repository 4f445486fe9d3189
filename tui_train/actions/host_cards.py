"""Asks several hosts side by side which of their GPUs are free."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

from msgspec import Struct

from tui_train.base.errors import TuiTrainError
from tui_train.facts.other_machines.remote import read_host_cards
from tui_train.facts.types import Facts
from tui_train.profile.hosts import host_address

_MAX_HOSTS_AT_ONCE = 32


class HostCards(Struct, frozen=True):
    """A host by its name and its GPUs with their users; without `facts`, the `problem` is why it did not answer."""

    host: str
    facts: Facts | None = None
    problem: str = ""


def read_cards_of_hosts(names: Iterable[str], is_cancelled: Callable[[], bool] = lambda: False) -> Iterator[HostCards]:
    """Yield each host as it answers, so that none waits for the slowest."""
    if not (asked := tuple(names)):
        return
    given_up = Event()

    def is_given_up() -> bool:
        return given_up.is_set() or is_cancelled()

    pool = ThreadPoolExecutor(min(_MAX_HOSTS_AT_ONCE, len(asked)))
    try:
        pending = [pool.submit(_read_cards_of_host, name, is_given_up) for name in asked]
        for answered in as_completed(pending):
            yield answered.result()
    finally:
        given_up.set()
        pool.shutdown(cancel_futures=True)


def _read_cards_of_host(name: str, is_cancelled: Callable[[], bool]) -> HostCards:
    """Return a host with its GPUs, or why it did not answer."""
    try:
        return HostCards(name, read_host_cards(host_address(name), is_cancelled))
    except TuiTrainError as error:
        return HostCards(name, problem=error.message)

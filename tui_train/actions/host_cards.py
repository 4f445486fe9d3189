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


def read_cards_of_hosts(names: Iterable[str]) -> Iterator[HostCards]:
    """Yield each host as it answers, so that none waits for the slowest."""
    if not (asked := tuple(names)):
        return
    given_up = Event()
    pool = ThreadPoolExecutor(min(_MAX_HOSTS_AT_ONCE, len(asked)))
    try:
        for answered in as_completed([pool.submit(read_cards_of_host, name, given_up.is_set) for name in asked]):
            yield answered.result()
    finally:
        given_up.set()
        pool.shutdown(cancel_futures=True)


def read_cards_of_host(name: str, is_cancelled: Callable[[], bool]) -> HostCards:
    """Return a host with its GPUs, or why it did not answer."""
    try:
        return HostCards(name, read_host_cards(host_address(name), is_cancelled))
    except TuiTrainError as error:
        return HostCards(name, problem=error.message)

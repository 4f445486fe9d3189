"""The host without its GPUs, as available to this process."""

import socket

from tui_train.facts.machine import logout
from tui_train.facts.types import Machine
from tui_train.runner.system.host_facts import read_host_facts
from tui_train.runner.system.safe_text import as_valid_utf8


def read_host() -> Machine:
    """Return this host without GPUs; never raises, unreadable fields are None or empty."""
    return Machine(**read_host_facts(), interfaces=_network_interfaces(), logout=logout.read_logout_effect())


def _network_interfaces() -> tuple[str, ...]:
    try:
        return tuple(sorted(as_valid_utf8(name) for _, name in socket.if_nameindex()))
    except OSError:
        return ()

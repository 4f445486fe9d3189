"""The host without its GPUs, as available to this process."""

import msgspec

from tui_train.facts.types import Machine
from tui_train.runner.system.host_facts import read_host_facts


def read_host() -> Machine:
    """Return this host without GPUs; never raises, unreadable fields are None or empty."""
    return msgspec.convert(read_host_facts(), Machine)

"""Runs a check on each machine of a training, and reports what is the same on several of them once."""

from collections.abc import Callable, Iterator
from functools import wraps

from msgspec.structs import replace

from tui_train.base.text import names_text
from tui_train.checks.finding import CheckFunction, Finding
from tui_train.setup.machine.training_machines import TrainingMachine, training_machines
from tui_train.setup.setup import Setup

_MAX_NAMED_HOSTS = 4


def on_each_machine(check: Callable[[Setup, TrainingMachine], Iterator[Finding]]) -> CheckFunction:
    """Make a check of one machine one of all machines of a training; where it has several hosts, they are named."""

    @wraps(check)
    def check_machines(setup: Setup) -> Iterator[Finding]:
        # A dict keeps their order; the parts of a card in MIG mode share its faults.
        hosts_by_finding: dict[Finding, dict[str, None]] = {}
        for each in training_machines(setup):
            for finding in check(setup, each):
                hosts_by_finding.setdefault(finding, {})[each.host] = None
        for finding, hosts in hosts_by_finding.items():
            if not any(hosts):
                yield finding
                continue
            message = f"{names_text([*hosts], _MAX_NAMED_HOSTS)}: {finding.message}"
            yield replace(finding, key="nodes.hosts", message=message)

    return check_machines

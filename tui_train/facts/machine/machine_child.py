"""Child program that reads this machine and its cards, and can be killed: `machine_child.py SECONDS`.

It prints one line of JSON: `machine`, and `cards` as their driver reports them, null where it does not answer in time.
A hanging driver cannot be interrupted from inside, so NVML is queried in threads that are abandoned. Types are left to
the reader: importing them would take most of the time.
"""

import json
import os
import sys
from threading import Thread
from typing import Any

from tui_train.runner.gpus import nvml
from tui_train.runner.system.host_facts import read_machine_facts

# The rest of the time is for reporting the cards that did respond.
_NVML_DEADLINE_SHARE = 0.8


def main(seconds: float) -> None:
    """Print what is read within so many seconds, and exit without waiting for the driver."""
    reports: list[dict[str, Any]] = []
    thread = Thread(target=lambda: reports.append(nvml.read_cards(seconds * _NVML_DEADLINE_SHARE)), daemon=True)
    thread.start()
    machine = read_machine_facts()
    thread.join(seconds)
    has_failed = not reports and not thread.is_alive()
    if not has_failed:
        sys.stdout.write(json.dumps({"machine": machine, "cards": reports[0] if reports else None}) + "\n")
        sys.stdout.flush()
    # A regular exit of Python could wait for locks of the abandoned thread.
    os._exit(has_failed)


if __name__ == "__main__":
    main(float(sys.argv[1]))

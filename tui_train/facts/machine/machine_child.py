"""Child program that reads the facts of this machine and can be killed: `machine_child.py SECONDS`.

It prints one Machine as JSON. A hanging driver cannot be interrupted from inside, so NVML is queried in threads that
are abandoned.
"""

import os
import sys
from threading import Thread

import msgspec

from tui_train.facts.gpus.reported_cards import CardReport, machine_with_cards
from tui_train.facts.machine import host
from tui_train.facts.types import FactGap, Machine
from tui_train.runner.gpus import nvml

# The rest of the time is for reporting the cards that did respond.
_NVML_DEADLINE_SHARE = 0.8


def driver_not_responding_gap(seconds: float) -> FactGap:
    """Return the Gap for a driver that did not respond for that many seconds."""
    return FactGap(
        "The NVIDIA driver does not respond",
        f"no answer for {seconds:.0f} s",
        "If `nvidia-smi` hangs too, find the GPU with `sudo dmesg | grep -i xid`, and reboot.",
        hides=True,
    )


def read_machine(deadline: float) -> Machine:
    """Return the host and its cards; without cards and with a Gap if NVML takes more than `deadline` seconds."""
    answers: list[CardReport] = []

    def read_cards() -> None:
        try:
            answers.append(msgspec.convert(nvml.read_cards(deadline * _NVML_DEADLINE_SHARE), CardReport))
        except Exception as error:  # noqa: BLE001  # the facts of the host do not depend on the driver
            why = f"{type(error).__name__}: {error}"
            gap = FactGap("The NVIDIA GPUs cannot be read", why, "Please report this.", hides=True)
            answers.append(CardReport(gaps=(gap,)))

    thread = Thread(target=read_cards, daemon=True)
    thread.start()
    this_host = host.read_host()
    thread.join(deadline)
    report = answers[0] if answers else CardReport(gaps=(driver_not_responding_gap(deadline),))
    return machine_with_cards(this_host, report)


def main() -> None:
    """Print the facts of the machine, and exit without waiting for the driver."""
    sys.stdout.buffer.write(msgspec.json.encode(read_machine(float(sys.argv[1]))) + b"\n")
    sys.stdout.buffer.flush()
    # A regular exit of Python could wait for locks of the abandoned thread.
    os._exit(0)


if __name__ == "__main__":
    main()

"""Child program that reads the facts of this machine and can be killed: `machine_child.py machine [SECONDS]`.

It prints one Machine as JSON. A hanging driver cannot be interrupted from inside, so NVML is queried in threads that
are abandoned.
"""

import os
import sys
from threading import Thread

import msgspec

from tui_train.facts.gpus import nvml
from tui_train.facts.gpus.capability import INTEGRATED_CAPABILITIES, capability_number
from tui_train.facts.machine.logout import read_logout_effect
from tui_train.facts.types import Gap, Gpu, Machine
from tui_train.runner.this_machine import read_this_machine

# The rest of the time is for reporting the cards that did respond.
_NVML_TIME_SHARE = 0.8


def no_response_gap(seconds: float) -> Gap:
    """Return the Gap for a driver that did not respond for that many seconds."""
    return Gap(
        "The NVIDIA driver does not respond",
        f"no answer for {seconds:.0f} s",
        "If `nvidia-smi` hangs too, find the GPU with `sudo dmesg | grep -i xid`, and reboot.",
        hides=True,
    )


def read_host() -> Machine:
    """Return this machine without GPUs."""
    return Machine(**read_this_machine(), logout=read_logout_effect())


def read_machine(deadline: float) -> Machine:
    """Return the host and its cards; without cards and with a Gap if NVML takes more than `deadline` seconds."""
    answers: list[nvml.NvmlReport] = []

    def read_cards() -> None:
        try:
            answers.append(nvml.read_cards(deadline * _NVML_TIME_SHARE))
        except Exception as error:  # noqa: BLE001  # the facts of the host do not depend on the driver
            why = f"{type(error).__name__}: {error}"
            gap = Gap("The NVIDIA GPUs cannot be read", why, "Please report this.", hides=True)
            answers.append(nvml.NvmlReport(gaps=(gap,)))

    thread = Thread(target=read_cards, daemon=True)
    thread.start()
    this_host = read_host()
    thread.join(deadline)
    cards = answers[0] if answers else nvml.NvmlReport(gaps=(no_response_gap(deadline),))
    return msgspec.structs.replace(
        this_host,
        gpus=tuple(_with_host_memory(gpu, this_host) for gpu in cards.gpus),
        gaps=cards.gaps,
        driver_version=cards.driver_version,
        driver_cuda=cards.driver_cuda,
    )


def _with_host_memory(gpu: Gpu, machine: Machine) -> Gpu:
    """Return an integrated card, whose memory the driver does not report, with the memory of the host."""
    if (
        gpu.memory_total is not None
        or gpu.problem
        or capability_number(gpu.compute_capability) not in INTEGRATED_CAPABILITIES
    ):
        return gpu
    memory = {"memory_total": machine.memory_total, "memory_free": machine.memory_available}
    return msgspec.structs.replace(gpu, shares_memory=True, **memory)


def main(arguments: list[str]) -> None:
    """Print the answer to `machine [SECONDS]`, and exit without waiting for the driver."""
    if not arguments or arguments[0] != "machine":
        sys.exit("usage: python -m tui_train.facts.machine.machine_child machine [SECONDS]")
    deadline = float(arguments[1]) if len(arguments) > 1 else 6.0
    sys.stdout.buffer.write(msgspec.json.encode(read_machine(deadline)) + b"\n")
    sys.stdout.buffer.flush()
    # A regular exit of Python could wait for locks of the abandoned thread.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

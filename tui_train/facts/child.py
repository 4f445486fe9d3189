"""The program that looks at this machine, in a process of its own that may be killed: `child.py machine [SECONDS]`.

It prints one Machine as JSON. A driver that hangs cannot be interrupted from within, so NVML is asked in threads that
are left behind.
"""

import os
import sys
from threading import Thread

import msgspec

from tui_train.facts import host, nvml
from tui_train.facts.capability import INTEGRATED, number
from tui_train.facts.types import Gap, Gpu, Machine

# The rest is for telling of those cards that did answer.
_SHARE = 0.8


def silent(seconds: float) -> Gap:
    """Return the Gap for a driver that gave no answer for that many seconds."""
    return Gap(
        "The NVIDIA driver does not answer",
        f"no answer for {seconds:.0f} s",
        "If `nvidia-smi` hangs as well, `sudo dmesg | grep -i xid` names the card; only a reboot helps.",
        hides=True,
    )


def machine(deadline: float) -> Machine:
    """Return the host and its cards; without cards and with a Gap if NVML takes more than `deadline` seconds."""
    answers: list[nvml.Cards] = []

    def ask() -> None:
        try:
            answers.append(nvml.read(deadline * _SHARE))
        except Exception as error:  # noqa: BLE001  # whatever the driver's library does, the host's facts are wanted
            why = f"{type(error).__name__}: {error}"
            gap = Gap("The NVIDIA cards cannot be read", why, "Please report this.", hides=True)
            answers.append(nvml.Cards(gaps=(gap,)))

    thread = Thread(target=ask, daemon=True)
    thread.start()
    found = host.read()
    thread.join(deadline)
    cards = answers[0] if answers else nvml.Cards(gaps=(silent(deadline),))
    return msgspec.structs.replace(
        found,
        gpus=tuple(_with_host_memory(gpu, found) for gpu in cards.gpus),
        gaps=cards.gaps,
        driver_version=cards.driver_version,
        driver_cuda=cards.driver_cuda,
    )


def _with_host_memory(gpu: Gpu, host: Machine) -> Gpu:
    """Return a card that is part of the processor's chip, of whose memory the driver does not tell, with the host's."""
    if gpu.memory_total is not None or gpu.problem or number(gpu.compute_capability) not in INTEGRATED:
        return gpu
    memory = {"memory_total": host.memory_total, "memory_free": host.memory_available}
    return msgspec.structs.replace(gpu, shares_memory=True, **memory)


def main(arguments: list[str]) -> None:
    """Answer `machine [SECONDS]` on stdout, and end without waiting for the driver."""
    if not arguments or arguments[0] != "machine":
        sys.exit("usage: python -m tui_train.facts.child machine [SECONDS]")
    deadline = float(arguments[1]) if len(arguments) > 1 else 6.0
    sys.stdout.buffer.write(msgspec.json.encode(machine(deadline)) + b"\n")
    sys.stdout.buffer.flush()
    # A regular end of Python may wait for what the thread left behind holds.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

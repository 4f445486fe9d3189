"""The energy that an attempt's cards draw, by a child that asks their driver; nothing of it holds a training up."""

from __future__ import annotations

import os
import re
import select
import signal
from typing import NamedTuple, Sequence

from ..system import other_programs, runner_command
from ..system.processes import NO_PROCESS, Process, process_with_pid, send_signal

_MAX_METER_ANSWER_BYTES = 100
_METER_ANSWER_SECONDS = 1.0  # seconds; a driver that hangs does not answer
_METER_ANSWER_PATTERN = re.compile(rb"(\d{1,12}(?:\.\d+)?) (\d{1,4})\n")


class EnergyMetering(NamedTuple):
    """A child that meters so many cards, and where its answer is read; `answer_descriptor` -1: there is none."""

    child: Process = NO_PROCESS
    answer_descriptor: int = -1
    cards: int = 0

    def finish(self) -> tuple[float, int] | None:
        """Return the joules and how many cards were metered, None if unknown; the child is gone after a second."""
        if self.answer_descriptor < 0:
            return None
        send_signal(self.child, signal.SIGTERM)
        # It writes its answer at once, or ends without one.
        ready = select.select([self.answer_descriptor], [], [], _METER_ANSWER_SECONDS)[0]
        match = _METER_ANSWER_PATTERN.fullmatch(
            os.read(self.answer_descriptor, _MAX_METER_ANSWER_BYTES) if ready else b""
        )
        self.kill()
        return (float(match[1]), int(match[2])) if match else None

    def kill(self) -> None:
        """End the child; one that hangs in a driver is left behind."""
        if self.answer_descriptor >= 0:
            os.close(self.answer_descriptor)
            # Whoever waits for all children may have collected it, and its number may be another's.
            if self.child.is_alive:
                other_programs.kill_process_group(self.child.pid)


def start_energy_metering(cards: Sequence[str]) -> EnergyMetering:
    """Begin to meter these cards; parts of one (MIG) have no meter of their own."""
    whole_cards = [card for card in cards if card.startswith("GPU-")]
    if not whole_cards:
        return EnergyMetering()
    try:
        pid, answer, errors = other_programs.spawn_program(
            runner_command.runner_command("meter", str(os.getpid()), *whole_cards), os.environ
        )
    except OSError:
        return EnergyMetering()
    os.close(errors)
    return EnergyMetering(process_with_pid(pid), answer, len(cards))

"""Waits for the GPUs or CPU cores of a run folder's plan in the queue, and holds them for whoever started this.

That one trains on them several times, one after the other, and nobody gets a turn between. What is in the way, and the
turn, are told in lines of JSON; the end of the input gives back what is held.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

from .queue.joining import join_queue_to_hold
from .queue.tickets import OwnTicket
from .run_folder.supervisor_plan import read_plan
from .system.signals import StopSignals
from .waiting import take_turn

_RENEW_SECONDS = 60.0


def hold_turn(run_dir: str, folder: str) -> int:
    """Wait for what the plan of a run folder needs, and hold it; others see the name of `folder`."""
    signals = StopSignals()
    own = join_queue_to_hold(read_plan(run_dir), folder)
    try:
        cards = take_turn(
            own, signals, lambda why: print(json.dumps({"why": why}), flush=True), lambda: _renew_or_stop(own)
        )
        if cards is not None:
            print(json.dumps({"turn": True}), flush=True)
        while not signals.stop:
            signals.wait(_RENEW_SECONDS, sys.stdin.fileno())
            _renew_or_stop(own)
    finally:
        own.release()
    return signals.code


def _renew_or_stop(own: OwnTicket) -> None:
    own.renew()
    if select.select([sys.stdin], [], [], 0)[0]:
        os.kill(os.getpid(), signal.SIGTERM)

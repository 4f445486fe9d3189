"""Samples of the cards once a second, from a child process that may hang or crash."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from time import monotonic

from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.facts.gpus.samples import NO_RESPONSE_PROBLEM, CardSamples, samples_with_problem
from tui_train.facts.machine.child_memory_limit import kill_and_close
from tui_train.facts.machine.child_process import CHILDREN_CANCELLED_EVENT, own_module_command_and_environment

# Seconds between checks for new samples and for cancellation.
_POLL_SECONDS = 0.1
_MAX_SECONDS_WITHOUT_SAMPLES = 5.0
# A driver that stopped may be back soon; one that was missing rarely appears, and starting a Python costs time.
_RESTART_DELAY_SECONDS = 10.0
_MISSING_DRIVER_RETRY_SECONDS = 60.0
_MAX_KILL_SECONDS = 1.0
# Bytes; a longer line is not a sample.
_MAX_LINE_BYTES = 2**20


def yield_changed_samples(is_cancelled: Callable[[], bool]) -> Iterator[CardSamples]:
    """Yield the samples of all cards whenever one changes, until cancelled or closed.

    Cards without a UUID are left out; without cards or a driver nothing is yielded.
    """
    child: _SamplerProcess | None = None
    last: CardSamples = ()
    last_time = monotonic()
    try:
        while not is_cancelled() and not CHILDREN_CANCELLED_EVENT.wait(_POLL_SECONDS):
            if child is None or child.should_restart():
                child = _SamplerProcess()
            newest = child.read_newest()
            if newest is not None:
                last_time = monotonic()
            elif monotonic() - last_time > _MAX_SECONDS_WITHOUT_SAMPLES:
                newest = samples_with_problem(last, NO_RESPONSE_PROBLEM)
            if newest is not None and newest != last:
                last = newest
                yield newest
    finally:
        if child is not None:
            child.kill()


class _SamplerProcess:
    """The sampling process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started = monotonic()
        self._has_sampled = False
        self._partial_line = b""
        command, changes = own_module_command_and_environment("tui_train.facts.gpus.sampler")
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **changes},
                cwd="/",
                start_new_session=True,
            )
        if self._process is not None and self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def read_newest(self) -> CardSamples | None:
        """Return the newest samples, None if there are no new ones; a process that has ended is cleaned up."""
        if self._process is None or self._process.stdout is None:
            return None
        piece: bytes | None = self._process.stdout.read(_MAX_LINE_BYTES)
        if piece is None:
            return None
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        if not piece or len(self._partial_line) > _MAX_LINE_BYTES:
            self.kill()
        # The driver's library may print lines of its own.
        for line in reversed(lines):
            with contextlib.suppress(Unparsable):
                now = parse_json_as(line, CardSamples)
                self._has_sampled = True
                return now
        return None

    def should_restart(self) -> bool:
        """Return whether the process has ended long enough ago to start another."""
        return self._process is None and monotonic() - self._started > (
            _RESTART_DELAY_SECONDS if self._has_sampled else _MISSING_DRIVER_RETRY_SECONDS
        )

    def kill(self) -> None:
        """Kill the process; one that hangs in a driver is left."""
        process, self._process = self._process, None
        if process is not None:
            kill_and_close(process, _MAX_KILL_SECONDS)

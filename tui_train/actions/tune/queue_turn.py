"""The place of a search in the queue of this machine: it waits before the first trial, and holds all until the last."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME

_POLL_SECONDS = 0.2
_MAX_END_SECONDS = 10


class QueueTurn:
    """A process of the runner that waits for what the plan in a run folder needs, and holds it until `close`.

    Other users see the name of the folder around it.
    """

    def __init__(self, run: Path) -> None:
        """Join the queue."""
        words = [sys.executable, "-I", "-S", "-X", "utf8", str(run / RUNNER_ZIP_FILE_NAME), "hold", str(run.parent)]
        self._run = run
        # A Ctrl-C in the terminal is for this program, which then leaves the queue.
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    def wait(self, cancelled: Callable[[], bool]) -> Iterator[str]:
        """Yield what is in the way, each time that it changes, until it is its turn; Unavailable without a queue."""
        assert self._process.stdout and self._process.stderr, "both are pipes"  # noqa: S101, PT018
        said, output = b"", self._process.stdout.fileno()
        while not cancelled():
            if not select.select([output], [], [], _POLL_SECONDS)[0]:
                continue
            if not (piece := os.read(output, 1 << 16)):
                why = self._process.stderr.read().decode(errors="replace").strip().removeprefix("launch.sh: ")
                raise Unavailable(visible(why) or "the wait in the queue was ended", "See docs/queue.md.")
            *lines, said = (said + piece).split(b"\n")
            for told in map(json.loads, lines):
                if "turn" in told:
                    return
                yield visible(told["why"])

    def close(self) -> None:
        """Leave the queue, and give back what was held."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_MAX_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._run, ignore_errors=True)

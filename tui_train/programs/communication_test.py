"""Test of the communication between a training's processes: each collective once, timed, with a time limit.

Each process prints what it has done as lines that begin with _LINE_PREFIX, the rest JSON; one that waits longer than it
may says for what, and ends.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_LINE_PREFIX = "tui-train communication: "
_SMALL_ELEMENT_COUNT = 1024
_LARGE_ELEMENT_COUNT = 25 << 20  # 100 MiB of fp32
_MAX_TIMED_REPEATS = 5
_MAX_TIMED_SECONDS = 1.0
# Processes start apart from each other, and libraries are loaded from slow disks; then NCCL looks for its ways.
_STAGE_SECONDS = 8.0
# The large exchange may take ten seconds over a slow network.
_SECONDS_BY_STAGE = {"device": 20.0, "process group": 20.0, "first exchange": 10.0, "all_reduce": 30.0}
_SECONDS_FOR_OTHERS = 1.0


def print_stage(rank: int, stage: str, **values: Any) -> None:
    """Print a line about a stage: `seconds` it took, or the `problem` in it."""
    sys.stdout.write(_LINE_PREFIX + json.dumps({"rank": rank, "stage": stage, **values}) + "\n")
    sys.stdout.flush()


class Deadline:
    """Ends the process where a stage takes longer than it may: a call that hangs cannot be interrupted."""

    def __init__(self, rank: int) -> None:
        self._rank, self._stage, self._until = rank, "", math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    def begin_stage(self, stage: str, seconds: float) -> None:
        """Begin a stage."""
        self._stage, self._until = stage, time.monotonic() + seconds

    def _watch(self) -> None:
        while True:
            time.sleep(0.1)
            if time.monotonic() > self._until:
                print_stage(self._rank, self._stage, problem="no answer", hangs=True)
                # The end of one ends the others: first each is to say that it waits too.
                time.sleep(_SECONDS_FOR_OTHERS)
                os._exit(1)


class CommunicationTest:
    """The stages of one process, on its device."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.distributed = torch, torch.distributed
        self.rank, self.world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.deadline = Deadline(self.rank)
        self.device = torch.device("cpu")

    def run(self) -> None:
        """Do the stages in their order."""
        stages: list[tuple[str, Callable[[], dict[str, Any] | None]]] = [("device", self.use_device)]
        if self.world_size > 1:
            stages += [
                ("process group", self.join_process_group),
                ("first exchange", self.all_reduce_small),
                ("all_reduce", self.all_reduce_large),
                ("broadcast", self.broadcast),
                ("all_gather", self.all_gather_small),
                ("barrier", self.distributed.barrier),
            ]
        for stage, work in stages:
            self.deadline.begin_stage(stage, _SECONDS_BY_STAGE.get(stage, _STAGE_SECONDS))
            began = time.perf_counter()
            try:
                values = work() or {}
                self.wait_for_device()
            except Exception as error:
                lines = str(error).strip().splitlines()
                print_stage(self.rank, stage, problem=f"{type(error).__name__}: {lines[0] if lines else ''}"[:500])
                raise
            print_stage(self.rank, stage, seconds=time.perf_counter() - began, **values)
        if self.world_size > 1:
            self.deadline.begin_stage("end", _STAGE_SECONDS)
            self.distributed.destroy_process_group()

    def wait_for_device(self) -> None:
        """Wait until the device has done what it was asked for."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def use_device(self) -> dict[str, Any]:
        """Compute on the device of this process; return its name, and its UUID where torch tells it."""
        torch = self.torch
        if not torch.cuda.is_available():
            self.check_values(torch.ones(2, 2) @ torch.ones(2, 2), 2.0)
            return {"device": "cpu"}
        number = int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(number)
        self.device = torch.device("cuda", number)
        self.check_values(torch.ones(2, 2, device=self.device) @ torch.ones(2, 2, device=self.device), 2.0)
        about = torch.cuda.get_device_properties(number)
        uuid = str(getattr(about, "uuid", ""))
        return {"device": about.name, "uuid": uuid if uuid.startswith("GPU-") or not uuid else f"GPU-{uuid}"}

    def join_process_group(self) -> dict[str, Any]:
        """Join the process group."""
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        self.distributed.init_process_group(backend, timeout=dt.timedelta(minutes=1))
        return {"backend": self.distributed.get_backend()}

    def filled_tensor(self, count: int, value: float) -> Any:
        """Return so many equal numbers on the device."""
        return self.torch.full((count,), float(value), device=self.device)

    def check_values(self, tensor: Any, expected: float) -> None:
        """Raise where the first or last number is another one."""
        ends = tensor.flatten()[[0, -1]].tolist()
        if ends != [expected, expected]:
            raise RuntimeError(f"wrong result: {ends[0]} and {ends[1]} instead of {expected}")

    def all_reduce_small(self) -> None:
        """All-reduce a few numbers."""
        numbers = self.filled_tensor(_SMALL_ELEMENT_COUNT, self.rank + 1)
        self.distributed.all_reduce(numbers)
        self.check_values(numbers, self.world_size * (self.world_size + 1) / 2)

    def all_reduce_large(self) -> dict[str, Any]:
        """All-reduce 100 MiB, repeated for up to a second; return the bytes per second of the fastest."""
        times: list[float] = []
        zeros = self.filled_tensor(_LARGE_ELEMENT_COUNT, 0)
        while len(times) < _MAX_TIMED_REPEATS:
            began = time.perf_counter()
            self.distributed.all_reduce(zeros)
            self.wait_for_device()
            times.append(time.perf_counter() - began)
            # All processes must stop together.
            late = self.filled_tensor(1, sum(times) > _MAX_TIMED_SECONDS)
            self.distributed.all_reduce(late)
            if late.item():
                break
        self.check_values(zeros, 0.0)
        return {"bytes_per_second": 4 * _LARGE_ELEMENT_COUNT / min(times)}

    def broadcast(self) -> None:
        """Send numbers of the first process to all."""
        numbers = self.filled_tensor(_SMALL_ELEMENT_COUNT, 7 if self.rank == 0 else 0)
        self.distributed.broadcast(numbers, src=0)
        self.check_values(numbers, 7.0)

    def all_gather_small(self) -> None:
        """All-gather a few numbers."""
        parts = [self.filled_tensor(_SMALL_ELEMENT_COUNT, 0) for _ in range(self.world_size)]
        self.distributed.all_gather(parts, self.filled_tensor(_SMALL_ELEMENT_COUNT, self.rank))
        for rank, part in enumerate(parts):
            self.check_values(part, float(rank))


def main() -> None:
    """Test, in the environment that a launcher sets."""
    import torch
    import torch.distributed

    CommunicationTest(torch).run()


if __name__ == "__main__":
    main()

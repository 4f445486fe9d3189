"""How the processes of a training exchange data: each kind of exchange once, timed, and none waited for too long.

Each process prints what it has done as lines that begin with _MARK, the rest JSON; one that waits longer than it may
says for what, and ends.
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

_MARK = "tui-train communication: "
_SMALL_ELEMENT_COUNT = 1024
_LARGE_ELEMENT_COUNT = 25 << 20  # 100 MiB of fp32
_MAX_TIMED_REPEATS = 5
_MAX_TIMED_SECONDS = 1.0
# Processes start apart from each other, and libraries are loaded from slow disks; then NCCL looks for its ways.
_STAGE_SECONDS = 8.0
# The large exchange may take ten seconds over a slow network.
_SECONDS_BY_STAGE = {"device": 20.0, "process group": 20.0, "first exchange": 10.0, "all_reduce": 30.0}


def print_stage(rank: int, stage: str, **values: Any) -> None:
    """Print a line about a stage: `seconds` it took, or the `problem` in it."""
    sys.stdout.write(_MARK + json.dumps({"rank": rank, "stage": stage, **values}) + "\n")
    sys.stdout.flush()


class Deadline:
    """Ends the process where a stage takes longer than it may: a call that hangs cannot be interrupted."""

    def __init__(self, rank: int) -> None:
        self._rank, self._stage, self._until = rank, "", math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, stage: str, seconds: float) -> None:
        """Begin a stage."""
        self._stage, self._until = stage, time.monotonic() + seconds

    def _watch(self) -> None:
        while True:
            time.sleep(0.1)
            if time.monotonic() > self._until:
                print_stage(self._rank, self._stage, problem="no answer", hangs=True)
                os._exit(1)


class Test:
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
                ("process group", self.join),
                ("first exchange", self.add_small),
                ("all_reduce", self.add_large),
                ("broadcast", self.broadcast),
                ("all_gather", self.gather),
                ("barrier", self.distributed.barrier),
            ]
        for stage, work in stages:
            self.deadline.begin(stage, _SECONDS_BY_STAGE.get(stage, _STAGE_SECONDS))
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
            self.deadline.begin("end", _STAGE_SECONDS)
            self.distributed.destroy_process_group()

    def wait_for_device(self) -> None:
        """Wait until the device has done what it was asked for."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def use_device(self) -> dict[str, Any]:
        """Compute on the device of this process; return its name, and its UUID where torch tells it."""
        torch = self.torch
        if not torch.cuda.is_available():
            self.check(torch.ones(2, 2) @ torch.ones(2, 2), 2.0)
            return {"device": "cpu"}
        number = int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(number)
        self.device = torch.device("cuda", number)
        self.check(torch.ones(2, 2, device=self.device) @ torch.ones(2, 2, device=self.device), 2.0)
        about = torch.cuda.get_device_properties(number)
        uuid = str(getattr(about, "uuid", ""))
        return {"device": about.name, "uuid": uuid if uuid.startswith("GPU-") or not uuid else f"GPU-{uuid}"}

    def join(self) -> dict[str, Any]:
        """Meet the other processes."""
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        self.distributed.init_process_group(backend, timeout=dt.timedelta(minutes=1))
        return {"backend": self.distributed.get_backend()}

    def tensor(self, count: int, value: float) -> Any:
        """Return so many equal numbers on the device."""
        return self.torch.full((count,), float(value), device=self.device)

    def check(self, tensor: Any, expected: float) -> None:
        """Raise where the first or last number is another one."""
        ends = tensor.flatten()[[0, -1]].tolist()
        if ends != [expected, expected]:
            raise RuntimeError(f"wrong result: {ends[0]} and {ends[1]} instead of {expected}")

    def add_small(self) -> None:
        """Add a few numbers of all processes."""
        numbers = self.tensor(_SMALL_ELEMENT_COUNT, self.rank + 1)
        self.distributed.all_reduce(numbers)
        self.check(numbers, self.world_size * (self.world_size + 1) / 2)

    def add_large(self) -> dict[str, Any]:
        """Add 100 MiB of all processes, again while a second has room for it; return the bytes a second of the best."""
        times: list[float] = []
        zeros = self.tensor(_LARGE_ELEMENT_COUNT, 0)
        while len(times) < _MAX_TIMED_REPEATS:
            began = time.perf_counter()
            self.distributed.all_reduce(zeros)
            self.wait_for_device()
            times.append(time.perf_counter() - began)
            # All processes must stop together.
            late = self.tensor(1, sum(times) > _MAX_TIMED_SECONDS)
            self.distributed.all_reduce(late)
            if late.item():
                break
        self.check(zeros, 0.0)
        return {"bytes_per_second": 4 * _LARGE_ELEMENT_COUNT / min(times)}

    def broadcast(self) -> None:
        """Send numbers of the first process to all."""
        numbers = self.tensor(_SMALL_ELEMENT_COUNT, 7 if self.rank == 0 else 0)
        self.distributed.broadcast(numbers, src=0)
        self.check(numbers, 7.0)

    def gather(self) -> None:
        """Bring the numbers of all processes to each."""
        parts = [self.tensor(_SMALL_ELEMENT_COUNT, 0) for _ in range(self.world_size)]
        self.distributed.all_gather(parts, self.tensor(_SMALL_ELEMENT_COUNT, self.rank))
        for rank, part in enumerate(parts):
            self.check(part, float(rank))


def main() -> None:
    """Test, in the environment that a launcher sets."""
    import torch
    import torch.distributed

    Test(torch).run()


if __name__ == "__main__":
    main()

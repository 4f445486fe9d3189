"""Helpers to drive the screens by Textual's pilot: machines and runs to show, keys, and waiting."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from support import GIB, UUIDS, prepare, start_folder_holder
from textual.pilot import Pilot
from textual.widgets import Input
from textual.worker import WorkerFailed, WorkerState
from tui_train.screens.widgets.form.form import Form

from tui_train.base.errors import TuiTrainError
from tui_train.facts.types import ContainerEngine, FactGap, Facts, Gpu, GpuProcess, Machine, Toolchain
from tui_train.profile.types import Profile
from tui_train.runner.gpus import pci
from tui_train.runs import run_folders
from tui_train.wizard import make_wizard

MACHINE_WITHOUT_CARDS = Machine(
    hostname="gpu-box",
    cpu_name="AMD Ryzen 9 5950X",
    cpu_count=16,
    memory_total=64 * GIB,
    memory_available=60 * GIB,
    shm_total=32 * GIB,
    shm_free=32 * GIB,
)
# In a container it would say so.
with patch.object(pci, "is_in_container", return_value=False):
    CPU_MACHINE = msgspec.structs.replace(
        MACHINE_WITHOUT_CARDS, gaps=(FactGap(*pci.nvml_failure_gap("library", "", ())),)
    )
THREE_CARDS = (
    Gpu(index=0, uuid=UUIDS[0], name="NVIDIA GeForce RTX 3090", pci_bus="00000000:01:00.0", compute_capability="8.6",
        memory_total=24 * GIB, memory_free=23 * GIB, sm_count=82, display_active=False),
    Gpu(index=1, uuid="GPU-addf6be6-9a6e-c331-da9e-b0ab90813984", name="NVIDIA GeForce GT 1030",
        pci_bus="00000000:03:00.0", compute_capability="6.1", memory_total=2 * GIB, memory_free=1 * GIB, sm_count=3,
        display_active=True, processes=(GpuProcess(900, "/usr/lib/xorg/Xorg", "root", 200 * 2**20, graphics=True),)),
    Gpu(index=2, uuid=UUIDS[1], name="NVIDIA GeForce RTX 3090", pci_bus="00000000:04:00.0", compute_capability="8.6",
        memory_total=24 * GIB, memory_free=23 * GIB, sm_count=82, display_active=False),
)  # fmt: skip
THREE_CARD_MACHINE = msgspec.structs.replace(
    MACHINE_WITHOUT_CARDS, driver_version="580.95.05", driver_cuda="13.0", gpus=THREE_CARDS
)
CUDA_PYTHON = Toolchain(
    python="/opt/train/bin/python",
    label="active conda env (train)",
    version="3.11.9",
    torch="2.7.1+cu126",
    cuda="12.6",
    arch_list=("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
    accelerate="1.15.0",
    transformers="5.23.0",
)
BARE_PYTHON = Toolchain(python="/usr/bin/python3", label="PATH", version="3.11.2")
DOCKER_ENGINE = ContainerEngine(name="docker", version="28.2.2", gpus=True, images=("nvcr.io/nvidia/nemo:25.04",))
UserActions = Callable[[Pilot[Any]], Awaitable[None]]
# Among the keys of `press_keys`: Home opens Hardware with a profile's defaults, which pretrain a small model.
PRETRAIN_KEY = "pretrain"


async def until_true(
    pilot: Pilot[Any],
    condition: Callable[[], object],
    seconds: float = 60.0,
    why: Callable[[], str] = lambda: "it is not so",
) -> None:
    """Wait until a condition holds, and fail with the reason and the screen if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds:g} s {why()}:\n{screen_text(pilot)}")
        await pilot.pause(0.02)


async def wait_for_workers(
    pilot: Pilot[Any], seconds: float = 60.0, *, faults: bool = False, refused: bool = False
) -> None:
    """Wait until every worker has reported, also one that another started, and that is drawn.

    One that gives way to a newer question has finished as well; one that fails raises WorkerFailed, but for `faults`,
    and where it may be `refused`, in words that the screen shows.
    """
    deadline = time.monotonic() + seconds
    still = 0
    while still < 2:
        await pilot.pause()
        going = [worker for worker in pilot.app.workers if not worker.is_finished]
        still = 0 if going else still + 1
        if going and time.monotonic() > deadline:
            pytest.fail(f"after {seconds:g} s still at work: {unfinished_workers(pilot)}\n{screen_text(pilot)}")
        for worker in going:
            while not worker.is_finished:
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.005)
            expected = faults or (refused and isinstance(worker.error, TuiTrainError))
            if worker.state is WorkerState.ERROR and worker.error and not expected:
                raise WorkerFailed(worker.error)
    await pilot.pause()


def unfinished_workers(pilot: Pilot[Any], *but: str) -> list[str]:
    """Return the workers that are still at work, but for some groups of them."""
    return [
        f"{each.group}: {each.name}" for each in pilot.app.workers if not each.is_finished and each.group not in but
    ]


@contextlib.asynccontextmanager
async def on_result(
    run: run_folders.RunFolder, words: str, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Pilot[Any]]:
    """Open the wizard on a run, and go on to its result."""
    async with make_wizard(str(run.path)).run_test(size=size) as pilot:
        await wait_for_text(pilot, "Enter result")
        await pilot.press("enter")
        await wait_for_text(pilot, words)
        yield pilot


def press_keys(*pressed: str) -> UserActions:
    """Return a user who presses keys, and waits after each."""

    async def user(pilot: Pilot[Any]) -> None:
        await wait_for_workers(pilot)
        for key in pressed:
            if key == PRETRAIN_KEY:
                home: Any = pilot.app.screen
                home.open_step_with_profile(Profile(), save_as_draft=False)
            else:
                await pilot.press(key)
            await wait_for_workers(pilot)
        for entry in pilot.app.screen.query(Input):
            entry.cursor_blink = False
        await pilot.pause()

    return user


async def go_to_fields(pilot: Pilot[Any], *stops: str) -> None:
    """Go down to fields, each by its key; a group among them is opened."""
    for stop in stops:
        form = pilot.app.screen.query_one(Form)
        for _ in range(60):
            if form.cursor == stop:
                break
            await pilot.press("down")
            await pilot.pause()
        assert form.cursor == stop
        if stop not in {*(row.key for row in form.state.rows), *form.state.unfolded}:
            await pilot.press("space")
            await wait_for_workers(pilot)


def screen_text(pilot: Pilot[Any]) -> str:
    """Return the text on the screen."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in lines)


# What watches for as long as its screen is there.
WATCHING_GROUPS = {"watch", "listen", "home", "hosts", "live", "talk"}


async def wait_for_step(pilot: Pilot[Any], step: str) -> None:
    """Wait until a step is shown and the machine is known."""
    app: Any = pilot.app
    await until_true(
        pilot,
        lambda: type(app.screen).__name__ == f"{step}Screen" and not app.awaited_parts,
        why=lambda: f"{step} is not shown, or still reads {app.awaited_parts}",
    )
    await wait_for_workers(pilot)


async def wait_for_text(pilot: Pilot[Any], *words: str, seconds: float = 30.0, during: bool = False) -> None:
    """Wait until some words are on the screen, for what is read beside them, and until nothing changes any more.

    With `during` the words alone are waited for, which are there while a worker is at work.
    """

    def missing() -> list[str]:
        return [each for each in words if each not in screen_text(pilot)]

    def going() -> list[str]:
        return unfinished_workers(pilot, *WATCHING_GROUPS)

    def still() -> bool:
        nonlocal before
        last, before = before, screen_text(pilot)
        return last == before

    before = ""
    await until_true(pilot, lambda: not missing(), seconds, lambda: f"{missing()} is not shown")
    if during:
        return
    await until_true(pilot, lambda: not going(), seconds, lambda: f"still at work: {going()}")
    # What follows from it is drawn in the frames after it.
    await until_true(pilot, still, seconds, lambda: "it still changes")


def finished_run(tmp_path: Path, *, state: str = "finished", code: int = 0, why: str = "") -> run_folders.RunFolder:
    """Return the folder of a run that ended long ago, after an out-of-memory on its first attempt."""
    facts = Facts(machine=MACHINE_WITHOUT_CARDS, toolchains=(CUDA_PYTHON,))
    prepared = prepare(Profile(), facts)
    made = run_folders.create_run_folder("quickstart", prepared.files)
    run = run_folders.RunFolder(made.path.rename(made.path.parent / "20260101-120000-quickstart"))
    events = [
        {"time": 1000.0, "event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"},
        {"time": 1000.1, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 1020.0, "event": "attempt_ended", "attempt": 1, "exit_code": 1, "out_of_memory": True},
        {"time": 1020.1, "event": "attempt_started", "attempt": 2, "position": 2},
        {"time": 1085.0, "event": "attempt_ended", "attempt": 2, "exit_code": code},
        {"time": 1085.0, "event": "run_ended", "state": state, "exit_code": code, "why": why},
    ]
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)))
    run.attempt_log(1).write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    lines = [f"step {n}/60 | loss {1 + 4 / n:.7f} | lr 1.000e-03 | grad_norm 1.0 | tokens/s 9000" for n in range(1, 61)]
    lines.insert(20, "[bold]no markup[/] \x1b[31mred\x1b[0m \x1b[2J \x07 中文")
    run.attempt_log(2).write_text("\n".join(lines) + "\n")
    return run


def live_run(tmp_path: Path) -> run_folders.RunFolder:
    """Return the folder of a run that was started again, by a process that lives."""
    run = finished_run(tmp_path)
    event = {"time": 2000.0, "event": "run_started", **start_folder_holder(run.path)}
    run.events_file.write_bytes(run.events_file.read_bytes() + b"\n" + msgspec.json.encode(event))
    return run


def out_of_memory_run(tmp_path: Path) -> run_folders.RunFolder:
    """Return the folder of a run whose last attempt ended in this as well."""
    run = finished_run(tmp_path, state="failed", code=1, why="the plan has no further fallback")
    with run.attempt_log(2).open("a") as log:
        log.write("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    return run


@contextlib.asynccontextmanager
async def open_wizard(
    *pressed: str, run: run_folders.RunFolder | None = None, size: tuple[int, int] = (80, 24), **more: Any
) -> AsyncIterator[Pilot[Any]]:
    """Open the wizard, on a run where one is given, and press keys, each of which has its effect before the next."""
    async with make_wizard(str(run.path) if run else "").run_test(size=size, **more) as pilot:
        await press_keys(*pressed)(pilot)
        yield pilot

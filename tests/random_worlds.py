"""Random worlds for the wizard: a machine with or without cards, profiles and runs, in folders of their own."""

import contextlib
import functools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec
import pytest
from fake_driver import driver_environment
from pilot import CPU_MACHINE, CUDA_PYTHON, DOCKER_ENGINE, THREE_CARD_MACHINE, finished_run
from support import HOSTILE_VALUES, make_stub, profile

from tui_train.actions.last_profile import remember_profile_without_secrets
from tui_train.base.errors import CannotWrite, TuiTrainError
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import CardSample, CardSamples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.other_machines import machine_files
from tui_train.facts.types import Facts, Machine, Toolchain
from tui_train.places.place import Place
from tui_train.profile import store
from tui_train.runner.system.processes import machine_boot_id, process_start_ticks
from tui_train.runs import run_folders

_MACHINE_NAMES = ("seed-3090-gt1030-3090", "two-3090", "strange-names", "64-cards", "one-card-lost", "no-cards")
_LOGS = (
    "",
    "".join(f"step {n}/60 | loss {1 + 4 / n:.7f} | lr 1.000e-03 | tokens/s 9000\n" for n in range(1, 61)),
    "\n".join(HOSTILE_VALUES) * 20,
    "a" * 100_000 + "\n" + "[rank1]: 中文 \x1b[31mred\x1b[0m \x1b[2J\n" * 500,
    "step 1/9 | loss nan\nstep 2/9 | loss inf\nstep 3/9 | loss 1e308\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n",
    f"step {'9' * 400}/{'9' * 400} | loss {'9' * 400} | lr 1e-{'9' * 400} | tokens/s {'9' * 400}\n" * 3,
    f"step 1/9 | loss 2.0\nstep {'9' * 400}/9 | loss -1e{'9' * 400}\n step 3/{'9' * 400} | loss 1.0\n",
    "\r".join(f" {n}%|###   | {n}/100 [00:{n:02}<99:59, 1.00s/it]" for n in range(100)),
    f"\r 17%|## | {'9' * 400}/{'9' * 400} [{'9' * 400}:01<00:01, {'9' * 400}.51it/s]" * 40,
    "x" * 300_000,
)
# What may lie in the place of any file of a run: what it holds, or what makes it.
_DEEPLY_NESTED = b"[" * 5000
_START_EVENT_LINE = b'{"time":1700000000,"event":"run_started","pid":1}\n'
_DAMAGE_BY_NAME: dict[str, bytes | Callable[[Path], object]] = {
    "empty": b"",
    "bytes": b'\xff\xfe\x00\xed\xa0\x80{"time":1,"event":"\xff"}\n' * 30,
    "deep": _DEEPLY_NESTED + b"\n",
    "deep inside": b'{"time":1,"event":"a","x":' + _DEEPLY_NESTED + b"\n",
    "torn": _START_EVENT_LINE + b'{"time":1700000009,"event":"attempt_sta',
    "digits": _START_EVENT_LINE.replace(b"1700000000", b"9" * 400)
    + _START_EVENT_LINE.replace(b":1}", b":" + b"9" * 400 + b"}"),
    "other types": b'{"time":"x","event":7}\n{"attempts":{},"gpus":7,"log":[1],"nodes":"x","output":[]}\n[]\n',
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "no rights": lambda path: (path.write_bytes(_START_EVENT_LINE), path.chmod(0)),
    "loop": lambda path: path.symlink_to(path),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "gone": lambda path: None,
}


class World(NamedTuple):
    """Arguments that the wizard is opened with, the terminal's first size, and how much is animated."""

    run: str
    place: Place | None
    size: tuple[int, int]
    animations: str

    def arguments(self) -> tuple[str, Place | None]:
        return self.run, self.place


@functools.cache
def read_machine(name: str) -> Machine:
    """Return what the real probe reads from a machine's driver, in a process of its own."""
    code = "import msgspec\nfrom tui_train.facts.machine import probe\n"
    code += "print(msgspec.json.encode(probe.probe_machine()).decode())"
    try:
        environment = driver_environment(name)
    except pytest.skip.Exception:
        return THREE_CARD_MACHINE  # no compiler here
    command = [sys.executable, "-c", code]
    root = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env={**os.environ, **environment, **root}, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Machine)


@contextlib.contextmanager
def make_world(seed: int, folder: Path) -> Iterator[World]:
    """Make what belongs to a seed, for as long as the wizard is used there."""
    chance = random.Random(f"world {seed}")
    name = chance.choices(_MACHINE_NAMES, (10, 10, 10, 1, 10, 10))[0]
    machine = CPU_MACHINE if chance.random() < 0.4 else read_machine(name)
    fake = make_stub(folder / "python")
    tools = (
        msgspec.structs.replace(CUDA_PYTHON, python=str(fake)),
        Toolchain(python="/nowhere/python3", version="3.11.2"),
    )
    variables = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    variables |= {
        "HOME": str(folder),
        "STUB_NOTES": str(folder / "notes"),
        "STUB_CODE": chance.choice("01"),
        "STUB_SAYS": chance.choice(("step 1/4 | loss 2.0", "torch.OutOfMemoryError: CUDA out of memory.")),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, variables))
        for target, name, value in (
            (probe, "probe_machine", lambda *_args, **_named: machine),
            (probe, "probe_toolchains", lambda *_args, **_named: tools if chance.random() < 0.8 else tools[1:]),
            (container_images, "read_engines", lambda: (DOCKER_ENGINE,)),
            (live_samples, "yield_changed_samples", _random_card_samples(machine, random.Random(seed))),
            (run_folders, "export_plan_files", _export_only_inside(folder)),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(contextlib.chdir(folder) if sys.version_info >= (3, 11) else _working_directory(folder))
        _save_random_profiles(chance, folder)
        runs = _make_random_runs(chance, folder, stack)
        machine_files.save_machine_file(
            folder / "machine.json", Facts(machine=THREE_CARD_MACHINE, toolchains=(CUDA_PYTHON,))
        )
        place = Place(machine_file=folder / "machine.json") if chance.random() < 0.05 else None
        yield World(
            run=str(chance.choice(runs).path) if runs and chance.random() < 0.3 else "",
            place=place,
            size=(chance.choice((20, 80, 120, 200)), chance.choice((5, 24, 40, 60))),
            animations=chance.choice(("none", "full")),
        )


@contextlib.contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _export_only_inside(folder: Path) -> Callable[..., None]:
    """Return an export that refuses what lies elsewhere: a random path may be anywhere."""
    export = run_folders.export_plan_files

    def fenced(target: Path, *arguments: object, **named: object) -> None:
        if not Path(os.path.normpath(target)).is_relative_to(folder):
            raise CannotWrite("this is not a folder of the test", "Choose another one.")
        export(target, *arguments, **named)  # type: ignore[arg-type]

    return fenced


def _random_card_samples(
    machine: Machine, chance: random.Random
) -> Callable[[Callable[[], bool]], Iterator[CardSamples]]:
    def samples(cancelled: Callable[[], bool]) -> Iterator[CardSamples]:
        while not cancelled():
            yield tuple(
                CardSample(
                    uuid=gpu.uuid,
                    memory_free=chance.randrange(1 << 34),
                    utilization=chance.choice((None, 0, 97)),
                    problem=chance.choice(("", "", "", "it has fallen off the bus [b]\x1b[2J")),
                )
                for gpu in machine.gpus
            )
            for _ in range(10):
                # As often as real cards are sampled.
                if not cancelled():
                    time.sleep(0.1)

    return samples


def _save_random_profiles(chance: random.Random, folder: Path) -> None:
    script = folder / "train.py"
    script.write_text("import argparse\n")
    images_of = {"container.engine": "docker", "container.image": DOCKER_ENGINE.images[0]}
    kinds: tuple[dict[str, object], ...] = (
        {},
        {"trainer.kind": "script", "trainer.script": str(script)},
        {"trainer.kind": "script", "trainer.script": "/nowhere.py", "trainer.arguments": HOSTILE_VALUES[:20]},
        {"trainer.kind": "nemo"},
        {"trainer.kind": "nemo", "trainer.data": ("text.txt",), "nemo.tokenizer": "/tokenizer"},
        images_of,
        {"hardware.device": "cpu", "recipe.micro_batch": 3, "recipe.global_batch": 7},
        {"nodes.count": 2, "nodes.address": "host"},
    )
    for number in range(chance.choice((0, 2, 40))):
        with contextlib.suppress(TuiTrainError):
            store.save_profile(profile({"name": f"mine-{number}", **chance.choice(kinds)}))
    if chance.random() < 0.5:
        with contextlib.suppress(TuiTrainError):
            remember_profile_without_secrets(profile(chance.choice(kinds)))


def _make_random_runs(chance: random.Random, folder: Path, stack: contextlib.ExitStack) -> list[run_folders.RunFolder]:
    made = []
    for number in range(chance.choice((0, 1, 3))):
        state, code = chance.choice((("finished", 0), ("failed", 1)))
        run = finished_run(folder, state=state, code=code)
        run = run_folders.RunFolder(run.path.rename(run.path.with_name(f"2026010{number + 1}-120000-run")))
        run.attempt_log(2).write_text(chance.choice(_LOGS))
        if chance.random() < 0.4:
            _attach_live_process(run, stack)
        if chance.random() < 0.5:
            _damage_run_files(chance, run)
        made.append(run)
    return made


def _damage_run_files(chance: random.Random, run: run_folders.RunFolder) -> None:
    """Let something else be in the place of some files of a run; which stay so, whoever looks at them."""
    places = (run.events_file, run.plan_file, run.profile_file, run.attempt_log(1), run.attempt_log(2), run.launch_log)
    for path in chance.sample(places, chance.choice((1, 1, 2, 6))):
        path.unlink(missing_ok=True)
        damage = _DAMAGE_BY_NAME[chance.choice([*_DAMAGE_BY_NAME])]
        if isinstance(damage, bytes):
            path.write_bytes(damage)
        else:
            damage(path)


def _attach_live_process(run: run_folders.RunFolder, stack: contextlib.ExitStack) -> None:
    """Let a process of the test, which may be ended, be the one that leads the run."""
    mark = f"random-{os.getpid()}-{run.name}"
    environment = {**os.environ, "TUI_TRAIN_RUN_ID": mark}
    opened = os.open(run.path, os.O_RDONLY)
    leader = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True, pass_fds=[opened])
    os.close(opened)
    stack.callback(leader.wait)
    stack.callback(leader.kill)
    now = {"pid": leader.pid, "start_ticks": process_start_ticks(leader.pid), "boot_id": machine_boot_id()}
    event = {"time": time.time(), "event": "run_started", "mark": mark, **now}
    run.events_file.write_bytes(run.events_file.read_bytes() + b"\n" + json.dumps(event).encode() + b"\n")

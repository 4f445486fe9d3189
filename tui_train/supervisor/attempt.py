"""One attempt: started, watched, ended when asked to, and what its log says of its end."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, NamedTuple

from . import cgroup, checkpoints, commands, container, energy, lock, machines
from .planned import reading
from .processes import MARK, Family, Process, adopt, process, send
from .refused import APART, CANNOT_WRITE, Refused
from .signals import default
from .start import Start, say, tell
from .text import visible
from .transport import NodeCommand, Task

# What SIGKILL does not end in so long hangs in a driver.
_ENDS = 10.0
_KILLED = 128 + signal.SIGKILL
# Seconds in which what a training has started ends after it.
_LEAVE = 2.0
_MOST_LEFT = 1000


class Ended(NamedTuple):
    """How an attempt ended: its exit code, the phase in which GPU memory ran out, and the attempt that follows.

    `hopeless` says why less memory would not help, `on_host` that the host's memory may have run out, `apart` that its
    processes each trained alone; `stopped` that it was asked to end before it had. `given` is the checkpoint from which
    it was to resume. `left` are the processes that it left, as run_ended names them. `elsewhere` is the machine on
    which the training was asked to stop before it ended here.
    """

    code: int
    phase: str = ""
    next: int = 0
    hopeless: str = ""
    on_host: bool = False
    apart: bool = False
    given: str = ""
    stopped: bool = False
    left: str = ""
    elsewhere: int | None = None


def attempt(start: Start, position: int, number: int, log: str) -> Ended:
    """Make one attempt, its output in `log`, and return how it ended."""
    try:
        resumed_from = _given(start, position)
    except Refused as refused:
        say(refused.message)
        return Ended(refused.code)
    return _attempt(start, position, number, log, resumed_from)


def _given(start: Start, position: int) -> str:
    """Return the checkpoint from which all machines can resume, empty where there is none."""
    resumed_from = checkpoint(start, position)
    useless = start.transport.share(resumed_from) if resumed_from else ""
    if useless:
        say(f"begins with the first step, and not with {visible(resumed_from)}: {useless}")
    return "" if useless else resumed_from


def _attempt(start: Start, position: int, number: int, log: str, resumed_from: str) -> Ended:
    resumed = checkpoints.step(resumed_from) if resumed_from else 0
    begins = f"resumes from {visible(resumed_from)} and writes" if resumed_from else "writes"
    say(f"{name_of(start, position)} {begins} {visible(log)}")
    name = container.name(start.planned.engine, start.mark, number)
    # A container is in a cgroup that its engine makes.
    cgroup_path = "" if name else cgroup.make(start.mark, number)
    try:
        started = start.transport.start(_command(start, position, log, resumed_from, name)._replace(cgroup=cgroup_path))
    except OSError as error:
        cgroup.remove(cgroup_path, start.mark)
        say(f"cannot start it, its output in {log}: {error.strerror}")
        return Ended(CANNOT_WRITE)
    task: Task = started
    adopt()
    # Read now, while the training starts: the folder may be moved, or replaced by a newer one, until it has ended.
    from . import first_step, memory_end, outcome, rejoin  # noqa: F401

    details: dict[str, object] = {"resumed": resumed} if resumed else {}
    if name:
        details.update(engine=start.planned.engine, container=name)
    if cgroup_path and started.enclosed:
        details.update(cgroup=cgroup_path)
    leader, ticks = task.leader
    tell(start, "attempt_started", attempt=number, position=position, leader=leader, leader_ticks=ticks, **details)
    family = Family(start.mark, task.leader, os.getpid())
    # What hangs in a driver since it was asked is a child as well, and no part of the training.
    family.spare |= commands.stuck
    metering = energy.meter(start.cards)
    family.spare.add(metering.child.pid)
    try:
        code, stopped = _watch(start, task, family, name, log)
    except BaseException:
        # Nothing trains on with nobody to keep it.
        _kill(task, family)
        metering.kill()
        raise
    # A stop on another machine that comes while this waits for what is left is too late for what has finished.
    elsewhere = stopped_elsewhere(start) if code == 0 else None
    left = _left(task, family)
    drawn = metering.end()
    cgroup.remove(cgroup_path, start.mark)
    asked = stopped or (start.signals.stop and code != 0)
    ended = Ended(code) if asked else _read(start, position, log, code, family)
    elsewhere = elsewhere if code == 0 else stopped_elsewhere(start)
    ended = ended._replace(stopped=stopped, left=left, elsewhere=elsewhere)
    ignored = _first_step(start, log, resumed)
    if ignored:
        where = f"the checkpoint of step {resumed} and began at step {ignored}"
        say(f"attempt {number} was given {where}: the training does not load it")
    more: dict[str, object] = {"ignored_checkpoint": True} if ignored else {}
    if ended.phase:
        more.update(out_of_memory=True, phase=ended.phase, next=ended.next)
    if drawn:
        tell(start, "energy", attempt=number, joules=drawn.joules, metered=drawn.cards, cards=drawn.of)
    tell(start, "attempt_ended", attempt=number, exit_code=ended.code, **more)
    return ended._replace(given=resumed_from)


def name_of(start: Start, position: int) -> str:
    """Return what an attempt of the plan is called in messages."""
    return f"attempt {position} of {len(start.attempts)} ({visible(start.attempts[position - 1].title)})"


def stopped_elsewhere(start: Start) -> int | None:
    """Return the other machine whose training was asked to stop since this one started."""
    return machines.stopped_elsewhere(start.planned, start.run_dir, start.node_rank, start.stops)


def checkpoint(start: Start, position: int) -> str:
    """Return the checkpoint that an attempt resumes from, empty where there is none."""
    # Several machines resume from one only where that was asked for on each.
    return "" if start.planned.by_hand and not start.resume else newest(start, position)


def newest(start: Start, position: int) -> str:
    """Return the newest complete checkpoint that an attempt could load, empty where there is none."""
    rule = start.attempts[position - 1].checkpoints
    return checkpoints.newest(rule, start.run_dir) if rule else ""


def _command(start: Start, position: int, log: str, resumed_from: str, name: str) -> NodeCommand:
    words = ["bash", start.script, "--plain", f"--attempt={position}"]
    if resumed_from:
        words.append(f"--checkpoint={resumed_from}")
    if start.other_cards:
        words.append(f"--gpus={','.join(start.cards)}")
    if start.planned.by_hand:
        words.append(f"--node-rank={start.node_rank}")
    environment = {**os.environ, **start.environment, MARK: start.mark}
    if name:
        environment["TUI_TRAIN_CONTAINER_NAME"] = name
    return NodeCommand(tuple(words), environment, log)


def _watch(start: Start, task: Task, family: Family, name: str, log: str) -> tuple[int, bool]:
    """Wait for the end of an attempt and return its exit code, and whether it was asked to end before it had.

    A stop asks it to, and so does a lost lock.
    """
    engine = start.planned.engine
    while True:
        code = task.poll()
        if start.signals.stop and (code is None or (name and container.exit_code(engine, name) != code)):
            return _end(start, task, family, name), True
        if code is None:
            _beat(start)
            start.signals.wait(lock.BEAT)
        elif name and container.outlives(engine, name, code, lambda: bool(family.living())):
            say(f"the client of {engine} is gone, its container trains on")
            from . import rejoin

            task = rejoin.rejoin(start.transport, engine, name, log, start.mark)
            family.leader = task.leader
        else:
            if code != 0:
                _kill(task, family)
            if name:
                container.remove(engine, name)
            return code, False


def _beat(start: Start) -> None:
    """Say that this start still runs; where another one has taken its place, this one stops."""
    for held in start.locks:
        if not held.beat() and not start.signals.stop:
            say(f"another start has taken over {os.path.dirname(held.at)}: this one stops")
            os.kill(os.getpid(), signal.SIGTERM)


def _end(start: Start, task: Task, family: Family, name: str) -> int:
    """End an attempt: its launcher is asked first, for it knows its workers; then what it leaves; then all die."""
    say(f"stopping ({start.signals.stop}); a second Ctrl-C ends it at once")
    deadline = time.monotonic() + start.grace
    asked: set[int] = set()
    family.living()
    stopper = Process()
    if name:
        engine, leader = start.planned.engine, task.leader
        stopper = _in_background(lambda: container.stop(engine, name, start.grace, lambda: leader.alive))
        family.spare.add(stopper.pid)
    else:
        task.ask()
    tell(start, "stopping", signal=start.signals.stop)
    while time.monotonic() < deadline and not start.signals.at_once and (living := family.living()):
        if task.poll() is not None:
            for pid in living.keys() - asked:
                send(Process(pid, living[pid]), signal.SIGTERM)
            asked |= living.keys()
        _beat(start)
        start.signals.wait(0.1)
    _kill(task, family)
    if name:
        send(stopper, signal.SIGKILL)
        container.remove(start.planned.engine, name)
    code = task.poll()
    return start.signals.code if code is None else code


def _kill(task: Task, family: Family) -> None:
    task.end()
    deadline = time.monotonic() + _ENDS
    while family.signal(signal.SIGKILL) and time.monotonic() < deadline:
        time.sleep(0.05)
        task.poll()


def _left(task: Task, family: Family) -> str:
    """Return the processes that live on a moment after the end of an attempt, as `pid:ticks`, and say which."""
    deadline = time.monotonic() + _LEAVE
    while (living := family.living()) and time.monotonic() < deadline:
        time.sleep(0.05)
        task.poll()
    if living:
        say(f"the training has ended and left processes that go on: {' '.join(map(str, sorted(living)))}")
    return " ".join(f"{pid}:{ticks}" for pid, ticks in sorted(living.items())[:_MOST_LEFT])


def _in_background(work: Callable[[], None]) -> Process:
    """Do something in a child of its own, and return that child."""
    pid = os.fork()
    if pid == 0:
        try:
            default()
            work()
        finally:
            os._exit(0)
    return process(pid)


def _first_step(start: Start, log: str, resumed: int) -> int:
    """Return the step at which an attempt began that did not load its checkpoint, else 0."""
    if not resumed:
        return 0
    from . import first_step

    return first_step.ignored(log, resumed, reading(start.planned))


def _read(start: Start, position: int, log: str, code: int, family: Family) -> Ended:
    """Return what a log says of the end of an attempt that nobody asked to end."""
    # What reads logs is not imported before there is one: a training begins earlier.
    from . import memory_end, outcome

    if code == 0:
        alone = outcome.trained_apart(log, start.planned.world_size)
        return Ended(APART, apart=True) if alone else Ended(0)
    end = memory_end.memory_end(log, family.seen)
    # Whoever was killed had no error of its own.
    if not end.phase or code == _KILLED:
        return Ended(code, on_host=end.on_host)
    hopeless = ""
    if end.stranger:
        hopeless = f"another process ({end.stranger}) fills the GPU: end it, or choose another GPU"
    elif end.phase == "start":
        hopeless = "a GPU was full or faulty before the training began: look at nvidia-smi"
    following = start.attempts[position - 1].then.get(end.phase, 0) if start.falls_back and not hopeless else 0
    return Ended(code, end.phase, following, hopeless, end.on_host)

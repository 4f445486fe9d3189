"""How a run stands: what its events say, and whether the process that wrote them still lives."""

from typing import Literal

import msgspec
from msgspec import Struct

from tui_train.runs.processes import alive, boot_id, marked
from tui_train.runs.rundir import Event, RunDir

State = Literal["new", "running", "stopping", "finished", "failed", "stopped", "lost"]
LIVE: frozenset[str] = frozenset({"running", "stopping"})


class AttemptStatus(Struct, frozen=True, kw_only=True):
    """One attempt: `position` is its place in the plan, from 1; `ended` and `exit_code` are None while it runs.

    `phase` is where it ran out of GPU memory, `resumed` the step of the checkpoint that it was given (0: none), and
    `began_anew` what launch.sh found at its end: it did not load that.
    """

    number: int
    position: int
    started: float
    ended: float | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    phase: str = ""
    resumed: int = 0
    began_anew: bool = False


class Status(Struct, frozen=True, kw_only=True):
    """A run's state and attempts; `leftover` are processes that train on though what started them is gone.

    `grace` is how many seconds its training gets to end by itself. `container` is the name, for `engine`, of one that
    may train on although what started it is gone.
    """

    state: State
    attempts: tuple[AttemptStatus, ...] = ()
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    pid: int = 0
    mark: str = ""
    leader: int = 0
    grace: int = 20
    leftover: tuple[int, ...] = ()
    engine: str = ""
    container: str = ""

    @property
    def live(self) -> bool:
        """Whether its launch.sh still works."""
        return self.state in LIVE


def status(run: RunDir) -> Status:
    """Return how a run stands now."""
    events = run.events()
    attempts = _attempts(events)
    starts = [event for event in events if event.event == "run_started"]
    if not starts:
        return Status(state="new", attempts=attempts)
    last = starts[-1]
    after = events[len(events) - events[::-1].index(last) :]
    end = next((event for event in after if event.event == "run_ended"), None)
    leader = next((event.leader for event in after[::-1] if event.leader), 0)
    leftover: tuple[int, ...] = ()
    attempt = next((event for event in after[::-1] if event.event.startswith("attempt_")), None)
    inside = attempt if attempt and attempt.event == "attempt_started" and not end else None
    if end and end.state in {"finished", "failed", "stopped"}:
        state = end.state
    elif alive(last.pid, last.start_ticks, last.boot_id):
        state = "stopping" if any(event.event == "stopping" for event in after) else "running"
    else:
        state = "lost"
        if last.boot_id == boot_id():
            leftover = marked(last.mark, leader)
    return Status(
        state=state,  # type: ignore[arg-type]
        attempts=attempts,
        started=last.time,
        ended=end.time if end else None,
        exit_code=end.exit_code if end else None,
        pid=last.pid,
        mark=last.mark,
        leader=leader,
        grace=last.grace,
        leftover=leftover,
        engine=inside.engine if inside else "",
        container=inside.container if inside else "",
    )


def _attempts(events: tuple[Event, ...]) -> tuple[AttemptStatus, ...]:
    found: dict[int, AttemptStatus] = {}
    for event in events:
        if event.event == "attempt_started":
            found[event.attempt] = AttemptStatus(
                number=event.attempt, position=event.position, started=event.time, resumed=event.resumed
            )
        elif event.event == "attempt_ended" and event.attempt in found:
            found[event.attempt] = msgspec.structs.replace(
                found[event.attempt],
                ended=event.time,
                exit_code=event.exit_code,
                out_of_memory=event.out_of_memory,
                phase=event.phase,
                began_anew=event.began_anew,
            )
    return tuple(found.values())

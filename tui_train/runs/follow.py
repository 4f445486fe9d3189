"""Following a run from outside: its lines as they come, until it ends."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from tui_train.runs.progress import Progress, advance
from tui_train.runs.ranks import MOST, Planned, Rank, compare, parse, planned
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import AttemptStatus, Status, status
from tui_train.runs.tail import Tail

_PAUSE = 0.15
_SHOWN = 256 << 10
_REMEMBERED = 4 << 20
_HEAD = 64 << 10


class Told(Struct, frozen=True, kw_only=True):
    """What a viewer is told: the run's status and progress, its new lines, and whether they begin another attempt.

    `ranks` are the processes that said where they compute, `mismatch` says where that is not what was planned, `gpus`
    are the UUIDs of the planned cards.
    """

    status: Status
    progress: Progress = Progress()
    title: str = ""
    lines: tuple[str, ...] = ()
    unfinished: str = ""
    fresh: bool = False
    seconds_left: float | None = None
    ranks: tuple[Rank, ...] = ()
    mismatch: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class Ranks:
    """The ranks that the first lines of an attempt's log tell of, and any line that is read later anyway."""

    def __init__(self, path: Path, plan: Planned) -> None:
        """Know none yet."""
        self.known: tuple[Rank, ...] = ()
        self.mismatch: tuple[str, ...] = ()
        self._path = path
        self._plan = plan
        self._head = b""
        self._most = min(plan.world_size, MOST) if plan.world_size > 0 else MOST

    def read(self, lines: Iterable[str] = ()) -> None:
        """Read on in the first 64 KiB, which a long log's tail leaves out, until every planned rank is known."""
        if 0 < self._plan.world_size <= len(self.known):
            return
        piece = b""
        if len(self._head) < _HEAD:
            try:
                with self._path.open("rb") as file:
                    file.seek(len(self._head))
                    piece = file.read(_HEAD - len(self._head))
            except OSError:
                pass
        begun = self._head.rfind(b"\n") + 1
        self._head += piece
        whole = self._head[begun : self._head.rfind(b"\n") + 1].decode(errors="replace").split("\n")
        found = dict.fromkeys((*self.known, *parse([*whole, *lines], self._most)))
        if len(found) > len(self.known):
            self.known = tuple(sorted(found, key=lambda rank: rank.rank))[: self._most]
            self.mismatch = compare(self.known, self._plan)


def ranks(run: RunDir, number: int) -> Ranks:
    """Return the ranks of one attempt, as far as its first lines tell them."""
    found = Ranks(run.attempt_log(number), _planned(run))
    found.read()
    return found


def follow(run: RunDir, *, on_attempt: Callable[[AttemptStatus], None] = lambda _: None) -> Iterator[str]:
    """Yield every line of the run's attempts, in order, until the run has ended and all is read."""
    shown = 0
    tail: Tail | None = None
    while True:
        now = status(run)
        if tail:
            yield from tail.lines()
        newer = [attempt for attempt in now.attempts if attempt.number > shown]
        if newer:
            if tail and tail.unfinished:
                yield tail.unfinished
            on_attempt(newer[0])
            shown = newer[0].number
            tail = Tail(run.attempt_log(shown))
            continue
        if not now.live:
            if tail and tail.unfinished:
                yield tail.unfinished
            return
        time.sleep(_PAUSE)


def wait(run: RunDir) -> Status:
    """Return the run's status once it has ended."""
    while (now := status(run)).live:
        time.sleep(_PAUSE)
    return now


def watch(run: RunDir, cancelled: Callable[[], bool]) -> Iterator[Told]:
    """Yield what is new about a run's newest attempt, about seven times a second at most, until the run has ended.

    A viewer that falls behind is given the end of what was written: its work is bounded, however fast the training
    writes.
    """
    titles, reading = run.titles(), run.reading()
    plan = _planned(run)
    shown, tail, told = 0, None, Told(status=status(run))
    found = Ranks(run.attempt_log(1), plan)
    began = (0.0, 0)
    while not cancelled():
        now = status(run)
        newest = now.attempts[-1] if now.attempts else None
        fresh = newest is not None and newest.number != shown
        if fresh and newest:
            shown, tail = newest.number, Tail(run.attempt_log(newest.number), last=_REMEMBERED)
            found = Ranks(run.attempt_log(newest.number), plan)
        lines: list[str] = []
        progress = told.progress
        if tail and tail.behind:
            if not fresh and tail.behind > _SHOWN:
                tail.skip(_SHOWN)
            lines = [*tail.lines()]
            progress = advance(progress, lines, reading)
        found.read(lines)
        if tail and tail.bar:
            progress = advance(progress, [tail.bar], reading)
        if progress.step and began[1] == 0:
            began = (time.monotonic(), progress.step)
        news = Told(
            status=now,
            progress=progress,
            title=titles[newest.position - 1] if newest and 0 < newest.position <= len(titles) else "",
            lines=tuple(lines),
            unfinished=tail.unfinished if tail else "",
            fresh=fresh,
            seconds_left=_left(progress, began),
            ranks=found.known,
            mismatch=found.mismatch,
            gpus=plan.gpus,
        )
        ended = not now.live and not (tail and tail.behind)
        changed = (news.status, news.unfinished, news.ranks) != (told.status, told.unfinished, told.ranks)
        if fresh or lines or ended or changed:
            yield news
        told = news
        if ended:
            return
        time.sleep(_PAUSE)


def _planned(run: RunDir) -> Planned:
    try:
        return planned(run.plan_file.read_bytes())
    except OSError:
        return Planned()


def _left(progress: Progress, began: tuple[float, int]) -> float | None:
    """Return the seconds that the remaining steps take at the pace since `began` (clock, step)."""
    done = progress.step - began[1]
    if done <= 0 or progress.steps < progress.step:
        return None
    return (time.monotonic() - began[0]) / done * (progress.steps - progress.step)

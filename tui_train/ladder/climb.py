"""climb(): which attempts follow each other, by the phase in which a GPU ran out of memory."""

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tui_train.ladder.rungs import helps, rung, why_not
from tui_train.profile.changes import Change, apply
from tui_train.profile.types import Profile
from tui_train.resolve.context import LadderContext

# Changes one on top of the other, and attempts in all: enough for each phase by itself, and for most that mix them.
_MOST_CHANGES = 16
_MOST_ATTEMPTS = 24
_ONLY = "only "
_TO = " -> "


class Try(Struct, frozen=True, kw_only=True):
    """One attempt: its profile, the rungs and Changes that led to it, and which is tried after it, by the phase.

    `then` are places among the attempts, from 0; a phase that is not in it has nothing left that helps.
    """

    profile: Profile
    title: str = "as planned"
    changes: tuple[tuple[str, Change], ...] = ()
    then: dict[str, int] = {}


def climb(
    profile: Profile, room: LadderContext, hopeless: Callable[[Profile], bool] = lambda _: False
) -> tuple[Try, ...]:
    """Return what is tried, the profile itself first: after each attempt, by the phase, the next rung that helps it.

    An attempt keeps the changes before it. So each phase has a way of its own down from each attempt, and ways that
    lead to the same changes meet. Those of one phase alone come first, and the mixed ones until there are too many.
    A rung that leaves a `hopeless` profile is passed over for the next one, while there is one.
    """
    following = partial(_next, room=room, hopeless=hopeless)
    tries = [Try(profile=profile)]
    for place in range(_MOST_ATTEMPTS):
        for phase in room.phases if place < len(tries) else ():
            _walk(tries, place, phase, following)
        if place == 0:
            # To the one with the changes of all phases at once: there leads what finds no more room.
            at = 0
            for phase in room.phases:
                at = _walk(tries, at, phase, following)
    return tuple(tries)


def _walk(tries: list[Try], at: int, phase: str, following: Callable[[Try, str], Try | None]) -> int:
    """Add what is tried from an attempt on while one phase fails; return the place of the last of it."""
    while True:
        if phase not in tries[at].then:
            found = following(tries[at], phase)
            there = _place(tries, found) if found else None
            if there is None:
                return at
            tries[at] = replace(tries[at], then=tries[at].then | {phase: there})
        at = tries[at].then[phase]


def _next(before: Try, phase: str, *, room: LadderContext, hopeless: Callable[[Profile], bool]) -> Try | None:
    """Return the attempt with more changes that help the phase, as few as give hope; None where no rung has any."""
    found = _changed(before, phase, room)
    while found and hopeless(found.profile) and (lower := _changed(found, phase, room)):
        found = lower
    return found


def _changed(before: Try, phase: str, room: LadderContext) -> Try | None:
    ladder, done = before.profile.ladder, [name for name, _ in before.changes]
    for name in ladder.rungs if len(done) < _MOST_CHANGES else ():
        found = rung(name)
        if not helps(name, phase, before.profile, room) or (name in done and not found.repeats) or why_not(name, room):
            continue
        if found.changes_training and name not in ladder.consent:
            continue
        change = found.step(before.profile, room)
        if change:
            return Try(profile=apply(change, before.profile), changes=(*before.changes, (name, change)))
    return None


def _place(tries: list[Try], found: Try) -> int | None:
    """Return the place of an attempt, which is added where it is new; where there is no more room, of one beyond it."""
    wanted = _taken(found)
    same = next((place for place, other in enumerate(tries) if _taken(other) == wanted), None)
    if same is not None:
        return same
    if len(tries) == _MOST_ATTEMPTS:
        return next((place for place, other in enumerate(tries) if _taken(other) >= wanted), None)
    tries.append(replace(found, title=_title(found, tries[-1])))
    return len(tries) - 1


def _taken(one: Try) -> Counter[str]:
    return Counter(name for name, _ in one.changes)


def _title(found: Try, before: Try) -> str:
    """Return the last changes, where all above have the others; else "only" and the changes of all rungs."""
    had = len(before.changes)
    if found.changes[:had] == before.changes and not before.title.startswith(_ONLY):
        return ", ".join(_titles(found.changes[had:]))
    return _ONLY + ", ".join(_titles(found.changes))


def _titles(changes: tuple[tuple[str, Change], ...]) -> Collection[str]:
    """Return one title for each rung: of one that was taken again, from where it began to where it ended."""
    titles: dict[str, str] = {}
    for name, change in changes:
        begun = titles.get(name, change.title).partition(_TO)[0]
        titles[name] = begun + "".join(change.title.partition(_TO)[1:])
    return titles.values()

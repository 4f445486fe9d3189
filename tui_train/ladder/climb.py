"""climb(): which attempt follows which, by the phase in which a GPU ran out of memory."""

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tui_train.ladder.rungs import helps, rung, why_not
from tui_train.profile.changes import Change, apply
from tui_train.profile.types import Profile
from tui_train.resolve.context import LadderContext

# Changes stacked in one attempt, and attempts in all: enough for each phase alone, and for most mixes of phases.
_MOST_CHANGES = 16
_MOST_ATTEMPTS = 24
_INSTEAD = "instead: "
_TO = " -> "


class AttemptPlan(Struct, frozen=True, kw_only=True):
    """One attempt: its profile, the rungs and Changes that led to it, and the attempt after it, by the phase.

    `then` holds positions among the attempts, from 0; for a phase that is not in it nothing is left that helps.
    """

    profile: Profile
    title: str = "as planned"
    changes: tuple[tuple[str, Change], ...] = ()
    then: dict[str, int] = {}


def climb(
    profile: Profile, context: LadderContext, hopeless: Callable[[Profile], bool] = lambda _: False
) -> tuple[AttemptPlan, ...]:
    """Return the attempts, the profile itself first: after each one, by the phase, the next rung that helps.

    An attempt keeps the changes before it. So each phase has its own path from each attempt, and paths that lead to
    the same changes meet. Paths of a single phase come first, then mixed ones until the limit is reached.
    A rung whose profile would be `hopeless` is skipped as long as another one follows.
    """
    following = partial(_next, context=context, hopeless=hopeless)
    attempts = [AttemptPlan(profile=profile)]
    for place in range(_MOST_ATTEMPTS):
        for phase in context.phases if place < len(attempts) else ():
            _follow_phase(attempts, place, phase, following)
        if place == 0:
            # Reserve the attempt with the changes of all phases: paths beyond the limit lead to it.
            at = 0
            for phase in context.phases:
                at = _follow_phase(attempts, at, phase, following)
    return tuple(attempts)


def _follow_phase(
    attempts: list[AttemptPlan], position: int, phase: str, following: Callable[[AttemptPlan, str], AttemptPlan | None]
) -> int:
    """Add the attempts that follow one while the same phase fails; return the position of the last."""
    while True:
        if phase not in attempts[position].then:
            attempt = following(attempts[position], phase)
            next_position = _add_attempt(attempts, attempt) if attempt else None
            if next_position is None:
                return position
            attempts[position] = replace(attempts[position], then=attempts[position].then | {phase: next_position})
        position = attempts[position].then[phase]


def _next(
    before: AttemptPlan, phase: str, *, context: LadderContext, hopeless: Callable[[Profile], bool]
) -> AttemptPlan | None:
    """Return the attempt with the fewest further changes that may fit in this phase; None where no rung helps."""
    attempt = _changed(before, phase, context)
    while attempt and hopeless(attempt.profile) and (lower := _changed(attempt, phase, context)):
        attempt = lower
    return attempt


def _changed(before: AttemptPlan, phase: str, context: LadderContext) -> AttemptPlan | None:
    ladder, done = before.profile.ladder, [name for name, _ in before.changes]
    for name in ladder.rungs if len(done) < _MOST_CHANGES else ():
        candidate = rung(name)
        if (
            not helps(name, phase, before.profile, context)
            or (name in done and not candidate.repeats)
            or why_not(name, context)
        ):
            continue
        if candidate.changes_training and name not in ladder.consent:
            continue
        change = candidate.step(before.profile, context)
        if change:
            return AttemptPlan(profile=apply(change, before.profile), changes=(*before.changes, (name, change)))
    return None


def _add_attempt(attempts: list[AttemptPlan], attempt: AttemptPlan) -> int | None:
    """Return the position of an attempt, added if new; at the limit, that of an attempt with all its changes."""
    counts = _rung_counts(attempt)
    same = next((place for place, other in enumerate(attempts) if _rung_counts(other) == counts), None)
    if same is not None:
        return same
    if len(attempts) == _MOST_ATTEMPTS:
        return next((place for place, other in enumerate(attempts) if _rung_counts(other) >= counts), None)
    attempts.append(replace(attempt, title=_title(attempt, attempts[-1])))
    return len(attempts) - 1


def _rung_counts(attempt: AttemptPlan) -> Counter[str]:
    return Counter(name for name, _ in attempt.changes)


def _title(attempt: AttemptPlan, before: AttemptPlan) -> str:
    """Return the changes since the attempt above; where that has others, "instead" and all changes."""
    shared = len(before.changes)
    if attempt.changes[:shared] == before.changes and not before.title.startswith(_INSTEAD):
        return ", ".join(titles(attempt.changes[shared:]))
    return _INSTEAD + ", ".join(titles(attempt.changes))


def titles(changes: tuple[tuple[str, Change], ...]) -> Collection[str]:
    """Return one title for each rung: of a repeated one, from its first value to its last."""
    merged: dict[str, str] = {}
    for name, change in changes:
        start = merged.get(name, change.title).partition(_TO)[0]
        merged[name] = start + "".join(change.title.partition(_TO)[1:])
    return merged.values()

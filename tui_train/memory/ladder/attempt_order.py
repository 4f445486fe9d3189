"""attempts_with_fallbacks(): which attempt follows which, by the phase in which a GPU ran out of memory."""

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tui_train.memory.ladder.rungs import get_rung, rung_helps_phase, why_rung_unusable
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.setup.blocked_fallbacks import LadderContext

# Changes stacked in one attempt, and attempts in all: enough for each phase alone, and for most mixes of phases.
_MAX_CHANGES_PER_ATTEMPT = 16
_MAX_ATTEMPTS = 24
_INSTEAD_TITLE_PREFIX = "only "
_TITLE_ARROW = " -> "


class AttemptPlan(Struct, frozen=True, kw_only=True):
    """One attempt: its profile, the rungs and Changes that led to it, and the attempt after it, by the phase.

    `next_index_by_phase` holds indexes among the attempts; nothing helps in a phase that it lacks.
    """

    profile: Profile
    title: str = "as planned"
    rungs_and_changes: tuple[tuple[str, Change], ...] = ()
    next_index_by_phase: dict[str, int] = {}


def attempts_with_fallbacks(
    profile: Profile, ladder_context: LadderContext, cannot_fit: Callable[[Profile], bool] = lambda _: False
) -> tuple[AttemptPlan, ...]:
    """Return the attempts, the profile itself first: after each one, by the phase, the next rung that helps.

    An attempt keeps the changes before it. So each phase has its own path from each attempt, and paths that lead to
    the same changes meet. Paths of a single phase come first, then mixed ones until the limit is reached.
    A rung whose profile would be `cannot_fit` is skipped as long as another one follows.
    """
    next_attempt = partial(_next_attempt, ladder_context=ladder_context, cannot_fit=cannot_fit)
    attempts = [AttemptPlan(profile=profile)]
    for index in range(_MAX_ATTEMPTS):
        for phase in ladder_context.out_of_memory_phases if index < len(attempts) else ():
            _add_attempts_of_phase(attempts, index, phase, next_attempt)
        if index == 0:
            # Reserve the attempt with the changes of all phases: paths beyond the limit lead to it.
            last_index = 0
            for phase in ladder_context.out_of_memory_phases:
                last_index = _add_attempts_of_phase(attempts, last_index, phase, next_attempt)
    return tuple(attempts)


def _add_attempts_of_phase(
    attempts: list[AttemptPlan],
    index: int,
    phase: str,
    find_next_attempt: Callable[[AttemptPlan, str], AttemptPlan | None],
) -> int:
    """Add the attempts that follow one while the same phase fails; return the index of the last."""
    while True:
        if phase not in attempts[index].next_index_by_phase:
            attempt = find_next_attempt(attempts[index], phase)
            next_index = _add_or_find_attempt(attempts, attempt) if attempt else None
            if next_index is None:
                return index
            attempts[index] = replace(
                attempts[index],
                next_index_by_phase=attempts[index].next_index_by_phase | {phase: next_index},
            )
        index = attempts[index].next_index_by_phase[phase]


def _next_attempt(
    previous: AttemptPlan, phase: str, *, ladder_context: LadderContext, cannot_fit: Callable[[Profile], bool]
) -> AttemptPlan | None:
    """Return the attempt with the fewest further changes that may fit in this phase; None where no rung helps."""
    attempt = _attempt_with_next_rung(previous, phase, ladder_context)
    while (
        attempt and cannot_fit(attempt.profile) and (lower := _attempt_with_next_rung(attempt, phase, ladder_context))
    ):
        attempt = lower
    return attempt


def _attempt_with_next_rung(previous: AttemptPlan, phase: str, ladder_context: LadderContext) -> AttemptPlan | None:
    ladder, done = previous.profile.ladder, [name for name, _ in previous.rungs_and_changes]
    for name in ladder.rungs if len(done) < _MAX_CHANGES_PER_ATTEMPT else ():
        candidate = get_rung(name)
        if (
            not rung_helps_phase(name, phase, previous.profile, ladder_context)
            or (name in done and not candidate.is_repeatable)
            or why_rung_unusable(name, ladder_context)
        ):
            continue
        if candidate.changes_training and name not in ladder.consent:
            continue
        change = candidate.next_change(previous.profile, ladder_context)
        if change:
            return AttemptPlan(
                profile=apply_change(change, previous.profile),
                rungs_and_changes=(*previous.rungs_and_changes, (name, change)),
            )
    return None


def _add_or_find_attempt(attempts: list[AttemptPlan], attempt: AttemptPlan) -> int | None:
    """Return the index of an attempt, added if new; at the limit, that of an attempt with all its changes."""
    counts = _use_count_by_rung(attempt)
    same = next((index for index, other in enumerate(attempts) if _use_count_by_rung(other) == counts), None)
    if same is not None:
        return same
    if len(attempts) == _MAX_ATTEMPTS:
        return next((index for index, other in enumerate(attempts) if _use_count_by_rung(other) >= counts), None)
    attempts.append(replace(attempt, title=_attempt_title(attempt, attempts[-1])))
    return len(attempts) - 1


def _use_count_by_rung(attempt: AttemptPlan) -> Counter[str]:
    return Counter(name for name, _ in attempt.rungs_and_changes)


def _attempt_title(attempt: AttemptPlan, previous: AttemptPlan) -> str:
    """Return the changes since the attempt above; where that has others, "only" and all changes."""
    shared = len(previous.rungs_and_changes)
    if attempt.rungs_and_changes[:shared] == previous.rungs_and_changes and not previous.title.startswith(
        _INSTEAD_TITLE_PREFIX
    ):
        return ", ".join(titles_per_rung(attempt.rungs_and_changes[shared:]))
    return _INSTEAD_TITLE_PREFIX + ", ".join(titles_per_rung(attempt.rungs_and_changes))


def titles_per_rung(changes: tuple[tuple[str, Change], ...]) -> Collection[str]:
    """Return one title for each rung: of a repeated one, from its first value to its last."""
    merged: dict[str, str] = {}
    for name, change in changes:
        start = merged.get(name, change.title).partition(_TITLE_ARROW)[0]
        merged[name] = start + "".join(change.title.partition(_TITLE_ARROW)[1:])
    return merged.values()

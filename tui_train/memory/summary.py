"""The lines about memory for a screen: a bar against what is free, the phase, the verdict, and what would change it."""

from tui_train.base.text import size, visible
from tui_train.memory.predict import Effect, Prediction
from tui_train.memory.trace import ERROR, Counted

_BAR = 20
_MOST_EFFECTS = 2


def first_line(found: Prediction) -> str:
    """Return the bar with the predicted amount against the room where there is least, or why nothing is predicted."""
    if found.estimate is None:
        return f"Memory cannot be estimated: {visible(found.why_not)}"
    peak, error = found.estimate.peak, found.estimate.error
    amount = f"{size(peak.total)} ±{error:.0%}"
    if not found.places:
        return f"Memory {amount} in {peak.name}"
    place, verdict = found.places[0]
    part = min(1.0, verdict.needed / verdict.left) if verdict.left else 1.0
    bar = ("█" * round(part * _BAR)).ljust(_BAR, "░")
    where = visible(place.name.partition(" NVIDIA")[0]) if place.cuda else "memory"
    return f"Memory {bar} {amount} of {size(verdict.left)}: {verdict.band} ({where})"


def second_line(
    found: Prediction, effects: tuple[Effect, ...], counted: Counted | None, *, busy: bool, width: int
) -> str:
    """Return the phase that takes most, what a trace counted, and the changes that save most, as many as fit."""
    if found.estimate is None:
        return ""
    words = [f"most in {found.estimate.peak.name}"]
    if busy:
        words.append("tracing … (F3 ends it)")
    elif counted and counted.problem:
        words.append(f"no trace: {visible(counted.problem)[:60]}")
    elif counted:
        words.append(f"traced {size(counted.peak[1])} ±{ERROR:.0%}")
    for effect in [effect for effect in effects if effect.difference < 0][:_MOST_EFFECTS]:
        saving = f"{visible(effect.change.title)}: -{size(-effect.difference)}"
        if len("; ".join([*words, saving])) <= width:
            words.append(saving)
    return "; ".join(words)

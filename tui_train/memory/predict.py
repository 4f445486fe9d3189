"""From a profile and the facts to what its training will take, whether it fits, and what would change that."""

from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.facts.types import Facts, Gpu
from tui_train.ladder.rungs import RUNGS, rung, why_not
from tui_train.memory.estimate import estimate
from tui_train.memory.settings import Asked, asked
from tui_train.memory.types import Estimate
from tui_train.memory.verdict import Band, Verdict, judge
from tui_train.profile import fields
from tui_train.profile.changes import Change, apply, diff
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import Resolved, resolve

_MOST_STEPS = 32
# What leaves the training as it is.
_HARMLESS = ("micro_batch", "activation_checkpointing", "sharding", "offload")
_EVALUATION = "eval_batch"


class Place(Struct, frozen=True):
    """Where a training's tensors must fit: a card or the host's memory, with what is free of it in bytes."""

    name: str
    free: int
    cuda: bool


class Prediction(Struct, frozen=True):
    """The estimate for a profile, with the verdict for each place; without an estimate, `why_not` says what is missing.

    `places` have the one with the least room first.
    """

    asked: Asked
    estimate: Estimate | None = None
    places: tuple[tuple[Place, Verdict], ...] = ()

    @property
    def why_not(self) -> str:
        """Why nothing is predicted, empty where something is."""
        return self.asked.why_not

    @property
    def band(self) -> Band | None:
        """The verdict for the place with the least room."""
        return self.places[0][1].band if self.places else None


class Effect(Struct, frozen=True):
    """A change, the bytes by which it changes the peak, the verdict with it, and whether it changes the training."""

    change: Change
    difference: int
    band: Band | None
    changes_training: bool = False


def predict(facts: Facts, resolved: Resolved) -> Prediction:
    """Return the estimate for a resolved profile, in well under a millisecond; pure."""
    wanted = asked(facts, resolved)
    if wanted.model is None or wanted.how is None:
        return Prediction(wanted)
    try:
        found = estimate(wanted.model, wanted.how)
    except (ZeroDivisionError, OverflowError):
        return Prediction(Asked(why_not="these sizes make no model"))
    growing = resolved.settled.recipe.expandable_segments
    judged = [(place, _judge(found, place, resolved, growing=growing)) for place in places(facts, resolved)]
    return Prediction(wanted, found, tuple(judged))


def places(facts: Facts, resolved: Resolved) -> tuple[Place, ...]:
    """Return the chosen cards whose free memory is known, least first; without cards, the host's memory."""
    if resolved.device == "cuda":
        cards = (gpu for gpu in resolved.gpus if gpu.memory_free is not None)
        return tuple(sorted(map(_card, cards), key=lambda place: place.free))
    free = facts.machine.memory_available
    return (Place("this machine's memory", free, cuda=False),) if free is not None else ()


def _card(gpu: Gpu) -> Place:
    return Place(f"GPU {gpu.index} {gpu.name}", gpu.memory_free or 0, cuda=True)


def _judge(found: Estimate, place: Place, resolved: Resolved, *, growing: bool) -> Verdict:
    caveats = bool(found.caveats)
    if place.cuda:
        return judge(found.peak.total, place.free, several=resolved.world_size > 1, growing=growing, caveats=caveats)
    return judge(found.peak.total * resolved.processes, place.free, several=False, caveats=caveats)


def effects(facts: Facts, resolved: Resolved) -> tuple[Effect, ...]:
    """Return what each rung that there is a use for would change: first those that keep the training, most first."""
    profile, now = resolved.settled, predict(facts, resolved)
    if now.estimate is None:
        return ()
    found = []
    for name, one in RUNGS.items():
        change = None if why_not(name, resolved.context) else one.step(profile, resolved.context)
        then = _with(change, profile, facts) if change else None
        difference = then.estimate.peak.total - now.estimate.peak.total if then and then.estimate else 0
        if change and then and difference:
            found.append(Effect(change, difference, then.band, one.changes_training))
    return tuple(sorted(found, key=lambda effect: (effect.changes_training, effect.difference)))


def hopeless(profile: Profile, facts: Facts, resolved: Resolved) -> bool:
    """Tell whether a training cannot fit on a chosen card that is empty, even if less is needed than predicted.

    Where something is not modelled there is always hope: an own script may well train less than is thought.
    """
    totals = [gpu.memory_total for gpu in resolved.gpus if gpu.memory_total] if resolved.device == "cuda" else []
    found = predict(facts, _resolved(profile, facts, resolved)).estimate if totals else None
    return found is not None and not found.caveats and found.peak.total * (1 - found.error) > min(totals)


def fitting(facts: Facts, resolved: Resolved) -> Change | None:
    """Return the least change with which the training fits, of those that keep it the same; None where none does.

    First the largest micro batch that fits, then activation checkpointing, and what shares out the model; before all
    that a smaller evaluation batch, where the evaluation takes most.
    """
    then, now = resolved.settled, predict(facts, resolved).estimate
    edits: dict[str, fields.Value] = {}
    for name in (_EVALUATION, *_HARMLESS) if now and now.peak.name == "eval" else (*_HARMLESS, _EVALUATION):
        if why_not(name, resolved.context):
            continue
        for _ in range(_MOST_STEPS):
            change = rung(name).step(then, resolved.context)
            if change is None:
                break
            then = apply(change, then)
            edits |= dict(change.edits)
            if predict(facts, _resolved(then, facts, resolved)).band in {"fits", "tight"}:
                return _difference(resolved.settled, then, edits)
            if not rung(name).repeats:
                break
    return None


def _difference(before: Profile, after: Profile, edits: dict[str, fields.Value]) -> Change:
    changed = diff(before, after)
    title = " and ".join(f"{each.label.lower()} {each.after}" for each in changed)
    why = "it then fits by the estimate; the global batch stays"
    return Change(title, why, tuple(edits.items()))


def _with(change: Change, profile: Profile, facts: Facts) -> Prediction | None:
    try:
        then = apply(change, profile)
        return predict(facts, resolve(then, facts))
    except BadInput:
        return None


def _resolved(profile: Profile, facts: Facts, before: Resolved) -> Resolved:
    try:
        return resolve(profile, facts)
    except BadInput:
        return before

"""predict(): the memory estimate of a profile, whether it fits, and what would change that."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tui_train.facts.types import Gpu, Machine
from tui_train.ladder.rungs import RUNGS, rung, why_not
from tui_train.memory.estimate import estimate
from tui_train.memory.settings import Workload, workload
from tui_train.memory.types import Estimate
from tui_train.memory.verdict import Band, Verdict, judge, reserved
from tui_train.profile import fields
from tui_train.profile.changes import Change, apply, diff
from tui_train.profile.types import Profile
from tui_train.resolve.setup import Setup

_MOST_STEPS = 32
# Of the effect of a change that is a smaller part than this of what is reserved, nothing is said.
_WORTH = 1000
# Fallbacks that do not change the result, in the order in which they are suggested.
_HARMLESS = ("micro_batch", "activation_checkpointing", "sharding", "offload")
_EVALUATION = "eval_batch"


class Place(Struct, frozen=True):
    """A GPU or the host's memory, and its free bytes."""

    name: str
    free: int
    cuda: bool


class Prediction(Struct, frozen=True):
    """The estimate of a profile and the verdict for each place, the one with the least free memory first.

    Without an estimate, `why_not` is the reason.
    """

    workload: Workload
    estimate: Estimate | None = None
    places: tuple[tuple[Place, Verdict], ...] = ()

    @property
    def why_not(self) -> str:
        """Why there is no estimate, empty if there is one."""
        return self.workload.why_not

    @property
    def band(self) -> Band | None:
        """The verdict for the place with the least free memory."""
        return self.places[0][1].band if self.places else None

    @property
    def held(self) -> int:
        """The bytes reserved at the peak; those of the tensors alone where no place is known."""
        if self.places:
            return self.places[0][1].reserved
        return self.estimate.peak.total if self.estimate else 0


class Effect(Struct, frozen=True):
    """A change, its effect on what is reserved in bytes, the verdict with it, and whether it changes the result."""

    change: Change
    difference: int
    band: Band | None
    changes_training: bool = False


def predict(setup: Setup) -> Prediction:
    """Return the estimate of an attempt, made once; pure, and far below a millisecond."""
    return setup.kept(_predict)


def on_empty(setup: Setup) -> Prediction:
    """Return the estimate of an attempt as if nothing else used its cards, or the host's memory."""
    machine = setup.facts.machine
    free = replace(machine, memory_available=machine.memory_total)
    cards = [replace(gpu, memory_free=gpu.memory_total) for gpu in setup.gpus]
    return _judged(setup, _places(setup.device, cards, free))


def _predict(setup: Setup) -> Prediction:
    return _judged(setup, places(setup))


def _judged(setup: Setup, where: tuple[Place, ...]) -> Prediction:
    known = workload(setup)
    if known.model is None or known.how is None:
        return Prediction(known)
    try:
        estimated = estimate(known.model, known.how)
    except (ZeroDivisionError, OverflowError):
        return Prediction(Workload(why_not="these sizes are not a valid model"))
    growing = setup.rung.recipe.expandable_segments
    return Prediction(
        known, estimated, tuple((place, _judge(estimated, place, setup, growing=growing)) for place in where)
    )


def places(setup: Setup) -> tuple[Place, ...]:
    """Return the chosen GPUs with known free memory, least first; without GPUs, the host's memory."""
    return _places(setup.device, setup.gpus, setup.facts.machine)


def _places(device: str, gpus: Iterable[Gpu], machine: Machine) -> tuple[Place, ...]:
    if device == "cuda":
        cards = (gpu for gpu in gpus if gpu.memory_free is not None)
        return tuple(sorted(map(_card, cards), key=lambda place: place.free))
    free = machine.memory_available
    return (Place("this machine's memory", free, cuda=False),) if free is not None else ()


def _card(gpu: Gpu) -> Place:
    return Place(f"GPU {gpu.index} {gpu.name}", gpu.memory_free or 0, cuda=True)


def _judge(estimated: Estimate, place: Place, setup: Setup, *, growing: bool) -> Verdict:
    caveats = bool(estimated.caveats)
    several = place.cuda and setup.world_size > 1
    times = 1 if place.cuda else setup.processes
    held = reserved(estimated, several=several, growing=growing) * times
    return judge(estimated.peak.total * times, held, place.free, several=several, caveats=caveats)


def effects(setup: Setup) -> tuple[Effect, ...]:
    """Return the effect of each applicable fallback: those with the same result first, then by saving."""
    now = predict(setup)
    if now.estimate is None:
        return ()
    useful = []
    for name, fallback in RUNGS.items():
        change = None if why_not(name, setup.context) else fallback.step(setup.settled, setup.context)
        if change is None:
            continue
        changed = predict(setup.at(apply(change, setup.settled)))
        difference = changed.held - now.held if changed.estimate else 0
        if abs(difference) * _WORTH > now.held:
            useful.append(Effect(change, difference, changed.band, fallback.changes_training))
    return tuple(sorted(useful, key=lambda effect: (effect.changes_training, effect.difference)))


def hopeless(setup: Setup) -> bool:
    """Return whether an attempt cannot fit even on an empty GPU and at the lower end of the estimate.

    Never true if something is not modelled: the script may need less than assumed.
    """
    totals = [gpu.memory_total for gpu in setup.gpus if gpu.memory_total] if setup.device == "cuda" else []
    estimated = predict(setup).estimate if totals else None
    return (
        estimated is not None and not estimated.caveats and estimated.peak.total * (1 - estimated.error) > min(totals)
    )


def fitting(setup: Setup) -> Change | None:
    """Return the smallest change with the same result that makes the training fit, None if there is none.

    In this order: micro batch, activation checkpointing, sharding; a smaller evaluation batch comes first if the
    evaluation has the peak, otherwise last.
    """
    candidate, now = setup.settled, predict(setup).estimate
    edits: dict[str, fields.Value] = {}
    for name in (_EVALUATION, *_HARMLESS) if now and now.peak.name == "eval" else (*_HARMLESS, _EVALUATION):
        if why_not(name, setup.context):
            continue
        for _ in range(_MOST_STEPS):
            change = rung(name).step(candidate, setup.context)
            if change is None:
                break
            candidate = apply(change, candidate)
            edits |= dict(change.edits)
            if predict(setup.at(candidate)).band in {"fits", "tight"}:
                return _difference(setup.settled, candidate, edits)
            if not rung(name).repeats:
                break
    return None


def _difference(before: Profile, after: Profile, edits: dict[str, fields.Value]) -> Change:
    changed = diff(before, after)
    title = " and ".join(f"{each.label.lower()} {each.after}" for each in changed)
    why = "fits by the estimate; same global batch"
    return Change(title, why, tuple(edits.items()))

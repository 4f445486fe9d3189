"""predict_memory(): the memory estimate of a profile, whether it fits, and what would change that."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tui_train.facts.types import Gpu, Machine
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.ladder.rungs import RUNGS, get_rung, why_rung_unusable
from tui_train.memory.types import MemoryEstimate
from tui_train.memory.verdict import FitBand, MemoryVerdict, judge_memory, reserved_bytes
from tui_train.memory.workload import MemoryWorkload, derive_workload
from tui_train.profile import fields
from tui_train.profile.changes import Change, apply_change, profile_differences
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup

_MAX_CHANGES_PER_RUNG = 32
# Of the effect of a change that is a smaller part than this of what is reserved, nothing is said.
_MIN_SHOWN_EFFECT_SHARE = 0.001
# Fallbacks that do not change the result, in the order in which they are suggested.
_SAME_RESULT_RUNGS = ("micro_batch", "activation_checkpointing", "sharding", "offload")
_EVALUATION_RUNG = "eval_batch"


class MemoryPool(Struct, frozen=True):
    """A GPU or the host's memory, and its free bytes."""

    name: str
    free_bytes: int
    is_gpu: bool


class Prediction(Struct, frozen=True):
    """The estimate of a profile and the verdict for each place, the one with the least free memory first.

    Without an estimate, `why_no_estimate` is the reason.
    """

    workload: MemoryWorkload
    estimate: MemoryEstimate | None = None
    place_verdicts: tuple[tuple[MemoryPool, MemoryVerdict], ...] = ()

    @property
    def why_no_estimate(self) -> str:
        """Why there is no estimate, empty if there is one."""
        return self.workload.why_unknown

    @property
    def band(self) -> FitBand | None:
        """The verdict for the place with the least free memory."""
        return self.place_verdicts[0][1].band if self.place_verdicts else None

    @property
    def reserved_bytes_at_peak(self) -> int:
        """The bytes reserved at the peak; those of the tensors alone where no place is known."""
        if self.place_verdicts:
            return self.place_verdicts[0][1].reserved_bytes
        return self.estimate.peak_phase.total_bytes if self.estimate else 0


class RungEffect(Struct, frozen=True):
    """A change, its effect on what is reserved in bytes, the verdict with it, and whether it changes the result."""

    change: Change
    peak_difference_bytes: int
    band: FitBand | None
    changes_training: bool = False


def predict_memory(setup: Setup) -> Prediction:
    """Return the estimate of an attempt, made once; pure, and far below a millisecond."""
    return setup.cached_answer(_compute_prediction)


def predict_on_empty_cards(setup: Setup) -> Prediction:
    """Return the estimate of an attempt as if nothing else used its cards, or the host's memory."""
    machine = setup.facts.machine
    free = replace(machine, memory_available=machine.memory_total)
    cards = [replace(gpu, memory_free=gpu.memory_total) for gpu in setup.gpus]
    return _predict_with_memory_of(cards, free, setup)


def _compute_prediction(setup: Setup) -> Prediction:
    return _predict_with_memory_of(setup.gpus, setup.facts.machine, setup)


def _predict_with_memory_of(gpus: Iterable[Gpu], machine: Machine, setup: Setup) -> Prediction:
    """Return the estimate of an attempt, judged by the free memory of these GPUs or this machine."""
    known = derive_workload(setup)
    if known.model is None or known.settings is None:
        return Prediction(known)
    try:
        estimated = estimate_memory(known.model, known.settings)
    except (ZeroDivisionError, OverflowError):
        return Prediction(MemoryWorkload(why_unknown="these sizes are not a valid model"))
    growing = setup.effective_profile.recipe.expandable_segments
    return Prediction(
        known,
        estimated,
        tuple(
            (place, _pool_verdict(estimated, place, setup, expandable=growing))
            for place in _pools_with_known_free_memory(setup.device, gpus, machine)
        ),
    )


def _pools_with_known_free_memory(device: str, gpus: Iterable[Gpu], machine: Machine) -> tuple[MemoryPool, ...]:
    """Return the GPUs with known free memory, least first; without GPUs, the host's memory."""
    if device == "cuda":
        cards = [
            MemoryPool(f"GPU {gpu.index} {gpu.name}", gpu.memory_free, is_gpu=True)
            for gpu in gpus
            if gpu.memory_free is not None
        ]
        return tuple(sorted(cards, key=lambda place: place.free_bytes))
    free = machine.memory_available
    return (MemoryPool("this machine's memory", free, is_gpu=False),) if free is not None else ()


def _pool_verdict(estimated: MemoryEstimate, place: MemoryPool, setup: Setup, *, expandable: bool) -> MemoryVerdict:
    several = place.is_gpu and setup.world_size > 1
    processes = 1 if place.is_gpu else setup.first_machine_process_count
    reserved_total_bytes = reserved_bytes(estimated, several_processes=several, expandable=expandable) * processes
    return judge_memory(
        estimated.peak_phase.total_bytes * processes,
        reserved_total_bytes,
        place.free_bytes,
        several_processes=several,
        has_caveats=bool(estimated.caveats),
    )


def rung_effects(setup: Setup) -> tuple[RungEffect, ...]:
    """Return the effect of each applicable fallback: those with the same result first, then by saving."""
    current = predict_memory(setup)
    if current.estimate is None:
        return ()
    useful, profile, context = [], setup.effective_profile, setup.ladder_context
    for name, fallback in RUNGS.items():
        change = None if why_rung_unusable(name, context) else fallback.next_change(profile, context)
        if change is None:
            continue
        changed = predict_memory(setup.for_attempt(apply_change(change, profile)))
        difference = changed.reserved_bytes_at_peak - current.reserved_bytes_at_peak if changed.estimate else 0
        if abs(difference) > _MIN_SHOWN_EFFECT_SHARE * current.reserved_bytes_at_peak:
            useful.append(RungEffect(change, difference, changed.band, fallback.changes_training))
    return tuple(sorted(useful, key=lambda effect: (effect.changes_training, effect.peak_difference_bytes)))


def cannot_fit_on_empty_gpu(setup: Setup) -> bool:
    """Return whether an attempt cannot fit even on an empty GPU and at the lower end of the estimate.

    Never true if something is not modelled: the script may need less than assumed.
    """
    totals = [gpu.memory_total for gpu in setup.gpus if gpu.memory_total] if setup.device == "cuda" else []
    estimated = predict_memory(setup).estimate if totals else None
    return (
        estimated is not None
        and not estimated.caveats
        and estimated.peak_phase.total_bytes * (1 - estimated.relative_error) > min(totals)
    )


def smallest_same_result_change_that_fits(setup: Setup) -> Change | None:
    """Return the smallest change with the same result that makes the training fit, None if there is none.

    In this order: micro batch, activation checkpointing, sharding; a smaller evaluation batch comes first if the
    evaluation has the peak, otherwise last.
    """
    candidate, current = setup.effective_profile, predict_memory(setup).estimate
    edits: dict[str, fields.FieldValue] = {}
    for name in (
        (_EVALUATION_RUNG, *_SAME_RESULT_RUNGS)
        if current and current.peak_phase.name == "eval"
        else (*_SAME_RESULT_RUNGS, _EVALUATION_RUNG)
    ):
        if why_rung_unusable(name, setup.ladder_context):
            continue
        for _ in range(_MAX_CHANGES_PER_RUNG):
            change = get_rung(name).next_change(candidate, setup.ladder_context)
            if change is None:
                break
            candidate = apply_change(change, candidate)
            edits |= dict(change.edits)
            if predict_memory(setup.for_attempt(candidate)).band in {"fits", "tight"}:
                return _change_titled_by_differences(setup.effective_profile, candidate, edits)
            if not get_rung(name).is_repeatable:
                break
    return None


def _change_titled_by_differences(before: Profile, after: Profile, edits: dict[str, fields.FieldValue]) -> Change:
    changed = profile_differences(before, after)
    title = " and ".join(f"{each.label.lower()} {each.after}" for each in changed)
    why = "fits by the estimate; same global batch"
    return Change(title, why, tuple(edits.items()))

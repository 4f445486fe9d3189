"""Proves what follows after out of memory: a real one, on a card of which torch may use only a part."""

from collections.abc import Iterator, Mapping

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.trainings import (
    EndedTraining,
    have_same_losses,
    losses_text,
    one_process_values,
    small_training_profile,
    train,
)
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.text import quantity, size_text
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import Prediction, predict_memory
from tui_train.profile import fields
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Profile

# Read by programs/shim/sitecustomize.py.
_MEMORY_LIMIT_VARIABLE = "TUI_TRAIN_GPU_MEMORY"
# Its activations take most of its memory: half the micro batch takes little more than half.
_LARGE_BATCH_RECIPE: dict[str, FieldValue] = {
    "recipe.layers": 4, "recipe.hidden_size": 256, "recipe.heads": 4, "recipe.sequence_length": 256,
    "recipe.micro_batch": 16, "recipe.global_batch": 16, "recipe.steps": 4,
}  # fmt: skip
# Its weights and their optimizer states do.
_LARGE_MODEL_RECIPE: dict[str, FieldValue] = {
    "recipe.layers": 8, "recipe.hidden_size": 512, "recipe.heads": 8, "recipe.sequence_length": 32,
    "recipe.micro_batch": 2, "recipe.global_batch": 2, "recipe.steps": 2,
}  # fmt: skip
_SAME_LOSSES_TOLERANCE = 1e-3


def out_of_memory_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield what came of trainings that run out of memory in the loss, in the optimizer's step, and as they load."""
    yield _smaller_batch_claim(profile, run_context)
    estimate = _predict_memory(_one_process_profile(profile, _LARGE_MODEL_RECIPE, run_context), run_context).estimate
    if estimate is None:
        yield untested_claim("Out of memory in the optimizer's step, and as the model is loaded", "no estimate")
        return
    parts_by_phase = {phase.name: dict(phase.parts) for phase in estimate.phases}
    step, load = (sum(parts_by_phase[name].values()) for name in ("optimizer step", "load"))
    # Its first step makes the states: before it, gradients and weights fit.
    half_of_states = parts_by_phase["optimizer step"]["optimizer states"] // 2
    yield _no_smaller_batch_claim("in the optimizer's first step", "step", step - half_of_states, profile, run_context)
    yield _no_smaller_batch_claim("while the model is loaded", "load", load // 2, profile, run_context)


def _smaller_batch_claim(profile: Profile, run_context: ShortRunContext) -> Claim:
    """Return the claim that a smaller micro batch follows out of memory in the loss, with equal losses."""
    claim = "Out of memory in the loss: a smaller micro batch trains with the same losses"
    whole = _one_process_profile(profile, _LARGE_BATCH_RECIPE, run_context)
    half = fields.profile_with_value(whole, "recipe.micro_batch", 8)
    limit = (
        _predict_memory(whole, run_context).reserved_bytes_at_peak
        + _predict_memory(half, run_context).reserved_bytes_at_peak
    ) // 2
    undisturbed = train(whole, run_context)
    if undisturbed.why_failed:
        return untested_claim(claim, f"the training fails without a limit too: {undisturbed.why_failed}")
    limited = train(_with_memory_limit(whole, limit), run_context)
    return checked_claim(
        claim,
        f"with {size_text(limit)}: fails in the loss, then {losses_text(undisturbed)}",
        f"{_attempts_text(limited)}, then {losses_text(limited)}",
        holds=[each.phase for each in limited.attempts[:1]] == ["loss"]
        and have_same_losses(limited, undisturbed, _SAME_LOSSES_TOLERANCE),
    )


def _no_smaller_batch_claim(
    where: str, phase: str, limit: int, profile: Profile, run_context: ShortRunContext
) -> Claim:
    """Return the claim that no smaller micro batch is tried where it would not help."""
    limited = train(
        _with_memory_limit(_one_process_profile(profile, _LARGE_MODEL_RECIPE, run_context), limit), run_context
    )
    return checked_claim(
        f"Out of memory {where} is not answered with a smaller micro batch",
        f"with {size_text(limit)}: fails in {phase}, 1 attempt",
        _attempts_text(limited),
        holds=[attempt.phase for attempt in limited.attempts] == [phase],
    )


def _attempts_text(training: EndedTraining) -> str:
    phases = ", ".join(attempt.phase for attempt in training.attempts if attempt.out_of_memory)
    number = quantity(len(training.attempts), "attempt")
    return f"fails in {phases}, {number}" if phases else f"no attempt ran out of memory, {number}"


def _one_process_profile(profile: Profile, recipe: Mapping[str, FieldValue], run_context: ShortRunContext) -> Profile:
    alone = one_process_values(make_setup(profile, run_context.facts))
    return small_training_profile(profile, {**recipe, **alone, "ladder.rungs": ("micro_batch",)})


def _with_memory_limit(profile: Profile, limit: int) -> Profile:
    variables = {**profile.trainer.environment, _MEMORY_LIMIT_VARIABLE: str(limit)}
    return fields.profile_with_value(profile, "trainer.environment", variables)


def _predict_memory(profile: Profile, run_context: ShortRunContext) -> Prediction:
    return predict_memory(make_setup(profile, run_context.facts))

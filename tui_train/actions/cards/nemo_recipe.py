"""Proves that a NeMo recipe trains, where a Python here has NeMo."""

from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.actions.cards.claims import Claim, checked_claim
from tui_train.actions.cards.trainings import losses_text, small_training_profile, train
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Profile

# It logs each tenth step.
_STEPS = 12
# NeMo imports for minutes from a slow disk.
_MAX_SECONDS = 420.0
_RECIPE: dict[str, FieldValue] = {
    "trainer.kind": "nemo", "trainer.python": "", "nemo.recipe": "qwen25_500m", "nemo.mock_data": True,
    "recipe.layers": 2, "recipe.hidden_size": 256, "recipe.heads": 4, "recipe.ffn_hidden_size": 512,
    "recipe.sequence_length": 256, "recipe.micro_batch": 1, "recipe.steps": _STEPS, "recipe.precision": "bf16",
    "recipe.checkpoint_every": _STEPS, "recipe.learning_rate": 1e-4, "recipe.warmup": None,
}  # fmt: skip


def nemo_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield whether some steps of a recipe on mock data have losses. Raises Unavailable where there is no NeMo."""
    small = small_training_profile(profile, _RECIPE)
    run_context = run_context._replace(facts=run_context.place.probe_facts_for(small))
    copies = make_setup(small, run_context.facts).model_copies
    small = replace(small, recipe=replace(small.recipe, global_batch=copies))
    trained = train(small, run_context, _MAX_SECONDS)
    yield checked_claim(
        "A NeMo recipe trains",
        f"losses of {_STEPS} steps",
        losses_text(trained),
        holds=not trained.why_failed and bool(trained.loss_by_step),
    )

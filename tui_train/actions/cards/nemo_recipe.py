"""Proves that a NeMo recipe trains, where a Python here has NeMo."""

from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.actions.cards.claims import Claim, compared_claim
from tui_train.actions.cards.trainings import losses_text, small_profile, train
from tui_train.actions.doctor.short_runs import Workbench
from tui_train.memory.data_defaults import set_up
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


def nemo_claims(profile: Profile, bench: Workbench) -> Iterator[Claim]:
    """Yield whether some steps of a recipe on mock data have losses. Raises Unavailable where there is no NeMo."""
    small = small_profile(profile, _RECIPE)
    bench = bench._replace(facts=bench.place.probe_facts_for(small))
    copies = set_up(small, bench.facts).model_copies
    small = replace(small, recipe=replace(small.recipe, global_batch=copies))
    trained = train(small, bench, _MAX_SECONDS)
    yield compared_claim(
        "A NeMo recipe trains",
        f"losses of {_STEPS} steps",
        losses_text(trained),
        holds=not trained.why and bool(trained.loss_by_step),
    )

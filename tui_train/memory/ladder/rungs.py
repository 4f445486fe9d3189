"""RUNGS: the fallbacks after a GPU ran out of memory, each an explained Change of the profile."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile.batch import largest_micro_batch
from tui_train.profile.changes import Change
from tui_train.profile.fields import get_value, similar_word_remedy
from tui_train.profile.rewards import DEFAULT_COMPLETION_LENGTH, generations_in_force
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_patterns import FALLBACK_PHASES
from tui_train.setup.blocked_fallbacks import LadderContext
from tui_train.setup.machine.overridden_variables import CUDA_ALLOCATOR_VARIABLES

_PHASES_WITH_ACTIVATIONS = frozenset({"loss"})
_ALL_FALLBACK_PHASES = frozenset(FALLBACK_PHASES)
_PHASES_WITH_OPTIMIZER_STATES = frozenset({"loss", "step", "eval"})


class Rung(Struct, frozen=True, kw_only=True):
    """One way to need less memory in some phases: `next_change` returns the next Change, None when none is left."""

    label: str
    cost: str
    next_change: Callable[[Profile, LadderContext], Change | None]
    helped_phases: frozenset[str] = _ALL_FALLBACK_PHASES
    needed_placeholders: frozenset[str] = frozenset()
    is_repeatable: bool = False
    changes_training: bool = False


def _make_next_change_switching_on(
    key: str,
    title: str,
    why: str,
    *,
    unless: Callable[[Profile, LadderContext], bool] = lambda _profile, _context: False,
) -> Callable[[Profile, LadderContext], Change | None]:
    """Return what gives the Change that switches a key of the profile on; none where it is on, or `unless` holds."""

    def next_change(profile: Profile, context: LadderContext) -> Change | None:
        is_on = get_value(profile, key)
        return None if is_on or unless(profile, context) else Change(title, why, ((key, True),))

    return next_change


def _eval_batch_change(profile: Profile, context: LadderContext) -> Change | None:
    current = profile.recipe.eval_batch or context.eval_batch or profile.recipe.micro_batch
    if current == 1:
        return None
    # In one step: an evaluation often precedes its step's checkpoint, and each attempt has to train up to it again.
    why = "one sample at a time: slower evaluation, same result"
    return Change(
        f"evaluation batch {current} -> 1" if current else "evaluation batch 1", why, (("recipe.eval_batch", 1),)
    )


def _micro_batch_change(profile: Profile, context: LadderContext) -> Change | None:
    micro, global_batch = profile.recipe.micro_batch, profile.recipe.global_batch
    if not micro or not global_batch:
        return None
    # A diagnosis knows the processes alone, and of a model that is split over several there are fewer copies.
    divided = global_batch - global_batch % context.world_size
    smaller = largest_micro_batch(divided, micro // 2, context.world_size, context.min_micro_batch)
    if smaller is None:
        return None
    why = "fewer activations at a time; more accumulation steps, same global batch"
    edits = (("recipe.micro_batch", smaller), ("recipe.global_batch", global_batch))
    return Change(f"micro batch {micro} -> {smaller}", why, edits)


def _sharding_change(profile: Profile, context: LadderContext) -> Change | None:
    # bitsandbytes keeps no 8-bit state for sharded weights.
    if profile.trainer.strategy != "ddp" or context.world_size < 2 or profile.recipe.optimizer_8bit:
        return None
    why = f"each of the {context.world_size} GPUs holds a shard of the model; restarts from step 0"
    return Change("sharding with FSDP2", why, (("trainer.strategy", "fsdp2"),))


def _sequence_length_change(profile: Profile, _context: LadderContext) -> Change | None:
    length = profile.recipe.sequence_length
    if length is None or length < 4:
        return None
    why = "shorter samples: changes the result"
    return Change(f"sequence length {length} -> {length // 2}", why, (("recipe.sequence_length", length // 2),))


def _completion_length_change(profile: Profile, _context: LadderContext) -> Change | None:
    length = profile.finetune.completion_length or DEFAULT_COMPLETION_LENGTH
    if length < 4:
        return None
    why = "answers are cut off sooner: changes the result"
    return Change(f"answer length {length} -> {length // 2}", why, (("finetune.completion_length", length // 2),))


def _generations_change(profile: Profile, context: LadderContext) -> Change | None:
    count, recipe = generations_in_force(profile.finetune), profile.recipe
    # TRL takes two and more. The global batch counts answers, and all of it are written at once.
    if count < 4 or count % 2 or not recipe.micro_batch or not recipe.global_batch:
        return None
    if recipe.global_batch % (2 * recipe.micro_batch * context.world_size):
        return None
    batch = recipe.global_batch // 2
    why = f"as many prompts a step, half as many answers: global batch {batch}; changes the result"
    edits = (("finetune.generations", count // 2), ("recipe.global_batch", batch))
    return Change(f"generations {count} -> {count // 2}", why, edits)


def _layers_change(profile: Profile, context: LadderContext) -> Change | None:
    layers = profile.recipe.layers
    if layers is None or layers < 2 or context.loads_model:
        return None
    why = "a smaller model; restarts from step 0"
    return Change(f"layers {layers} -> {layers // 2}", why, (("recipe.layers", layers // 2),))


RUNGS: dict[str, Rung] = {
    "expandable_segments": Rung(
        label="Expandable segments",
        cost="same result; reduces fragmentation",
        next_change=_make_next_change_switching_on(
            "recipe.expandable_segments",
            "expandable segments",
            "less memory lost to fragmentation",
            # The user's own settings of the allocator would win over ours.
            unless=lambda profile, context: (
                not context.on_cuda or not profile.trainer.environment.keys().isdisjoint(CUDA_ALLOCATOR_VARIABLES)
            ),
        ),
    ),
    "fused_optimizer": Rung(
        label="Fused optimizer",
        cost="same result; smaller peak in the optimizer step",
        next_change=_make_next_change_switching_on(
            "recipe.fused_optimizer",
            "fused optimizer",
            "AdamW in one kernel: its step needs less temporary memory",
            unless=lambda profile, _: profile.recipe.optimizer_8bit,
        ),
        helped_phases=frozenset({"step"}),
        needed_placeholders=frozenset({"fused_optimizer"}),
    ),
    "eval_batch": Rung(
        label="Smaller evaluation batch",
        cost="same result, slower evaluation",
        next_change=_eval_batch_change,
        helped_phases=frozenset({"eval"}),
        needed_placeholders=frozenset({"eval_batch"}),
    ),
    "micro_batch": Rung(
        label="Smaller micro batch",
        cost="same result, slightly slower; halves again, down to 1",
        next_change=_micro_batch_change,
        helped_phases=_PHASES_WITH_ACTIVATIONS,
        needed_placeholders=frozenset({"micro_batch|total_batch", "accumulation|total_accumulation"}),
        is_repeatable=True,
    ),
    "activation_checkpointing": Rung(
        label="Activation checkpointing",
        cost="same result, about 25 % slower",
        next_change=_make_next_change_switching_on(
            "recipe.activation_checkpointing",
            "activation checkpointing",
            "activations are recomputed: less memory, about 25 % slower",
        ),
        helped_phases=_PHASES_WITH_ACTIVATIONS,
        needed_placeholders=frozenset({"activation_checkpointing"}),
    ),
    "fused_cross_entropy": Rung(
        label="Fused cross entropy",
        cost="same result up to rounding; needs Liger",
        next_change=_make_next_change_switching_on(
            "recipe.fused_cross_entropy",
            "fused cross entropy",
            "never holds all logits at once: losses differ by rounding",
        ),
        helped_phases=_PHASES_WITH_ACTIVATIONS | {"eval"},
        needed_placeholders=frozenset({"fused_cross_entropy"}),
    ),
    "sharding": Rung(
        label="Shard the model (FSDP2)", cost="same result, from step 0; needs accelerate", next_change=_sharding_change
    ),
    "offload": Rung(
        label="Offload to the CPU",
        cost="same result, much slower; uses host memory",
        next_change=_make_next_change_switching_on(
            "trainer.offload",
            "CPU offload",
            "sharded state moves to host memory: much less GPU memory, much slower",
            unless=lambda profile, _: profile.trainer.strategy == "ddp",
        ),
    ),
    "optimizer_8bit": Rung(
        label="8-bit optimizer",
        cost="changes the result, from step 0; needs consent",
        next_change=_make_next_change_switching_on(
            "recipe.optimizer_8bit",
            "8-bit optimizer",
            "optimizer states need a quarter of the memory; restarts from step 0",
            unless=lambda profile, _: profile.trainer.strategy != "ddp",
        ),
        helped_phases=_PHASES_WITH_OPTIMIZER_STATES,
        needed_placeholders=frozenset({"optimizer_8bit"}),
        changes_training=True,
    ),
    "sequence_length": Rung(
        label="Halve sequence length",
        cost="changes the result; needs consent",
        next_change=_sequence_length_change,
        helped_phases=_PHASES_WITH_ACTIVATIONS | {"eval"},
        needed_placeholders=frozenset({"sequence_length"}),
        changes_training=True,
    ),
    "completion_length": Rung(
        label="Halve answer length",
        cost="for rewards; changes the result; needs consent",
        next_change=_completion_length_change,
        helped_phases=_PHASES_WITH_ACTIVATIONS | {"eval"},
        needed_placeholders=frozenset({"completion_length"}),
        changes_training=True,
    ),
    "generations": Rung(
        label="Halve generations",
        cost="for rewards; changes the result; needs consent",
        next_change=_generations_change,
        helped_phases=_PHASES_WITH_ACTIVATIONS,
        needed_placeholders=frozenset({"generations"}),
        changes_training=True,
    ),
    "lora": Rung(
        label="LoRA",
        cost="changes the result, from step 0; needs consent",
        next_change=_make_next_change_switching_on(
            "recipe.lora", "LoRA", "trains small adapter matrices, weights are frozen; restarts from step 0"
        ),
        helped_phases=_PHASES_WITH_OPTIMIZER_STATES,
        needed_placeholders=frozenset({"lora"}),
        changes_training=True,
    ),
    "layers": Rung(
        label="Halve the layers",
        cost="smaller model, from step 0; needs consent",
        next_change=_layers_change,
        needed_placeholders=frozenset({"layers"}),
        changes_training=True,
    ),
}


def get_rung(name: str) -> Rung:
    """Return a rung by name; BadInput names the nearest one."""
    if name in RUNGS:
        return RUNGS[name]
    raise BadInput(f"there is no fallback {visible(name)}", similar_word_remedy(name, tuple(RUNGS)))


def why_rung_unusable(name: str, ladder_context: LadderContext) -> str:
    """Return why a rung cannot help with this trainer and machine, empty when it can."""
    if name == "expandable_segments" and not ladder_context.on_cuda:
        return "only for GPUs"
    if why := ladder_context.why_rung_refused(name):
        return why
    if name == "sharding" and ladder_context.world_size < 2:
        return "needs two or more processes"
    if name == "layers" and ladder_context.loads_model:
        return "the loaded model has a fixed size"
    missing = [
        need
        for need in get_rung(name).needed_placeholders
        if not ladder_context.accepted_placeholders & set(need.split("|"))
    ]
    return "does not apply to this training" if missing else ""


def rung_helps_phase(name: str, phase: str, profile: Profile, ladder_context: LadderContext) -> bool:
    """Return whether a rung helps a phase; a smaller micro batch helps an evaluation that uses it."""
    with_micro = not (profile.recipe.eval_batch or ladder_context.eval_batch)
    return phase in get_rung(name).helped_phases or (name == "micro_batch" and phase == "eval" and with_micro)

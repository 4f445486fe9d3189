"""RUNGS: what can be tried after a GPU ran out of memory, each an explained Change of the profile."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.changes import Change, apply
from tui_train.errors import BadInput
from tui_train.plan.batch import smaller_micro
from tui_train.profile.fields import nearest
from tui_train.profile.types import Profile
from tui_train.text import visible

_MOST_ATTEMPTS = 12
# The user's own settings of the CUDA allocator would win over ours.
_ALLOCATOR = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})


class Room(Struct, frozen=True, kw_only=True):
    """What a rung may build on: world size, GPUs or not, what the trainer takes, whether weights are loaded.

    `unsharded` says why the model cannot be shared out among the processes, empty where it can; `nodes` are machines.
    """

    world_size: int
    cuda: bool
    takes: frozenset[str]
    loads_model: bool
    unsharded: str = ""
    nodes: int = 1


class Rung(Struct, frozen=True, kw_only=True):
    """One way to need less memory: `step` returns the next Change, None when it has nothing (more) to give."""

    label: str
    cost: str
    step: Callable[[Profile, Room], Change | None]
    needs: frozenset[str] = frozenset()
    repeats: bool = False
    changes_training: bool = False


def _expandable_segments(profile: Profile, room: Room) -> Change | None:
    if not room.cuda or profile.recipe.expandable_segments or _ALLOCATOR & profile.trainer.environment.keys():
        return None
    return Change("expandable segments", "less fragmentation", (("recipe.expandable_segments", True),))


def _micro_batch(profile: Profile, room: Room) -> Change | None:
    recipe = profile.recipe
    smaller = smaller_micro(recipe.global_batch, recipe.micro_batch, room.world_size)
    if smaller is None:
        return None
    why = "fewer activations at a time; accumulation grows, the global batch stays"
    return Change(f"micro batch {recipe.micro_batch} -> {smaller}", why, (("recipe.micro_batch", smaller),))


def _activation_checkpointing(profile: Profile, _room: Room) -> Change | None:
    if profile.recipe.activation_checkpointing:
        return None
    why = "activations are recomputed: less memory, about a quarter slower"
    return Change("activation checkpointing", why, (("recipe.activation_checkpointing", True),))


def _sharding(profile: Profile, room: Room) -> Change | None:
    if profile.trainer.strategy != "ddp" or room.world_size < 2:
        return None
    why = f"each of the {room.world_size} GPUs holds a share of the model: starts again from step 0"
    return Change("sharding by fsdp2", why, (("trainer.strategy", "fsdp2"),))


def _offload(profile: Profile, _room: Room) -> Change | None:
    if profile.trainer.strategy == "ddp" or profile.trainer.offload:
        return None
    why = "what is sharded moves to the host's memory: much less GPU memory, much slower"
    return Change("offload to the host", why, (("trainer.offload", True),))


def _sequence_length(profile: Profile, _room: Room) -> Change | None:
    length = profile.recipe.sequence_length
    if length < 4:
        return None
    why = "shorter samples: the training is another one"
    return Change(f"sequence length {length} -> {length // 2}", why, (("recipe.sequence_length", length // 2),))


def _layers(profile: Profile, room: Room) -> Change | None:
    layers = profile.recipe.layers
    if layers < 2 or room.loads_model:
        return None
    why = "a smaller model: starts again from step 0"
    return Change(f"layers {layers} -> {layers // 2}", why, (("recipe.layers", layers // 2),))


RUNGS: dict[str, Rung] = {
    "expandable_segments": Rung(
        label="Expandable segments",
        cost="costs nothing; helps against fragmentation",
        step=_expandable_segments,
    ),
    "micro_batch": Rung(
        label="Smaller micro batch",
        cost="same training, a little slower; again until 1",
        step=_micro_batch,
        needs=frozenset({"micro_batch|total_batch", "accumulation|total_accumulation"}),
        repeats=True,
    ),
    "activation_checkpointing": Rung(
        label="Activation checkpointing",
        cost="same training, about a quarter slower",
        step=_activation_checkpointing,
        needs=frozenset({"activation_checkpointing"}),
    ),
    "sharding": Rung(
        label="Share the model (fsdp2)",
        cost="same training, from step 0; needs accelerate",
        step=_sharding,
    ),
    "offload": Rung(
        label="Offload what is sharded",
        cost="same training, much slower; fills host memory",
        step=_offload,
    ),
    "sequence_length": Rung(
        label="Half the sequence length",
        cost="cuts the samples: asks for your consent",
        step=_sequence_length,
        needs=frozenset({"sequence_length"}),
        changes_training=True,
    ),
    "layers": Rung(
        label="Half the layers",
        cost="another model, from step 0: asks for your consent",
        step=_layers,
        needs=frozenset({"layers"}),
        changes_training=True,
    ),
}


def rung(name: str) -> Rung:
    """Return a rung by name; BadInput names the nearest one."""
    if name in RUNGS:
        return RUNGS[name]
    raise BadInput(f"there is no fallback {visible(name)}", nearest(name, tuple(RUNGS)))


def why_not(name: str, room: Room) -> str:
    """Return why this trainer and machine have no use for a rung, empty when they have."""
    if room.nodes > 1:
        return "not with several machines: none sees the others fail"
    if name == "expandable_segments" and not room.cuda:
        return "only for GPUs"
    if name in {"sharding", "offload"} and room.unsharded:
        return room.unsharded
    if name == "sharding" and room.world_size < 2:
        return "one process has nobody to share with"
    if name == "layers" and room.loads_model:
        return "never with a loaded model"
    lacking = [need for need in rung(name).needs if not room.takes & set(need.split("|"))]
    return "the trainer's preset cannot pass it" if lacking else ""


def climb(profile: Profile, room: Room) -> tuple[tuple[str, Change, Profile], ...]:
    """Return the rungs that the profile asks for and allows, in order: name, change, and the profile that it gives."""
    climbed: list[tuple[str, Change, Profile]] = []
    for name in profile.ladder.rungs:
        found = rung(name)
        if why_not(name, room) or (found.changes_training and name not in profile.ladder.consent):
            continue
        while len(climbed) < _MOST_ATTEMPTS and (change := found.step(profile, room)):
            profile = apply(change, profile)
            climbed.append((name, change, profile))
            if not found.repeats:
                break
    return tuple(climbed)

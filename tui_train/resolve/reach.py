"""Which choices reach what trains, and why the others do not; the screens and the checks give the same reasons."""

from tui_train.base.text import visible
from tui_train.presets import PLACEHOLDERS
from tui_train.profile.types import Profile
from tui_train.resolve.resolve import MODEL_SIZE, Resolved
from tui_train.trainers import takers, takes_field, trainer_of

# A trainer has them only where its preset, or an argument of the user's, passes them on.
_PASSED_ON = {
    "trainer.model": "model",
    "trainer.data": "data",
    "trainer.validation_data": "validation_data",
    "trainer.test_data": "test_data",
    "trainer.config": "config",
    "trainer.output": "output",
}
_SEVERAL_MACHINES = frozenset({"nodes.address", "nodes.port"})
_CONTAINER_ONLY = frozenset({"container.image", "container.mounts", "container.shared_memory"})
# They are worked into other values, or into the environment.
_OURS = frozenset({"recipe.lr_base_batch"})


def why_not(key: str, profile: Profile, resolved: Resolved | None = None) -> str:
    """Return why a value has no effect on the training, empty when it has; without `resolved` as far as is known."""
    section = key.partition(".")[0]
    if section == "communication":
        return _not_for_communication(key, resolved.backend) if resolved else ""
    if section == "recipe":
        return _not_passed(key, profile, resolved) if resolved and key not in _OURS else ""
    return _not_there(key, profile) or _not_for_trainer(key, profile, resolved)


def _not_there(key: str, profile: Profile) -> str:
    """Return why a value has no effect with the machines, the container or the strategy that are chosen."""
    if key == "trainer.offload" and profile.trainer.strategy == "ddp":
        return "only what is sharded is offloaded, and ddp shards nothing"
    if key in _SEVERAL_MACHINES and profile.nodes.count == 1:
        return "one machine meets no others"
    if key in _CONTAINER_ONLY and profile.container.engine == "none":
        return "no container is chosen"
    if key == "trainer.python" and profile.container.engine != "none":
        return "the image has its own Python"
    return ""


def _not_for_trainer(key: str, profile: Profile, resolved: Resolved | None) -> str:
    """Return why what trains does not take a value."""
    able, mine = takers(key), trainer_of(profile)
    if able and mine not in able:
        return f"only {able[0].label} takes it" if len(able) == 1 else f"{mine.label} takes none"
    if key == "nemo.peft" and profile.nemo.task != "finetune":
        return "only a finetune takes it"
    return _not_taken(key, resolved) if resolved else ""


def _not_taken(key: str, resolved: Resolved) -> str:
    preset = resolved.preset
    if key == "trainer.script" and not preset.wants_script:
        return f"“{visible(preset.label)}” starts a module of its own"
    named = _PASSED_ON.get(key)
    if named is None or named in resolved.context.takes or (named == "config" and preset.file):
        return ""
    return f"“{visible(preset.label)}” does not take it"


def _not_for_communication(key: str, talks: str) -> str:
    if not talks:
        return "not needed for one process"
    return f"these processes talk by {talks}" if key == "communication.debug" and talks != "nccl" else ""


def _not_passed(key: str, profile: Profile, resolved: Resolved) -> str:
    if key == "recipe.expandable_segments":
        return "" if resolved.device == "cuda" else "only for GPUs"
    wanted = "recipe.learning_rate" if key == "recipe.lr_scaling" else key
    names = {name for name, needed in PLACEHOLDERS.items() if needed == wanted}
    if resolved.context.loads_model and MODEL_SIZE & names:
        return "the model folder decides"
    if not resolved.context.takes.isdisjoint(names):
        return ""
    if resolved.nemo and MODEL_SIZE & names:
        return "the weights decide"
    if takes_field(profile, "trainer.preset"):
        return "this preset does not pass it"
    return f"{trainer_of(profile).label} does not take it"

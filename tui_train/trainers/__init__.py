"""TRAINERS: the programs that train, one module each; their capabilities are data, so no other code tests names."""

from msgspec.structs import replace

from tui_train.facts.types import Facts, Toolchain
from tui_train.profile import fields, mounts
from tui_train.profile.rewards import chosen_rewards
from tui_train.profile.rows import Field
from tui_train.profile.types import Profile, TrainerKind
from tui_train.trainers.builtin import BuiltinTrainer
from tui_train.trainers.communication import CommunicationTestTrainer
from tui_train.trainers.finetune import FinetuneTrainer
from tui_train.trainers.nemo_recipe import NemoRecipeTrainer
from tui_train.trainers.script import ScriptTrainer
from tui_train.trainers.trainer import Trainer

TRAINERS: dict[TrainerKind, type[Trainer]] = {
    "finetune": FinetuneTrainer, "builtin": BuiltinTrainer, "script": ScriptTrainer, "nemo": NemoRecipeTrainer,
    "communication": CommunicationTestTrainer,
}  # fmt: skip


def trainer_of(profile: Profile, toolchain: Toolchain | None = None, facts: Facts | None = None) -> Trainer:
    """Return the trainer of a profile, bound to it, and to its Python and the facts where they are known."""
    return TRAINERS[profile.trainer.kind](profile, toolchain, facts)


def field_with_trainer_texts(key: str, profile: Profile) -> Field:
    """Return a field with the words of the profile's trainer where that has its own; BadInput for an unknown key."""
    row, own = fields.get_field(key), trainer_of(profile).field_texts.get(key)
    return replace(row, empty=own.empty, help=own.help) if own else row


def trainers_with_own_field(key: str) -> tuple[type[Trainer], ...]:
    """Return the trainers that take a key or its section if only some do; empty for keys that all take."""
    section = key.partition(".")[0]
    return tuple(trainer for trainer in TRAINERS.values() if {key, section} & trainer.own_fields)


def trainer_has_own_field(profile: Profile, key: str) -> bool:
    """Return whether the trainer of a profile takes a key, or a section, that only some take."""
    return TRAINERS[profile.trainer.kind] in trainers_with_own_field(key)


def hub_model_id(profile: Profile) -> str:
    """Return the id of the profile's model on the Hugging Face Hub; empty for a folder, and where there is none."""
    model = profile.trainer.model
    return "" if model.startswith("/") else model


def profile_paths_to_check(profile: Profile) -> tuple[str, ...]:
    """Return the paths in the profile whose state the checks need; the Python is probed elsewhere."""
    trainer = profile.trainer
    mounted = (mount.host for mount in map(mounts.parse_mount, profile.container.mounts) if mount)
    image = profile.container.image if profile.container.engine == "apptainer" else ""
    single_paths = (
        trainer.script,
        trainer.config,
        trainer.accelerate_config,
        trainer.working_directory,
        trainer.output,
    )
    data = (*trainer.data, *trainer.validation_data, *trainer.test_data)
    model = () if hub_model_id(profile) else (trainer.model,)
    reward_files = (reward.file for reward in chosen_rewards(profile.finetune))
    named = (*single_paths, *model, *data, *mounted, image, *trainer_of(profile).own_paths(), *reward_files)
    return tuple(dict.fromkeys(path for path in named if path))

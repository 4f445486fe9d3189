"""TRAINERS: what can train, one module each; what a member can do is data on it, and nothing else asks for its name."""

from tui_train.profile import mounts
from tui_train.profile.types import Kind, Profile
from tui_train.trainers.builtin import Builtin
from tui_train.trainers.nemo_recipe import NemoRecipe
from tui_train.trainers.script import Script
from tui_train.trainers.trainer import Trainer

TRAINERS: dict[Kind, Trainer] = {"builtin": Builtin(), "script": Script(), "nemo": NemoRecipe()}


def trainer_of(profile: Profile) -> Trainer:
    """Return what trains a profile."""
    return TRAINERS[profile.trainer.kind]


def takers(key: str) -> tuple[Trainer, ...]:
    """Return the trainers that take a key which only some take, by itself or by its section; empty for the others."""
    section = key.partition(".")[0]
    return tuple(trainer for trainer in TRAINERS.values() if {key, section} & trainer.fields)


def takes_field(profile: Profile, key: str) -> bool:
    """Tell whether a profile's trainer takes a key, or a section, which only some take."""
    return trainer_of(profile) in takers(key)


def paths_of(profile: Profile) -> tuple[str, ...]:
    """Return the paths that the profile names, whose state the checks ask for; the Python is probed another way."""
    trainer = profile.trainer
    mounted = (mount.host for mount in map(mounts.parse, profile.container.mounts) if mount)
    image = profile.container.image if profile.container.engine == "apptainer" else ""
    plain = (trainer.script, trainer.config, trainer.working_directory, trainer.model, trainer.output)
    data = (*trainer.data, *trainer.validation_data, *trainer.test_data)
    named = (*plain, *data, *mounted, image, *trainer_of(profile).paths(profile))
    return tuple(dict.fromkeys(path for path in named if path))

"""Summary of a profile in a few words, and a name for one without a name."""

import re
from pathlib import PurePath

from msgspec import Struct

from tui_train.profile.types import Profile
from tui_train.trainers import trainer_has_own_field, trainer_of

UNNAMED_PROFILE_NAME = Profile().name
_MAX_NAME_LENGTH = 40
_MAX_DATA_NAMES_SHOWN = 2
# Names that every second script has.
_COMMON_SCRIPT_NAMES = frozenset({"train", "main", "run", "finetune", "training", "sft", "pretrain", "config"})


class TrainingSummary(Struct, frozen=True):
    """The method, model, data and script of a training, each empty if the profile has none."""

    method: str = ""
    model: str = ""
    data: str = ""
    script: str = ""

    @property
    def text(self) -> str:
        """All of it in one line."""
        return ", ".join(filter(None, (self.script, self.method, self.model, self.data)))


def training_summary(profile: Profile) -> TrainingSummary:
    """Return what a profile trains, by the names of its files without their folders."""
    trainer = profile.trainer
    model = PurePath(trainer.model).name or trainer_of(profile).recipe_name()
    names = [PurePath(path).name for path in trainer.data]
    more = f" + {len(names) - _MAX_DATA_NAMES_SHOWN}" if len(names) > _MAX_DATA_NAMES_SHOWN else ""
    script = PurePath(trainer.script or trainer.config).name if trainer_has_own_field(profile, "trainer.script") else ""
    return TrainingSummary(
        trainer_of(profile).method_label(), model, ", ".join(names[:_MAX_DATA_NAMES_SHOWN]) + more, script
    )


def chosen_or_derived_name(profile: Profile) -> str:
    """Return the name that the user gave, or one of model, data and method; that of the quickstart where it is that."""
    if profile.name != UNNAMED_PROFILE_NAME:
        return profile.name
    summary, trainer = training_summary(profile), profile.trainer
    data = PurePath(trainer.data[0]).stem if trainer.data else ""
    parts = [summary.model, data]
    if not any(parts):
        parts = [*map(_distinctive_file_name, filter(None, (trainer.config, trainer.script)))][:1]
    if not any(parts):
        return UNNAMED_PROFILE_NAME
    words = [re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-._") for part in (*parts, summary.method)]
    return "-".join(dict.fromkeys(filter(None, words)))[:_MAX_NAME_LENGTH].strip("-._") or UNNAMED_PROFILE_NAME


def _distinctive_file_name(path: str) -> str:
    """Return a file's name without its ending, after its folder's where many files are called so."""
    file = PurePath(path)
    return f"{file.parent.name}-{file.stem}" if file.stem.lower() in _COMMON_SCRIPT_NAMES else file.stem

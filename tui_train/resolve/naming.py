"""What a profile trains, in a few words, and the name of one that the user did not name."""

import re
from pathlib import PurePath

from msgspec import Struct

from tui_train.profile.types import Profile
from tui_train.trainers import takes_field, trainer_of

UNNAMED = Profile().name
_LONGEST = 40
_MOST_DATA = 2
# Names that every second script has.
_USUAL = frozenset({"train", "main", "run", "finetune", "training", "sft", "pretrain", "config"})


class About(Struct, frozen=True):
    """What is trained: the method, the model, the data and the user's script, each empty if the profile has none."""

    method: str = ""
    model: str = ""
    data: str = ""
    script: str = ""

    @property
    def words(self) -> str:
        """All of it in one line."""
        return ", ".join(filter(None, (self.script, self.method, self.model, self.data)))


def about(profile: Profile) -> About:
    """Return what a profile trains, by the names of its files without their folders."""
    trainer = profile.trainer
    model = PurePath(trainer.model).name or trainer_of(profile).recipe(profile)
    names = [PurePath(path).name for path in trainer.data]
    more = f" + {len(names) - _MOST_DATA}" if len(names) > _MOST_DATA else ""
    script = PurePath(trainer.script or trainer.config).name if takes_field(profile, "trainer.script") else ""
    return About(trainer_of(profile).method(profile), model, ", ".join(names[:_MOST_DATA]) + more, script)


def name_of(profile: Profile) -> str:
    """Return the name that the user gave, or one of model, data and method; that of the quickstart where it is that."""
    if profile.name != UNNAMED:
        return profile.name
    found, trainer = about(profile), profile.trainer
    data = PurePath(trainer.data[0]).stem if trainer.data else ""
    parts = [found.model, data]
    if not any(parts):
        parts = [*map(_own_stem, filter(None, (trainer.config, trainer.script)))][:1]
    if not any(parts):
        return UNNAMED
    words = [_word(part) for part in (*parts, found.method)]
    return "-".join(dict.fromkeys(filter(None, words)))[:_LONGEST].strip("-._") or UNNAMED


def _own_stem(path: str) -> str:
    """Return a file's name without its ending, after its folder's where many files are called so."""
    file = PurePath(path)
    return f"{file.parent.name}-{file.stem}" if file.stem.lower() in _USUAL else file.stem


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-._")

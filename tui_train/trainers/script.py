"""A script of the user's, or a library's module: a preset passes it the recipe."""

from tui_train.base.command import Part
from tui_train.presets import Preset
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import Trainer


class Script(Trainer):
    """Starts what the profile's preset is for."""

    name = "My own script"
    about = "a preset passes it the recipe"
    label = "a script of your own"
    fields = frozenset(
        {"trainer.script", "trainer.preset", "trainer.config", "trainer.arguments", "trainer.working_directory"}
    )

    def title(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> str:
        """Return the script or the module."""
        del flavour
        return started(profile, preset)

    def whose(self, profile: Profile, preset: Preset) -> str:
        """Return the preset's, where no script takes its module's place."""
        return f"{preset.label}'s own" if is_its_own(profile, preset) and preset.module else "the script's own"

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the script or the module."""
        del flavour
        named = started(profile, preset)
        return (Part(("-m", named) if named == preset.module else (named,)),)


def started(profile: Profile, preset: Preset) -> str:
    """Return the script or the module that a preset starts; empty where a script must be named and is not."""
    return (profile.trainer.script if preset.wants_script else "") or preset.module


def is_its_own(profile: Profile, preset: Preset) -> bool:
    """Tell whether a preset's defaults are those of what starts: not where a script takes its module's place."""
    return not preset.module or not (preset.wants_script and profile.trainer.script)

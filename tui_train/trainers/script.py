"""A script of the user, or a module of a library; a preset passes it the recipe."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from tui_train.base.command import CommandPart
from tui_train.facts.scripts.script_source import read_script_source
from tui_train.facts.types import ScriptSource
from tui_train.profile.presets import Preset
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.trainers.auto_preset import (
    SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT,
    SCRIPT_OWN_VALUE_SOURCE_TEXT,
    names_of_declared_defaults,
    preset_for_source,
)
from tui_train.trainers.trainer import FieldTexts, Trainer


class ScriptTrainer(Trainer):
    """Starts the script or module of the preset."""

    name = "My own script"
    about = "run your train.py"
    label = "your own script"
    accepts_hub_model_ids = True
    reads_backend_variable = True
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {
        "trainer.model": FieldTexts(
            "not passed", "A Hugging Face model that the preset passes to the script: its id on the Hub, or a folder."
        ),
        "trainer.data": FieldTexts("not passed", "Files or folders that the preset passes to the script."),
        "recipe.learning_rate": FieldTexts("", "Learning rate that the script is passed. Not set: the script's own."),
    }
    own_fields = frozenset(
        {
            "trainer.script", "trainer.preset", "trainer.config", "trainer.arguments", "trainer.working_directory",
            "trainer.revision", "trainer.allow", "trainer.progress",
        }
    )  # fmt: skip

    @cached_property
    def preset(self) -> Preset:
        """The preset that is named, or what suits the script; without facts the script is read here."""
        if self.profile.trainer.preset != AUTO_PRESET:
            return super().preset
        return preset_for_source(self._script_source(), self.profile.trainer.arguments)

    def _script_source(self) -> ScriptSource | None:
        script = self.profile.trainer.script
        return self.facts.sources.get(script) if self.facts else read_script_source(script) if script else None

    def own_default_source_by_name(self) -> Mapping[str, str]:
        """Return the script as the source of the defaults that it writes out itself."""
        source = self._script_source() if self.profile.trainer.preset == AUTO_PRESET else None
        names = names_of_declared_defaults(source, self.profile.trainer.arguments) if source else ()
        return dict.fromkeys(names, SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT)

    def library_preset_name(self) -> str:
        """Return the preset."""
        return self.profile.trainer.preset

    def title(self) -> str:
        """Return the script or the module."""
        return script_or_module_to_start(self.profile, self.preset)

    def unset_value_text(self) -> str:
        """Return that it is the preset's default, or the script's own if it replaces the module."""
        by_preset = do_preset_defaults_apply(self.profile, self.preset) and self.preset.module
        return f"{self.preset.label}'s default" if by_preset else SCRIPT_OWN_VALUE_SOURCE_TEXT

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return the script or the module."""
        named = script_or_module_to_start(self.profile, self.preset)
        return (CommandPart(("-m", named) if named == self.preset.module else (named,)),)


def script_or_module_to_start(profile: Profile, preset: Preset) -> str:
    """Return the script or module that a preset starts; empty if a required script is not set."""
    return (profile.trainer.script if preset.can_start_script else "") or preset.module


def do_preset_defaults_apply(profile: Profile, preset: Preset) -> bool:
    """Return whether the preset's defaults apply: not if a script replaces its module."""
    return not preset.module or not (preset.can_start_script and profile.trainer.script)

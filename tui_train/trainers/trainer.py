"""Trainer: the interface of all trainers, with the defaults of most."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from tui_train.base.command import Part, ProgramFile
from tui_train.facts.types import Facts, Gpu, Toolchain
from tui_train.profile.presets import Preset, Scalar
from tui_train.profile.presets import accepted_placeholders as preset_takes
from tui_train.profile.presets import get_preset as named_preset
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import Flavour

SHIM_FOLDER = "shim"


class FieldTexts(NamedTuple):
    """A trainer's texts for a field: the meaning of an empty value, and the help."""

    empty: str
    help: str


class PreparationStep(Struct, frozen=True):
    """A step before the training: its name (lower-case letters), purpose and arguments."""

    name: str
    why: str
    parts: tuple[Part, ...]


class Trainer:
    """A program that trains.

    `name` and `about` are shown in the choice, `label` names it in a sentence. `fields` are the keys or sections of a
    profile that this trainer takes and others do not. `makes_model`: without a model it makes a new one of the recipe's
    size, and without data it trains on a sample text. `gets_every_value`: its defaults are those of this package, and
    it is passed every value of the recipe. `wants_data`: it trains on nothing but the data of the profile.
    `allows_uneven`: its machines may have different numbers of processes. `resumes_itself`: it finds its newest
    checkpoint. `why_no_gloo` is why it cannot use Gloo on GPUs, empty if it can. `library_set` is the set that
    `tui-train env create` installs for it. `takes_hub_ids`: its model may be the id of one on the Hugging Face Hub.
    `field_texts` are its own for fields that mean something else to each trainer, by key.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    label: ClassVar[str]
    fields: ClassVar[frozenset[str]] = frozenset()
    makes_model: ClassVar[bool] = False
    gets_every_value: ClassVar[bool] = False
    wants_data: ClassVar[bool] = False
    allows_uneven: ClassVar[bool] = True
    resumes_itself: ClassVar[bool] = False
    why_no_gloo: ClassVar[str] = ""
    library_set: ClassVar[str] = "hf"
    takes_hub_ids: ClassVar[bool] = False
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {}

    def method(self, profile: Profile) -> str:
        """Return how it trains, in a word; empty where only its own script or file says so."""
        return "LoRA" if profile.recipe.lora else ""

    def recipe(self, profile: Profile) -> str:
        """Return what stands for the model where the profile names none; empty where nothing does."""
        del profile
        return ""

    def preset(self, profile: Profile, toolchain: Toolchain | None, facts: Facts | None) -> Preset:
        """Return how the recipe is passed to it; BadInput for an unknown preset."""
        del toolchain
        return named_preset(profile.trainer.preset, facts.presets if facts else {})

    def accepted_placeholders(self, profile: Profile, toolchain: Toolchain | None, preset: Preset) -> frozenset[str]:
        """Return the placeholders whose values reach it."""
        del toolchain
        return preset_takes(preset, profile.trainer.arguments)

    def needed_packages(self, profile: Profile) -> tuple[str, ...]:
        """Return the packages that the training Python must have."""
        del profile
        return ()

    def defaults(self, profile: Profile, gpus: tuple[Gpu, ...]) -> dict[str, Scalar]:
        """Return its defaults that depend on the GPUs, which replace those of the preset; by placeholder."""
        del profile, gpus
        return {}

    def evaluates(self, profile: Profile) -> bool:
        """Return whether it may evaluate, where memory can run out."""
        del profile
        return True

    def min_micro(self, profile: Profile) -> int:
        """Return the smallest micro batch that it can train with."""
        del profile
        return 1

    def options(self, profile: Profile) -> dict[str, Any]:
        """Return the options that its own section of a settled profile sets, by the name that its library has."""
        del profile
        return {}

    def conventions(self, profile: Profile) -> str:
        """Return the preset whose library decides what the options do not say; empty: none is known."""
        del profile
        return ""

    def preparations(self, profile: Profile, facts: Facts) -> tuple[PreparationStep, ...]:
        """Return what its Python does before the training."""
        del profile, facts
        return ()

    def flavour(self, toolchain: Toolchain | None) -> Flavour | None:
        """Return which flavour of NeMo this Python uses, None for other trainers."""
        del toolchain
        return None

    def why_unusable(self, toolchain: Toolchain) -> str:
        """Return what a Python lacks besides `needs`, as words that follow "has"; empty if nothing."""
        del toolchain
        return ""

    def toolchain_rank(self, toolchain: Toolchain) -> int:
        """Return the rank of a Python among those that can train; the lowest is preferred."""
        del toolchain
        return 0

    def copies(self, profile: Profile, world_size: int, toolchain: Toolchain | None) -> int:
        """Return the number of data-parallel copies of the model."""
        del profile, toolchain
        return world_size

    def paths(self, profile: Profile) -> tuple[str, ...]:
        """Return the paths that only this trainer opens."""
        del profile
        return ()

    def title(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> str:
        """Return the name of the training for a headline."""
        del profile, preset, flavour
        return self.label

    def default_sources(self, profile: Profile) -> Mapping[str, str]:
        """Return the sources of its own defaults that have one, by their name in the recipe."""
        del profile
        return {}

    def default_source(self, profile: Profile, preset: Preset) -> str:
        """Return the source of values that are neither set nor known."""
        del profile, preset
        return "the trainer's default"

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the arguments after the launcher that start it."""
        raise NotImplementedError

    def files(self, profile: Profile) -> tuple[ProgramFile, ...]:
        """Return the files of this package that it needs in the run folder: the module that prints its devices."""
        del profile
        return (ProgramFile(f"{SHIM_FOLDER}/sitecustomize.py", "programs/shim/sitecustomize.py"),)

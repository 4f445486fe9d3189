"""Trainer: the interface of all trainers, with the defaults of most."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from tui_train.base.command import CommandPart, ProgramFile
from tui_train.facts.types import Facts, Toolchain
from tui_train.profile.presets import Preset
from tui_train.profile.presets import accepted_placeholders as preset_placeholders
from tui_train.profile.presets import get_preset as find_preset
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import NemoFlavour

SHIM_FOLDER_NAME = "shim"


class FieldTexts(NamedTuple):
    """A trainer's texts for a field: the meaning of an empty value, and the help."""

    empty: str
    help: str


class PreparationStep(Struct, frozen=True):
    """A step before the training: its name (lower-case letters), purpose and arguments."""

    name: str
    why: str
    parts: tuple[CommandPart, ...]


class Trainer:
    """A program that trains a profile, with its Python and what is known of the machine (None: it is not asked)."""

    name: ClassVar[str]
    """Shown in the choice."""
    about: ClassVar[str]
    """Shown in the choice."""
    label: ClassVar[str]
    """Its name in a sentence."""
    is_training: ClassVar[bool] = True
    """It trains, and is among the choices."""
    connection_wait: ClassVar[int] = 60
    """The seconds after which a connection between its machines that gets no answer is named."""
    own_fields: ClassVar[frozenset[str]] = frozenset()
    """The keys or sections of a profile that this trainer takes and others do not."""
    can_create_model: ClassVar[bool] = False
    """Without a model it makes one of the recipe's size; without data it trains on a sample text."""
    takes_every_recipe_value: ClassVar[bool] = False
    """Its defaults are those of this package, and it is passed every value of the recipe."""
    requires_user_data: ClassVar[bool] = False
    """It trains on nothing but the data of the profile."""
    allows_uneven_processes: ClassVar[bool] = True
    """Its machines may have different numbers of processes."""
    resumes_itself: ClassVar[bool] = False
    """It finds its newest checkpoint."""
    reads_backend_variable: ClassVar[bool] = False
    """Its backend is another one where a variable says so, whatever its script asks for."""
    why_gloo_unsupported: ClassVar[str] = ""
    """Why it cannot use Gloo on GPUs, empty if it can."""
    package_set: ClassVar[str] = "hf"
    """The set that `tui-train env create` installs for it."""
    accepts_hub_model_ids: ClassVar[bool] = False
    """Its model may be the id of one on the Hugging Face Hub."""
    defaults_precision_to_gpus: ClassVar[bool] = False
    """Its default precision is the best of the cards, instead of the preset's."""
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {}
    """Its own texts for fields that mean something else to each trainer, by key."""

    def __init__(self, profile: Profile, toolchain: Toolchain | None = None, facts: Facts | None = None) -> None:
        """Bind it to a profile."""
        self.profile, self.toolchain, self.facts = profile, toolchain, facts

    def method_label(self) -> str:
        """Return how it trains, in a word; empty where only its own script or file says so."""
        return "LoRA" if self.profile.recipe.lora else ""

    def recipe_name(self) -> str:
        """Return what stands for the model where the profile names none; empty where nothing does."""
        return ""

    @cached_property
    def preset(self) -> Preset:
        """The preset by which the recipe is passed; BadInput for an unknown one."""
        return find_preset(self.profile.trainer.preset, self.facts.presets if self.facts else {})

    def accepted_placeholders(self) -> frozenset[str]:
        """Return the placeholders whose values reach it."""
        return preset_placeholders(self.preset, self.profile.trainer.arguments)

    def needed_packages(self) -> tuple[str, ...]:
        """Return the packages that the training Python must have."""
        return ()

    def may_evaluate(self) -> bool:
        """Return whether it may evaluate, where memory can run out."""
        return True

    def min_micro_batch(self) -> int:
        """Return the smallest micro batch that it can train with."""
        return 1

    def library_options(self) -> dict[str, Any]:
        """Return the options that its own section of an effective profile sets, by the name that its library has."""
        return {}

    def library_preset_name(self) -> str:
        """Return the preset whose library decides what the options do not say; empty: none is known."""
        return ""

    def preparation_steps(self) -> tuple[PreparationStep, ...]:
        """Return what its Python does before the training."""
        return ()

    @property
    def package_versions(self) -> dict[str, str]:
        """The versions of its Python's packages by name."""
        return self.toolchain.packages if self.toolchain else {}

    @cached_property
    def nemo_flavour(self) -> NemoFlavour | None:
        """The flavour of NeMo that its Python uses, None for other trainers."""
        return None

    def why_unusable(self) -> str:
        """Return what its Python lacks besides the needed packages, as words that follow "has"; empty if nothing."""
        return ""

    def toolchain_preference_rank(self) -> int:
        """Return the rank of its Python among those that can train; the lowest is preferred."""
        return 0

    def data_parallel_copy_count(self, world_size: int) -> int:
        """Return the number of data-parallel copies of the model."""
        return world_size

    def own_paths(self) -> tuple[str, ...]:
        """Return the paths that only this trainer opens."""
        return ()

    def title(self) -> str:
        """Return the name of the training for a headline."""
        return self.label

    def own_default_source_by_name(self) -> Mapping[str, str]:
        """Return the sources of its own defaults that have one, by their name in the recipe."""
        return {}

    def unset_value_text(self) -> str:
        """Return the words for a value that is neither set nor known: whose default it is, or what it means."""
        return "the trainer's default"

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return the arguments after the launcher that start it."""
        raise NotImplementedError

    def program_files(self) -> tuple[ProgramFile, ...]:
        """Return the files of this package that it needs in the run folder: the module that prints its devices."""
        return (ProgramFile(f"{SHIM_FOLDER_NAME}/sitecustomize.py", "programs/shim/sitecustomize.py"),)

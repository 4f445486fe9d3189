"""Recipes of NVIDIA NeMo, Megatron-Bridge or AutoModel."""

from collections.abc import Mapping
from typing import ClassVar

from tui_train.base.command import Part
from tui_train.facts.types import Facts, Toolchain
from tui_train.profile.presets import Preset
from tui_train.profile.types import Profile
from tui_train.trainers import nemo
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import FieldTexts, Trainer


class NemoRecipe(Trainer):
    """Trains a recipe by its name, with the first flavour of NeMo that the chosen Python has."""

    name = "NeMo recipe"
    about = "by its name; GPUs only"
    label = "a NeMo recipe"
    fields = frozenset({"nemo"})
    allows_uneven = False
    resumes_itself = True
    why_no_gloo = "NeMo's parallel training needs NCCL: Gloo cannot send between GPUs"
    library_set = "nemo"
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {
        "trainer.model": FieldTexts(
            "the recipe's own", "A folder with weights to start from; I imports a Hugging Face one."
        ),
        "trainer.data": FieldTexts(
            "required",
            "Files .bin with their .idx, or a folder with training.jsonl; P prepares text for it.",
        ),
    }

    def method(self, profile: Profile) -> str:
        """Return its task; of fine-tuning, what is trained."""
        if profile.nemo.task == "pretrain":
            return "pretrain"
        return "LoRA" if profile.nemo.peft == "lora" else "finetune"

    def recipe(self, profile: Profile) -> str:
        """Return the recipe, which names a model."""
        return profile.nemo.recipe

    def preset(self, profile: Profile, toolchain: Toolchain | None, facts: Facts | None) -> Preset:
        """Return the preset for the values that attempts may change."""
        del facts
        return nemo.nemo_preset(profile, nemo.nemo_flavour(toolchain))

    def accepted_placeholders(self, profile: Profile, toolchain: Toolchain | None, preset: Preset) -> frozenset[str]:
        """Return the placeholders that its file or its arguments set."""
        del preset
        return nemo.accepted_placeholders(profile, nemo.nemo_flavour(toolchain))

    def flavour(self, toolchain: Toolchain | None) -> Flavour | None:
        """Return the flavour of NeMo that a Python has."""
        return nemo.nemo_flavour(toolchain)

    def why_unusable(self, toolchain: Toolchain) -> str:
        """Return the missing packages."""
        return nemo.why_unusable(toolchain.packages)

    def toolchain_rank(self, toolchain: Toolchain) -> int:
        """Return the rank: NeMo's own recipes first, then Megatron-Bridge, then AutoModel."""
        return nemo.flavour_rank(toolchain)

    def copies(self, profile: Profile, world_size: int, toolchain: Toolchain | None) -> int:
        """Return the processes divided by the GPUs that share one copy."""
        return max(1, world_size // nemo.gpus_per_copy(profile.nemo, nemo.nemo_flavour(toolchain)))

    def paths(self, profile: Profile) -> tuple[str, ...]:
        """Return the tokenizer, the data files, and the files that a model folder must have."""
        model = profile.trainer.model
        weights = (f"{model}/config.json", f"{model}/context") if model else ()
        return (profile.nemo.tokenizer, *nemo.opened_data_files(profile), *weights)

    def title(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> str:
        """Return the flavour and the name of the recipe, if it has one."""
        recipe = f" {profile.nemo.recipe}" if flavour in {"recipes", "bridge"} else ""
        return preset.label + recipe

    def default_source(self, profile: Profile, preset: Preset) -> str:
        """Return the recipe as the source of unset values."""
        del profile, preset
        return "the recipe's default"

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the arguments that start its flavour of NeMo."""
        del profile, preset
        return nemo.nemo_program(flavour)

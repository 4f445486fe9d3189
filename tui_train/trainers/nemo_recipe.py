"""Recipes of NVIDIA NeMo, Megatron-Bridge or AutoModel."""

from collections.abc import Mapping
from typing import ClassVar

from tui_train.base.command import Part
from tui_train.facts.types import Facts, Toolchain
from tui_train.presets import Preset
from tui_train.profile.types import Profile
from tui_train.trainers import nemo
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import Trainer, Words


class NemoRecipe(Trainer):
    """Trains a recipe by its name, with the first flavour of NeMo that the chosen Python has."""

    name = "NeMo recipe"
    about = "by its name; GPUs only"
    label = "a NeMo recipe"
    fields = frozenset({"nemo"})
    uneven = False
    resumes_itself = True
    no_gloo = "NeMo's parallel training needs NCCL: Gloo cannot send between GPUs"
    libraries = "nemo"
    words: ClassVar[Mapping[str, Words]] = {
        "trainer.model": Words(
            "the recipe's own", "A folder with weights to start from; I imports a Hugging Face one."
        ),
        "trainer.data": Words(
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
        return nemo.preset(profile, nemo.flavour(toolchain))

    def takes(self, profile: Profile, toolchain: Toolchain | None, preset: Preset) -> frozenset[str]:
        """Return the placeholders that its file or its arguments set."""
        del preset
        return nemo.takes(profile, nemo.flavour(toolchain))

    def flavour(self, toolchain: Toolchain | None) -> Flavour | None:
        """Return the flavour of NeMo that a Python has."""
        return nemo.flavour(toolchain)

    def why_unusable(self, toolchain: Toolchain) -> str:
        """Return the missing packages."""
        return nemo.why_unusable(toolchain.packages)

    def order(self, toolchain: Toolchain) -> int:
        """Return the rank: NeMo's own recipes first, then Megatron-Bridge, then AutoModel."""
        return nemo.order(toolchain)

    def copies(self, profile: Profile, world_size: int, toolchain: Toolchain | None) -> int:
        """Return the processes divided by the GPUs that share one copy."""
        return max(1, world_size // nemo.split(profile.nemo, nemo.flavour(toolchain)))

    def paths(self, profile: Profile) -> tuple[str, ...]:
        """Return the tokenizer, the data files, and the files that a model folder must have."""
        model = profile.trainer.model
        weights = (f"{model}/config.json", f"{model}/context") if model else ()
        return (profile.nemo.tokenizer, *nemo.files_of(profile), *weights)

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
        return nemo.program(flavour)

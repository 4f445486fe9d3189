"""Recipes of NVIDIA NeMo, Megatron-Bridge or AutoModel."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from msgspec.structs import replace

from tui_train.base.command import CommandPart, word_in_run_dir
from tui_train.profile.presets import MODEL_SIZE_PLACEHOLDERS, Preset, PresetArgument
from tui_train.trainers import nemo
from tui_train.trainers.nemo import NemoFlavour
from tui_train.trainers.trainer import FieldTexts, Trainer


class NemoRecipeTrainer(Trainer):
    """Trains a recipe by its name, with the first flavour of NeMo that the chosen Python has."""

    name = "NeMo recipe"
    about = "by its name; GPUs only"
    label = "a NeMo recipe"
    own_fields = frozenset({"nemo"})
    allows_uneven_processes = False
    resumes_itself = True
    why_gloo_unsupported = "NeMo's parallel training needs NCCL: Gloo cannot send between GPUs"
    package_set = "nemo"
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {
        "trainer.model": FieldTexts(
            "the recipe's own", "A folder with weights to start from; I imports a Hugging Face one."
        ),
        "trainer.data": FieldTexts(
            "required", "Files .bin with their .idx, or a folder with training.jsonl; P prepares text for it."
        ),
    }

    def method_label(self) -> str:
        """Return its task; of fine-tuning, what is trained."""
        if self.profile.nemo.task == "pretrain":
            return "pretrain"
        return "LoRA" if self.profile.nemo.peft == "lora" else "finetune"

    def recipe_name(self) -> str:
        """Return the recipe, which names a model."""
        return self.profile.nemo.recipe

    @cached_property
    def preset(self) -> Preset:
        """The preset by which the values that attempts may change are passed to it."""
        flavour_preset = nemo.PRESET_BY_FLAVOUR[self.nemo_flavour or "recipes"]
        more: tuple[PresetArgument, ...] = ()
        if self.nemo_flavour == "automodel":
            length = "max_sentence_len" if self.profile.nemo.mock_data else "seq_length"
            more = (PresetArgument((f"--dataset.{length}={{sequence_length}}",)),)
        elif nemo.can_set_model_size(self.profile, self.nemo_flavour) and self.profile.recipe.layers is not None:
            more = (PresetArgument(("--layers={layers}",)),)
        return replace(flavour_preset, arguments=(*flavour_preset.arguments, *more))

    def accepted_placeholders(self) -> frozenset[str]:
        """Return the placeholders that its file or its arguments set."""
        can_set_size = nemo.can_set_model_size(self.profile, self.nemo_flavour)
        size = MODEL_SIZE_PLACEHOLDERS if can_set_size else frozenset()
        warmup = frozenset() if self.nemo_flavour == "automodel" else frozenset({"warmup"})
        return nemo.PLACEHOLDERS_IN_NEMO_FILE | {"output", "validation_data", "test_data"} | size | warmup

    @cached_property
    def nemo_flavour(self) -> NemoFlavour | None:
        """The flavour of NeMo that a Python has."""
        return nemo.nemo_flavour(self.toolchain)

    def why_unusable(self) -> str:
        """Return the missing packages."""
        return nemo.why_nemo_unusable(self.package_versions)

    def toolchain_preference_rank(self) -> int:
        """Return the rank: NeMo's own recipes first, then Megatron-Bridge, then AutoModel."""
        return nemo.flavour_preference_rank(self.toolchain)

    def data_parallel_copy_count(self, world_size: int) -> int:
        """Return the processes divided by the GPUs that share one copy."""
        return max(1, world_size // nemo.gpus_per_model_copy(self.profile.nemo, self.nemo_flavour))

    def own_paths(self) -> tuple[str, ...]:
        """Return the tokenizer, the data files, and the files that a model folder must have."""
        model = self.profile.trainer.model
        weights = (f"{model}/config.json", f"{model}/context") if model else ()
        return (self.profile.nemo.tokenizer, *nemo.data_files_to_open(self.profile), *weights)

    def title(self) -> str:
        """Return the flavour and the name of the recipe, if it has one."""
        recipe = f" {self.profile.nemo.recipe}" if self.nemo_flavour in {"recipes", "bridge"} else ""
        return self.preset.label + recipe

    def unset_value_text(self) -> str:
        """Return that it is the recipe's default."""
        return "the recipe's default"

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return the arguments that start its flavour of NeMo."""
        file = word_in_run_dir(nemo.FILE_NAME_BY_FLAVOUR[self.nemo_flavour or "recipes"])
        if self.nemo_flavour == "automodel":
            return (CommandPart(("-m", "nemo_automodel.cli.app"), "AutoModel's command line"), CommandPart((file,)))
        name = "Megatron-Bridge" if self.nemo_flavour == "bridge" else "NeMo"
        return (CommandPart((file,), f"{name} resumes from its newest checkpoint itself"),)

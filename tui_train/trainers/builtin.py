"""The built-in trainer: a script on transformers' Trainer, programs/pretrain.py."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from msgspec.structs import replace

from tui_train.base.command import CommandPart, ProgramFile, word_in_run_dir
from tui_train.profile.presets import Preset, PresetArgument, shipped_presets
from tui_train.trainers.trainer import FieldTexts, Trainer

SAMPLE_TEXT_FILE = "sample.txt"
_PRETRAIN_SCRIPT_FILE = "pretrain.py"


class BuiltinTrainer(Trainer):
    """Trains a new model of the recipe's size, or a Hugging Face model further, on text."""

    name = "Pretrain a new one"
    about = "a small language model, on text or JSONL"
    label = "the built-in trainer"
    own_fields = frozenset({"trainer.allow", "trainer.arguments", "trainer.working_directory"})
    can_create_model = True
    takes_every_recipe_value = True
    field_texts: ClassVar[Mapping[str, FieldTexts]] = {
        "trainer.model": FieldTexts(
            "a new model", "Empty: a new model of the recipe's size. A Hugging Face folder trains that model further."
        ),
        "trainer.data": FieldTexts("a sample text", 'Text files, or JSONL whose rows have a "text".'),
        "trainer.validation_data": FieldTexts("none", "Text files for evaluations during the training."),
    }

    def needed_packages(self) -> tuple[str, ...]:
        """Return the libraries that its script imports."""
        return ("accelerate", "transformers")

    def method_label(self) -> str:
        """Return whether it begins with a model or with random weights."""
        return super().method_label() or ("finetune" if self.profile.trainer.model else "pretrain")

    @cached_property
    def preset(self) -> Preset:
        """The built-in trainer's preset; with validation data it evaluates at the end, or every few steps if set."""
        own = shipped_presets()["builtin"]
        if not self.may_evaluate():
            return own
        evaluation = (
            # The end of the training ends its epoch.
            PresetArgument(("--eval_strategy=epoch",), when="evaluate_every="),
            PresetArgument(("--eval_strategy=steps", "--eval_steps={evaluate_every}")),
        )
        return replace(own, arguments=(*own.arguments, *evaluation))

    def accepted_placeholders(self) -> frozenset[str]:
        """Return the placeholders of the preset, and how often it evaluates, which needs data."""
        return super().accepted_placeholders() | {"evaluate_every"}

    def may_evaluate(self) -> bool:
        """Return whether there is data for it."""
        return bool(self.profile.trainer.validation_data)

    def unset_value_text(self) -> str:
        """Return when it evaluates: no other value of the recipe is without a default."""
        return "at the end" if self.may_evaluate() else "no validation data"

    def library_options(self) -> dict[str, Any]:
        """Return how the script loads a model, and whether it evaluates."""
        return {"dtype": "float32", **({"eval_strategy": "steps"} if self.may_evaluate() else {})}

    def program_parts(self) -> tuple[CommandPart, ...]:
        """Return the script."""
        return (CommandPart((word_in_run_dir(_PRETRAIN_SCRIPT_FILE),)),)

    def program_files(self) -> tuple[ProgramFile, ...]:
        """Return the script, and the sample text if no data is set."""
        names = (_PRETRAIN_SCRIPT_FILE,) if self.profile.trainer.data else (_PRETRAIN_SCRIPT_FILE, SAMPLE_TEXT_FILE)
        return (*(ProgramFile(name, f"programs/{name}") for name in names), *super().program_files())

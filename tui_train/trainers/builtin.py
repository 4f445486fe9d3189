"""The built-in trainer: a small program in target/trainer, based on transformers and accelerate."""

from collections.abc import Mapping
from importlib import resources
from typing import ClassVar

from tui_train.base.command import Part, ProgramFile, in_run_dir
from tui_train.facts.types import Facts, Toolchain
from tui_train.presets import Preset, presets
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import Trainer, Words

SAMPLE = "sample.txt"


class Builtin(Trainer):
    """Trains a new model of the recipe's size, or finetunes a Hugging Face model, on text."""

    name = "Pretrain a new one"
    about = "a small language model, on text or JSONL"
    label = "the built-in trainer"
    fields = frozenset({"trainer.arguments", "trainer.working_directory"})
    shipped = True
    passed_all = True
    evaluates = False
    words: ClassVar[Mapping[str, Words]] = {
        "trainer.model": Words(
            "a new model", "Empty: a new model of the recipe's size. A Hugging Face folder trains that model further."
        ),
        "trainer.data": Words("a sample text", 'Text files, or JSONL whose rows have a "text".'),
    }

    def needs(self, profile: Profile) -> tuple[str, ...]:
        """Return the libraries that its modules import."""
        del profile
        return ("accelerate", "transformers")

    def method(self, profile: Profile) -> str:
        """Return whether it begins with a model or with random weights."""
        return super().method(profile) or ("finetune" if profile.trainer.model else "pretrain")

    def preset(self, profile: Profile, toolchain: Toolchain | None, facts: Facts | None) -> Preset:
        """Return the built-in trainer's preset."""
        del profile, toolchain, facts
        return presets()["builtin"]

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the main module of the trainer."""
        del profile, preset, flavour
        return (Part((in_run_dir("trainer/train.py"),)),)

    def files(self, profile: Profile) -> tuple[ProgramFile, ...]:
        """Return the modules of the trainer, and the sample text if no data is set."""
        folder = resources.files("tui_train").joinpath("target/trainer")
        names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".py"))
        modules = tuple(ProgramFile(f"trainer/{name}", f"target/trainer/{name}") for name in names)
        return modules if profile.trainer.data else (*modules, ProgramFile(SAMPLE, f"target/{SAMPLE}"))

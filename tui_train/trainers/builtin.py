"""The built-in trainer: a small program of this package on transformers and accelerate."""

from importlib import resources

from tui_train.base.command import Part, ProgramFile, in_run_dir
from tui_train.facts.types import Toolchain
from tui_train.presets import Own, Preset, presets
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import Trainer

SAMPLE = "sample.txt"


class Builtin(Trainer):
    """Trains a model of the recipe's size, or finetunes one of Hugging Face, on text."""

    name = "Built-in trainer"
    about = "a language model on text or JSONL"
    label = "the built-in trainer"
    fields = frozenset({"trainer.arguments", "trainer.working_directory"})
    needs = ("accelerate", "transformers")
    shipped = True
    evaluates = False

    def preset(self, profile: Profile, toolchain: Toolchain | None, own: Own) -> Preset:
        """Return its own one."""
        del profile, toolchain, own
        return presets()["builtin"]

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return its main module."""
        del profile, preset, flavour
        return (Part((in_run_dir("trainer/train.py"),)),)

    def files(self, profile: Profile) -> tuple[ProgramFile, ...]:
        """Return its modules, and the sample text where no data is named."""
        folder = resources.files("tui_train").joinpath("target/trainer")
        names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".py"))
        found = tuple(ProgramFile(f"trainer/{name}", f"target/trainer/{name}") for name in names)
        return found if profile.trainer.data else (*found, ProgramFile(SAMPLE, f"target/{SAMPLE}"))

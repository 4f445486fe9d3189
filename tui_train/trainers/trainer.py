"""What each trainer says of itself, with what holds for most of them."""

from typing import ClassVar

from tui_train.base.command import Part, ProgramFile
from tui_train.facts.types import Toolchain
from tui_train.presets import Own, Preset
from tui_train.presets import preset as named_preset
from tui_train.presets import takes as preset_takes
from tui_train.profile.types import Profile
from tui_train.trainers.nemo import Flavour

SHIM = "shim"


class Trainer:
    """What trains, and what it takes.

    `name` and `about` are what the user chooses by, `label` names it in a sentence. `fields` are the keys, or the
    sections, of a profile that only some trainers take and this one does. `needs` names the packages that the training
    Python must have. `shipped`: its program is this package's, is passed every value of the recipe, and shows by itself
    which device it uses. `evaluates`: memory can run out in an evaluation. `resumes_itself`: it finds its newest
    checkpoint without being told. `no_gloo` says why it cannot train by Gloo on GPUs, empty where it can. `libraries`
    is the set that `tui-train env create` makes for it.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    label: ClassVar[str]
    fields: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[tuple[str, ...]] = ()
    shipped: ClassVar[bool] = False
    evaluates: ClassVar[bool] = True
    resumes_itself: ClassVar[bool] = False
    no_gloo: ClassVar[str] = ""
    libraries: ClassVar[str] = "hf"

    def preset(self, profile: Profile, toolchain: Toolchain | None, own: Own) -> Preset:
        """Return how the recipe reaches it; BadInput for an unknown preset."""
        del toolchain
        return named_preset(profile.trainer.preset, own)

    def takes(self, profile: Profile, toolchain: Toolchain | None, preset: Preset) -> frozenset[str]:
        """Return the placeholder names whose values reach it."""
        del toolchain
        return preset_takes(preset, profile.trainer.arguments)

    def flavour(self, toolchain: Toolchain | None) -> Flavour | None:
        """Return which NeMo of a Python trains; None where none does."""
        del toolchain
        return None

    def lacks(self, toolchain: Toolchain) -> str:
        """Return what a Python lacks besides `needs`, in words that follow "has"; empty when nothing."""
        del toolchain
        return ""

    def order(self, toolchain: Toolchain) -> int:
        """Return the place of a Python among those that can train; the first is preferred."""
        del toolchain
        return 0

    def copies(self, profile: Profile, world_size: int) -> int:
        """Return how many copies of the model take samples of their own."""
        del profile
        return world_size

    def paths(self, profile: Profile) -> tuple[str, ...]:
        """Return the paths that it opens besides those that are in fields of all trainers."""
        del profile
        return ()

    def title(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> str:
        """Return what trains, for a headline."""
        del profile, preset, flavour
        return self.label

    def whose(self, profile: Profile, preset: Preset) -> str:
        """Return whose values hold that are neither chosen nor known."""
        del profile, preset
        return "the trainer's own"

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the words after the launcher's that start it."""
        raise NotImplementedError

    def files(self, profile: Profile) -> tuple[ProgramFile, ...]:
        """Return the files of this package that it needs in the run folder: the one that shows its devices."""
        del profile
        return (ProgramFile(f"{SHIM}/sitecustomize.py", "target/shim/sitecustomize.py"),)

"""A recipe of NVIDIA NeMo, or of what takes its place."""

from tui_train.base.command import Part
from tui_train.facts.types import Toolchain
from tui_train.presets import Own, Preset
from tui_train.profile.types import Profile
from tui_train.trainers import nemo
from tui_train.trainers.nemo import Flavour
from tui_train.trainers.trainer import Trainer


class NemoRecipe(Trainer):
    """Trains a recipe by its name, in the first NeMo that the chosen Python has."""

    name = "NeMo"
    about = "a recipe by its name; GPUs only"
    label = "a NeMo recipe"
    fields = frozenset({"nemo"})
    resumes_itself = True
    no_gloo = "NeMo's parallel training needs NCCL: Gloo cannot send from card to card"
    libraries = "nemo"

    def preset(self, profile: Profile, toolchain: Toolchain | None, own: Own) -> Preset:
        """Return how the values that an attempt may change reach it."""
        del own
        return nemo.preset(profile, nemo.flavour(toolchain))

    def takes(self, profile: Profile, toolchain: Toolchain | None, preset: Preset) -> frozenset[str]:
        """Return what its file says as well."""
        del preset
        return nemo.takes(profile, nemo.flavour(toolchain))

    def flavour(self, toolchain: Toolchain | None) -> Flavour | None:
        """Return the first of them that a Python has."""
        return nemo.flavour(toolchain)

    def lacks(self, toolchain: Toolchain) -> str:
        """Return what its packages lack."""
        return nemo.lacks(toolchain.packages)

    def order(self, toolchain: Toolchain) -> int:
        """Return NeMo's own recipes before what took their place."""
        return nemo.order(toolchain)

    def copies(self, profile: Profile, world_size: int) -> int:
        """Return the processes, but for what a copy is split over."""
        return max(1, world_size // nemo.split(profile.nemo))

    def paths(self, profile: Profile) -> tuple[str, ...]:
        """Return its tokenizer, the files of its data, and what a folder of weights must hold."""
        model = profile.trainer.model
        weights = (f"{model}/config.json", f"{model}/context") if model else ()
        return (profile.nemo.tokenizer, *nemo.files_of(profile), *weights)

    def title(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> str:
        """Return its flavour, and the recipe where it has one."""
        recipe = f" {profile.nemo.recipe}" if flavour in {"recipes", "bridge"} else ""
        return preset.label + recipe

    def whose(self, profile: Profile, preset: Preset) -> str:
        """Return the recipe's."""
        del profile, preset
        return "the recipe's own"

    def program(self, profile: Profile, preset: Preset, flavour: Flavour | None) -> tuple[Part, ...]:
        """Return the words of its flavour."""
        del profile, preset
        return nemo.program(flavour)

"""SETS: what can be installed into an environment that trains, each with the exact versions that were tried."""

from importlib import resources
from pathlib import Path

from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile.fields import nearest


class Set(Struct, frozen=True, kw_only=True):
    """A set of libraries: what it is for, the Pythons 3.`oldest` to 3.`newest` that it works with, its size on disk."""

    name: str
    about: str
    oldest: int
    newest: int
    size: str
    recipe: str = ""

    @property
    def lock(self) -> Path:
        """The file with the exact versions."""
        return Path(str(resources.files(__name__).joinpath(f"{self.name}.txt")))


SETS = {
    "hf": Set(
        name="hf",
        about="the built-in trainer, and scripts with accelerate and transformers",
        oldest=10,
        newest=13,
        size="about 1 GB, with CUDA about 6 GB",
    ),
    "nemo": Set(
        name="nemo",
        about="NeMo 2.7, the last with recipes for language models",
        oldest=11,
        newest=12,
        size="about 3 GB, with CUDA about 8 GB",
        recipe="qwen25_500m",
    ),
}


def find(name: str) -> Set:
    """Return a set by name; BadInput names the nearest."""
    if name in SETS:
        return SETS[name]
    raise BadInput(f"there is no set {visible(name)}", nearest(name, tuple(SETS)))


def torch(wanted: Set) -> str:
    """Return the torch of a set as pip is told it, such as torch==2.13.0."""
    lines = wanted.lock.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))

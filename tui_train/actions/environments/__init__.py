"""PACKAGE_SETS: the package sets for training environments, each with exact, tested versions."""

from importlib import resources
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile.fields import similar_word_remedy


class PackageSet(Struct, frozen=True, kw_only=True):
    """A package set: its purpose, the supported Pythons 3.`oldest_minor` to 3.`newest_minor`, its size on disk."""

    name: str
    about: str
    oldest_minor: int
    newest_minor: int
    gigabytes: int
    gigabytes_with_cuda: int
    recipe: str = ""
    requirements: str = ""
    """The set whose requirements it has; empty: its own."""
    torch_companion: str = ""
    """What is installed with torch, from the same index."""

    @property
    def size_text(self) -> str:
        """Its size on disk, in words."""
        return f"about {self.gigabytes} GB, with CUDA about {self.gigabytes_with_cuda} GB"

    def bytes_on_disk(self, *, cuda: bool) -> int:
        """Return about how many bytes it takes."""
        return (self.gigabytes_with_cuda if cuda else self.gigabytes) * 10**9

    @property
    def requirements_file(self) -> Path:
        """The requirements file with exact versions."""
        return Path(str(resources.files(__name__).joinpath(f"{self.requirements or self.name}.txt")))


_HF = PackageSet(
    name="hf",
    about="fine-tuning by TRL, the built-in trainer, and scripts with accelerate and transformers",
    oldest_minor=10,
    newest_minor=13,
    gigabytes=3,
    gigabytes_with_cuda=8,
)
PACKAGE_SETS = {
    "hf": _HF,
    "hf-images": replace(
        _HF,
        name="hf-images",
        about="hf with torchvision, which the processors of models such as Qwen2.5-VL need",
        requirements="hf",
        torch_companion="torchvision==0.28.0",
    ),
    "nemo": PackageSet(
        name="nemo",
        about="NeMo 2.7, the last with recipes for language models",
        oldest_minor=11,
        newest_minor=12,
        gigabytes=3,
        gigabytes_with_cuda=8,
        recipe="qwen25_500m",
    ),
}


def find_package_set(name: str) -> PackageSet:
    """Return a set by name; BadInput names the nearest."""
    if name in PACKAGE_SETS:
        return PACKAGE_SETS[name]
    raise BadInput(f"there is no package set {visible(name)}", similar_word_remedy(name, tuple(PACKAGE_SETS)))


def torch_requirement(package_set: PackageSet) -> str:
    """Return the torch requirement of a set, such as torch==2.13.0."""
    lines = package_set.requirements_file.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))

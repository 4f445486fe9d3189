"""The build of torch that supports cards, its package index, and the one advice on which to install."""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.base.versions import major_version
from tui_train.facts.gpus.capability import CAPABILITIES_BY_TEGRA_ARCH, any_arch_runs_on, capability_number
from tui_train.facts.types import Gpu, Toolchain

WHEEL_INDEX_URL = "https://download.pytorch.org/whl/"
RECOMMENDED_TORCH_VERSION = "2.13"
CPU_INDEX_URL = f"{WHEEL_INDEX_URL}cpu"


_FIRST_TORCHVISION_MINOR = 15  # that of torch 2.0


class _CudaBuild(NamedTuple):
    """A build of torch for CUDA: the end of its index (empty: it is on PyPI), and what it has code for."""

    index_suffix: str
    cuda_major: int
    arch_list: tuple[str, ...]


# The builds of torch 2.13 (`torch.cuda.PYTORCH_RELEASES_CODE_CC`), the newest first.
_CUDA_BUILDS = (
    _CudaBuild("", 13, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    _CudaBuild("cu129", 12, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    _CudaBuild("cu126", 12, ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
)
# The oldest driver for each CUDA, and the first for new generations of cards (release notes of CUDA and the drivers).
_MIN_DRIVER_BY_CUDA = {12: 525, 13: 580}
_MIN_DRIVER_BY_CAPABILITY_MAJOR = {"10": 570, "12": 570}
_THOR_CAPABILITY = 110
_LAST_KEPLER_CAPABILITY, _FIRST_MAXWELL_CAPABILITY = 37, 50


class TorchBuild(Struct, frozen=True):
    """A build of torch: its index (empty: pip's default), and why it was chosen.

    `cuda` is its CUDA version such as "12.6" (empty: none), `arch_list` its architectures.
    """

    index: str
    why: str
    cuda: str = ""
    arch_list: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The build in words, wherever one is advised."""
        return f"torch {RECOMMENDED_TORCH_VERSION} for CUDA {self.cuda}"

    @property
    def as_toolchain(self) -> Toolchain:
        """A toolchain with this build, to judge cards."""
        return Toolchain(python="", torch=f"for CUDA {self.cuda}", cuda=self.cuda or None, arch_list=self.arch_list)


def torchvision_install_words(torch: str) -> tuple[str, ...]:
    """Return what pip installs so that torchvision fits a torch of a version such as 2.13.0+cu126; empty if unknown.

    Of the versions of torchvision only one requires this very torch, which pip keeps.
    """
    release, _, build = torch.partition("+")
    major, minor = (*release.split("."), "")[:2]
    if major != "2" or not minor.isdecimal():
        return ()
    index = ("--index-url", f"{WHEEL_INDEX_URL}{build}") if build else ()
    return (f"torchvision==0.{int(minor) + _FIRST_TORCHVISION_MINOR}.*", f"torch=={release}", *index)


def any_torch_supports(gpu: Gpu) -> bool:
    """Return whether any PyTorch supports or supported a card; true if its compute capability is unknown."""
    device = capability_number(gpu.compute_capability)
    return device is None or device >= _FIRST_MAXWELL_CAPABILITY or device == _LAST_KEPLER_CAPABILITY


def torch_install_advice(gpus: Sequence[Gpu], driver_cuda: str | None) -> str:
    """Return what to install, or else to do, for cards, as the end of a sentence."""
    try:
        return f"install {choose_torch_build(gpus, driver_cuda).text}"
    except Unavailable as error:
        return error.remedy[:1].lower() + error.remedy[1:].partition(". ")[0].removesuffix(".")


def choose_torch_build(gpus: Sequence[Gpu], driver_cuda: str | None) -> TorchBuild:
    """Return the build that the driver can run and that supports most of the cards; the CPU build without cards.

    Unavailable if no build supports any of them.
    """
    cards = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    if not cards:
        return TorchBuild(CPU_INDEX_URL, "no GPU was found: the CPU build, which is small")
    newest = _CUDA_BUILDS[0].cuda_major
    driver_major = major_version(driver_cuda) or newest
    fitting = [build for build in _CUDA_BUILDS if build.cuda_major <= driver_major]

    def count_supported(build: _CudaBuild) -> int:
        return sum(any_arch_runs_on(build.arch_list, card) for card in cards)

    best = max(fitting, key=count_supported, default=None)
    if best is None or not count_supported(best):
        _raise_unsupported(cards, driver_cuda, [build.cuda_major for build in _CUDA_BUILDS if count_supported(build)])
    tag, cuda, architectures = best
    version = f"{tag[2:4]}.{tag[4:]}" if tag else f"{cuda}.0"
    supported_count, count = count_supported(best), len(cards)
    supported = f"{supported_count} of {count} GPUs"
    if supported_count == count:
        supported = "the GPU" if count == 1 else f"all {count} GPUs"
    lacking = "" if driver_major >= newest else f"; the driver does not support CUDA {newest}"
    why = f"the build for CUDA {version} supports {supported}{lacking}"
    return TorchBuild(f"{WHEEL_INDEX_URL}{tag}" if tag else "", why, version, architectures)


def _raise_unsupported(cards: Sequence[str], driver_cuda: str | None, cuda_versions: Sequence[int]) -> NoReturn:
    """Raise Unavailable for cards that no build supports with this driver; `cuda_versions` are those that could."""
    capabilities = visible(" and ".join(dict.fromkeys(cards)))
    numbers = {capability_number(name) or 0 for name in cards}
    if cuda_versions:
        needed = max(
            _MIN_DRIVER_BY_CUDA[min(cuda_versions)],
            *(_MIN_DRIVER_BY_CAPABILITY_MAJOR.get(name.partition(".")[0], 0) for name in cards),
        )
        old = visible(str(driver_cuda))
        message = f"the NVIDIA driver is too old (CUDA {old}): torch for these GPUs needs driver {needed} or newer"
        raise Unavailable(message, f"Update the NVIDIA driver to {needed} or newer.")
    message = f"no build of torch supports compute capability {capabilities}"
    remedy = "No torch for them can be installed"
    if numbers <= {*CAPABILITIES_BY_TEGRA_ARCH, _THOR_CAPABILITY}:
        remedy = "Use NVIDIA's PyTorch for Jetson (tui-train env create hf --index-url URL)"
    elif numbers == {_LAST_KEPLER_CAPABILITY}:
        remedy = "Use torch 2.5 for CUDA 11.8, the last that supports it"
    elif max(numbers) < _FIRST_MAXWELL_CAPABILITY:
        remedy = "Use another GPU: no official torch supports it"
    raise Unavailable(message, f"{remedy}. For the CPU: --index-url {CPU_INDEX_URL}")

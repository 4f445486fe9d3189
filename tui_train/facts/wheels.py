"""The build of torch that supports the cards of a machine, and its package index."""

from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.base.versions import major
from tui_train.facts.capability import TEGRA, number, runs
from tui_train.facts.gpus import judge, recommended
from tui_train.facts.types import Gpu, Machine, Toolchain

_INDEX = "https://download.pytorch.org/whl/"
TORCH = "2.13"
CPU_INDEX = f"{_INDEX}cpu"
# The CUDA builds of torch 2.13 with their architectures (`torch.cuda.PYTORCH_RELEASES_CODE_CC`); CUDA 13.0 is on PyPI.
_BUILDS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("", 13, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    ("cu129", 12, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    ("cu126", 12, ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
)
# The oldest driver for each CUDA, and the first for new generations of cards (release notes of CUDA and the drivers).
_DRIVERS = {12: 525, 13: 580}
_FIRST_DRIVERS = {"10": 570, "12": 570}
_THOR = 110


class Wheel(Struct, frozen=True):
    """A build of torch: its index (empty: pip's default), and why it was chosen.

    `cuda` is its CUDA version such as "12.6" (empty: none), `arch_list` its architectures.
    """

    index: str
    why: str
    cuda: str = ""
    arch_list: tuple[str, ...] = ()

    @property
    def toolchain(self) -> Toolchain:
        """A toolchain with this build, to judge cards."""
        return Toolchain(python="", torch=f"for CUDA {self.cuda}", cuda=self.cuda or None, arch_list=self.arch_list)


def of_machine(machine: Machine) -> Wheel:
    """Return the build for the recommended cards of a machine; Unavailable as `wheel` raises it."""
    chosen = recommended(machine.gpus, judge(machine.gpus))
    cards = [gpu for gpu in machine.gpus if gpu.uuid in chosen] or machine.gpus
    return wheel(cards, machine.driver_cuda, [gpu for gpu in machine.gpus if gpu not in cards])


def wheel(gpus: Sequence[Gpu], driver_cuda: str | None, beside: Sequence[Gpu] = ()) -> Wheel:
    """Return the build that the driver can run and that supports most of the cards; the CPU build without cards.

    Equal builds are ranked by the other cards of the machine, `beside`. Unavailable if no build supports any of `gpus`.
    """
    cards = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    others = [gpu.compute_capability for gpu in beside if gpu.compute_capability]
    if not cards:
        return Wheel(CPU_INDEX, "no GPU was found: the CPU build, which is small")
    newest = major(driver_cuda) or 13
    fitting = [build for build in _BUILDS if build[1] <= newest]

    def covered(build: tuple[str, int, tuple[str, ...]]) -> tuple[int, int]:
        return sum(runs(build[2], card) for card in cards), sum(runs(build[2], card) for card in others)

    best = max(fitting, key=covered, default=None)
    if best is None or not covered(best)[0]:
        _refuse(cards, driver_cuda, [build[1] for build in _BUILDS if covered(build)[0]])
    tag, cuda, code = best
    version = f"{tag[2:4]}.{tag[4:]}" if tag else str(cuda)
    able, count = sum(covered(best)), len(cards) + len(others)
    supported = f"{able} of {count} GPUs"
    if able == count:
        supported = "the GPU" if count == 1 else f"all {count} GPUs"
    lacking = "" if newest >= _BUILDS[0][1] else f"; the driver does not support CUDA {_BUILDS[0][1]}"
    why = f"the build for CUDA {version} supports {supported}{lacking}"
    return Wheel(f"{_INDEX}{tag}" if tag else "", why, version, code)


def _refuse(cards: Sequence[str], driver_cuda: str | None, versions: Sequence[int]) -> NoReturn:
    """Raise Unavailable for cards that no build supports with this driver; `versions` of CUDA are those that could."""
    capabilities = visible(" and ".join(dict.fromkeys(cards)))
    if versions:
        needed = max(_DRIVERS[min(versions)], *(_FIRST_DRIVERS.get(name.partition(".")[0], 0) for name in cards))
        old = visible(str(driver_cuda))
        message = f"the NVIDIA driver is too old (CUDA {old}): torch for these GPUs needs driver {needed} or newer"
        raise Unavailable(message, f"Update the NVIDIA driver to {needed} or newer.")
    message = f"no build of torch supports compute capability {capabilities}"
    if all(number(name) in TEGRA or number(name) == _THOR for name in cards):
        remedy = "Use NVIDIA's PyTorch for Jetson: tui-train env create hf --index-url URL."
        raise Unavailable(message, f"{remedy} For the CPU: --index-url {CPU_INDEX}")
    remedy = "They are too old for today's torch (3.7: torch 2.5 for CUDA 11.8 was the last)."
    raise Unavailable(message, f"{remedy} For the CPU: --index-url {CPU_INDEX}")

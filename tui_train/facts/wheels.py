"""Which build of torch has code for the cards of a machine, and where it is taken from."""

from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.base.versions import major
from tui_train.facts.capability import runs
from tui_train.facts.gpus import judge, recommended
from tui_train.facts.types import Gpu, Machine, Toolchain

_INDEX = "https://download.pytorch.org/whl/"
CPU_INDEX = f"{_INDEX}cpu"
# The CUDA builds of torch 2.13 and their code: `torch.cuda.PYTORCH_RELEASES_CODE_CC`. That of 13.0 is on PyPI itself.
_BUILDS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("", 13, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    ("cu129", 12, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    ("cu126", 12, ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
)


class Wheel(Struct, frozen=True):
    """A build of torch: its index (empty: the one that pip has anyway), and why it is this one.

    `cuda` is the CUDA that it is for, such as "12.6" (empty: none), `arch_list` what it has code for.
    """

    index: str
    why: str
    cuda: str = ""
    arch_list: tuple[str, ...] = ()

    @property
    def toolchain(self) -> Toolchain:
        """A Python that has this build, to judge cards for."""
        return Toolchain(python="", torch=f"for CUDA {self.cuda}", cuda=self.cuda or None, arch_list=self.arch_list)


def of_machine(machine: Machine) -> Wheel:
    """Return the build for the cards of a machine that a training would take; Unavailable as `wheel` raises it."""
    chosen = recommended(machine.gpus, judge(machine.gpus))
    cards = [gpu for gpu in machine.gpus if gpu.uuid in chosen] or machine.gpus
    return wheel(cards, machine.driver_cuda, [gpu for gpu in machine.gpus if gpu not in cards])


def wheel(gpus: Sequence[Gpu], driver_cuda: str | None, beside: Sequence[Gpu] = ()) -> Wheel:
    """Return the build with code for most of the cards that the driver can run; the CPU's where there are no cards.

    Of builds as good for `gpus` it is the one for most of the cards `beside`. Unavailable is raised where no build has
    code for any of `gpus`.
    """
    cards = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    more = [gpu.compute_capability for gpu in beside if gpu.compute_capability]
    if not cards:
        return Wheel(CPU_INDEX, "no GPU was found: the build for the CPU, which is small")
    newest = major(driver_cuda) or 13
    fitting = [build for build in _BUILDS if build[1] <= newest] or [_BUILDS[-1]]

    def covered(build: tuple[str, int, tuple[str, ...]]) -> tuple[int, int]:
        return sum(runs(build[2], card) for card in cards), sum(runs(build[2], card) for card in more)

    tag, cuda, code = best = max(fitting, key=covered)
    version = f"{tag[2:4]}.{tag[4:]}" if tag else str(cuda)
    if not covered(best)[0]:
        _refuse(cards, able=any(covered(build)[0] for build in _BUILDS))
    able, count = sum(covered(best)), len(cards) + len(more)
    has = f"{able} of {count} cards"
    if able == count:
        has = "the card" if count == 1 else f"all {count} cards"
    lacking = "" if newest >= _BUILDS[0][1] else f"; the driver cannot run CUDA {_BUILDS[0][1]}"
    why = f"the build for CUDA {version} has code for {has}{lacking}"
    return Wheel(f"{_INDEX}{tag}" if tag else "", why, version, code)


def _refuse(cards: Sequence[str], *, able: bool) -> NoReturn:
    which = " and ".join(dict.fromkeys(cards))
    if able:
        message = f"the driver runs no build of torch that has code for compute capability {which}"
        raise Unavailable(message, "Update NVIDIA's driver, or name an index with a build: --index-url URL")
    remedy = (
        "A Jetson (8.7 is Orin, 7.2 Xavier) needs NVIDIA's own PyTorch for Jetson: name its index, --index-url URL."
        f" To train on the CPU: --index-url {CPU_INDEX}"
    )
    raise Unavailable(f"no build of torch has code for compute capability {which}", remedy)

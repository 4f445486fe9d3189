"""Proves what the live samples say of the cards: nvidia-smi says the same of a busy one."""

import threading
from collections.abc import Iterator

from msgspec import Struct

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.kernels import card_title, run_matrix_products
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.facts.gpus.live_samples import yield_changed_samples
from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.machine.child_process import run_child
from tui_train.facts.types import Gpu
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.types import Profile
from tui_train.runner.system.other_programs import find_on_path

_BUSY_SECONDS = 8
_WARM_UP_SECONDS = 3.0
_NVIDIA_SMI_SECONDS = 30.0
_NVIDIA_SMI_QUERY = ("--query-gpu=uuid,memory.free,utilization.gpu,temperature.gpu", "--format=csv,noheader,nounits")
_MIB = 2**20
# The two are not read at the same moment.
_MAX_MEMORY_DIFFERENCE, _MAX_UTILIZATION_DIFFERENCE, _MAX_TEMPERATURE_DIFFERENCE = 64 * _MIB, 20, 5


class _CardReading(Struct, frozen=True, kw_only=True):
    """Free memory in bytes, utilization in % and temperature in °C of a card; None is not told."""

    memory_free: int | None
    utilization: int | None
    temperature: int | None

    @property
    def text(self) -> str:
        """The reading in words."""
        free = "?" if self.memory_free is None else f"{self.memory_free // _MIB} MiB"
        return f"{free} free, {_number_text(self.utilization)} %, {_number_text(self.temperature)} °C"


def sample_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield the sample of each card that can compute beside what nvidia-smi says while it does."""
    setup = make_setup(profile, run_context.facts)
    if setup.toolchain is None or not find_on_path("nvidia-smi"):
        yield untested_claim("Samples say what nvidia-smi says", "nvidia-smi was not found")
        return
    for gpu in setup.gpus:
        words = (setup.toolchain.python, profile, run_context, gpu.uuid, _BUSY_SECONDS)
        load = threading.Thread(target=run_matrix_products, args=words, daemon=True)
        load.start()
        yield _busy_card_claim(gpu, load)
        load.join()


def _busy_card_claim(gpu: Gpu, load: threading.Thread) -> Claim:
    claim = f"{card_title(gpu)}, busy: the samples say what nvidia-smi says"
    sampled: CardSample | None = None
    steady = threading.Event()
    timer = threading.Timer(_WARM_UP_SECONDS, steady.set)
    for samples in yield_changed_samples(lambda: steady.is_set() or not load.is_alive()):
        sampled = next((sample for sample in samples if sample.uuid == gpu.uuid), sampled)
        # Of a card that idles both say 0 %, and what has just begun still changes.
        if sampled and sampled.utilization != 0 and timer.ident is None:
            timer.start()
    if sampled is None or timer.ident is None:
        return untested_claim(claim, "it was not busy" if sampled else "the driver gave no sample")
    shown = _read_nvidia_smi().get(gpu.uuid)
    if shown is None:
        return untested_claim(claim, "nvidia-smi does not list it")
    own = _CardReading(
        memory_free=sampled.memory_free, utilization=sampled.utilization, temperature=sampled.temperature
    )
    return checked_claim(claim, shown.text, own.text, holds=_are_close(own, shown))


def _are_close(own: _CardReading, shown: _CardReading) -> bool:
    """Return whether two readings agree; what one of them does not tell is none of them."""
    pairs = (
        (own.memory_free, shown.memory_free, _MAX_MEMORY_DIFFERENCE),
        (own.utilization, shown.utilization, _MAX_UTILIZATION_DIFFERENCE),
        (own.temperature, shown.temperature, _MAX_TEMPERATURE_DIFFERENCE),
    )
    return all(one is None or other is None or abs(one - other) <= most for one, other, most in pairs)


def _read_nvidia_smi() -> dict[str, _CardReading]:
    """Return what nvidia-smi says of each card, by UUID."""
    result = run_child([find_on_path("nvidia-smi"), *_NVIDIA_SMI_QUERY], _NVIDIA_SMI_SECONDS)
    readings = {}
    for line in result.stdout.decode("utf-8", "replace").splitlines():
        uuid, *cells = (cell.strip() for cell in line.split(","))
        if len(cells) == 3:
            free, utilization, temperature = map(_number_or_none, cells)
            readings[uuid] = _CardReading(
                memory_free=None if free is None else free * _MIB, utilization=utilization, temperature=temperature
            )
    return readings


def _number_or_none(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _number_text(value: int | None) -> str:
    return "?" if value is None else str(value)

"""Proves the memory estimate: what is estimated and traced of small models, beside what two real steps take."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.kernels import card_title
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.text import percent, size_text, visible
from tui_train.facts.models.dimensions import ModelDimensions, find_known_dimensions
from tui_train.facts.types import Gpu
from tui_train.memory import trace as traces
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.trace import CountedMemory
from tui_train.memory.types import ALL_LORA_TARGETS, MemoryEstimate, MemorySettings
from tui_train.memory.verdict import CUDA_CONTEXT_BYTES, judge_memory, reserved_bytes
from tui_train.memory.workload import new_model_dimensions
from tui_train.profile.types import Profile, Recipe

# Of each type one whose training fits a small card.
_CARD_MODELS = (
    "HuggingFaceTB/SmolLM-135M", "google/gemma-3-270m", "EleutherAI/pythia-410m", "Qwen/Qwen3-0.6B",
    "TinyLlama/TinyLlama-1.1B",
)  # fmt: skip
_CARD_SETTINGS = MemorySettings(
    micro_batch=2, sequence_length=1024, weight_dtype="bf16", adapter_dtype="bf16", optimizer="adamw_fused"
)
_CPU_SETTINGS = MemorySettings(micro_batch=4, sequence_length=128, optimizer="adamw_fused")
_CPU_RECIPE = Recipe(layers=6, hidden_size=384, heads=6)
# docs/memory.md: what is reserved is known to about a fifth.
_RESERVED_RELATIVE_ERROR = 0.2


class _MemoryCase(NamedTuple):
    """A model and the training whose memory is compared."""

    model: ModelDimensions
    method: str
    settings: MemorySettings

    @property
    def title(self) -> str:
        """The model, the method and the settings, in words."""
        how = self.settings
        return f"{self.model.name}, {self.method}, {how.weight_dtype}, {how.micro_batch} × {how.sequence_length} tokens"


def memory_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield estimate, trace and measurement of small models on the first card, or in the host's memory."""
    setup = make_setup(profile, run_context.facts)
    if setup.toolchain is None:
        yield untested_claim("The memory estimate", "no Python here can train")
        return
    gpu = setup.gpus[0] if setup.gpus else None
    context_is_told = gpu is None
    for case in _memory_cases(on_card=gpu is not None):
        if gpu and (why := _why_too_large_for_card(case, gpu)):
            yield untested_claim(case.title, why)
            continue
        counted, traced = _measured_and_traced_memory(case, setup.toolchain.python, gpu, run_context)
        yield from _claims_of_case(case, counted, traced)
        if gpu and counted.used and not context_is_told:
            context_is_told = True
            yield _cuda_context_claim(gpu, counted)


def _measured_and_traced_memory(
    case: _MemoryCase, python: str, gpu: Gpu | None, run_context: ShortRunContext
) -> tuple[CountedMemory, CountedMemory]:
    """Return what two real steps take, and what the trace counts meanwhile, for which no card is needed."""
    request = traces.memory_child_request(case.model, case.settings)
    with ThreadPoolExecutor(1) as pool:
        traced = pool.submit(traces.run_memory_trace, python, request, lambda: run_context.is_cancelled)
        counted = traces.run_memory_measurement(
            python, request, gpu.uuid if gpu else "", lambda: run_context.is_cancelled
        )
        return counted, traced.result()


def _memory_cases(*, on_card: bool) -> Iterator[_MemoryCase]:
    models = (
        [*filter(None, map(find_known_dimensions, _CARD_MODELS))] if on_card else [new_model_dimensions(_CPU_RECIPE)]
    )
    full = _CARD_SETTINGS if on_card else _CPU_SETTINGS
    for model in models:
        yield _MemoryCase(model, "full", full)
        lora = replace(full, trained="lora", lora_targets=ALL_LORA_TARGETS)
        yield _MemoryCase(model, "LoRA", lora)
        yield _MemoryCase(model, "QLoRA", replace(lora, quantization="nf4-dq"))


def _why_too_large_for_card(case: _MemoryCase, gpu: Gpu) -> str:
    """Return why two steps are not to be tried on a card: running out of memory may end other programs."""
    estimate, free = estimate_memory(case.model, case.settings), gpu.memory_free
    if free is None:
        return "the driver does not tell how much memory is free"
    reserved = reserved_bytes(estimate, several_processes=False)
    band = judge_memory(estimate.peak_phase.total_bytes, reserved, free, several_processes=False).band
    return "" if band == "fits" else f"by the estimate it does not fit: {size_text(reserved)} of {size_text(free)} free"


def _claims_of_case(case: _MemoryCase, counted: CountedMemory, traced: CountedMemory) -> Iterator[Claim]:
    """Yield the estimate and the trace beside the tensors that were measured, and on a card what was reserved."""
    if counted.problem:
        yield untested_claim(case.title, visible(counted.problem))
        return
    estimate = estimate_memory(case.model, case.settings)
    _, measured = counted.peak_phase_and_bytes
    yield _size_claim(f"{case.title}: estimate", estimate.peak_phase.total_bytes, measured, estimate.relative_error)
    if traced.problem:
        yield untested_claim(f"{case.title}: trace", visible(traced.problem))
    else:
        _, peak = traced.peak_phase_and_bytes
        yield _size_claim(f"{case.title}: trace", peak, measured, traces.TRACE_RELATIVE_ERROR)
    if counted.reserved:
        yield _reserved_claim(case, estimate, counted)


def _reserved_claim(case: _MemoryCase, estimate: MemoryEstimate, counted: CountedMemory) -> Claim:
    reserved = reserved_bytes(estimate, several_processes=False)
    return _size_claim(f"{case.title}: reserved", reserved, counted.reserved, _RESERVED_RELATIVE_ERROR)


def _size_claim(claim: str, expected: int, measured: int, error: float) -> Claim:
    """Return a number of bytes beside the measured one, which may be that share smaller or larger."""
    off = expected / measured - 1 if measured else 0.0
    return checked_claim(
        claim,
        f"{size_text(expected)} ± {percent(error)}",
        f"{size_text(measured)} ({off:+.1%})",
        holds=measured > 0 and abs(off) <= error,
    )


def _cuda_context_claim(gpu: Gpu, counted: CountedMemory) -> Claim:
    """Return what the CUDA context takes: what is used of the card, without what was reserved and used before."""
    before = (gpu.memory_total or 0) - (gpu.memory_free or 0)
    context = counted.used - counted.reserved - before
    return checked_claim(
        f"{card_title(gpu)}: CUDA context",
        f"at most {size_text(CUDA_CONTEXT_BYTES)}",
        size_text(max(0, context)),
        holds=context <= CUDA_CONTEXT_BYTES,
    )

"""Proves that each process uses the card of the plan, and how fast NCCL and Gloo exchange what it computes."""

from collections.abc import Iterator

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.cards.kernels import card_title, is_same_card
from tui_train.actions.doctor.communication import communication_profile, run_communication_test
from tui_train.actions.doctor.communication_fixes import examine_communication
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.text import visible
from tui_train.facts.machine.communication_tests import CommunicationTestResult, Examination, RankStage
from tui_train.facts.types import Gpu
from tui_train.memory.data_defaults import make_setup
from tui_train.profile import fields
from tui_train.profile.types import CommunicationBackend, Profile
from tui_train.setup.setup import Setup

_MAX_SECONDS = 60.0
_CPU_PROCESS_COUNT = 2
_NAME_BY_BACKEND = {"nccl": "NCCL", "gloo": "Gloo"}


def rank_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield which device each process used, beside that of the plan."""
    setup = make_setup(_multi_process_profile(profile, run_context), run_context.facts)
    result = run_communication_test(communication_profile(setup), run_context, _MAX_SECONDS)
    used = {each.rank: each for each in result.stages if each.stage == "device"}
    for rank in range(setup.world_size):
        claim = f"Process {rank} of {setup.world_size} uses the device of the plan"
        if rank not in used:
            yield checked_claim(claim, _planned_device(setup, rank), "it did not begin", holds=False, why=result.cause)
            continue
        yield _device_claim(claim, setup.gpus[rank] if setup.gpus else None, used[rank])


def _device_claim(claim: str, gpu: Gpu | None, used: RankStage) -> Claim:
    if gpu is None:
        return checked_claim(claim, "cpu", visible(used.device), holds=used.device == "cpu")
    if used.device == gpu.name and not used.uuid:
        return untested_claim(claim, "this torch does not tell the UUID of a card")
    return checked_claim(
        claim,
        f"{card_title(gpu)} {visible(gpu.uuid)}",
        visible(f"{used.device} {used.uuid}".strip() or used.problem),
        holds=is_same_card(gpu, used.device, used.uuid),
    )


def _planned_device(setup: Setup, rank: int) -> str:
    return f"{card_title(setup.gpus[rank])} {visible(setup.gpus[rank].uuid)}" if setup.gpus else "cpu"


def exchange_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield whether the processes reach each other by NCCL and by Gloo, and which is faster."""
    several = _multi_process_profile(profile, run_context)
    setup = make_setup(several, run_context.facts)
    if setup.device == "cpu" or setup.world_size < 2:
        yield untested_claim("The processes reach each other by NCCL", "it needs two GPUs that can train")
        backends: tuple[CommunicationBackend, ...] = ("gloo",)
    else:
        backends = ("nccl", "gloo")
    if setup.world_size < 2:
        return
    results: dict[str, CommunicationTestResult] = {}
    for backend in backends:
        with_backend = fields.profile_with_value(several, "communication.backend", backend)
        examination = examine_communication(with_backend, run_context, _MAX_SECONDS, keeps_failed=False)
        results[backend] = examination.result
        yield _backend_works_claim(backend, examination)
    if all(result.works for result in results.values()) and len(results) > 1:
        nccl, gloo = (results[name].bytes_per_second for name in ("nccl", "gloo"))
        yield checked_claim(
            "NCCL is faster than Gloo on GPUs", "faster", f"{nccl / gloo:.1f} times as fast", holds=nccl > gloo
        )


def _backend_works_claim(backend: str, examination: Examination) -> Claim:
    result, change = examination.result, examination.proven_fix
    return checked_claim(
        f"The processes reach each other by {_NAME_BY_BACKEND[backend]}",
        "each exchange is right",
        f"100 MiB at {result.bytes_per_second / 1e9:.2g} GB/s" if result.works else visible(result.cause),
        holds=result.works,
        why=f"it works: {visible(change.title)}" if change else "",
    )


def _multi_process_profile(profile: Profile, run_context: ShortRunContext) -> Profile:
    """Return a profile that trains with one process for each card, or with two on the CPU."""
    if make_setup(profile, run_context.facts).device == "cuda":
        return profile
    return fields.profile_with_value(profile, "hardware.processes", _CPU_PROCESS_COUNT)

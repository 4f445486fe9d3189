"""Proves the verdict on each card: a real kernel runs on it as foreseen, in each precision."""

from collections.abc import Iterator
from importlib import resources

from msgspec import Struct

from tui_train.actions.cards.claims import Claim, checked_claim, untested_claim
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.text import visible
from tui_train.facts.gpus.capability import do_all_support_bf16
from tui_train.facts.machine.child_process import RUN_PROGRAM_TEXT_CODE
from tui_train.facts.other_machines.remote import run_on_machine
from tui_train.facts.types import Gpu, GpuVerdict
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.types import Profile

# CUDA alone takes some seconds to start on a machine with many cards.
_DEADLINE_SECONDS = 90.0
_COMPUTES_TEXT = "computes"


class CardComputation(Struct, frozen=True, kw_only=True):
    """torch's report on the only visible card, and by precision why a matrix product is wrong (empty: right)."""

    device: str = ""
    problems: dict[str, str] = {}
    name: str = ""
    uuid: str = ""
    capability: str = ""
    native_bf16: bool | None = None
    visible_cards: int = 0
    problem: str = ""

    @property
    def why_not_computing(self) -> str:
        """The reason why no precision computes, empty if one does."""
        wrong = [why for why in self.problems.values() if why]
        return self.problem or (wrong[0] if len(wrong) == len(self.problems) else "")


def kernel_claims(profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield what came of a kernel on each card; without a card, of one on the CPU."""
    setup = make_setup(profile, run_context.facts)
    if setup.toolchain is None:
        yield untested_claim("This Python computes", "no Python here can train")
        return
    python = setup.toolchain.python
    for gpu, verdict in zip(run_context.facts.machine.gpus, setup.gpu_verdicts, strict=True):
        yield from _claims_of_card(gpu, verdict, python, profile, run_context)
    if not run_context.facts.machine.gpus:
        answer = run_matrix_products(python, profile, run_context)
        yield checked_claim(
            "PyTorch computes on the CPU",
            _COMPUTES_TEXT,
            visible(answer.why_not_computing or f"computes on the {answer.device}"),
            holds=answer.device == "cpu" and not any(answer.problems.values()),
        )


def _claims_of_card(
    gpu: Gpu, verdict: GpuVerdict, python: str, profile: Profile, run_context: ShortRunContext
) -> Iterator[Claim]:
    title = card_title(gpu)
    if not gpu.uuid:
        yield untested_claim(f"{title}: the verdict", "the driver does not tell its UUID, so it cannot be chosen")
        return
    answer = run_matrix_products(python, profile, run_context, gpu.uuid)
    why_not = answer.why_not_computing or ("torch finds no GPU" if answer.device == "cpu" else "")
    expected = f"cannot compute: {'; '.join(verdict.reasons)}" if verdict.kind == "blocked" else _COMPUTES_TEXT
    yield checked_claim(
        f"{title}: the verdict",
        visible(expected),
        visible(f"cannot compute: {why_not}" if why_not else _COMPUTES_TEXT),
        holds=bool(why_not) == (verdict.kind == "blocked"),
    )
    if why_not:
        return
    yield checked_claim(
        f"{title}: its UUID selects it alone",
        f"{visible(gpu.name)} {visible(gpu.uuid)}, compute capability {gpu.compute_capability}",
        f"{visible(answer.name)} {visible(answer.uuid)}, compute capability {visible(answer.capability)}",
        holds=answer.visible_cards == 1
        and is_same_card(gpu, answer.name, answer.uuid)
        and answer.capability == (gpu.compute_capability or answer.capability),
    )
    yield _precision_claim(title, gpu, answer)


def _precision_claim(title: str, gpu: Gpu, answer: CardComputation) -> Claim:
    """Return whether each precision computes rightly, and bf16 without emulation just where that is foreseen."""
    native = do_all_support_bf16([gpu])
    wrong = ", ".join(f"{name}: {visible(why)}" for name, why in answer.problems.items() if why)
    emulated = {True: "bf16", False: "bf16 only by emulation", None: "bf16, not told whether by emulation"}
    return checked_claim(
        f"{title}: precisions",
        f"fp32, fp16, {emulated[native]}",
        wrong or f"fp32, fp16, {emulated[answer.native_bf16]}",
        # What has no bf16 of its own may refuse it or compute it slowly: the plan does not use it there.
        holds=not any(why for name, why in answer.problems.items() if name != "bf16" or native)
        and answer.native_bf16 in {native, None},
    )


def card_title(gpu: Gpu) -> str:
    """Return index and name of a card."""
    return f"GPU {gpu.index} {visible(gpu.name)}".rstrip()


def is_same_card(gpu: Gpu, name: str, uuid: str) -> bool:
    """Return whether torch names a card as the driver does; before torch 2.5 it tells no UUID."""
    return _uuid_without_prefix(uuid) == _uuid_without_prefix(gpu.uuid) if uuid else name == gpu.name


def _uuid_without_prefix(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def run_matrix_products(
    python: str, profile: Profile, run_context: ShortRunContext, gpu_uuid: str = "", seconds: int = 0
) -> CardComputation:
    """Return what a child of a Python computes on a card, or on the CPU; it keeps it busy for so many `seconds`."""
    program = resources.files("tui_train").joinpath("programs/card_kernels.py").read_text("utf-8")
    variables = {
        **profile.trainer.environment,
        "CUDA_VISIBLE_DEVICES": gpu_uuid,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    result = run_on_machine(
        run_context.place.address,
        [python, "-B", "-c", RUN_PROGRAM_TEXT_CODE, program, str(seconds)],
        _DEADLINE_SECONDS + seconds,
        variables,
        lambda: run_context.is_cancelled,
    )
    return result.last_answer(CardComputation) or CardComputation(problem=result.why_unusable())

"""The proof of a machine: stages of claims, each tested by what this program does anyway, and what is kept of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tui_train import __version__
from tui_train.actions.cards.claims import Claim, untested_claim
from tui_train.actions.cards.exchange import exchange_claims, rank_claims
from tui_train.actions.cards.kernels import card_title, kernel_claims
from tui_train.actions.cards.memory import memory_claims
from tui_train.actions.cards.nemo_recipe import nemo_claims
from tui_train.actions.cards.out_of_memory import out_of_memory_claims
from tui_train.actions.cards.samples import sample_claims
from tui_train.actions.cards.training_kinds import training_kind_claims
from tui_train.actions.cards.tuning import tuning_claims
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.errors import TuiTrainError
from tui_train.base.parse import Unparsable, parse_json_as, read_file_to_parse
from tui_train.base.text import display_path, size_text, visible
from tui_train.facts.answer_cache import content_digest
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup

_MAX_FILE_BYTES = 16 << 20


class ProofStage(NamedTuple):
    """Claims that are proved together; `needs_card`: without a GPU that can train none of them can be tested.

    `here_only`: what is measured is the machine on which this program runs, not the place of the trainings.
    """

    name: str
    about: str
    claims: Callable[[Profile, ShortRunContext], Iterator[Claim]]
    needs_card: bool = False
    here_only: bool = False


STAGES = (
    ProofStage("kernels", "the verdict on each GPU against a real kernel", kernel_claims),
    ProofStage("ranks", "the device of each process against the plan", rank_claims),
    ProofStage("communication", "NCCL against Gloo", exchange_claims),
    ProofStage("memory", "estimate and trace of small models against two real steps", memory_claims, here_only=True),
    ProofStage("out-of-memory", "what follows after a real out of memory", out_of_memory_claims, needs_card=True),
    ProofStage("trainings", "precisions, optimizers and shardings against the plain training", training_kind_claims),
    ProofStage("tune", "tuning against every setting", tuning_claims, here_only=True),
    ProofStage("samples", "live samples against nvidia-smi", sample_claims, needs_card=True, here_only=True),
    ProofStage("nemo", "a NeMo recipe of a few steps", nemo_claims, needs_card=True),
)

STAGE_BY_NAME = {stage.name: stage for stage in STAGES}


class StageResult(Struct, frozen=True, kw_only=True):
    """The claims of a stage so far; `complete`: all of them."""

    name: str
    claims: tuple[Claim, ...]
    seconds: float
    complete: bool


class ProvedMachine(Struct, frozen=True, kw_only=True):
    """Machine and choices for which results hold: another driver, PyTorch or choice of cards may differ.

    `chosen` is a digest of the machine's name and of what the profile chooses, for variables may be secrets.
    """

    tui_train: str
    driver: str
    cards: tuple[str, ...]
    cpu: str
    python: str
    torch: str
    chosen: str


class Proof(Struct, frozen=True, kw_only=True):
    """The results of the stages on a machine, in their order."""

    machine: ProvedMachine
    stages: tuple[StageResult, ...] = ()

    def with_result(self, result: StageResult) -> "Proof":
        """Return the proof with a result in place of the one before of that stage."""
        by_name = {stage.name: stage for stage in (*self.stages, result)}
        ordered = tuple(by_name[name] for name in STAGE_BY_NAME if name in by_name)
        return msgspec.structs.replace(self, stages=ordered)

    def has_completed(self, stage: ProofStage) -> bool:
        """Return whether all claims of a stage were tested."""
        return any(result.name == stage.name and result.complete for result in self.stages)

    @property
    def holds(self) -> bool:
        """True if no claim differs."""
        return all(claim.verdict != "differs" for stage in self.stages for claim in stage.claims)


def prove_stages(stages: Sequence[ProofStage], profile: Profile, run_context: ShortRunContext) -> Iterator[StageResult]:
    """Yield the result of each stage after each of its claims, and when it is complete; nothing after an interrupt."""
    for stage in stages:
        for result in _results_of_stage(stage, profile, run_context):
            # What was broken off says nothing.
            if run_context.is_cancelled:
                return
            yield result


def _results_of_stage(stage: ProofStage, profile: Profile, run_context: ShortRunContext) -> Iterator[StageResult]:
    began, claims, seconds = time.monotonic(), list[Claim](), 0.0
    for claim in _claims_of_stage(stage, profile, run_context):
        claims.append(claim)
        seconds = round(time.monotonic() - began, 1)
        yield StageResult(name=stage.name, claims=tuple(claims), seconds=seconds, complete=False)
    yield StageResult(name=stage.name, claims=tuple(claims), seconds=seconds, complete=True)


def _claims_of_stage(stage: ProofStage, profile: Profile, run_context: ShortRunContext) -> Iterator[Claim]:
    """Yield the claims of a stage; one that cannot go on says why."""
    if stage.here_only and run_context.place.host:
        there = f"on {visible(run_context.place.host)}, tui-train doctor --cards --stage {stage.name}"
        yield untested_claim(stage.about, f"it is proved only where tui-train runs: {there}")
        return
    if stage.needs_card and not make_setup(profile, run_context.facts).gpus:
        yield untested_claim(stage.about, "no GPU here can train")
        return
    try:
        yield from stage.claims(profile, run_context)
    except TuiTrainError as error:
        yield untested_claim(stage.about, error.message)


def proved_machine(setup: Setup) -> ProvedMachine:
    """Return what is proved: the machine, its Python, and what a profile chooses of both."""
    machine, tool, profile = setup.facts.machine, setup.toolchain, setup.profile
    chosen = (machine.hostname, profile.hardware, profile.trainer.environment, profile.communication)
    return ProvedMachine(
        tui_train=__version__,
        driver=f"{machine.driver_version or '?'}, CUDA {machine.driver_cuda or '?'}" if machine.gpus else "",
        cards=tuple(
            f"{card_title(gpu)} {visible(gpu.uuid)}, {size_text(gpu.memory_total)}, {gpu.compute_capability or '?'}"
            for gpu in machine.gpus
        ),
        cpu=f"{visible(machine.cpu_name)} × {machine.cpu_count}",
        python=display_path(tool.python) if tool else "",
        torch=visible(tool.torch or "") if tool else "",
        chosen=content_digest(msgspec.json.encode(chosen)),
    )


def load_proof(file: Path, machine: ProvedMachine) -> Proof:
    """Return what was kept of an earlier proof of this machine, with no results if there is none."""
    try:
        kept = parse_json_as(read_file_to_parse(file, _MAX_FILE_BYTES), Proof)
    except Unparsable:
        kept = Proof(machine=machine)
    return kept if kept.machine == machine else Proof(machine=machine)

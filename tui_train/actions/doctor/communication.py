"""A test of how the processes of a training exchange data, in the place of the training, and ended in time."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import structs

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.diagnose import diagnose_run
from tui_train.diagnose.types import Diagnosis
from tui_train.facts.machine.communication_tests import STAGES, CommunicationResult, Exchange
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import set_up
from tui_train.places.place import Place
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile, Trainer
from tui_train.runs import folders
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.rundir import RunDir
from tui_train.setup.setup import Setup

TEST_NAME = "communication-test"
# As programs/communication_test.py prints it, which is not imported: that one knows torch.
MARK = "tui-train communication: "
_POLL_SECONDS = 0.1
_POLL_SECONDS_ELSEWHERE = 1.0
_STAGE_TEXTS: dict[str, str] = {
    "process group": "the meeting of the processes",
    "all_reduce": "the exchange of 100 MiB",
}
# What a launcher does to the others where one process ends says nothing of it.
_KEYS_OF_COMMUNICATION = ("communication.", "container.", "nodes.")
_FAILURES_WITHOUT_CAUSE = frozenset({"", "unknown", "sigterm"})
# It says for whom a process waits that hangs.
_FAILURE_OF_A_HANG = "no_answer"


def communication_profile(setup: Setup) -> Profile:
    """Return the profile that tests the communication of another: the same machines, GPUs, Python and launcher."""
    profile, trainer = setup.profile, setup.profile.trainer
    # In an image it is found there, as the training finds it.
    found = setup.toolchain if profile.container.engine == "none" else None
    return Profile(
        name=TEST_NAME,
        hardware=profile.hardware,
        trainer=Trainer(
            kind="communication",
            launcher=setup.launcher,
            python=trainer.python or (found.python if found else ""),
            accelerate_config=trainer.accelerate_config,
            environment=trainer.environment,
            secrets=trainer.secrets,
        ),
        container=profile.container,
        communication=profile.communication,
        nodes=profile.nodes,
        slurm=profile.slurm,
    )


class Observer:
    """Is told what is done, and says whether it is to end; this one does neither."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the test is to end now."""
        return False

    def begin_test(self, change: Change | None) -> None:
        """Note that a test begins: with a change, or as the profile is."""

    def note_exchange(self, exchange: Exchange) -> None:
        """Note what a process has done."""


class Workbench(NamedTuple):
    """Where tests run, what is known of it, and who is told of them."""

    place: Place
    facts: Facts
    observer: Observer
    interrupts: Interrupts = NO_INTERRUPTS

    @property
    def is_cancelled(self) -> bool:
        """Whether the test is to end now."""
        return bool(self.interrupts.number) or self.observer.is_cancelled


def run_communication_test(profile: Profile, bench: Workbench, max_seconds: float) -> CommunicationResult:
    """Start a test and return what came of it; it leaves no process, and no folder here.

    Raises Unavailable where it cannot be started.
    """
    setup = set_up(profile, bench.facts)
    prepared = prepare_plan(setup)
    errors = [finding for finding in prepared.findings if finding.level == "error"]
    if prepared.plan is None or errors:
        first = errors[0]
        raise Unavailable(first.message, first.remedy)
    run = bench.place.submit(prepared, prepared.plan, bench.interrupts)
    try:
        in_time = _watch(run, bench, max_seconds)
        bench.place.stop(run, at_once=True)
        exchanges = tuple(read_exchanges(LogTail(run.attempt_log(1)).remaining_lines()))
        return judge(setup, exchanges, run, in_time=in_time)
    finally:
        _remove(run, bench.place)


def _watch(run: RunDir, bench: Workbench, max_seconds: float) -> bool:
    """Follow a test; return whether it ended by itself in time. What waits in a queue does not count."""
    tail, until = LogTail(run.attempt_log(1)), time.monotonic() + max_seconds
    while True:
        status = bench.place.ask_state(run)
        for exchange in read_exchanges(tail.remaining_lines()):
            bench.observer.note_exchange(exchange)
        if status.state == "queued":
            until = time.monotonic() + max_seconds
        elif not status.live and status.state != "new":
            return True
        if time.monotonic() > until or bench.is_cancelled:
            return False
        time.sleep(_POLL_SECONDS_ELSEWHERE if bench.place.name else _POLL_SECONDS)


def read_exchanges(lines: Iterator[str]) -> Iterator[Exchange]:
    """Yield what processes have printed; what is none of theirs is passed over."""
    # Processes that share a pipe may write two into one line.
    for text in (part for line in lines for part in line.split(MARK)[1:]):
        with suppress(msgspec.MsgspecError, RecursionError):
            yield msgspec.json.decode(text[: text.rfind("}") + 1], type=Exchange)


def judge(setup: Setup, exchanges: tuple[Exchange, ...], run: RunDir, *, in_time: bool) -> CommunicationResult:
    """Return what exchanges show: it works where each process has done each stage, on the device of the plan."""
    processes = setup.world_size
    done = {(each.rank, each.stage) for each in exchanges if not each.problem}
    stages = STAGES if processes > 1 else STAGES[:1]
    works = all((rank, stage) in done for rank in range(processes) for stage in stages)
    rates = [each.bytes_per_second for each in exchanges if each.bytes_per_second]
    result = CommunicationResult(
        processes=processes,
        exchanges=exchanges,
        works=works and not any(each.problem for each in exchanges),
        bytes_per_second=min(rates, default=0.0),
    )
    if setup.device == "cuda" and (on_cpu := [each.rank for each in exchanges if each.device == "cpu"]):
        cause = f"process {min(on_cpu)} of {processes} got no GPU: its PyTorch finds none"
        remedy = "See whether that Python's PyTorch has CUDA, and the driver for it: tui-train facts"
        return structs.replace(result, works=False, cause=cause, remedy=remedy)
    if result.works:
        return result
    diagnosis = None
    with suppress(TuiTrainError):
        diagnosis = diagnose_run(run)
    cause, remedy = _cause_and_remedy(result, diagnosis, in_time=in_time)
    change = diagnosis.change if diagnosis and _concerns_communication(diagnosis.change) else None
    return structs.replace(result, cause=cause, remedy=remedy, change=change)


def _concerns_communication(change: Change | None) -> bool:
    """Return whether a test would show what a change does, and none of its values may be a secret."""
    return change is not None and all(key.startswith(_KEYS_OF_COMMUNICATION) for key, _ in change.edits)


def _cause_and_remedy(result: CommunicationResult, diagnosis: Diagnosis | None, *, in_time: bool) -> tuple[str, str]:
    """Return why a test failed, without a full stop, and what to do; what hangs says more than what then ended it."""
    hanging = [each for each in result.exchanges if each.hangs]
    failure = diagnosis.failure if diagnosis else ""
    if diagnosis and (failure == _FAILURE_OF_A_HANG or (failure not in _FAILURES_WITHOUT_CAUSE and not hanging)):
        return diagnosis.cause.rstrip("."), diagnosis.remedy
    if hanging:
        ranks = ", ".join(map(str, sorted(each.rank for each in hanging)))
        return f"{_stage_text(hanging[0].stage)} got no answer, in process {ranks} of {result.processes}", ""
    if failed := next((each for each in result.exchanges if each.problem), None):
        return f"process {failed.rank}, {failed.stage}: {visible(failed.problem)}", ""
    if not result.exchanges:
        return "no process has begun" if in_time else "no process began in time", ""
    last = {each.rank: each.stage for each in result.exchanges}
    end = STAGES[-1] if result.processes > 1 else STAGES[0]
    silent = next((rank for rank in range(result.processes) if last.get(rank) != end), 0)
    after = f"after {_stage_text(last[silent])}" if silent in last else "before it began"
    return f"process {silent} of {result.processes} ended {after}", ""


def _stage_text(stage: str) -> str:
    return _STAGE_TEXTS.get(stage, f"the {stage}")


def _remove(run: RunDir, place: Place) -> None:
    with suppress(TuiTrainError):
        place.stop(run, at_once=True)
    with suppress(TuiTrainError):
        folders.remove_run(run)

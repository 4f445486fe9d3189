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
from tui_train.facts.machine.communication_tests import CommunicationResult, Exchange
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import set_up
from tui_train.places.place import Place
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile, Trainer
from tui_train.runs import folders
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.rundir import RunDir
from tui_train.setup.setup import Setup

TEST_NAME = "communication-test"
# As programs/communication_test.py prints it, which is not imported: that one knows torch.
_MARK = "tui-train communication: "
_POLL_SECONDS = 0.1
_POLL_SECONDS_ELSEWHERE = 1.0
_STAGE_TEXTS = {"process group": "the meeting of the processes", "all_reduce": "the exchange of 100 MiB"}
# What a launcher does to the others where one process ends says nothing of it.
_FAILURES_WITHOUT_CAUSE = frozenset({"", "unknown", "sigterm"})


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


def run_communication_test(profile: Profile, bench: Workbench, max_seconds: float) -> CommunicationResult:
    """Start a test and return what came of it; it leaves neither a process nor a folder.

    Raises Unavailable where it cannot be started.
    """
    prepared = prepare_plan(set_up(profile, bench.facts))
    errors = [finding for finding in prepared.findings if finding.level == "error"]
    if prepared.plan is None or errors:
        first = errors[0]
        raise Unavailable(first.message, first.remedy)
    run = bench.place.submit(prepared, prepared.plan)
    try:
        in_time = _watch(run, bench, max_seconds)
        bench.place.stop(run, at_once=True)
        exchanges = tuple(_read_exchanges(LogTail(run.attempt_log(1)).remaining_lines()))
        return _judge(prepared.plan.world_size, exchanges, run, in_time=in_time)
    finally:
        _remove(run, bench.place)


def _watch(run: RunDir, bench: Workbench, max_seconds: float) -> bool:
    """Follow a test; return whether it ended by itself in time. What waits in a queue does not count."""
    tail, until = LogTail(run.attempt_log(1)), time.monotonic() + max_seconds
    while True:
        status = bench.place.ask_state(run)
        for exchange in _read_exchanges(tail.remaining_lines()):
            bench.observer.note_exchange(exchange)
        if status.state == "queued":
            until = time.monotonic() + max_seconds
        elif not status.live and status.state != "new":
            return True
        if time.monotonic() > until or bench.observer.is_cancelled:
            return False
        time.sleep(_POLL_SECONDS_ELSEWHERE if bench.place.name else _POLL_SECONDS)


def _read_exchanges(lines: Iterator[str]) -> Iterator[Exchange]:
    for line in lines:
        _, mark, text = line.partition(_MARK)
        if mark:
            with suppress(msgspec.MsgspecError, RecursionError):
                yield msgspec.json.decode(text, type=Exchange)


def _judge(processes: int, exchanges: tuple[Exchange, ...], run: RunDir, *, in_time: bool) -> CommunicationResult:
    ended = {each.rank for each in exchanges if each.stage == _last_stage(processes) and not each.problem}
    rates = [each.bytes_per_second for each in exchanges if each.bytes_per_second]
    result = CommunicationResult(
        processes=processes,
        exchanges=exchanges,
        works=len(ended) == processes,
        bytes_per_second=min(rates, default=0.0),
    )
    if result.works:
        return result
    diagnosis = None
    with suppress(TuiTrainError):
        diagnosis = diagnose_run(run)
    cause, remedy = _cause_and_remedy(result, diagnosis, in_time=in_time)
    return structs.replace(result, cause=cause, remedy=remedy, change=diagnosis.change if diagnosis else None)


def _last_stage(processes: int) -> str:
    return "barrier" if processes > 1 else "device"


def _cause_and_remedy(result: CommunicationResult, diagnosis: Diagnosis | None, *, in_time: bool) -> tuple[str, str]:
    """Return why a test failed, without a full stop, and what to do; what hangs says more than what then ended it."""
    hanging = [each for each in result.exchanges if each.hangs]
    if diagnosis and diagnosis.failure not in _FAILURES_WITHOUT_CAUSE and not hanging:
        return diagnosis.cause.rstrip("."), diagnosis.remedy
    if hanging:
        ranks = ", ".join(map(str, sorted(each.rank for each in hanging)))
        return f"{_stage_text(hanging[0].stage)} got no answer, in process {ranks} of {result.processes}", ""
    if failed := next((each for each in result.exchanges if each.problem), None):
        return f"process {failed.rank}, {failed.stage}: {visible(failed.problem)}", ""
    if not result.exchanges:
        return "no process has begun" if in_time else "no process began in time", ""
    last = {each.rank: each.stage for each in result.exchanges}
    silent = next(rank for rank in range(result.processes) if last.get(rank) != _last_stage(result.processes))
    after = f"after {_stage_text(last[silent])}" if silent in last else "before it began"
    return f"process {silent} of {result.processes} ended {after}", ""


def _stage_text(stage: str) -> str:
    return _STAGE_TEXTS.get(stage, f"the {stage}")


def _remove(run: RunDir, place: Place) -> None:
    with suppress(TuiTrainError):
        place.stop(run, at_once=True)
    with suppress(TuiTrainError):
        folders.remove_run(run)

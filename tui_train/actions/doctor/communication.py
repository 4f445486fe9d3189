"""A test of how the processes of a training exchange data, in the place of the training, and ended in time."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import structs

from tui_train.actions.doctor.short_runs import ShortRunContext, temporary_run, wait_for_end_in_time
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.diagnose import diagnose_run
from tui_train.diagnose.types import Diagnosis
from tui_train.facts.machine.communication_tests import STAGES, CommunicationTestResult, RankStage
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile, TrainerSettings
from tui_train.runs import folders
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.remote_run import read_remote_location
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.setup import Setup

COMMUNICATION_TEST_NAME = "communication-test"
# As programs/communication_test.py prints it, which is not imported: that one knows torch.
STAGE_LINE_MARK = "tui-train communication: "
_STAGE_TEXTS: dict[str, str] = {
    "process group": "finding each other",
    "all_reduce": "the exchange of 100 MiB",
}
# What a launcher does to the others where one process ends says nothing of it.
_COMMUNICATION_KEY_PREFIXES = ("communication.", "container.", "nodes.")
_UNINFORMATIVE_FAILURE_CLASSES = frozenset({"", "unknown", "sigterm"})
# How others end where a process has said its problem.
_FAILURES_OF_OTHERS = frozenset({"abort", "peer_lost"})
# It says what a process that hangs waits for.
_HANG_FAILURE_CLASS = "no_answer"


def communication_profile(setup: Setup) -> Profile:
    """Return the profile that tests the communication of another: the same machines, GPUs, Python and launcher."""
    profile, trainer = setup.profile, setup.profile.trainer
    # In an image it is found there, as the training finds it.
    found = setup.toolchain if profile.container.engine == "none" else None
    return Profile(
        name=COMMUNICATION_TEST_NAME,
        hardware=profile.hardware,
        trainer=TrainerSettings(
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


def run_communication_test(
    profile: Profile, run_context: ShortRunContext, max_seconds: float, *, keeps_failed: bool = False
) -> CommunicationTestResult:
    """Start a test and return what came of it; it leaves no process, and no folder.

    `keeps_failed`: that of one which fails, and is not cancelled, stays on its host. Raises Unavailable where it cannot
    be started.
    """
    setup = make_setup(profile, run_context.facts)
    with temporary_run(setup, run_context) as temporary:
        run = temporary.run
        in_time = _watch_test(run, run_context, max_seconds)
        temporary.stop()
        stages = tuple(parse_stages(LogTail(run.attempt_log(1)).remaining_lines()))
        result = judge_stages(setup, stages, run, in_time=in_time)
        there = read_remote_location(run.path)
        keeps = keeps_failed and not result.works and not run_context.is_cancelled
        if keeps and there and not there.shared:
            # What is removed here is not asked for there any more.
            folders.remove_run(run)
            result = structs.replace(result, kept_at=f"{there.host}:{there.folder}")
        return result


def _watch_test(run: RunFolder, run_context: ShortRunContext, max_seconds: float) -> bool:
    """Follow a test; return whether it ended by itself in time."""
    tail = LogTail(run.attempt_log(1))

    def note_new_stages() -> None:
        for stage in parse_stages(tail.remaining_lines()):
            run_context.observer.note_stage(stage)

    return wait_for_end_in_time(run, run_context, max_seconds, note_new_stages)


def parse_stages(lines: Iterator[str]) -> Iterator[RankStage]:
    """Yield what processes have printed; what is none of theirs is passed over."""
    # Processes that share a pipe may write two into one line.
    for text in (part for line in lines for part in line.split(STAGE_LINE_MARK)[1:]):
        with suppress(msgspec.MsgspecError, RecursionError):
            yield msgspec.json.decode(text[: text.rfind("}") + 1], type=RankStage)


def judge_stages(
    setup: Setup, stages: tuple[RankStage, ...], run: RunFolder, *, in_time: bool
) -> CommunicationTestResult:
    """Return what stages show: it works where each process has done each stage, on the device of the plan."""
    processes = setup.world_size
    done = {(each.rank, each.stage) for each in stages if not each.problem}
    expected = STAGES if processes > 1 else STAGES[:1]
    works = all((rank, stage) in done for rank in range(processes) for stage in expected)
    rates = [each.bytes_per_second for each in stages if each.bytes_per_second]
    result = CommunicationTestResult(
        processes=processes,
        stages=stages,
        works=works and not any(each.problem for each in stages),
        bytes_per_second=min(rates, default=0.0),
    )
    if setup.device == "cuda" and (on_cpu := [each.rank for each in stages if each.device == "cpu"]):
        cause = f"process {min(on_cpu)} of {processes} got no GPU: its PyTorch finds none"
        remedy = "See whether that Python's PyTorch has CUDA, and the driver for it: tui-train facts"
        return structs.replace(result, works=False, cause=cause, remedy=remedy)
    if result.works:
        return result
    diagnosis = None
    with suppress(TuiTrainError):
        diagnosis = diagnose_run(run)
    cause, remedy = _cause_and_remedy(result, diagnosis, in_time=in_time)
    change = diagnosis.change if diagnosis and _affects_communication(diagnosis.change) else None
    return structs.replace(result, cause=cause, remedy=remedy, change=change)


def _affects_communication(change: Change | None) -> bool:
    """Return whether a test would show what a change does, and none of its values may be a secret."""
    return change is not None and all(key.startswith(_COMMUNICATION_KEY_PREFIXES) for key, _ in change.edits)


def _cause_and_remedy(
    result: CommunicationTestResult, diagnosis: Diagnosis | None, *, in_time: bool
) -> tuple[str, str]:
    """Return why a test failed, without a full stop, and what to do; what hangs says more than what then ended it."""
    hanging = [each for each in result.stages if each.hangs]
    failed = next((each for each in result.stages if each.problem), None)
    failure = diagnosis.failure if diagnosis else ""
    if failed and not hanging and failure in _FAILURES_OF_OTHERS:
        diagnosis = None
    if diagnosis and (
        failure == _HANG_FAILURE_CLASS or (failure not in _UNINFORMATIVE_FAILURE_CLASSES and not hanging)
    ):
        return diagnosis.cause.rstrip("."), diagnosis.remedy
    if hanging:
        ranks = ", ".join(map(str, sorted(each.rank for each in hanging)))
        return f"{_stage_text(hanging[0].stage)} got no answer, in process {ranks} of {result.processes}", ""
    if failed:
        return f"process {failed.rank}, {failed.stage}: {visible(failed.problem)}", ""
    if not result.stages:
        return "no process has begun" if in_time else "no process began in time", ""
    last = {each.rank: each.stage for each in result.stages}
    end = STAGES[-1] if result.processes > 1 else STAGES[0]
    silent = next((rank for rank in range(result.processes) if last.get(rank) != end), 0)
    after = f"after {_stage_text(last[silent])}" if silent in last else "before it began"
    return f"process {silent} of {result.processes} ended {after}", ""


def _stage_text(stage: str) -> str:
    return _STAGE_TEXTS.get(stage, f"the {stage}")

"""Changes that may fix the communication between processes; each is tested."""

import time
from collections.abc import Iterator
from contextlib import suppress

from tui_train.actions.doctor.communication import communication_profile, run_communication_test
from tui_train.actions.doctor.short_runs import ShortRunContext
from tui_train.base.errors import CannotWrite, TuiTrainError, Unavailable
from tui_train.checks.machine.communication import why_gloo_refused
from tui_train.checks.trainer.script import one_process_change
from tui_train.facts.machine.communication_tests import (
    CommunicationTestResult,
    Examination,
    TriedFix,
    save_communication_examination,
)
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, disable_in_nccl_change, why_workaround_ignored
from tui_train.setup.setup import Setup

# In the order in which they cost least.
_WORKAROUNDS_TO_TRY = ("cumem_host", "p2p", "shm")
# Less time tells nothing: torch alone takes some seconds to be imported.
_MIN_TEST_SECONDS = 10.0


def examine_communication(
    profile: Profile, run_context: ShortRunContext, max_seconds: float, *, keeps_failed: bool = True
) -> Examination:
    """Test how the processes of a profile communicate, and what makes it work where it does not.

    `keeps_failed`: that of a first test that fails stays on its host. Raises Unavailable where no test can be started.
    """
    until = time.monotonic() + max_seconds
    setup = make_setup(profile, run_context.facts)
    if profile.nodes.machine_count > 1 and not profile.nodes.hosts and not run_context.place.slurm:
        raise Unavailable("the other machines are started by hand", "Name all of them in nodes.hosts to test them.")
    run_context.observer.begin_test(None)
    result = run_communication_test(communication_profile(setup), run_context, max_seconds, keeps_failed=keeps_failed)
    tried: list[TriedFix] = []
    works_at_times = False
    # Each would wait in the queue again.
    for change in () if result.works or run_context.place.slurm else changes_to_try(setup, result.change):
        left, outcome = until - time.monotonic(), None
        if left > _MIN_TEST_SECONDS and not run_context.is_cancelled and not works_at_times:
            run_context.observer.begin_test(change)
            outcome = _test_with_change(change, profile, run_context, left)
            is_first = outcome.works and not any(cure.result and cure.result.works for cure in tried)
            left = until - time.monotonic()
            if is_first and left > _MIN_TEST_SECONDS and not run_context.is_cancelled:
                # What fails now and then would seem to be cured by anything.
                run_context.observer.begin_test(None)
                works_at_times = run_communication_test(communication_profile(setup), run_context, left).works
        tried.append(TriedFix(change=change, result=outcome))
    examination = Examination(result=result, cures=tuple(tried), works_at_times=works_at_times)
    if run_context.is_cancelled:
        return examination
    # A full disk does not take away what was found out.
    with suppress(CannotWrite):
        save_communication_examination(setup.communication_test_key, examination)
    return examination


def _test_with_change(
    change: Change, profile: Profile, run_context: ShortRunContext, max_seconds: float
) -> CommunicationTestResult:
    changed = communication_profile(make_setup(apply_change(change, profile), run_context.facts))
    try:
        return run_communication_test(changed, run_context, max_seconds)
    except TuiTrainError as error:
        return CommunicationTestResult(processes=0, works=False, cause=error.message, remedy=error.remedy)


def changes_to_try(setup: Setup, diagnosed: Change | None) -> Iterator[Change]:
    """Yield what may help, once each: what the log asks for first, then what costs least."""
    changes = [diagnosed] if diagnosed else []
    changes += _nccl_changes(setup) if setup.communication_backend == "nccl" else []
    changes += _fewer_processes_changes(setup)
    yield from {change.edits: change for change in changes}.values()


def _nccl_changes(setup: Setup) -> list[Change]:
    profile = setup.profile
    changes = [
        disable_in_nccl_change(profile, name)
        for name in _WORKAROUNDS_TO_TRY
        if name not in profile.communication.without
        and not why_workaround_ignored(NCCL_WORKAROUNDS[name], setup.toolchain)
    ]
    if not why_gloo_refused(setup):
        why = "very slow: every gradient goes through main memory"
        changes.append(Change("Gloo instead of NCCL", why, (("communication.backend", "gloo"),)))
    return changes


def _fewer_processes_changes(setup: Setup) -> list[Change]:
    if setup.profile.nodes.machine_count > 1 or setup.world_size < 2:
        return []
    gpu_uuids = [gpu.uuid for gpu in setup.gpus if gpu.uuid]
    return [one_process_change(gpu_uuids, "one GPU needs no communication; the training takes longer")]

"""What may help where the processes of a training do not reach each other: each change is tried, and so proved."""

import time
from collections.abc import Iterator
from contextlib import suppress

from tui_train.actions.doctor.communication import communication_profile, run_communication_test
from tui_train.actions.doctor.short_runs import Workbench
from tui_train.base.errors import CannotWrite, TuiTrainError, Unavailable
from tui_train.checks.machine.communication import why_gloo_refused
from tui_train.checks.trainer.script import one_process_change
from tui_train.facts.machine.communication_tests import (
    CommunicationResult,
    Examination,
    TriedCure,
    keep_examination,
)
from tui_train.memory.data_defaults import set_up
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, disable_in_nccl_change, why_workaround_ignored
from tui_train.setup.setup import Setup

# In the order in which they cost least.
_WORKAROUNDS_TO_TRY = ("cumem_host", "p2p", "shm")
# Less time tells nothing: torch alone takes some seconds to be imported.
_MIN_TEST_SECONDS = 10.0


def examine_communication(profile: Profile, bench: Workbench, max_seconds: float) -> Examination:
    """Test how the processes of a profile communicate, and what makes it work where it does not.

    Raises Unavailable where no test can be started.
    """
    until = time.monotonic() + max_seconds
    setup = set_up(profile, bench.facts)
    if profile.nodes.machine_count > 1 and not profile.nodes.hosts and not bench.place.slurm:
        raise Unavailable("the other machines are started by hand", "Name all of them in nodes.hosts to test them.")
    bench.observer.begin_test(None)
    result = run_communication_test(communication_profile(setup), bench, max_seconds, keeps_failed=True)
    tried: list[TriedCure] = []
    works_at_times = False
    # Each would wait in the queue again.
    for change in () if result.works or bench.place.slurm else changes_to_try(setup, result.change):
        left, outcome = until - time.monotonic(), None
        if left > _MIN_TEST_SECONDS and not bench.is_cancelled and not works_at_times:
            bench.observer.begin_test(change)
            outcome = _test_change(change, profile, bench, left)
            is_first = outcome.works and not any(cure.result and cure.result.works for cure in tried)
            left = until - time.monotonic()
            if is_first and left > _MIN_TEST_SECONDS and not bench.is_cancelled:
                # What fails now and then would seem to be cured by anything.
                bench.observer.begin_test(None)
                works_at_times = run_communication_test(communication_profile(setup), bench, left).works
        tried.append(TriedCure(change=change, result=outcome))
    examination = Examination(result=result, cures=tuple(tried), works_at_times=works_at_times)
    if bench.is_cancelled:
        return examination
    # A full disk does not take away what was found out.
    with suppress(CannotWrite):
        keep_examination(setup.communication_key, examination)
    return examination


def _test_change(change: Change, profile: Profile, bench: Workbench, max_seconds: float) -> CommunicationResult:
    changed = communication_profile(set_up(apply_change(change, profile), bench.facts))
    try:
        return run_communication_test(changed, bench, max_seconds)
    except TuiTrainError as error:
        return CommunicationResult(processes=0, works=False, cause=error.message, remedy=error.remedy)


def changes_to_try(setup: Setup, diagnosed: Change | None) -> Iterator[Change]:
    """Yield what may help, once each: what the log asks for first, then what costs least."""
    changes = [diagnosed] if diagnosed else []
    changes += _nccl_changes(setup) if setup.communication_backend == "nccl" else []
    changes += _fewer_processes(setup)
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


def _fewer_processes(setup: Setup) -> list[Change]:
    if setup.profile.nodes.machine_count > 1 or setup.world_size < 2:
        return []
    gpu_uuids = [gpu.uuid for gpu in setup.gpus if gpu.uuid]
    return [one_process_change(gpu_uuids, "one GPU needs no communication; the training takes longer")]

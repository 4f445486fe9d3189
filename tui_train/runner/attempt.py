"""Runs one attempt: starts and watches it, stops it when asked to, and reads from its log why it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple, Sequence

from .containers import container
from .gpus import energy
from .machines import node_network
from .run_folder import checkpoints, lock
from .run_folder.events import event_times
from .run_folder.start import RunStart, print_message, record_event
from .run_folder.supervisor_plan import log_reading_options
from .system import cgroup, other_programs
from .system.processes import (
    LEFTOVER_WAIT_SECONDS,
    MARK_VARIABLE,
    Process,
    ProcessFamily,
    become_subreaper,
    send_signal,
)
from .system.refused import CANNOT_WRITE_EXIT_CODE, RANKS_TRAINED_ALONE_EXIT_CODE, Refused
from .system.safe_text import visible
from .system.signals import END_AT_ONCE_SIGNAL
from .system.transport import NodeCommand

if TYPE_CHECKING:
    from .machines.unanswered import UnansweredConnections

_SIGKILL_EXIT_CODE = 128 + signal.SIGKILL
_MAX_RECORDED_LEFTOVERS = 1000


class AttemptEnd(NamedTuple):
    """End of an attempt."""

    code: int
    phase: str = ""
    """Where GPU memory ran out."""
    next_position: int = 0
    """The attempt that follows, 0 for none."""
    no_retry_reason: str = ""
    """Why less memory would not help."""
    maybe_out_of_host_memory: bool = False
    """The host's memory may have run out."""
    ranks_trained_alone: bool = False
    """Its processes each trained alone."""
    resumed_from: str = ""
    """The checkpoint from which it was to resume."""
    was_asked_to_stop: bool = False
    """It was asked to end before it had."""
    leftover: str = ""
    """The processes that it left, as run_ended names them."""
    rank_asked_to_stop: int | None = None
    """The machine on which the training was asked to stop before it ended here."""


def run_attempt(start: RunStart, position: int, number: int, log: str) -> AttemptEnd:
    """Make one attempt, its output in `log`, and return how it ended."""
    try:
        resumed_from = _checkpoint_on_all_machines(start, position)
    except Refused as refused:
        print_message(refused.message)
        return AttemptEnd(refused.code)
    resumed_step = checkpoints.step_in_name(resumed_from) if resumed_from else 0
    begins = f"resumes from {visible(resumed_from)} and writes" if resumed_from else "writes"
    print_message(f"{attempt_title_text(start, position)} {begins} {visible(log)}")
    name = container.container_name(start.planned.engine, start.mark, number)
    # A container is in a cgroup that its engine makes.
    cgroup_path = "" if name else cgroup.make_cgroup_for_attempt(start.mark, number)
    # A short training has written files before its start is on record.
    times = event_times()
    try:
        leader = start.transport.start(
            _attempt_command(start, position, log, resumed_from, name)._replace(cgroup=cgroup_path)
        )
    except OSError as error:
        cgroup.remove_cgroup(cgroup_path, start.mark)
        print_message(f"cannot start it, its output in {log}: {error.strerror}")
        return AttemptEnd(CANNOT_WRITE_EXIT_CODE)
    become_subreaper()
    oom_kills_before, began = _import_modules_for_end_and_count_oom_kills(), time.monotonic()
    record_event(
        start,
        "attempt_started",
        **times,
        attempt=number,
        position=position,
        leader=leader.pid,
        leader_ticks=leader.ticks,
        **_attempt_start_event_fields(start, resumed_step, name, cgroup_path),
    )
    family = ProcessFamily(start.mark, leader, os.getpid())
    # What hangs in a driver since it was asked is a child as well, and no part of the training.
    family.excluded |= other_programs.UNKILLABLE_PIDS
    metering = energy.start_energy_metering(start.cards)
    family.excluded.add(metering.child.pid)
    try:
        code, stopped = _wait_for_attempt_end(start, family, name, log)
    except BaseException:
        # Nothing trains on with nobody to keep it.
        _kill_attempt(start, family)
        metering.kill()
        raise
    # A stop on another machine that comes while this waits for what is left is too late for what has finished.
    elsewhere = _other_rank_asked_to_stop(start) if code == 0 else None
    left = _await_leftovers_and_describe(start, family)
    energy_used = metering.finish()
    cgroup.remove_cgroup(cgroup_path, start.mark)
    asked = stopped or (start.signals.stop and code != 0)
    ended = AttemptEnd(code) if asked else _end_from_log(start, position, log, code, family)
    elsewhere = elsewhere if code == 0 else _other_rank_asked_to_stop(start)
    ended = ended._replace(was_asked_to_stop=stopped, leftover=left, rank_asked_to_stop=elsewhere)
    if energy_used:
        joules, metered = energy_used
        record_event(start, "energy", attempt=number, joules=joules, metered=metered, cards=metering.cards)
    ignored = _was_checkpoint_ignored(start, number, log, resumed_step)
    more = _attempt_end_event_fields(start, ended, oom_kills_before, began)
    if ignored:
        more["ignored_checkpoint"] = True
    record_event(start, "attempt_ended", attempt=number, exit_code=ended.code, **more)
    return ended._replace(resumed_from=resumed_from)


def _checkpoint_on_all_machines(start: RunStart, position: int) -> str:
    """Return the checkpoint from which all machines can resume, once each has it; empty where there is none."""
    resumed_from = checkpoint_to_resume(start, position)
    why_unusable = start.transport.share_checkpoint_or_say_why_not(resumed_from) if resumed_from else ""
    if why_unusable:
        print_message(f"begins with the first step, and not with {visible(resumed_from)}: {why_unusable}")
    return "" if why_unusable else resumed_from


def _attempt_start_event_fields(
    start: RunStart, resumed_step: int, container_name: str, cgroup_path: str
) -> dict[str, object]:
    """Return from which step an attempt resumes, and by which container and cgroup its processes are found."""
    fields: dict[str, object] = {"resumed": resumed_step} if resumed_step else {}
    if container_name:
        fields.update(engine=start.planned.engine, container=container_name)
    # Some systems let a cgroup be made, and nobody be moved there.
    if cgroup.cgroup_member_pids(cgroup_path, start.mark):
        fields.update(cgroup=cgroup_path)
    return fields


def _import_modules_for_end_and_count_oom_kills() -> int | None:
    """Import what is needed at the end while the training starts; return the OOM kills so far, None if unknown.

    Until then the folder may be moved, or replaced by a newer one.
    """
    from . import machine_evidence  # noqa: F401
    from .containers import rejoin  # noqa: F401
    from .logs import log_head, memory_failure  # noqa: F401
    from .system import cgroup_limits

    return cgroup_limits.count_oom_kills()


def _attempt_end_event_fields(
    start: RunStart, ended: AttemptEnd, oom_kills_before: int | None, began: float
) -> dict[str, object]:
    """Return what is known of an end besides its exit code: of a failure, the state of this machine now."""
    details: dict[str, object] = {}
    if ended.phase:
        details.update(out_of_memory=True, phase=ended.phase, next=ended.next_position)
    if ended.code != 0 and not ended.was_asked_to_stop:
        from .machine_evidence import read_machine_evidence

        output = os.path.join(start.run_dir, os.path.expanduser(start.planned.output) or "output")
        evidence = read_machine_evidence(output, oom_kills_before, began if start.cards else None)
        details.update(evidence._asdict())
    return details


def attempt_title_text(start: RunStart, position: int) -> str:
    """Return what an attempt of the plan is called in messages."""
    return f"attempt {position} of {len(start.attempts)} ({visible(start.attempts[position - 1].title)})"


def _other_rank_asked_to_stop(start: RunStart) -> int | None:
    """Return the other machine whose training was asked to stop since this one started."""
    return node_network.other_rank_asked_to_stop(
        start.planned, start.run_dir, start.node_rank, start.earlier_stop_counts
    )


def checkpoint_to_resume(start: RunStart, position: int) -> str:
    """Return the checkpoint that an attempt resumes from, empty where there is none."""
    # Several machines resume from one only where that was asked for on each.
    if start.planned.is_started_by_hand and not start.resume:
        return ""
    return checkpoints.newest_checkpoint_of_attempt(start.planned, position, start.run_dir)


def _attempt_command(start: RunStart, position: int, log: str, resumed_from: str, container_name: str) -> NodeCommand:
    words = ["bash", start.script, "--plain", f"--attempt={position}"]
    if resumed_from:
        words.append(f"--checkpoint={resumed_from}")
    if start.are_cards_overridden:
        words.append(f"--gpus={','.join(start.cards)}")
    if start.planned.is_started_by_hand:
        words.append(f"--node-rank={start.node_rank}")
    environment = {**os.environ, **start.environment, MARK_VARIABLE: start.mark}
    if container_name:
        environment[container.CONTAINER_NAME_VARIABLE] = container_name
    return NodeCommand(tuple(words), environment, log)


def _wait_for_attempt_end(start: RunStart, family: ProcessFamily, container_name: str, log: str) -> tuple[int, bool]:
    """Wait for the end of an attempt and return its exit code, and whether it was asked to end before it had.

    A stop asks it to, and so does a lost lock.
    """
    engine = start.planned.engine
    # One of several hosts does not train on without the others.
    own_container = "" if start.planned.hosts else container_name
    unanswered = _unanswered_connections_if_multi_machine(start)
    while True:
        code = start.transport.exit_code(family.leader)
        if start.signals.stop and (
            code is None or (own_container and container.container_exit_code(engine, own_container) != code)
        ):
            return _stop_attempt(start, family, container_name), True
        if code is None:
            renew_locks_or_stop(start)
            if unanswered:
                _append_lines(log, unanswered.new_sentences(family.living_ticks_by_pid(), time.monotonic()))
            start.signals.wait(unanswered.check_interval if unanswered else lock.RENEW_INTERVAL_SECONDS)
        elif own_container and container.must_rejoin_container(
            engine, own_container, code, lambda: bool(family.living_ticks_by_pid())
        ):
            print_message(f"the client of {engine} is gone, its container trains on")
            from .containers import rejoin

            family.leader = rejoin.rejoin_container(start.transport, engine, own_container, log, start.mark)
        else:
            if code != 0:
                _kill_attempt(start, family)
            if container_name:
                container.remove_container(engine, container_name)
            return code, False


def _unanswered_connections_if_multi_machine(start: RunStart) -> UnansweredConnections | None:
    if start.planned.nodes == 1:
        return None
    from .machines.unanswered import UnansweredConnections

    return UnansweredConnections(start.planned, start.environment.get(node_network.FIRST_ADDRESS_VARIABLE, ""))


def _append_lines(log: str, lines: Sequence[str]) -> None:
    """Append lines to a log; on a full disk they are dropped."""
    if not lines:
        return
    with contextlib.suppress(OSError), open(log, "ab", buffering=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode(errors="replace"))


def renew_locks_or_stop(start: RunStart) -> None:
    """Renew the locks of this start; it stops where another one has taken one of them, or its folder was deleted."""
    for held in start.locks:
        if not held.renew() and not start.signals.stop:
            print_message(f"another start has taken over {os.path.dirname(held.path)}: this one stops")
            os.kill(os.getpid(), signal.SIGTERM)
    if start.journal.is_folder_deleted() and not start.signals.stop:
        # Nobody can name it any more, to stop it. What it would save in that folder was not wanted.
        print_message("its folder was deleted: the training ends")
        os.kill(os.getpid(), signal.SIGTERM if start.planned.output else END_AT_ONCE_SIGNAL)


def _stop_attempt(start: RunStart, family: ProcessFamily, container_name: str) -> int:
    """End an attempt: its launcher is asked first, for it knows its workers; then what it leaves; then all die."""
    print_message(f"stopping ({start.signals.stop}); a second Ctrl-C ends it at once")
    deadline = time.monotonic() + start.grace
    family.living_ticks_by_pid()
    stopper = Process()
    # Those of several hosts are stopped by what keeps them.
    if container_name and not start.planned.hosts:
        stopper = container.request_stop(start.planned.engine, container_name, start.grace, family.leader)
        family.excluded.add(stopper.pid)
    else:
        start.transport.request_stop(family.leader)
    record_event(start, "stopping", signal=start.signals.stop)
    while time.monotonic() < deadline and not start.signals.at_once:
        is_leader_gone = start.transport.exit_code(family.leader) is not None
        if not (family.terminate() if is_leader_gone else family.living_ticks_by_pid()):
            break
        renew_locks_or_stop(start)
        start.signals.wait(0.1)
    _kill_attempt(start, family)
    if container_name:
        send_signal(stopper, signal.SIGKILL)
        container.remove_container(start.planned.engine, container_name)
    code = start.transport.exit_code(family.leader)
    return start.signals.code if code is None else code


def _kill_attempt(start: RunStart, family: ProcessFamily) -> None:
    start.transport.end_remote_parts(family.leader)
    family.kill(lambda: _pause_and_reap(start, family))


def _pause_and_reap(start: RunStart, family: ProcessFamily) -> None:
    time.sleep(0.05)
    start.transport.exit_code(family.leader)


def _await_leftovers_and_describe(start: RunStart, family: ProcessFamily) -> str:
    """Return the processes that live on a moment after the end of an attempt, as `pid:ticks`, and say which."""
    living = family.wait_until_gone(LEFTOVER_WAIT_SECONDS, lambda: _pause_and_reap(start, family))
    if living:
        print_message(f"the training has ended and left processes that go on: {' '.join(map(str, sorted(living)))}")
    return " ".join(f"{pid}:{ticks}" for pid, ticks in sorted(living.items())[:_MAX_RECORDED_LEFTOVERS])


def _was_checkpoint_ignored(start: RunStart, number: int, log: str, resumed_step: int) -> bool:
    """Return whether an attempt did not load its checkpoint, and say so."""
    if not resumed_step:
        return False
    from .logs import log_head

    first_step = log_head.first_step_if_checkpoint_ignored(log, resumed_step, log_reading_options(start.planned))
    if first_step:
        given = f"was given the checkpoint of step {resumed_step} and began at step {first_step}"
        print_message(f"attempt {number} {given}: the training does not load it")
    return first_step > 0


def _end_from_log(start: RunStart, position: int, log: str, code: int, family: ProcessFamily) -> AttemptEnd:
    """Return what a log says of the end of an attempt that nobody asked to end."""
    # What reads logs is not imported before there is one: a training begins earlier.
    from .logs import log_head, memory_failure

    if code == 0:
        apart = log_head.has_each_process_trained_alone(log, start.planned.world_size)
        return AttemptEnd(RANKS_TRAINED_ALONE_EXIT_CODE, ranks_trained_alone=True) if apart else AttemptEnd(0)
    end = memory_failure.read_memory_failure(log, family.seen_ticks)
    # Whoever was killed had no error of its own.
    if not end.phase or code == _SIGKILL_EXIT_CODE:
        return AttemptEnd(code, maybe_out_of_host_memory=end.maybe_out_of_host_memory)
    hopeless = ""
    if end.foreign_pid:
        hopeless = f"another process ({end.foreign_pid}) fills the GPU: end it, or choose another GPU"
    elif end.phase == "start":
        hopeless = "a GPU was full or faulty before the training began: look at nvidia-smi"
    next_position = (
        start.attempts[position - 1].next_by_phase.get(end.phase, 0) if start.may_fall_back and not hopeless else 0
    )
    return AttemptEnd(code, end.phase, next_position, hopeless, end.maybe_out_of_host_memory)

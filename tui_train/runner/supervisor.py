"""`launch`: what is looked at before a training starts, its locks, and the start itself."""

from __future__ import annotations

import os
import shlex
import time
import zlib
from typing import Collection, NamedTuple, Sequence

from .attempt import checkpoint_to_resume
from .containers import container
from .gpus import training_cards
from .machines import node_network
from .machines.srun_transport import SrunTransport
from .queue.joining import ANY_GPUS, join_queue, require_can_wait
from .queue.tickets import OwnTicket
from .run import StartOutcome, run_attempts
from .run_folder import events, state, supervisor_plan
from .run_folder.events import Journal
from .run_folder.lock import FolderLock, HeldLock, make_output_lock
from .run_folder.lock_owner import LOCK_FOLDER_NAME, LockOwner, this_process_as_owner
from .run_folder.start import RunStart, print_message, record_event
from .run_folder.supervisor_plan import SupervisorPlan
from .system import cgroup, other_programs, runner_command, safe_open
from .system.processes import ProcessFamily, machine_boot_id, process_with_pid
from .system.refused import (
    BUSY_RESOURCE_EXIT_CODE,
    CANNOT_WRITE_EXIT_CODE,
    UNAVAILABLE_EXIT_CODE,
    USAGE_EXIT_CODE,
    Refused,
)
from .system.safe_text import visible
from .system.signals import StopSignals
from .system.transport import LocalTransport

_LOCK_DISK_RESERVE_BYTES = 16384


class LaunchOptions(NamedTuple):
    """Options and values of the command line of launch.sh."""

    attempt: str = ""
    resume: bool = False
    node_rank: str = ""
    gpus: str = ""
    when_free: str = ""
    """Wait for "chosen" GPUs, or for "any" of their kind; empty: start at once."""


def parse_options(words: Sequence[str]) -> LaunchOptions:
    """Return the options; Refused for any other word."""
    chosen = LaunchOptions()
    for word in words:
        name, _, value = word.partition("=")
        if word == "--resume":
            chosen = chosen._replace(resume=True)
        elif name == "--attempt" and value:
            chosen = chosen._replace(attempt=value)
        elif name == "--node-rank" and value:
            chosen = chosen._replace(node_rank=value)
        elif name == "--gpus" and value:
            chosen = chosen._replace(gpus=value)
        elif word in ("--when-free", f"--when-free={ANY_GPUS}"):
            chosen = chosen._replace(when_free=value or "chosen")
        else:
            raise Refused(USAGE_EXIT_CODE, f"{visible(word)}: see bash launch.sh --help")
    return chosen


def launch_training(run_dir: str, script: str, words: Sequence[str]) -> int:
    """Run a script's training, supervised, and return the exit code; Refused says why it does not start."""
    signals = StopSignals()
    other_programs.is_interrupted = lambda: bool(signals.stop)
    held_locks: list[HeldLock] = []
    try:
        chosen = parse_options(words)
        start = _check_and_prepare_start(run_dir, script, chosen, signals)
        _take_locks(start, held_locks)
        ticket = join_queue(start, chosen.when_free)
        held_locks += [ticket] if ticket else []
        if start.planned.is_started_by_hand or start.planned.hosts:
            node_network.require_free_port(start.planned, start.node_rank)
        if chosen.when_free != ANY_GPUS:
            training_cards.require_cards_present(start.planned, start.cards)
        if start.planned.hosts and not signals.stop:
            from .machines.ssh_transport import with_transport_to_ready_hosts

            start = with_transport_to_ready_hosts(start)
        start = start._replace(locks=tuple(held_locks))
        position = _chosen_attempt_position(chosen, start)
        if signals.stop:
            return signals.code
        outcome = _run_supervised(start, position, ticket, chosen.when_free)
    except Refused:
        # A program that was asked does not answer where it is ended by a stop.
        if signals.stop:
            return signals.code
        raise
    finally:
        for lock in reversed(held_locks):
            lock.release()
    # Without the locks: another start does not wait for what the user is told.
    _notify_of_turn_or_end(start, outcome)
    return outcome.code


def _notify_of_turn_or_end(start: RunStart, outcome: StartOutcome) -> None:
    if start.node_rank or not (start.planned.notify_command or start.planned.notify_webhook):
        return
    from .notify import notify_user, notify_user_in_background

    notify = notify_user_in_background if outcome.state == "running" else notify_user
    notify(start.planned, start.run_dir, outcome)


def _check_and_prepare_start(run_dir: str, script: str, options: LaunchOptions, signals: StopSignals) -> RunStart:
    plan = supervisor_plan.read_plan(run_dir)
    rank = node_network.node_rank_from_option_or_environment(plan, options.node_rank) if plan.is_started_by_hand else 0
    if not plan.is_started_by_hand and (options.resume or options.node_rank):
        why = "Slurm gives each machine its rank" if plan.slurm else "this trains on one"
        why = "this one starts the others" if plan.hosts else why
        raise Refused(
            USAGE_EXIT_CODE, f"--node-rank and --resume are for several machines that are started by hand, and {why}"
        )
    if options.when_free:
        require_can_wait(plan)
    own_dir = os.path.join(run_dir, f"node-{rank}") if rank else run_dir
    cards = training_cards.choose_cards(plan, options.gpus, rank)
    environment = dict(container.prepare_container_variables(plan, run_dir)) if plan.engine else {}
    if plan.slurm and plan.nodes > 1 and not os.environ.get("SLURM_JOB_ID"):
        raise Refused(
            UNAVAILABLE_EXIT_CODE,
            "Slurm chooses the machines of this training: submit it, sbatch slurm.sh in its folder",
        )
    if plan.is_started_by_hand:
        environment.update(node_network.network_interface_variables(plan))
    for name in plan.secrets:
        if not os.environ.get(name):
            raise Refused(UNAVAILABLE_EXIT_CODE, f"{visible(name)} is not set: export it, then start again")
    if plan.notify_webhook and rank == 0:
        from .notify import webhook_address_and_problem

        problem = webhook_address_and_problem(plan.notify_webhook)[1]
        if problem:
            raise Refused(UNAVAILABLE_EXIT_CODE, f"notify.webhook: {problem}")
    mark = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(3).hex()}"
    start = RunStart(
        planned=plan,
        run_dir=run_dir,
        script=script,
        own_dir=own_dir,
        mark=mark,
        cards=cards,
        node_rank=rank,
        resume=plan.is_started_by_hand and (options.resume or bool(os.environ.get("TUI_TRAIN_RESUME"))),
        grace=_effective_grace_seconds(plan),
        environment=environment,
        journal=Journal(own_dir),
        locks=(),
        signals=signals,
        transport=SrunTransport(plan.nodes) if plan.slurm and plan.nodes > 1 else LocalTransport(),
        earlier_stop_counts=node_network.stop_count_of_each_machine(plan, run_dir, rank),
    )
    chosen_position = _chosen_attempt_position(options, start)
    if plan.is_started_by_hand:
        _require_same_resume_on_all_machines(start, chosen_position or 1)
    return start


def _effective_grace_seconds(plan: SupervisorPlan) -> int:
    grace = os.environ.get("TUI_TRAIN_GRACE") or str(plan.grace)
    if not grace.isascii() or not grace.isdigit() or len(grace) > 9:
        raise Refused(USAGE_EXIT_CODE, f"TUI_TRAIN_GRACE is {visible(grace)}: give whole seconds")
    return int(grace)


def _chosen_attempt_position(options: LaunchOptions, start: RunStart) -> int:
    """Return the attempt that was asked for, 0 where none was."""
    text, most = options.attempt, len(start.attempts)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise Refused(USAGE_EXIT_CODE, f"--attempt={visible(text)}: give a number from 1 to {most}")
    return int(text)


def _require_same_resume_on_all_machines(start: RunStart, position: int) -> None:
    """Refuse where each of several machines would find its own way to begin."""
    rule = start.attempts[position - 1].checkpoints
    if start.resume and not start.planned.can_resume:
        why = "finds its checkpoints by itself" if start.planned.resumes_itself else "cannot resume"
        raise Refused(USAGE_EXIT_CODE, f"--resume: this training {why}")
    if rule is None:
        return
    newest = checkpoint_to_resume(start._replace(resume=True), position)
    if newest and not start.resume:
        remedy = "add --resume on every machine, whose output folder all must see, or name another output folder"
        raise Refused(USAGE_EXIT_CODE, f"there is a checkpoint at {visible(newest)}: {remedy}")
    if start.resume and not newest:
        why = f"this machine sees no complete checkpoint in {visible(rule.folder)}"
        raise Refused(UNAVAILABLE_EXIT_CODE, f"--resume: {why}, and all must see the same output folder")


def _take_locks(start: RunStart, held_locks: list[HeldLock]) -> None:
    try:
        os.makedirs(start.own_dir, exist_ok=True)
    except OSError as error:
        raise Refused(CANNOT_WRITE_EXIT_CODE, f"cannot write in {visible(start.run_dir)}: {error.strerror}") from None
    owner = this_process_as_owner(start.mark, start.own_dir)
    at = os.path.join(start.own_dir, LOCK_FOLDER_NAME)
    locks = [
        FolderLock(at, owner, "a training runs in this folder", lambda dead: _still_training_text(start.planned, dead))
    ]
    # Of several machines only the first has one for the output: the others write to the same folder, and mean to.
    if start.node_rank == 0:
        output = start.planned.output or os.path.join(start.run_dir, "output")
        beside = make_output_lock(output, owner, lambda dead: _still_training_text(start.planned, dead))
        locks += [beside] if beside else []
    for lock in locks:
        lock.take()
        held_locks.append(lock)
    # A viewer believes whoever holds the folder itself open.
    start.journal.hold_folder_open()
    last = state.last_start_status(start.own_dir)
    if last.trains_unsupervised:
        raise Refused(BUSY_RESOURCE_EXIT_CODE, _processes_still_train_text(last.leftover))
    cgroup.remove_cgroup(last.cgroup, last.mark)
    locks[0].keep_disk_reserve(_LOCK_DISK_RESERVE_BYTES)


def _still_training_text(plan: SupervisorPlan, dead_owner: LockOwner) -> str:
    """Return in words what still trains of an earlier start, whose supervisor is gone."""
    names = container.remove_ended_containers_and_list_running(plan.engine, dead_owner.mark) if plan.engine else ()
    if names:
        return f"a container of an earlier start still trains: end it first ({plan.engine} stop {' '.join(names)})"
    if not dead_owner.is_local:
        return ""
    family = ProcessFamily(dead_owner.mark)
    living = {*state.last_start_status(dead_owner.folder).leftover, *family.living_ticks_by_pid()}
    return _processes_still_train_text(living) if living else ""


def _processes_still_train_text(living_pids: Collection[int]) -> str:
    pids = " ".join(map(str, sorted(living_pids)))
    return f"processes of an earlier start still train: end them first (kill {pids})"


def _run_supervised(start: RunStart, chosen_position: int, ticket: OwnTicket | None, when_free: str) -> StartOutcome:
    first = chosen_position or (
        _attempt_position_of_earlier_start(start) if not start.planned.is_started_by_hand else 1
    )
    me = process_with_pid(os.getpid())
    try:
        start.journal.append(
            "run_started",
            mark=start.mark,
            script=_plan_checksum(start),
            inode=os.stat(start.own_dir).st_ino,
            pid=me.pid,
            start_ticks=me.ticks,
            boot_id=machine_boot_id(),
            host=os.uname().nodename,
            grace=start.grace,
            **({"waits": when_free} if ticket and when_free else {}),
        )
    except OSError as error:
        raise Refused(CANNOT_WRITE_EXIT_CODE, f"cannot write events.jsonl: {error.strerror}: free some space") from None
    control = f"python3 {visible(shlex.quote(os.path.join(start.run_dir, runner_command.RUNNER_ZIP_NAME)))}"
    print_message(f"watch it: {control} follow; stop it: Ctrl-C here, or {control} stop")
    if ticket and when_free:
        from .waiting import wait_for_turn

        start = wait_for_turn(start, ticket)
        if not start.signals.stop:
            _notify_of_turn_or_end(start, StartOutcome("running", 0, ""))
    outcome = run_attempts(start, first, chosen_by_user=bool(chosen_position))
    more = {name: text for name, text in (("left", outcome.leftover), ("why", outcome.why)) if text}
    record_event(start, "run_ended", state=outcome.state, exit_code=outcome.code, **more)
    print_message(outcome.sentence)
    return outcome


def _plan_checksum(start: RunStart) -> str:
    """Return what tells the plan of a folder from another one, or from itself before somebody edited it."""
    checksum = 0
    for path in (start.script, os.path.join(start.run_dir, supervisor_plan.PLAN_FILE_NAME)):
        checksum = zlib.crc32(safe_open.read_bounded(path), checksum)
    return f"{checksum:08x}"


def _attempt_position_of_earlier_start(start: RunStart) -> int:
    """Return the attempt where an earlier start of this plan was, past what ran out of memory; 1 when all did."""
    first, same, script = 1, False, _plan_checksum(start)
    for event in events.read_events(start.own_dir):
        if event.event == "run_started":
            same = event.script == script
            first = first if same else 1
        elif same and event.event == "attempt_started" and event.position:
            first = event.position
        elif same and event.event == "attempt_ended" and event.next >= 0:
            first = event.next
    return first if 1 <= first <= len(start.attempts) else 1

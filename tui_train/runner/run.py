"""One start of a run: the attempts in their order, another one only after the GPU's memory ran out."""

from __future__ import annotations

import os
from typing import NamedTuple

from .attempt import AttemptEnd, attempt_title_text, run_attempt
from .gpus import training_cards
from .logs.memory_patterns import TEXT_BY_MEMORY_PHASE
from .run_folder import checkpoints
from .run_folder.start import RunStart, print_message
from .system.refused import CANNOT_WRITE_EXIT_CODE
from .system.safe_text import visible

_MAX_CARD_WAIT_SECONDS = 60.0


class StartOutcome(NamedTuple):
    """End of a start: state, exit code and `leftover` processes as in run_ended, and a sentence.

    `why` is why no attempt followed one that ran out of GPU memory.
    """

    state: str
    code: int
    sentence: str
    leftover: str = ""
    why: str = ""


def run_attempts(start: RunStart, first_position: int, *, chosen_by_user: bool = False) -> StartOutcome:
    """Make attempts until one ends for good, from the first on; `chosen_by_user`: the user named that one."""
    if first_position > 1 and start.may_fall_back and not chosen_by_user:
        print_message(
            f"begins with {attempt_title_text(start, first_position)}, where it was; --attempt=1 begins with the first"
        )
    # Processes that computed on the cards before this run are not waited for.
    neighbours = (training_cards.pids_computing_on(start.cards) or ()) if start.may_fall_back else ()
    position = first_position
    while not start.signals.stop:
        number = next_attempt_number(start.own_dir)
        log = attempt_log_path(start.own_dir, number)
        try:
            os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except OSError as error:
            return StartOutcome("failed", CANNOT_WRITE_EXIT_CODE, f"cannot write {visible(log)}: {error.strerror}")
        ended = run_attempt(start, position, number, log)
        outcome = _outcome_after_attempt(start, ended, position, number)
        if outcome:
            return outcome._replace(leftover=ended.leftover)
        training_cards.wait_until_cards_free(start.cards, neighbours, _MAX_CARD_WAIT_SECONDS)
        position = ended.next_position
    return StartOutcome("stopped", start.signals.code, "stopped")


def attempt_log_path(own_dir: str, number: int) -> str:
    """Return where the output of an attempt goes, counted from 1 over every start of the folder."""
    return os.path.join(own_dir, f"attempt-{number}.log")


def next_attempt_number(own_dir: str) -> int:
    """Return the number of the first attempt that has no log yet: logs of an earlier start stay."""
    number = 1
    while os.path.lexists(attempt_log_path(own_dir, number)):
        number += 1
    return number


def _outcome_after_attempt(start: RunStart, ended: AttemptEnd, position: int, number: int) -> StartOutcome | None:
    """Return how the start ends with an attempt; None where another one follows."""
    # What had finished when a stop came is finished.
    if ended.was_asked_to_stop or (start.signals.stop and ended.code != 0):
        return StartOutcome("stopped", start.signals.code, "stopped")
    # Even with code 0: a training whose ranks agree to stop, and that saves, may end so long before its last step.
    if ended.rank_asked_to_stop is not None:
        return StartOutcome(
            "stopped", ended.code or 143, f"stopped: machine {ended.rank_asked_to_stop} was asked to stop"
        )
    if ended.code == 0:
        newest = checkpoints.newest_checkpoint_of_attempt(start.planned, position, start.run_dir)
        return StartOutcome("finished", 0, _finished_text(ended, newest))
    log = f"see attempt-{number}.log"
    if not ended.phase:
        return StartOutcome("failed", ended.code, f"{_failure_text(ended)}: {log}")
    where = TEXT_BY_MEMORY_PHASE.get(ended.phase, "")
    print_message(f"attempt {number} ran out of GPU memory {where}")
    why = _why_no_fallback(start, ended)
    return StartOutcome("failed", ended.code, f"out of GPU memory {where}: {why}; {log}", why=why) if why else None


def _finished_text(ended: AttemptEnd, checkpoint: str) -> str:
    if checkpoint and checkpoint == ended.resumed_from:
        return f"finished with no checkpoint newer than {visible(checkpoint)}, from which it resumed"
    return f"finished; its newest checkpoint: {visible(checkpoint)}" if checkpoint else "finished"


def _failure_text(ended: AttemptEnd) -> str:
    if ended.ranks_trained_alone:
        return "its processes never formed a group: each trained alone, as rank 0 of 1"
    if ended.code == 137 and not ended.maybe_out_of_host_memory:
        return "killed by signal 9 (exit code 137); `dmesg | grep -i oom` shows whether the host's memory ran out"
    why = f"failed with exit code {ended.code}"
    if ended.maybe_out_of_host_memory:
        why += "; the host's memory may have run out: fewer data loader workers, no offload"
    return why


def _why_no_fallback(start: RunStart, ended: AttemptEnd) -> str:
    """Return why nothing follows an attempt that ran out of GPU memory, empty where an attempt does."""
    if ended.no_retry_reason or ended.next_position:
        return ended.no_retry_reason
    if start.planned.is_started_by_hand:
        return "machines that are started by hand have no fallbacks"
    return "the plan has no further fallback"

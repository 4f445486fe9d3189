"""diagnose: finds the root of a failure among the errors of a log; pure."""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from tui_train.base.text import size_text, visible
from tui_train.diagnose.collective_timeouts import collective_timeout_detail
from tui_train.diagnose.failure_details import matching_detail_and_values
from tui_train.diagnose.log_progress import (
    first_line_of_broken_end,
    last_completion_line_number,
    last_step_with_finite_numbers,
    loss_lines_and_whether_broken,
)
from tui_train.diagnose.named_changes import make_named_change
from tui_train.diagnose.remedy_texts import remedy_and_values
from tui_train.diagnose.required_words import may_contain_match, normalized_for_required_words, required_words
from tui_train.diagnose.signatures import HARMLESS_LINE_PATTERN, load_signatures
from tui_train.diagnose.traceback_lines import (
    STACK_HEADER,
    direct_cause_line,
    frames_before,
    phase_of_traceback_before,
    user_mistake_start_line_number,
)
from tui_train.diagnose.types import Diagnosis, Evidence, LogLine, Signature
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_failure import error_to_blame_for_end, torchrun_root_cause
from tui_train.runner.logs.memory_holders import largest_other_holder
from tui_train.runner.logs.tracebacks import OTHER_ERROR_KIND, parse_errors

_FRAME_BEGIN_PATTERN = re.compile(r'\s+File "')
# From here on a signature is a verdict from outside of the training.
_MIN_OUTSIDE_VERDICT_STRENGTH = 88
# Deeper than any line is indented.
_INDENT_OUTSIDE_FRAMES = 1 << 30
# The last line of a traceback: of several processes in one log any may have been the first to end.
_RAISED_ERROR_PATTERN = re.compile(r"\s*[\w.]+(?:Error|Exception)\b")
# An error with such words may come from a loss that became NaN before it.
_NUMERICAL_ERROR_PATTERN = re.compile(
    r"(?i)(?<![a-z])(?:nans?|inf|(?:non-?|is)?finite|loss(?:es)?|diverge[sd]?|overflow|underflow|probability|grad(?:ient)?s?)"
    r"(?![a-z])|infinit|singular|positive.definite|converge|math domain|device-side assert|CUDA error|invalid values"
)
_CODE_COMMENT_PATTERN = re.compile(r"#.*")
_STEPS_PROVING_RECOVERY = 5
# A shell's words for an environment that it did not get, for want of which a module is missing.
_NO_ENVIRONMENT_PATTERN = re.compile(r"\bconda\b|Conda|\bmodule: command|ModuleCmd|\bLmod\b|/activate: No such file")
# It says only that the error before it, its direct cause, came while rows were made.
_WRAPPER_ERROR_PATTERN = re.compile(r"[\w.]*\bDatasetGenerationError\b")
# What processes say of another one that is gone, or that does not come.
_ECHO_FAILURES = frozenset({"peer_lost", "nccl_timeout", "collective_timeout", "abort", "sigterm"})
# Of the signature of an error of any kind that ends a traceback.
_RAISED_ERROR_STRENGTH = 12
# Torchrun's own end from outside.
_DEATH_SIGNAL_TEXT = " death signal"
_CHILD_FAILED_PATTERN = re.compile(r"failed \(exitcode: (?!-15\b)-?\d+\) local_rank: ")
_TASK_EXITED_PATTERN = re.compile(r"srun: error: \S+: tasks? [\d,-]+: Exited with exit code [1-9]")
_MAX_LINE_LENGTH, _MAX_VALUE_LENGTH, _MAX_LINE_NUMBER_DIGITS = 500, 300, 8
# With fewer bytes free a disk, or /dev/shm, counts as full.
_NEARLY_FULL_DISK_BYTES = 64 * 2**20
_SINGLE_PROCESS_PATTERN = re.compile(r"(?i)\bnum(ber of)? processes\W{0,3}1\b|\bWorld size: 1\b|\brank 0/1 \| host ")
_SEVERAL_PROCESSES_PATTERN = re.compile(
    r"(?i)\bnum(ber of)? processes\W{0,3}([2-9]|\d\d)|\brank \d+/([2-9]|\d\d+) \| host "
)

_NO_LOG_LINE = LogLine(0, "")

# No log shows it, for what would have written it was killed as well.
_LOST_SESSION_SIGNATURE = Signature(
    failure="session_killed",
    strength=5,
    cause="The session was killed, or the machine went down: there is no exit code.",
    remedy="Look for a kill or a restart: `journalctl -k`, `dmesg | grep -i oom`, `last -x`. Then resume it.",
)


class SignatureHit(msgspec.Struct, frozen=True):
    """A place where a signature holds."""

    signature: Signature
    line: LogLine
    groups: dict[str, str]


def diagnose(
    evidence: Evidence,
    profile: Profile | None = None,
    facts: Facts | None = None,
    chosen_profile: Profile | None = None,
) -> Diagnosis | None:
    """Return what failed and how it is fixed, None where nothing did.

    `facts` may speak against a Change of `chosen_profile`, the profile without the defaults in force (None: the same).
    """
    hits = [hit for hit in _find_signature_hits(evidence) if evidence.exit_code != 0 or hit.signature.done]
    hits = _without_recovered_errors(hits + _find_silent_failures(evidence), evidence)
    hits = _with_errors_inside_wrappers(hits, evidence.lines)
    block = torchrun_root_cause([line.text for line in evidence.lines])
    hits = _without_ends_by_launcher(hits, evidence.lines, block)
    end, uncaught = _deciding_error_line(hits, evidence)
    if end is not None:
        hits = _without_reports_before_mistake(_without_caught_oom(hits, end), evidence.lines, end)
        hits = _without_unrelated_nan(hits, evidence.lines, end)
        hits = _without_echoes_of_error(hits, end) if uncaught else hits
    best_hit = max(hits, key=lambda hit: (hit.signature.strength, -hit.line.number), default=None)
    if (evidence.exit_code or evidence.ended_unobserved) and (best_hit is None or best_hit.signature.strength < 10):
        best_hit = _exit_code_hit(evidence, best_hit)
    if best_hit is None:
        return None
    best_hit = _hit_with_details(_hit_corrected_by_evidence(best_hit, evidence), evidence)
    if best_hit.signature.failure == "cuda_oom":
        evidence = msgspec.structs.replace(
            evidence, phase=evidence.phase or phase_of_traceback_before(evidence.lines, best_hit.line)
        )
    remedy, groups = remedy_and_values(best_hit.signature, best_hit.groups, best_hit.line, evidence, profile)
    best_hit = SignatureHit(msgspec.structs.replace(best_hit.signature, remedy=remedy), best_hit.line, groups)
    change = make_named_change(best_hit.signature.change, evidence, profile, facts, chosen_profile) if profile else None
    return _make_diagnosis(best_hit, evidence, block, change)


def _find_signature_hits(evidence: Evidence) -> Iterator[SignatureHit]:
    """Yield the first place of each signature's expressions, and of the last resort the last."""
    texts = [line.text for line in evidence.lines]
    log_text, only_reports, frame = "\n".join(texts), [], _INDENT_OUTSIDE_FRAMES
    for text in texts:
        # What follows `File "…"` and is indented deeper is code that a traceback quotes.
        depth = len(text) - len(text.lstrip())
        frame = frame if depth > frame else _INDENT_OUTSIDE_FRAMES
        only_reports.append(bool(HARMLESS_LINE_PATTERN.search(text)) or depth > frame)
        frame = min(frame, depth) if _FRAME_BEGIN_PATTERN.match(text) else frame
    starts, place = [], 0
    for text in texts:
        starts.append(place)
        place += len(text) + 1
    searched = normalized_for_required_words(log_text.encode("utf-8", "replace"))
    for signature, expressions in load_signatures():
        for expression in expressions:
            if not may_contain_match(searched, required_words(expression.pattern)):
                continue
            hit = None
            for match in expression.finditer(log_text):
                shown = "message" if match.groupdict().get("message") else 0
                index = bisect.bisect_right(starts, match.start(shown)) - 1
                if only_reports[index] and not signature.warning:
                    continue
                groups = _match_values_unless_all_holders_blameless(match, evidence.lines[index])
                hit = SignatureHit(signature, evidence.lines[index], groups) if groups is not None else hit
                if hit and signature.strength >= 10:
                    break
            if hit:
                yield hit


def _match_values_unless_all_holders_blameless(match: re.Match[str], line: LogLine) -> dict[str, str] | None:
    """Return the values of a match, None where its line names holders of memory and none of them is to blame."""
    groups = {name: value for name, value in match.groupdict().items() if value}
    if "held" not in groups:
        return groups
    holder = largest_other_holder(line.text)
    return {**groups, "pid": holder.pid, "held": holder.shown_size} if holder else None


def _find_silent_failures(evidence: Evidence) -> list[SignatureHit]:
    """Return what fails without an error: a loss that became NaN, a checkpoint not loaded, processes each alone."""
    lines = evidence.lines
    hits, points = list[SignatureHit](), list(loss_lines_and_whether_broken(lines))
    if broken := first_line_of_broken_end(lines):
        signature = msgspec.structs.replace(_signature_of_failure("nan_loss"), strength=50)
        hits.append(SignatureHit(signature, broken, {}))
    if 0 < evidence.first_logged_step < evidence.resumed_step:
        groups = {"resumed": str(evidence.resumed_step), "first": str(evidence.first_logged_step)}
        hits.append(SignatureHit(_signature_of_failure("resume_ignored"), _NO_LOG_LINE, groups))
    headers = [line for line in lines if _SINGLE_PROCESS_PATTERN.search(line.text)]
    several = any(_SEVERAL_PROCESSES_PATTERN.search(line.text) for line in lines)
    if headers and not several and evidence.world_size > 1:
        return [*hits, SignatureHit(_signature_of_failure("not_distributed_silent"), headers[0], {})]
    trained = [line.number for line, _ in points]
    for first, second in itertools.pairwise(headers):
        # One process that trains twice says it again too, but not before it has made a step, nor as another rank.
        between = bisect.bisect_left(trained, second.number) - bisect.bisect_right(trained, first.number)
        same = first.rank is not None and first.rank == second.rank
        if not several and not same and not between:
            hits.append(SignatureHit(_signature_of_failure("not_distributed_silent"), second, {}))
            break
    return hits


def _without_recovered_errors(hits: list[SignatureHit], evidence: Evidence) -> list[SignatureHit]:
    """Leave out errors that a training recovered from: it continued for steps, or to its end."""
    done = last_completion_line_number(evidence.lines)
    marks = [line.number for line, broken in loss_lines_and_whether_broken(evidence.lines) if not broken]

    def over(hit: SignatureHit) -> bool:
        after = sum(number > hit.line.number for number in marks)
        ended = done > hit.line.number and evidence.exit_code is None
        recovered = after >= _STEPS_PROVING_RECOVERY
        return ended or (recovered and hit.signature.strength < _MIN_OUTSIDE_VERDICT_STRENGTH)

    kept = [hit for hit in hits if hit.signature.done or not over(hit)]
    return kept if kept or not evidence.exit_code else hits


def _with_errors_inside_wrappers(hits: list[SignatureHit], lines: Sequence[LogLine]) -> list[SignatureHit]:
    """Put the error that an outer one was raised from in its place, where the outer one says nothing of its own."""
    kept = list[SignatureHit]()
    for hit in hits:
        inner = direct_cause_line(lines, hit.line) if _WRAPPER_ERROR_PATTERN.match(hit.line.text) else None
        kept.append(_raised_error_hit(inner) if inner else hit)
    return kept


def _without_ends_by_launcher(
    hits: list[SignatureHit], lines: Sequence[LogLine], block: dict[str, str]
) -> list[SignatureHit]:
    """Leave out that a launcher ended processes, or Slurm a step, because another one had ended by itself before."""
    by_itself = block.get("exitcode", "-15") != "-15" or any(_CHILD_FAILED_PATTERN.search(line.text) for line in lines)
    launcher = by_itself and not any(_DEATH_SIGNAL_TEXT in line.text for line in lines)
    step = any(_TASK_EXITED_PATTERN.match(line.text) for line in lines)

    def is_by_launcher(hit: SignatureHit) -> bool:
        ended_step = hit.signature.failure == "slurm_cancelled" and "*** STEP" in hit.line.text
        return (launcher and hit.signature.failure == "sigterm") or (step and ended_step)

    return [hit for hit in hits if not is_by_launcher(hit)]


def _without_echoes_of_error(hits: list[SignatureHit], end: LogLine) -> list[SignatureHit]:
    """Leave out what other ranks say because the one of an error that no one caught is gone; keep that error."""
    kept = [hit for hit in hits if hit.signature.failure not in _ECHO_FAILURES]
    if not any(hit.line.number == end.number for hit in kept):
        kept.append(_raised_error_hit(end))
    return kept


def _without_unrelated_nan(hits: list[SignatureHit], lines: Sequence[LogLine], end: LogLine) -> list[SignatureHit]:
    """Leave out that the loss became NaN where the error after the last step says nothing of numbers."""
    has_trained_on = any(
        line.number > end.number and line.rank == end.rank for line, _ in loss_lines_and_whether_broken(lines)
    )
    if has_trained_on or _may_be_caused_by_nan(lines, end):
        return hits
    return [hit for hit in hits if hit.signature.failure != "nan_loss" or hit.line.number >= end.number]


def _may_be_caused_by_nan(lines: Sequence[LogLine], end: LogLine) -> bool:
    """Return whether an error, or the code that raised it, speaks of numbers."""
    innermost_code = [text for frame in frames_before(lines, end)[-1:] for text in frame.code]
    code = [_CODE_COMMENT_PATTERN.sub("", text) for text in innermost_code]
    return bool(_NUMERICAL_ERROR_PATTERN.search("\n".join([*code, end.text])))


def _raised_error_hit(line: LogLine) -> SignatureHit:
    """Return the hit of an error of any kind that ends a traceback."""
    raised = next(entry for entry in _user_exception_signatures() if entry.strength == _RAISED_ERROR_STRENGTH)
    return SignatureHit(raised, line, {"message": line.text.strip()})


def _deciding_error_line(hits: list[SignatureHit], evidence: Evidence) -> tuple[LogLine | None, bool]:
    """Return the line of the error that ended the training, and whether that is certain: no one caught it.

    None where none is told, or it is of GPU memory.
    """
    if evidence.phase or len(hits) < 2:
        return None, False
    # As the reader of errors tells ranks apart.
    texts = [line.text if line.rank is None else f"[rank{line.rank}]: {line.text}" for line in evidence.lines]
    last = error_to_blame_for_end(texts, parse_errors(texts))
    if last is None or last.kind != OTHER_ERROR_KIND:
        return None, False
    return evidence.lines[last.line_index], last.uncaught


def _without_caught_oom(hits: list[SignatureHit], end: LogLine) -> list[SignatureHit]:
    """Leave out GPU memory that ran out and was logged only: a later error of another kind ended that process."""

    def caught(hit: SignatureHit) -> bool:
        logged = hit.line.rank in {None, end.rank} and not _RAISED_ERROR_PATTERN.match(hit.line.text)
        return hit.signature.failure == "cuda_oom" and hit.line.number < end.number and logged

    return [hit for hit in hits if not caught(hit)]


def _without_reports_before_mistake(
    hits: list[SignatureHit], lines: Sequence[LogLine], end: LogLine
) -> list[SignatureHit]:
    """Leave out what was only reported before a mistake in the user's own code ended that process."""
    begin = user_mistake_start_line_number(lines, end)
    if begin is None:
        return hits
    raised = {
        line.number
        for before, line in itertools.pairwise(lines)
        if before.text[:1].isspace() or STACK_HEADER in before.text
    }

    cannot_import = end.text.lstrip().startswith("ModuleNotFoundError")
    may_be_nan = _may_be_caused_by_nan(lines, end)

    def is_only_reported(hit: SignatureHit) -> bool:
        earlier = 0 < hit.line.number < begin and hit.line.rank in {None, end.rank}
        if cannot_import and _NO_ENVIRONMENT_PATTERN.search(hit.line.text):
            return False
        if may_be_nan and hit.signature.failure == "nan_loss":
            return False
        # Without a rank, an earlier traceback may be of another process.
        return earlier and hit.line.number not in raised and hit.signature.strength < _MIN_OUTSIDE_VERDICT_STRENGTH

    return [hit for hit in hits if not is_only_reported(hit)]


def _hit_corrected_by_evidence(hit: SignatureHit, evidence: Evidence) -> SignatureHit:
    """Return the hit that the evidence outside of the log supports, where the log alone is ambiguous."""
    full = evidence.free_disk is not None and evidence.free_disk < _NEARLY_FULL_DISK_BYTES
    shared = evidence.free_shm is None or evidence.free_shm < _NEARLY_FULL_DISK_BYTES
    vague = hit.signature.strength < 40
    bus_error = hit.signature.failure == "shm_too_small" and "shared memory" not in hit.line.text and not shared
    if vague and evidence.gpu_error:
        return msgspec.structs.replace(hit, signature=_signature_of_failure("gpu_hardware"))
    if full and (vague or bus_error) and not evidence.oom_kills:
        return msgspec.structs.replace(hit, signature=_signature_of_failure("disk_full"))
    if vague and hit.signature.failure in {"host_oom", "sigkill", "dataloader_worker"}:
        if evidence.oom_kills:
            return msgspec.structs.replace(hit, signature=_killed_by_kernel_signature(evidence))
        if evidence.oom_kills == 0 and hit.signature.failure != "dataloader_worker":
            return msgspec.structs.replace(hit, signature=_killed_by_someone_signature())
    return hit


def _killed_by_someone_signature() -> Signature:
    """Return the signature of a process that was killed while the kernel counted no kill for memory."""
    return msgspec.structs.replace(
        _signature_of_failure("sigkill"),
        cause="The process was killed by signal 9. The kernel counts no kill for memory: a user or a scheduler did it.",
        remedy="Ask who ended it (`last`, the scheduler's log); started again, it goes on from its newest checkpoint.",
    )


def _killed_by_kernel_signature(evidence: Evidence) -> Signature:
    """Return the signature of a process that the kernel killed, with the limit that was reached."""
    signature = _signature_of_failure("host_oom")
    if evidence.memory_limit is None:
        return signature
    cause = (
        f"The kernel killed a process: more than the {size_text(evidence.memory_limit)} that it may use were needed."
    )
    return msgspec.structs.replace(signature, cause=cause)


def _hit_with_details(hit: SignatureHit, evidence: Evidence) -> SignatureHit:
    """Return a hit with what its lines say besides, in its texts and values."""
    match = matching_detail_and_values(hit.signature, evidence.lines, hit.line)
    if match is None:
        return hit
    more, values = match
    if hit.signature.failure == "nccl_timeout":
        more = collective_timeout_detail(evidence.lines, evidence.world_size) or more
    cause, remedy = more.cause or hit.signature.cause, more.remedy or hit.signature.remedy
    signature = msgspec.structs.replace(hit.signature, cause=cause, remedy=remedy)
    return SignatureHit(signature, hit.line, {**hit.groups, **values})


def _signature_of_failure(failure: str) -> Signature:
    return next(signature for signature, _ in load_signatures() if signature.failure == failure)


def _user_exception_signatures() -> list[Signature]:
    return [signature for signature, _ in load_signatures() if signature.failure == "user_exception"]


def _exit_code_hit(evidence: Evidence, weak_hit: SignatureHit | None) -> SignatureHit:
    """Return the hit for the exit code, which no line shows, where the log has nothing better."""
    if evidence.ended_unobserved:
        return SignatureHit(
            _killed_by_kernel_signature(evidence) if evidence.oom_kills else _LOST_SESSION_SIGNATURE, _NO_LOG_LINE, {}
        )
    code = evidence.exit_code or 0
    code = code if code >= 0 else 128 - code
    signatures = [signature for signature, _ in load_signatures()]
    if meant := next((signature for signature in signatures if code in signature.codes), None):
        return SignatureHit(meant, _NO_LOG_LINE, {})
    last_resort = _user_exception_signatures()[-1]
    return weak_hit or SignatureHit(last_resort, _NO_LOG_LINE, {"code": str(code)})


def _make_diagnosis(
    hit: SignatureHit, evidence: Evidence, root_cause: dict[str, str], change: Change | None
) -> Diagnosis:
    signature, groups = hit.signature, {name: _shortened_value(visible(value)) for name, value in hit.groups.items()}
    rank = hit.line.rank
    if rank is None and root_cause.get("rank", "").isdigit():
        rank = int(root_cause["rank"])
    cause = _fill_in_values(signature.cause, groups, spaced=True)
    own_line = hit.groups.get("own_line", "") if signature.failure == "user_exception" else ""
    return Diagnosis(
        failure=signature.failure,
        line=visible(hit.line.text.strip())[:_MAX_LINE_LENGTH],
        line_number=hit.line.number,
        rank=rank,
        host=visible(groups.get("host") or root_cause.get("host") or evidence.host),
        cause=cause,
        remedy=_fill_in_values(signature.remedy, groups, spaced=False),
        change=change,
        evidence=(*_evidence_sentences(signature.failure, evidence, root_cause), *_progress_sentences(hit, evidence)),
        source_file=hit.groups.get("own_file", "") if own_line else "",
        source_line=int(own_line) if 0 < len(own_line) < _MAX_LINE_NUMBER_DIGITS else 0,
    )


def _shortened_value(value: str) -> str:
    """Return a value that fits into a sentence, cut after one of its own sentences or words."""
    if len(value) <= _MAX_VALUE_LENGTH:
        return value
    cut = value[:_MAX_VALUE_LENGTH]
    end = max(cut.rfind(". ", _MAX_VALUE_LENGTH // 2) + 1, 0) or cut.rfind(" ", _MAX_VALUE_LENGTH // 2)
    return cut[:end] + ("" if cut[:end].endswith(".") else "…") if end > 0 else cut + "…"


def _fill_in_values(text: str, groups: dict[str, str], *, spaced: bool) -> str:
    """Return a text with the values of a hit; {name|else} has a default, other missing ones are left out."""

    def value(match: re.Match[str]) -> str:
        name, bar, default = match[1].partition("|")
        if name not in groups:
            return default
        # A value right after another is one of its own.
        before = text[match.start() - 1 : match.start()]
        aside = spaced and not bar and (before.isalnum() or before == "}")
        return f" ({groups[name]})" if aside else groups[name]

    # Other braces are the text's own: {"use_reentrant": False}, {% generation %}.
    return re.sub(r"\{(\w+(?:\|[^{}]*)?)\}", value, text)


def _evidence_sentences(failure: str, evidence: Evidence, root_cause: dict[str, str]) -> Iterator[str]:
    """Yield the evidence beside the line."""
    if evidence.exit_code is not None:
        yield f"exit code {evidence.exit_code}"
    elif evidence.ended_unobserved:
        yield "exit code unknown"
    if root_cause.get("exitcode"):
        ended_first = visible(root_cause.get("rank", "?"))
        yield f"torchrun saw rank {ended_first} end first, with {visible(root_cause['exitcode'])}"
    if evidence.oom_kills:
        yield f"the kernel killed {evidence.oom_kills} for lack of memory in this cgroup"
    if evidence.free_disk is not None and failure in {"disk_full", "checkpoint_corrupt"}:
        other = (
            ": another disk is full" if failure == "disk_full" and evidence.free_disk > _NEARLY_FULL_DISK_BYTES else ""
        )
        yield f"{size_text(evidence.free_disk)} free on the disk of the output{other}"
    if evidence.free_shm is not None and failure in {"shm_too_small", "nccl_system_error"}:
        yield f"{size_text(evidence.free_shm)} of shared memory free"
    if evidence.gpu_error:
        yield f"while it ran, the kernel reported {evidence.gpu_error}"


def _progress_sentences(hit: SignatureHit, evidence: Evidence) -> Iterator[str]:
    """Yield how far the training came."""
    broken = None if hit.signature.failure == "nan_loss" else first_line_of_broken_end(evidence.lines)
    if broken and broken.number < hit.line.number:
        yield f"before it, from line {broken.number} on, the loss or its gradients were NaN or infinite"
    if step := last_step_with_finite_numbers(evidence.lines):
        yield f"the last good step was {step}"
    if evidence.newest_checkpoint:
        yield f"the newest checkpoint is {visible(evidence.newest_checkpoint)}"

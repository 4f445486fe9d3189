"""diagnose: finds the root of a failure among the errors of a log; pure."""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from tui_train.base.text import size, visible
from tui_train.diagnose.advice import remedy_and_values
from tui_train.diagnose.anchors import anchors, may_match, normalized
from tui_train.diagnose.details import matching_detail
from tui_train.diagnose.progress import completion_line, last_step, lines_with_steps
from tui_train.diagnose.remedies import change_for
from tui_train.diagnose.signatures import NOT_AN_ERROR, load_signatures
from tui_train.diagnose.types import Diagnosis, Evidence, LogLine, Signature
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runner.holders import largest_other_holder
from tui_train.runner.memory_end import deciding_error
from tui_train.runner.tracebacks import OTHER_KIND, phase_of, read_errors

_FRAME = re.compile(r'\s+File "')
_BEGIN = "(most recent call last)"
_MAX_FRAMES = 400
# Deeper than any line is indented.
_NOWHERE = 1 << 30
# The last line of a traceback: of several processes in one log any may have been the first to end.
_RAISED = re.compile(r"\s*[\w.]+(?:Error|Exception)\b")
_RECOVERED_STEPS = 5
_MAX_LINE = 500
# With fewer bytes free a disk, or /dev/shm, counts as full.
_NEARLY_FULL = 64 * 2**20
_ALONE = re.compile(r"(?i)\bnum(ber of)? processes\W{0,3}1\b|\bWorld size: 1\b|\brank 0/1 \| host ")
_SEVERAL = re.compile(r"(?i)\bnum(ber of)? processes\W{0,3}([2-9]|\d\d)|\brank \d+/([2-9]|\d\d+) \| host ")
_ROOT = re.compile(r"^\s*(?P<name>host|rank|exitcode)\s*: (?P<value>\S+)")

_NO_LINE = LogLine(0, "")

# No log shows it, for what would have written it was killed as well.
_LOST_SESSION = Signature(
    failure="session_killed",
    strength=5,
    cause="The session was killed, or the machine went down: there is no exit code.",
    remedy="Look for a kill or a restart: `journalctl -k`, `dmesg | grep -i oom`, `last -x`. Then resume it.",
)


class Hit(msgspec.Struct, frozen=True):
    """A place where a signature holds."""

    signature: Signature
    line: LogLine
    groups: dict[str, str]


def diagnose(
    evidence: Evidence, profile: Profile | None = None, facts: Facts | None = None, chosen: Profile | None = None
) -> Diagnosis | None:
    """Return what failed and how it is fixed, None where nothing did; `facts` may speak against a Change of `chosen`.

    `chosen` is the profile without the defaults in force, None for the same.
    """
    hits = list(_find_hits(evidence))
    if evidence.exit_code == 0:
        hits = [hit for hit in hits if hit.signature.done] + _silent_failures(evidence)
    else:
        hits += _silent_failures(evidence)
    hits = _without_caught_oom(_without_recovered(hits, evidence), evidence)
    block = _root_block(evidence.lines)
    best = max(hits, key=lambda hit: (hit.signature.strength, -hit.line.number), default=None)
    if (evidence.exit_code or evidence.lost) and (best is None or best.signature.strength < 10):
        best = _by_exit_code(evidence, best)
    if best is None:
        return None
    best = _with_details(_by_evidence(best, evidence), evidence)
    if best.signature.failure == "cuda_oom":
        evidence = msgspec.structs.replace(evidence, phase=evidence.phase or _phase(evidence.lines, best.line))
    remedy, groups = remedy_and_values(best.signature, best.groups, best.line, evidence, profile)
    best = Hit(msgspec.structs.replace(best.signature, remedy=remedy), best.line, groups)
    change = change_for(best.signature.change, evidence, profile, facts, chosen) if profile else None
    return _make_diagnosis(best, evidence, block, change)


def _find_hits(evidence: Evidence) -> Iterator[Hit]:
    """Yield the first place of each signature's expressions, and of the last resort the last."""
    texts = [line.text for line in evidence.lines]
    log_text, only_reports, frame = "\n".join(texts), [], _NOWHERE
    for text in texts:
        # What follows `File "…"` and is indented deeper is code that a traceback quotes.
        depth = len(text) - len(text.lstrip())
        frame = frame if depth > frame else _NOWHERE
        only_reports.append(bool(NOT_AN_ERROR.search(text)) or depth > frame)
        frame = min(frame, depth) if _FRAME.match(text) else frame
    starts, place = [], 0
    for text in texts:
        starts.append(place)
        place += len(text) + 1
    searched = normalized(log_text.encode("utf-8", "replace"))
    for signature, expressions in load_signatures():
        for expression in expressions:
            if not may_match(searched, anchors(expression.pattern)):
                continue
            hit = None
            for match in expression.finditer(log_text):
                shown = "message" if match.groupdict().get("message") else 0
                index = bisect.bisect_right(starts, match.start(shown)) - 1
                if only_reports[index] and not signature.warning:
                    continue
                groups = _groups(match, evidence.lines[index])
                hit = Hit(signature, evidence.lines[index], groups) if groups is not None else hit
                if hit and signature.strength >= 10:
                    break
            if hit:
                yield hit


def _groups(match: re.Match[str], line: LogLine) -> dict[str, str] | None:
    """Return the values of a match, None where its line names holders of memory and none of them is to blame."""
    groups = {name: value for name, value in match.groupdict().items() if value}
    if "held" not in groups:
        return groups
    holder = largest_other_holder(line.text)
    return {**groups, "pid": holder.pid, "held": holder.shown_size} if holder else None


def _phase(lines: Sequence[LogLine], failed: LogLine) -> str:
    """Return the phase that the traceback before a line shows, empty where none does."""
    at = next((index for index, line in enumerate(lines) if line is failed), 0)
    frames: list[str] = []
    for line in reversed(lines[max(0, at - _MAX_FRAMES) : at]):
        if line.rank == failed.rank and _BEGIN in line.text:
            return phase_of(reversed(frames))
        if line.rank == failed.rank:
            frames.append(line.text)
    return ""


def _silent_failures(evidence: Evidence) -> list[Hit]:
    """Return what fails without an error: a loss that became NaN, a checkpoint not loaded, processes each alone."""
    lines = evidence.lines
    hits, points = list[Hit](), list(lines_with_steps(lines))
    bad = [line for line, broken in points if broken]
    if bad and points[-1][1]:
        hits.append(Hit(msgspec.structs.replace(_signature_of("nan_loss"), strength=50), bad[0], {}))
    if 0 < evidence.first_step < evidence.resumed:
        groups = {"resumed": str(evidence.resumed), "first": str(evidence.first_step)}
        hits.append(Hit(_signature_of("resume_ignored"), LogLine(0, ""), groups))
    headers = [line for line in lines if _ALONE.search(line.text)]
    several = any(_SEVERAL.search(line.text) for line in lines)
    if headers and not several and evidence.world_size > 1:
        return [*hits, Hit(_signature_of("not_distributed_silent"), headers[0], {})]
    trained = [line.number for line, _ in points]
    for first, second in itertools.pairwise(headers):
        # One process that trains twice says it again too, but not before it has made a step, nor as another rank.
        between = bisect.bisect_left(trained, second.number) - bisect.bisect_right(trained, first.number)
        same = first.rank is not None and first.rank == second.rank
        if not several and not same and not between:
            hits.append(Hit(_signature_of("not_distributed_silent"), second, {}))
            break
    return hits


def _without_recovered(hits: list[Hit], evidence: Evidence) -> list[Hit]:
    """Leave out errors that a training recovered from: it continued for steps, or to its end."""
    done = completion_line(evidence.lines)
    marks = [line.number for line, broken in lines_with_steps(evidence.lines) if not broken]

    def over(hit: Hit) -> bool:
        after = sum(number > hit.line.number for number in marks)
        ended = done > hit.line.number and evidence.exit_code is None
        return ended or (after >= _RECOVERED_STEPS and hit.signature.strength < 88)

    kept = [hit for hit in hits if hit.signature.done or not over(hit)]
    return kept if kept or not evidence.exit_code else hits


def _without_caught_oom(hits: list[Hit], evidence: Evidence) -> list[Hit]:
    """Leave out GPU memory that ran out and was logged only: a later error of another kind ended that process."""
    if evidence.phase or not any(hit.signature.failure == "cuda_oom" for hit in hits):
        return hits
    # As the reader of errors tells ranks apart.
    texts = [line.text if line.rank is None else f"[rank{line.rank}]: {line.text}" for line in evidence.lines]
    last = deciding_error(texts, read_errors(texts))
    if last is None or last.kind != OTHER_KIND:
        return hits
    end = evidence.lines[last.line_index]

    def caught(hit: Hit) -> bool:
        logged = hit.line.rank in {None, end.rank} and not _RAISED.match(hit.line.text)
        return hit.signature.failure == "cuda_oom" and hit.line.number < end.number and logged

    return [hit for hit in hits if not caught(hit)]


def _root_block(lines: Sequence[LogLine]) -> dict[str, str]:
    """Return host, rank and exit code of torchrun's own `Root Cause` block, empty where there is none."""
    at = next((index for index, line in enumerate(lines) if "Root Cause (first observed failure)" in line.text), None)
    if at is None:
        return {}
    matches = (_ROOT.match(line.text) for line in lines[at : at + 8])
    return {match["name"]: match["value"] for match in matches if match}


def _by_evidence(best: Hit, evidence: Evidence) -> Hit:
    """Return the hit that the evidence outside of the log supports, where the log alone is ambiguous."""
    full = evidence.free_disk is not None and evidence.free_disk < _NEARLY_FULL
    shared = evidence.free_shm is None or evidence.free_shm < _NEARLY_FULL
    vague = best.signature.strength < 40
    bus_error = best.signature.failure == "shm_too_small" and "shared memory" not in best.line.text and not shared
    if full and (vague or bus_error) and not evidence.oom_kills:
        return msgspec.structs.replace(best, signature=_signature_of("disk_full"))
    if vague and best.signature.failure in {"host_oom", "sigkill", "dataloader_worker"}:
        if evidence.oom_kills:
            return msgspec.structs.replace(best, signature=_killed(evidence))
        if evidence.oom_kills == 0 and best.signature.failure != "dataloader_worker":
            return msgspec.structs.replace(best, signature=_by_someone())
    return best


def _by_someone() -> Signature:
    """Return the signature of a process that was killed while the kernel counted no kill for memory."""
    return msgspec.structs.replace(
        _signature_of("sigkill"),
        cause="The process was killed by signal 9. The kernel counts no kill for memory: a user or a scheduler did it.",
        remedy="Ask who ended it (`last`, the scheduler's log); start it again to resume from the newest checkpoint.",
    )


def _killed(evidence: Evidence) -> Signature:
    """Return the signature of a process that the kernel killed, with the limit that was reached."""
    signature = _signature_of("host_oom")
    if evidence.memory_limit is None:
        return signature
    cause = f"The kernel killed a process: more than the {size(evidence.memory_limit)} that it may use were needed."
    return msgspec.structs.replace(signature, cause=cause)


def _with_details(hit: Hit, evidence: Evidence) -> Hit:
    """Return a hit with what its lines say besides, in its texts and values."""
    match = matching_detail(hit.signature.failure, evidence.lines, hit.line)
    if match is None:
        return hit
    more, values = match
    cause, remedy = more.cause or hit.signature.cause, more.remedy or hit.signature.remedy
    signature = msgspec.structs.replace(hit.signature, cause=cause, remedy=remedy)
    return Hit(signature, hit.line, {**hit.groups, **values})


def _signature_of(failure: str) -> Signature:
    return next(signature for signature, _ in load_signatures() if signature.failure == failure)


def _by_exit_code(evidence: Evidence, weak: Hit | None) -> Hit:
    """Return the hit for the exit code, which no line shows, where the log has nothing better."""
    if evidence.lost:
        return Hit(_killed(evidence) if evidence.oom_kills else _LOST_SESSION, _NO_LINE, {})
    code = evidence.exit_code or 0
    code = code if code >= 0 else 128 - code
    meant = next((signature for signature, _ in load_signatures() if code in signature.codes), None)
    if meant:
        return Hit(meant, _NO_LINE, {})
    return weak or Hit(_last_resort(), _NO_LINE, {"code": str(code)})


def _last_resort() -> Signature:
    return [signature for signature, _ in load_signatures() if signature.failure == "user_exception"][-1]


def _make_diagnosis(hit: Hit, evidence: Evidence, block: dict[str, str], change: Change | None) -> Diagnosis:
    signature, groups = hit.signature, {name: visible(value)[:200] for name, value in hit.groups.items()}
    rank = hit.line.rank
    if rank is None and block.get("rank", "").isdigit():
        rank = int(block["rank"])
    cause = _fill_in(signature.cause, groups, spaced=True)
    return Diagnosis(
        failure=signature.failure,
        line=visible(hit.line.text.strip())[:_MAX_LINE],
        line_number=hit.line.number,
        rank=rank,
        host=visible(groups.get("host") or block.get("host") or evidence.host),
        cause=cause,
        remedy=_fill_in(signature.remedy, groups, spaced=False),
        change=change,
        evidence=tuple(_evidence_sentences(signature.failure, evidence, block)),
    )


def _fill_in(text: str, groups: dict[str, str], *, spaced: bool) -> str:
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


def _evidence_sentences(failure: str, evidence: Evidence, block: dict[str, str]) -> Iterator[str]:
    """Yield the evidence beside the line."""
    if evidence.exit_code is not None:
        yield f"exit code {evidence.exit_code}"
    elif evidence.lost:
        yield "exit code unknown"
    if block.get("exitcode"):
        yield f"torchrun saw rank {visible(block.get('rank', '?'))} end first, with {visible(block['exitcode'])}"
    if evidence.oom_kills:
        yield f"the kernel killed {evidence.oom_kills} for lack of memory in this cgroup"
    if evidence.free_disk is not None and failure in {"disk_full", "checkpoint_corrupt"}:
        yield f"{size(evidence.free_disk)} free on the disk of the output"
    if evidence.free_shm is not None and failure in {"shm_too_small", "nccl_system_error"}:
        yield f"{size(evidence.free_shm)} of shared memory free"
    step = evidence.last_step if evidence.last_step is not None else last_step(evidence.lines)
    if step:
        yield f"the last good step was {step}"
    if evidence.checkpoint:
        yield f"the newest checkpoint is {visible(evidence.checkpoint)}"

"""Advice for a failure, where the log or the settings say more than its signature can."""

import re
from collections.abc import Sequence

from msgspec import Struct

from tui_train.diagnose import packages, refused_arguments
from tui_train.diagnose.remedies import OOM_REMEDY_BY_PHASE
from tui_train.diagnose.types import Evidence, LogLine, Signature
from tui_train.profile.types import Profile
from tui_train.trainers import trainer_of

_SMALLEST_BATCH_REMEDY = (
    "The micro batch is 1 already: a shorter sequence length, activation checkpointing, sharding (fsdp2), offload, an "
    "8-bit optimizer or LoRA need less."
)

_MIN_CERTAIN_STRENGTH = 60
# A remedy of a failure that is known to no more than its traceback.
_TRACEBACK_REMEDY_PREFIX = "Look at the traceback"
_CHECK_OOM_PREFIX = "Check `dmesg | grep -i oom`; if it shows a kill: "
# The built-in trainer has no workers and loads no weights of a library.
_CPU_OOM_REMEDY = (
    "On the CPU, a smaller micro batch, sequence length or model needs less memory; or end other programs."
)
_TRACEBACK_HEADER = "Traceback (most recent call last)"
_FRAME_PATTERN = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
# Libraries, the standard library, and what has no file.
_LIBRARY_FILE_PATTERN = re.compile(r"/(site|dist)-packages/|/lib(64)?/python\d|^<")
_MAX_TRACEBACK_LINES = 400  # lines of a traceback that are looked at


class TracebackFrame(Struct, frozen=True):
    """A line of a file, and the function that it is in (empty: none is named)."""

    file: str
    line: str
    function: str = ""


def remedy_and_values(
    signature: Signature, match_values: dict[str, str], error_line: LogLine, evidence: Evidence, profile: Profile | None
) -> tuple[str, dict[str, str]]:
    """Return the remedy for a failure that a line shows, and the values that its text names."""
    if signature.failure == "missing_module" and not signature.remedy:
        return packages.missing_module_remedy(match_values.get("module", "")), match_values
    if signature.failure == "cuda_oom" and evidence.phase in OOM_REMEDY_BY_PHASE:
        return OOM_REMEDY_BY_PHASE[evidence.phase], match_values
    if signature.change == "less_memory" and profile and profile.recipe.micro_batch == 1:
        return _SMALLEST_BATCH_REMEDY, match_values
    by_kernel = signature.failure == "host_oom" or (signature.failure == "sigkill" and evidence.oom_kills is None)
    if by_kernel and profile and trainer_of(profile).makes_model:
        return (
            _CPU_OOM_REMEDY if signature.strength >= _MIN_CERTAIN_STRENGTH else f"{_CHECK_OOM_PREFIX}{_CPU_OOM_REMEDY}"
        ), match_values
    if signature.remedy.startswith(_TRACEBACK_REMEDY_PREFIX) and (
        frame := innermost_user_frame(evidence.lines, error_line)
    ):
        place = "Look at line {place} of {file}" + (", in {function}." if frame.function else ".")
        return place, {**match_values, "place": frame.line, "file": frame.file, "function": frame.function}
    refused = (
        refused_arguments.refused_arguments_remedy(evidence, profile)
        if signature.change == "leave_out" and profile
        else ""
    )
    # Braces would be taken for those of a signature.
    return re.sub("[{}]", "", refused) or signature.remedy, match_values


def innermost_user_frame(lines: Sequence[LogLine], error_line: LogLine) -> TracebackFrame | None:
    """Return the innermost frame in a file of the user's, of the traceback that ends at a line; None without one."""
    at = next((index for index, line in enumerate(lines) if line is error_line), 0)
    for line in reversed(lines[max(0, at - _MAX_TRACEBACK_LINES) : at]):
        if line.rank != error_line.rank:
            continue
        if _TRACEBACK_HEADER in line.text:
            return None
        match = _FRAME_PATTERN.match(line.text)
        if match and not _LIBRARY_FILE_PATTERN.search(match["file"]):
            return TracebackFrame(match["file"], match["line"], match["function"] or "")
    return None

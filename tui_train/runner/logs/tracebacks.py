"""The errors that a log tells, each with what it is of: of GPU memory, of another process that ended, or any other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .lines import split_rank_and_text
from .memory_patterns import OUT_OF_MEMORY_PATTERNS

GPU_MEMORY_KIND, FOLLOW_UP_KIND, OTHER_ERROR_KIND = "memory", "echo", "other"
_TRACEBACK_START_TEXT = "(most recent call last)"
# torch prints so what no one caught, in a group of processes.
_UNCAUGHT_TRACEBACK_PATTERN = re.compile(r"\[rank\d{1,6}\]: \W{0,300}Traceback")
_RICH_BOX_LINE_PATTERN = re.compile(r"^\s*[│|╭╰+]")
# What stands before the lines of a group of errors.
_EXCEPTION_GROUP_PREFIX_PATTERN = re.compile(r"^\s+(?:\| ?|\+[-+]*)")
# The line that ends a traceback: a name with a capital letter or a path before it, and mostly a message.
_ERROR_LINE_PATTERN = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w*)(?:\(\w+\))?(?::(?P<message> .*)?)?$"
)
_ERROR_SUFFIX_PATTERN = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Fault|Failed|Iteration|Timeout|Expired|Warning)$"
)
_DURING_HANDLING_TEXT = "During handling of the above exception"
_DIRECT_CAUSE_TEXT = "The above exception was the direct cause"
# What is said at the end of a process, or aside from what it does: it ends nothing.
_IGNORED_ERROR_PATTERN = re.compile(
    r"^(?:Exception ignored (?:in|on|while)|Error in atexit|Error in sys\.(?:excepthook|exitfunc)"
    r"|Exception in thread|--- Logging error ---|Unhandled exception in thread)"
)
_TEARDOWN_FRAME_PATTERN = re.compile(
    r"multiprocess(?:ing)?/(?:resource_tracker|popen_\w+)\.py|[ /](?:_run_finalizers|_exit_function|_shutdown_\w+)"
    r"|_pin_memory_loop|/wandb/sdk/|/threading\.py\", line \d+, in _shutdown|/weakref\.py\", line \d+, in _exitfunc"
)
# Errors of what only watches over processes, or that a process meets because another one is gone.
_FOLLOW_UP_ERROR_NAMES = frozenset({
    "ChildFailedError", "CalledProcessError", "SignalException", "SystemExit", "KeyboardInterrupt", "BrokenPipeError",
    "ConnectionResetError", "ConnectionAbortedError", "ConnectionRefusedError", "EOFError", "DistBackendError",
    "DistNetworkError", "DistStoreError", "SIGTERMException", "ProcessExitedException", "CancelledError",
})  # fmt: skip
_PEER_CLOSED_PATTERN = re.compile(
    r"\bNCCL\b|ncclRemoteError|\bgloo\b|[Cc]onnection (?:closed|reset|was closed|refused)|[Bb]roken pipe|[Ww]atchdog"
    r"|Timed out waiting|collective operation timeout|[Ss]ocket [Tt]imeout|TCPStore|closed by peer"
)
_POSSIBLE_FOLLOW_UP_NAMES = frozenset(
    {"RuntimeError", "TimeoutError", "OSError", "timeout", "Exception", "DistError", "C10Error"}
)
_CHILD_FAILED_PATTERN = re.compile(
    r"died with <Signals\.SIGTERM|killed by signal: Terminated|can only test a child process"
)
# So many lines apart belong together, though other processes write in between.
_MAX_LINES_BETWEEN_CHAINED_ERRORS = 20
# Of the frames of a traceback these say where it is in; and so many other lines may come in between.
_DECIDING_FRAME_COUNT = 8
_MAX_OTHER_LINES_IN_TRACEBACK = 50
_WARNING_PATTERN = re.compile(r"WARNING|Warning:|\bWARN\b(?!.*Cuda failure)")
# What must be in a line of the table, so that most lines cost little.
_MEMORY_WORD_PATTERN = re.compile(r"memory|Memory|MEMORY|ALLOC|EXHAUSTED|Exhausted|allocate|batch size found")
_OUT_OF_MEMORY_PATTERN = re.compile("|".join(f"(?:{expression})" for _, expression in OUT_OF_MEMORY_PATTERNS))

_MODEL_LOAD_FRAME_PATTERN = r"[ .](load_state_dict|from_pretrained)\b| in _apply| in convert$|_verify_param_shape"
_OPTIMIZER_STEP_FRAME_PATTERN = (
    r"optimizer\.step\(|/(torch|bitsandbytes)/optim/|/apex/optimizers/|_foreach_|_multi_tensor_adam|_take_model_"
)
_EVAL_FRAME_PATTERN = r" in (_?evaluat|eval_|prediction_step|validate$|validation_|estimate_loss)"
_BACKWARD_FRAME_PATTERN = r" in backward|\.backward\(| in training_step"
_FORWARD_FRAME_PATTERN = r" in (forward|_call_impl|compute_loss)|cross_entropy|logits"
_GROUP_START_FRAME_PATTERN = r" in (barrier|wait_for_everyone|init_process_group)"
# What a frame tells, but for what one further outside told: an optimizer's state is loaded, an evaluation goes forward.
_PHASE_FRAME_RULES = (
    ("load", re.compile(_MODEL_LOAD_FRAME_PATTERN), ("loss",)),
    ("step", re.compile(_OPTIMIZER_STEP_FRAME_PATTERN), ("load",)),
    ("eval", re.compile(_EVAL_FRAME_PATTERN), ()),
    ("loss", re.compile(_BACKWARD_FRAME_PATTERN), ()),
    ("loss", re.compile(_FORWARD_FRAME_PATTERN), ("eval",)),
    ("start", re.compile(_GROUP_START_FRAME_PATTERN), ("load", "step", "eval", "loss")),
)


class LoggedError(NamedTuple):
    """An error: where it ends in the log, which rank it is of, its line, its kind, and its phase if that is known.

    `uncaught` says that it surely ended its process.
    """

    line_index: int
    rank: int | None
    message: str
    kind: str
    phase: str = ""
    uncaught: bool = False


def phase_of_traceback(frames: Iterable[str]) -> str:
    """Return the phase that a traceback's lines tell, the outermost first: the innermost decides; empty for none."""
    phase = ""
    for text in frames:
        name_of_phase, kept = next(
            ((name, kept) for name, pattern, kept in _PHASE_FRAME_RULES if pattern.search(text)), ("", ())
        )
        phase = name_of_phase if name_of_phase and phase not in kept else phase
    return phase


def is_out_of_memory(text: str) -> bool:
    """Tell whether a line says that the GPU's memory ran out, and does not only warn of it."""
    return (
        _MEMORY_WORD_PATTERN.search(text) is not None
        and _OUT_OF_MEMORY_PATTERN.search(text) is not None
        and _WARNING_PATTERN.search(text) is None
    )


class _ProcessErrorState:
    """Log of one process so far: the traceback that it is in, and its last error."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.frames: list[str] = []
        self.in_traceback = False
        self.in_frame = False
        self.lines_between = 0
        self.uncaught = False
        self.aside_index = -_MAX_LINES_BETWEEN_CHAINED_ERRORS
        self.chained = ""
        self.last: LoggedError | None = None


def parse_errors(lines: Iterable[str]) -> list[LoggedError]:
    """Return the errors of a log in their order, of a chain of errors the one that stands for it."""
    streams: dict[int | None, _ProcessErrorState] = {}
    errors: list[LoggedError] = []
    for index, line in enumerate(lines):
        rank, text = split_rank_and_text(line)
        stream = streams.setdefault(rank, _ProcessErrorState(rank))
        error = _read_process_line(stream, index, line, text)
        if error is None:
            continue
        before, chained = stream.last, stream.chained
        if before and chained:
            # What is raised from a full card is one; what is raised while another error is handled is that itself.
            if chained == _DIRECT_CAUSE_TEXT and before.kind == GPU_MEMORY_KIND:
                error = error._replace(kind=GPU_MEMORY_KIND, message=before.message, phase=before.phase)
            if error.kind != FOLLOW_UP_KIND:
                errors.remove(before)
        errors.append(error)
        stream.last, stream.chained = error, ""
    return errors


def _read_process_line(process_log: _ProcessErrorState, line_index: int, line: str, text: str) -> LoggedError | None:
    """Take a line, and return the error that it ends, if it does."""
    text = _EXCEPTION_GROUP_PREFIX_PATTERN.sub("", text)
    framed = not text.strip() or text[:1].isspace() or _RICH_BOX_LINE_PATTERN.match(text) is not None
    if _TRACEBACK_START_TEXT in text:
        process_log.in_traceback = process_log.in_frame = True
        process_log.frames = []
        process_log.lines_between = 0
        process_log.uncaught = _UNCAUGHT_TRACEBACK_PATTERN.search(line) is not None
    elif text.startswith((_DURING_HANDLING_TEXT, _DIRECT_CAUSE_TEXT)):
        process_log.chained = _DIRECT_CAUSE_TEXT if text.startswith(_DIRECT_CAUSE_TEXT) else _DURING_HANDLING_TEXT
    elif process_log.in_traceback and framed:
        process_log.in_frame = True
        process_log.frames.append(text.rstrip(" │"))
    elif _IGNORED_ERROR_PATTERN.match(text):
        process_log.aside_index = line_index
    elif process_log.in_traceback:
        return _traceback_error(process_log, line_index, text)
    elif not text.startswith("    ") or "what():" in text:
        return _error_without_traceback(process_log, line_index, text)
    return None


def _traceback_error(process_log: _ProcessErrorState, line_index: int, text: str) -> LoggedError | None:
    """Return the error that ends a traceback; None where a line of something else came in between."""
    match = _ERROR_LINE_PATTERN.match(text)
    in_frame, process_log.in_frame = process_log.in_frame, False
    if not is_out_of_memory(text) and not (match and (in_frame or _ERROR_SUFFIX_PATTERN.search(match["name"]))):
        process_log.lines_between += 1
        process_log.in_traceback = process_log.lines_between < _MAX_OTHER_LINES_IN_TRACEBACK
        return None
    process_log.in_traceback = False
    kind = _error_kind(
        text,
        match["name"] if match else "",
        process_log.frames,
        is_ignored=line_index - process_log.aside_index < _MAX_LINES_BETWEEN_CHAINED_ERRORS,
    )
    process_log.aside_index = -_MAX_LINES_BETWEEN_CHAINED_ERRORS
    return LoggedError(
        line_index, process_log.rank, text, kind, phase_of_traceback(process_log.frames), process_log.uncaught
    )


def _error_without_traceback(process_log: _ProcessErrorState, line_index: int, text: str) -> LoggedError | None:
    """Return the error of a line without a traceback: a message's further line, or what is cut off or not Python's."""
    match = _ERROR_LINE_PATTERN.match(text)
    if is_out_of_memory(text):
        kind = GPU_MEMORY_KIND
    elif match and _ERROR_SUFFIX_PATTERN.search(match["name"]) and not match["name"].endswith("Warning"):
        kind = _error_kind(text, match["name"], (), is_ignored=False)
    else:
        return None
    uncaught = (
        process_log.last is not None
        and process_log.last.uncaught
        and line_index - process_log.last.line_index < _MAX_LINES_BETWEEN_CHAINED_ERRORS
    )
    return LoggedError(line_index, process_log.rank, text, kind, uncaught=uncaught)


def _error_kind(text: str, name: str, frames: Sequence[str], *, is_ignored: bool) -> str:
    own = name.rpartition(".")[2]
    if is_ignored:
        return FOLLOW_UP_KIND
    if is_out_of_memory(text):
        return GPU_MEMORY_KIND
    gone = (own in _POSSIBLE_FOLLOW_UP_NAMES and _PEER_CLOSED_PATTERN.search(text)) or _CHILD_FAILED_PATTERN.search(
        text
    )
    teardown = any(_TEARDOWN_FRAME_PATTERN.search(frame) for frame in frames[-_DECIDING_FRAME_COUNT:])
    return FOLLOW_UP_KIND if own in _FOLLOW_UP_ERROR_NAMES or gone or teardown else OTHER_ERROR_KIND

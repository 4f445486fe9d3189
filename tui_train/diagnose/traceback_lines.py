"""Tracebacks among the lines of a log: which phase they show, and which frames and mistakes are the user's own."""

import itertools
import re
from collections.abc import Sequence

from msgspec import Struct, structs

from tui_train.checks.trainer.module_packages import pip_package
from tui_train.diagnose.types import LogLine
from tui_train.runner.logs.tracebacks import phase_of_traceback

_TRACEBACK_HEADER = "Traceback (most recent call last)"
# Also of a stack that logging writes.
STACK_HEADER = "(most recent call last)"
_DIRECT_CAUSE_PREFIX = "The above exception was the direct cause"
_CHAINED_TRACEBACK_PREFIXES = ("During handling of the above exception", _DIRECT_CAUSE_PREFIX)
_FRAME_PATTERN = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
# In a traceback that rich drew.
_BOX_EDGES = ("│", "╰")
_BOXED_FRAME_PATTERN = re.compile(r"\s*│ (?P<file>/[^│:]+\.py):(?P<line>\d+) in (?P<function>[^\s│]+)")
# Libraries, the standard library, code that came with a model or that Unsloth wrote, what has no file, and what each
# Python of a run begins with. The last is a command that an installer wrote.
_LIBRARY_FILE_PATTERN = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python\d|/transformers_modules/|/unsloth_compiled_cache/|/shim/sitecustomize\.py$|^<|/bin/[\w-]+$"
)
# Of what is installed its name; of what is not the user's there may be none.
_INSTALLED_LIBRARY_PATTERN = re.compile(
    r"/(?:site|dist)-packages/(\w{1,40})|/(unsloth)_compiled_cache/|/(transformers_modules)/"
)
# Frameworks that pip does not have by these names, and that are cloned.
_CLONED_FRAMEWORKS = frozenset({"fairseq", "megatron", "openrlhf", "swift", "torchtitan"})
_NOT_IN_NAME_PATTERN = re.compile(r"[\W_]+")
_CAPITALIZED_CALL_PATTERN = re.compile(r"(?<!\w)([A-Z]\w*)\(")
# Code that hands on what it was given.
_PASSING_ON_PATTERN = re.compile(r"\*\*|\bsuper\(")
RAISE_STATEMENT_PATTERN = re.compile(r"\s+(?:raise|assert)\b")
_MAX_TRACEBACK_LINES = 400
_MAX_MESSAGE_LINES = 12  # of the error that is shown
# Errors of Python itself, which a program seldom raises to say that something else failed.
_SIMPLE_CODING_ERROR_PATTERN = re.compile(
    r"\s*(?:Key|Index|Name|UnboundLocal|ZeroDivision|Attribute|Type|Value|Recursion|NotImplemented|Assertion|Overflow"
    r"|FileNotFound|ModuleNotFound|Import|UnicodeDecode|UnicodeEncode|Indentation|Syntax)Error\b"
)


class TracebackFrame(Struct, frozen=True):
    """A frame of a traceback: a line of a file, the function that it is in (empty: none is named), and its code."""

    file: str
    line: str
    function: str = ""
    code: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The line of the frame as Python writes it."""
        return f'  File "{self.file}", line {self.line}, in {self.function}'


def index_of_line(lines: Sequence[LogLine], wanted: LogLine) -> int:
    """Return where a line is among others, 0 where it is not."""
    return next((index for index, line in enumerate(lines) if line is wanted), 0)


def direct_cause_line(lines: Sequence[LogLine], outer: LogLine) -> LogLine | None:
    """Return the error that another one was raised from, None where the log shows none."""
    at = index_of_line(lines, outer)
    before = [line for line in lines[max(0, at - _MAX_TRACEBACK_LINES) : at] if line.rank == outer.rank]
    pairs = itertools.pairwise(reversed(before))
    return next((inner for mark, inner in pairs if mark.text.startswith(_DIRECT_CAUSE_PREFIX)), None)


def phase_of_traceback_before(lines: Sequence[LogLine], error_line: LogLine) -> str:
    """Return the phase that the traceback before a line shows, empty where none does."""
    return phase_of_traceback(_traceback_texts_before(lines, error_line))


def frames_before(lines: Sequence[LogLine], error_line: LogLine) -> list[TracebackFrame]:
    """Return the frames of the traceback that a line ends, the outermost first."""
    frames: list[TracebackFrame] = []
    for text in _traceback_texts_before(lines, error_line):
        if frame := _parse_frame(text):
            frames.append(frame)
        elif frames and not text.lstrip().startswith(_BOX_EDGES):
            frames[-1] = structs.replace(frames[-1], code=(*frames[-1].code, text))
    return frames


def _traceback_texts_before(lines: Sequence[LogLine], error_line: LogLine) -> list[str]:
    """Return the lines of the traceback before a line; of one whose beginning is cut off, those that are left."""
    at = index_of_line(lines, error_line)
    texts: list[str] = []
    for line in reversed(lines[max(0, at - _MAX_TRACEBACK_LINES) : at]):
        if line.rank != error_line.rank:
            continue
        if STACK_HEADER in line.text:
            return texts[::-1]
        texts.append(line.text)
    return [*itertools.takewhile(lambda text: text[:1].isspace() or text[:1] == "│", texts)][::-1]


def library_of_file(file: str) -> str:
    """Return the library that a file belongs to, installed or cloned; empty for the user's files and Python's."""
    if installed := _INSTALLED_LIBRARY_PATTERN.search(file):
        return installed[installed.lastindex or 1]
    return cloned_library(file)


def cloned_library(file: str) -> str:
    """Return the library in whose clone a file lies, as in Megatron-LM/megatron or trl/src/trl; empty for none."""
    folders = file.split("/")[:-1]
    for clone, name in itertools.pairwise(folder for folder in folders if folder != "src"):
        if name in _NOT_IN_NAME_PATTERN.sub("", clone.lower()) and (name in _CLONED_FRAMEWORKS or pip_package(name)):
            return name
    return ""


def class_refusing_argument(lines: Sequence[LogLine], error_line: LogLine, argument: str) -> str:
    """Return the class whose constructor refused an argument, where the code names it; empty where it does not."""
    frames = reversed(frames_before(lines, error_line))
    for text in (text for frame in frames for text in reversed(frame.code) if "(" in text):
        before, given, _ = text.partition(f"{argument}=")
        if classes := [match[1] for match in _CAPITALIZED_CALL_PATTERN.finditer(before) if not match[1].isupper()]:
            return classes[-1 if given else 0]
        if not _PASSING_ON_PATTERN.search(text):
            return ""
    return ""


def innermost_user_frame(lines: Sequence[LogLine], error_line: LogLine) -> TracebackFrame | None:
    """Return the innermost frame in a file of the user's, of the traceback that ends at a line; None without one.

    A clone of a library counts where nothing else is the user's. An error that a library caught and raised again has
    the user's frames only in a traceback after it.
    """
    frames = [frame for frame in frames_before(lines, error_line) if not _LIBRARY_FILE_PATTERN.search(frame.file)]
    if frames:
        return next((frame for frame in reversed(frames) if not cloned_library(frame.file)), frames[-1])
    at = index_of_line(lines, error_line)
    after = [line for line in lines[at + 1 : at + _MAX_TRACEBACK_LINES] if line.rank == error_line.rank]
    return _innermost_user_frame_of_chained_tracebacks(after)


def _innermost_user_frame_of_chained_tracebacks(after: Sequence[LogLine]) -> TracebackFrame | None:
    """Return the innermost frame of the user's in the first traceback that has one, of those chained to an error."""
    found: TracebackFrame | None = None
    is_chained = has_begun = False
    for number, line in enumerate(after):
        if line.text.startswith(_CHAINED_TRACEBACK_PREFIXES):
            is_chained = True
        elif _TRACEBACK_HEADER in line.text:
            if found or not is_chained:
                return found
            is_chained, has_begun = False, True
        elif has_begun:
            frame = _parse_frame(line.text)
            found = frame if frame and not _LIBRARY_FILE_PATTERN.search(frame.file) else found
        elif not is_chained and number >= _MAX_MESSAGE_LINES:
            return None
    return found


def _parse_frame(text: str) -> TracebackFrame | None:
    match = _FRAME_PATTERN.match(text) or _BOXED_FRAME_PATTERN.match(text)
    return TracebackFrame(match["file"], match["line"], match["function"] or "") if match else None


def user_mistake_start_line_number(lines: Sequence[LogLine], end: LogLine) -> int | None:
    """Return the number of the line where the traceback of a plain mistake in the user's code begins; None for others.

    Of a chain of tracebacks it is the first.
    """
    at = index_of_line(lines, end)
    innermost, begin = "", None
    # What a program raises by itself may be about what it reported before.
    raised = at > 0 and RAISE_STATEMENT_PATTERN.match(lines[at - 1].text)
    if raised or not _SIMPLE_CODING_ERROR_PATTERN.match(end.text):
        return None
    for line in reversed(lines[max(0, at - _MAX_TRACEBACK_LINES) : at]):
        if line.rank != end.rank:
            continue
        if match := _FRAME_PATTERN.match(line.text):
            innermost = innermost or match["file"]
        elif STACK_HEADER in line.text:
            begin = line.number
        elif begin is not None and line.text.strip() and not line.text.startswith(_CHAINED_TRACEBACK_PREFIXES):
            break
    is_own = bool(innermost) and not _LIBRARY_FILE_PATTERN.search(innermost)
    return begin if is_own else None

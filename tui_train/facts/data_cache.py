"""Keeps what was read in training data, until the data, the model, the question or what reads them changes."""

import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path

import msgspec

from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE, read_regular, write_beside
from tui_train.base.places import data_summaries_folder
from tui_train.facts import hub
from tui_train.facts.ask import ChildResult
from tui_train.facts.data import DataQuestion, DataReport, parse_data_answer, probe_data
from tui_train.facts.types import Toolchain

MAX_KEPT_REPORTS = 64
_LARGEST = 2**20
# A file that has just been written may change again and keep its time, where the clock of its disk is coarse.
_MIN_AGE_SECONDS = 2.0
_LIBRARIES = ("trl", "datasets")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".onnx")


def read_data(
    toolchain: Toolchain, question: DataQuestion, cancelled: Callable[[], bool] = lambda: False
) -> DataReport:
    """Return what the Python of a toolchain reads in the data, or has read in the very same."""
    states = tuple(_file_states(question))
    kept = data_summaries_folder() / f"{_digest(_identity(toolchain, question, states))}.json"
    if look := _load(kept):
        return look
    look = probe_data(toolchain.python, question, cancelled=cancelled)
    newest = max((state[2] for state in states), default=0) / 1e9
    # What failed may work the next time, for reasons that no file shows.
    failed = look.problem or look.tokenizer or look.counts.get("unreadable")
    if not failed and time.time() - newest > _MIN_AGE_SECONDS and states == tuple(_file_states(question)):
        _store_report(kept, look)
    return look


def _identity(toolchain: Toolchain, question: DataQuestion, states: tuple[tuple[str, int, int], ...]) -> bytes:
    """Return all on which an answer depends."""
    libraries = [toolchain.version, toolchain.transformers, *(toolchain.packages.get(name) for name in _LIBRARIES)]
    installed = sorted(
        _file_state(folder) for folder in Path(toolchain.python).parent.parent.glob("lib/python3*/*-packages")
    )
    return msgspec.json.encode((_program(), toolchain.python, libraries, installed, question, states))


@functools.cache
def _program() -> str:
    """Return what tells this version of the reading program from others: its modules, and what it answers."""
    folder = resources.files("tui_train").joinpath("target/data")
    modules = sorted((item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".py"))
    fields = ",".join(DataReport.__struct_fields__).encode()
    return _digest(b"".join(name.encode() + content for name, content in modules) + fields)


def _file_states(question: DataQuestion) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of change (ns) of all files that are read: data, and the model but for its weights."""
    for named in question.files:
        yield _file_state(Path(named))
        yield from _inside(Path(named))
    model = question.model
    folder = (
        model if not model or Path(model).is_absolute() else hub.snapshot_folder(os.environ, model, question.revision)
    )
    for inside in (Path(folder), Path(folder, "additional_chat_templates")) if folder else ():
        yield from (state for state in _inside(inside) if not state[0].endswith(_WEIGHTS))


def _inside(folder: Path) -> list[tuple[str, int, int]]:
    with suppress(OSError, ValueError):
        return sorted(_file_state(path) for path in folder.iterdir()) if folder.is_dir() else []
    return []


def _file_state(path: Path) -> tuple[str, int, int]:
    with suppress(OSError, ValueError):
        state = path.stat()
        return str(path), state.st_size, state.st_mtime_ns
    return str(path), -1, 0


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _load(path: Path) -> DataReport | None:
    """Return what is kept in a file, None where there is nothing, or it is not what was written."""
    try:
        digest, _, content = read_regular(path, _LARGEST).partition(b"\n")
    except OSError:
        return None
    if digest.decode("ascii", "replace") != _digest(content):
        return None
    with suppress(OSError):
        os.utime(path)  # the latest used are kept
    look = parse_data_answer(ChildResult(content))
    return None if look.problem else look


def _store_report(path: Path, look: DataReport) -> None:
    """Write what was read, for this user alone: it holds samples of the data; the oldest of too many are removed."""
    content = msgspec.json.encode(look)
    with suppress(TuiTrainError):
        write_beside(path, _digest(content).encode() + b"\n" + content, PRIVATE)
    with suppress(OSError):
        kept = sorted((_file_state(file)[2], file) for file in path.parent.glob("*.json"))
        for _, file in kept[:-MAX_KEPT_REPORTS]:
            file.unlink(missing_ok=True)

"""Keeps what was read in training data, until the data, the model, the question or what reads them changes."""

import functools
import os
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from tui_train.base.app_paths import data_summaries_folder
from tui_train.base.files import read_regular_file
from tui_train.facts import answer_cache
from tui_train.facts.answer_cache import FileState
from tui_train.facts.data.data_report import DataQuestion, DataReport, parse_data_answer, probe_data
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.models import hub
from tui_train.facts.types import Toolchain

# A file that has just been written may change again and keep its time, where the clock of its disk is coarse.
_MIN_CACHEABLE_FILE_AGE_SECONDS = 2.0
_MAX_IMAGE_REPORT_BYTES = 256 << 20
_CACHE_KEY_LIBRARIES = ("trl", "datasets")
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".onnx")


def read_data_report(
    toolchain: Toolchain, question: DataQuestion, is_cancelled: Callable[[], bool] = lambda: False
) -> DataReport:
    """Return what the Python of a toolchain reads in the data, or has read in the very same."""
    inspections_file = _image_report_file(toolchain, question)
    data_states = tuple(_question_file_states(question))
    seen = _image_states_when_seen(inspections_file)
    if report := _load_cached_report(_report_file(toolchain, question, (*data_states, *_states_now(seen)))):
        return report
    report = probe_data(toolchain.python, question, is_cancelled=is_cancelled, inspections_file=str(inspections_file))
    answer_cache.remove_oldest_answers(inspections_file.parent)
    seen = _image_states_when_seen(inspections_file)
    states = (*data_states, *seen)
    newest = max((state.mtime for state in states), default=0) / 1e9
    # What failed may work the next time, for reasons that no file shows.
    is_unkept = report.problem or report.tokenizer or report.processor or report.counts.get("unreadable")
    is_unkept = is_unkept or any(trial.problem or trial.untried for trial in report.rewards)
    is_unkept = is_unkept or (report.images is not None and (report.images.problem or len(seen) < report.images.files))
    if (
        not is_unkept
        and time.time() - newest > _MIN_CACHEABLE_FILE_AGE_SECONDS
        and states == (*_question_file_states(question), *_states_now(seen))
    ):
        answer_cache.store_answer(_report_file(toolchain, question, states), msgspec.json.encode(report))
    return report


def _report_file(toolchain: Toolchain, question: DataQuestion, states: tuple[FileState, ...]) -> Path:
    return answer_cache.answer_file(data_summaries_folder(), _cache_key(toolchain, question, states))


def _image_report_file(toolchain: Toolchain, question: DataQuestion) -> Path:
    """Return the file in which a Python keeps what it found of the images of data."""
    about = DataQuestion(files=question.files)
    return answer_cache.answer_file(data_summaries_folder() / "images", _cache_key(toolchain, about, ()))


def _image_states_when_seen(inspections_file: Path) -> tuple[FileState, ...]:
    """Return the files of images as they were when they were looked at; none where nothing is kept of them."""
    try:
        content = read_regular_file(inspections_file, _MAX_IMAGE_REPORT_BYTES)
        return tuple(state for state, _ in msgspec.json.decode(content, type=list[tuple[FileState, Any]]))
    except (OSError, msgspec.DecodeError):
        return ()


def _states_now(states: tuple[FileState, ...]) -> Iterator[FileState]:
    yield from (answer_cache.file_state(Path(state.path)) for state in states)


def _cache_key(toolchain: Toolchain, question: DataQuestion, states: tuple[FileState, ...]) -> bytes:
    libraries = [
        toolchain.version,
        toolchain.transformers,
        *(toolchain.packages.get(name) for name in _CACHE_KEY_LIBRARIES),
    ]
    installed = answer_cache.package_folder_states(toolchain.python)
    return msgspec.json.encode((_data_program_digest(), toolchain.python, libraries, installed, question, states))


@functools.cache
def _data_program_digest() -> str:
    """Return what tells this version of the reading program from others: its modules, and what it answers."""
    folder = resources.files("tui_train").joinpath("programs/data")
    modules = sorted((item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".py"))
    fields = ",".join(DataReport.__struct_fields__).encode()
    return answer_cache.content_digest(b"".join(name.encode() + content for name, content in modules) + fields)


def _question_file_states(question: DataQuestion) -> Iterator[FileState]:
    """Yield the states of all files read: data, rewards, the model without its weights."""
    for named in (*sorted({reward.file for reward in question.rewards} - {""}), *question.files):
        yield from answer_cache.states_behind_path(named)
    model = question.model
    folder = (
        model if not model or Path(model).is_absolute() else hub.snapshot_folder(os.environ, model, question.revision)
    )
    for inside in (Path(folder), Path(folder, "additional_chat_templates")) if folder else ():
        _, *states = answer_cache.states_behind_path(str(inside))
        yield from (state for state in states if not state.path.endswith(_WEIGHT_SUFFIXES))


def _load_cached_report(path: Path) -> DataReport | None:
    """Return what is kept in a file, None where there is nothing of use."""
    content = answer_cache.load_cached_answer(path)
    report = parse_data_answer(ChildResult(content)) if content is not None else None
    return None if report is None or report.problem else report

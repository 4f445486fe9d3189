"""Prepares data and converts checkpoints for NeMo, in a child process of a Python that has NeMo."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.actions.sent_program import SentProgram
from tui_train.base.errors import BadInput, CannotWrite, NotFound, Unavailable
from tui_train.base.files import create_own_folder, raising_cannot_write, write_atomically
from tui_train.base.text import display_path, visible
from tui_train.facts.answer_cache import FileState, file_state
from tui_train.facts.machine import child_memory_limit, probe
from tui_train.facts.types import Toolchain
from tui_train.runner.system import safe_open
from tui_train.trainers import nemo


class NemoChildProgress(Struct):
    """A line of a child: its progress, or its result.

    `tokenizer` is the folder of a tokenizer that had to be rewritten for NeMo; `difference` is that of the logits of
    two models, as share of the largest, None where they were not compared.
    """

    split: str = ""
    done: int = 0
    total: int = 0
    documents: int = 0
    tokens: int = 0
    finished: bool | dict[str, dict[str, int]] | None = None
    tokenizer: str = ""
    difference: float | None = None
    problem: str = ""
    remedy: str = ""


class NemoTextToPrepare(Struct, frozen=True, kw_only=True):
    """Text to prepare: the files of each split, the tokenizer's folder, and the prefix of the new files."""

    splits: Mapping[str, tuple[Path, ...]]
    tokenizer: Path
    out: Path


def find_nemo_python(chosen_python: str) -> str:
    """Return the given Python with NeMo, or the first one found; Unavailable where there is none."""
    tools = [probe.probe_toolchain(chosen_python)] if chosen_python else list(probe.probe_toolchains())
    able: list[Toolchain] = [tool for tool in tools if nemo.nemo_flavour(tool) == "recipes"]
    if able:
        return able[0].python
    lacking = "; ".join(
        f"{display_path(tool.python)} has {nemo.why_nemo_unusable(tool.packages) or 'other trainers only'}"
        for tool in tools
    )
    raise Unavailable(
        f"no Python here has NeMo: {visible(lacking) or 'none was found'}", "Create one: tui-train env create nemo"
    )


def bin_file_by_split(data: NemoTextToPrepare) -> dict[str, Path]:
    """Return the .bin files to write, by split."""
    return {name: data.out.parent / f"{data.out.name}_{name}.bin" for name, files in data.splits.items() if files}


def prepare_nemo_data(
    data: NemoTextToPrepare, interpreter: str, on_progress: Callable[[NemoChildProgress], None], *, force: bool = False
) -> NemoChildProgress:
    """Write .bin and .idx files from text, resuming an interrupted preparation; return the counts."""
    question = _preparation_request(data)
    work = _working_folder(data)
    question_file = work / "question.json"
    resumes = _has_exact_content(question_file, question)
    tokenized_files_to_write(data, force=force)
    if work.exists() and not resumes:
        if not question_file.is_file():
            remedy = "Remove that folder, or name another --out."
            raise CannotWrite(f"{visible(str(work))} already exists, and is not from an earlier preparation", remedy)
        with raising_cannot_write(work):
            shutil.rmtree(work)
    create_own_folder(work)
    if not resumes:
        write_atomically(question_file, question)
    try:
        result = _run_nemo_program(interpreter, "nemo_prepare.py", {"question": str(question_file)}, on_progress)
    except Unavailable as error:
        error.remedy = f"{error.remedy.rstrip('.')}. Started again, it goes on from what is prepared."
        raise
    shutil.rmtree(work, ignore_errors=True)
    return result


def tokenized_files_to_write(data: NemoTextToPrepare, *, force: bool) -> tuple[Path, ...]:
    """Return the files that a preparation writes; CannotWrite where one is there, unless `force` or it resumes."""
    files = tuple(path for file in bin_file_by_split(data).values() for path in (file, file.with_suffix(".idx")))
    resumes = _has_exact_content(_working_folder(data) / "question.json", _preparation_request(data))
    existing = next((path for path in files if path.exists()), None)
    if existing and not resumes and not force:
        raise CannotWrite(
            f"{visible(str(existing))} already exists", "Name another --out, or replace the files with --force."
        )
    return files


def _working_folder(data: NemoTextToPrepare) -> Path:
    return data.out.parent / f"{data.out.name}.preparing"


def _has_exact_content(path: Path, data: bytes) -> bool:
    """Return whether a regular file contains exactly this."""
    try:
        return safe_open.read_bounded(path, len(data) + 1) == data
    except OSError:
        return False


def _preparation_request(data: NemoTextToPrepare) -> bytes:
    """Return the child's input; it changes with each file and the tokenizer."""
    state: dict[str, list[FileState]] = {}
    for name, files in {**data.splits, "tokenizer": tuple(sorted(data.tokenizer.glob("*token*")))}.items():
        for path in files:
            if not path.is_file():
                raise NotFound(f"{visible(str(path))} is not a file", 'Name files of text, or JSONL with a "text".')
            state.setdefault(name, []).append(file_state(path))
    if "tokenizer" not in state:
        remedy = "Name a Hugging Face folder with tokenizer.json or the like."
        raise NotFound(f"no tokenizer in {visible(str(data.tokenizer))}", remedy)
    question = {
        "tokenizer": str(data.tokenizer),
        "splits": {name: [str(path) for path in files] for name, files in data.splits.items() if files},
        "out": {name: str(path.with_suffix("")) for name, path in bin_file_by_split(data).items()},
        "rewritten": f"{data.out}_tokenizer",
        "state": state,
    }
    try:
        return msgspec.json.encode(question)
    except UnicodeEncodeError:
        raise BadInput("the name of a file is not UTF-8", "Rename it.") from None


def require_convertible(direction: str, source: Path, target: Path) -> None:
    """Raise NotFound where there is nothing to convert, CannotWrite where the target is there already."""
    marker = {"import": "config.json", "export": "context/io.json"}[direction]
    if not (source / marker).is_file():
        kind = {"import": "Hugging Face folder", "export": "NeMo checkpoint"}[direction]
        raise NotFound(f"{visible(str(source))} is not a {kind}: it has no {marker}", "Name another folder.")
    if os.path.lexists(target):
        raise CannotWrite(f"{visible(str(target))} already exists", "Name another place, or remove it first.")


def convert_nemo_model(direction: str, source: Path, target: Path, interpreter: str) -> NemoChildProgress:
    """Write a NeMo checkpoint of a Hugging Face folder ("import"), or the folder of a checkpoint ("export").

    Unavailable if the logits of the two differ; then nothing is written.
    """
    require_convertible(direction, source, target)
    with raising_cannot_write(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name[:40]}.", ignore_cleanup_errors=True
        )
        with beside as folder:
            model, work = Path(folder, "model"), Path(folder, "work")
            work.mkdir()
            request = {"direction": direction, "source": str(source), "target": str(model), "work_folder": str(work)}
            result = _run_nemo_program(interpreter, "nemo_convert.py", request)
            model.rename(target)
            return result


def _run_nemo_program(
    interpreter: str,
    program: str,
    request: dict[str, str],
    on_progress: Callable[[NemoChildProgress], None] = lambda _progress: None,
) -> NemoChildProgress:
    """Run one of this package's programs in a Python, pass on its progress, return its last line."""
    memory = child_memory_limit.memory_limit_for_loading(request.values(), uses_cuda=False)
    with tempfile.TemporaryDirectory(prefix="tui-train-") as folder:
        quiet = {"NEMORUN_HOME": folder, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
        with closing(SentProgram("", interpreter, f"nemo/{program}", request, quiet, memory_limit=memory)) as child:
            while (line := child.read_line(math.inf)) is not None:
                try:
                    last = msgspec.convert(line, NemoChildProgress)
                except msgspec.ValidationError:
                    # A library's own line.
                    continue
                if last.problem:
                    usual = "NeMo rejected it: check that the model is complete and of a kind that NeMo supports."
                    raise Unavailable(visible(last.problem), visible(last.remedy) or usual)
                if last.total:
                    on_progress(last)
                if last.finished:
                    return last
    raise Unavailable("NeMo's process ended without an answer", "Start it again.")

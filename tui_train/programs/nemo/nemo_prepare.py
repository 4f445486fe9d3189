"""Turns text into the .bin and .idx files that Megatron reads, by its own IndexedDatasetBuilder.

Progress is told in lines of JSON.

Runs in the training interpreter, with {"question": PATH} as its argument. Text is read in parts: each becomes a
pair of files in the folder of the question, and counts as finished once its .json is there. A later start keeps those
and goes on behind them. Only when all parts are finished are they joined, and moved to where they were asked for.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import hf_folder
from hf_folder import RefusedInput

# Bytes of text in a part: what an interruption costs at most.
MIN_PART_BYTES = 64 * 2**20
# A document of plain text that has no blank line ends with the line that makes it longer than this.
MAX_DOCUMENT_BYTES = 2**20
MAX_LINE_BYTES = 256 * 2**20
# Documents go to the tokenizer together, about so many bytes at a time.
DOCUMENT_BATCH_BYTES = 2**20
PROGRESS_INTERVAL_SECONDS = 1.0


class Document(NamedTuple):
    """A document's text, and where the next one begins: bytes from the start of the file, and its line."""

    text: str
    next_begin: int
    next_line: int


def send_line(**fields: Any) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def decode_line(data: bytes, path: Path, line: int) -> str:
    """Return bytes as text; RefusedInput where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        remedy = "Convert the file, such as: iconv -f GB18030 -t UTF-8 FILE > NEW."
        raise RefusedInput(f"{path}, line {line} is not UTF-8 text", remedy) from None


def read_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Return the lines of a file; RefusedInput where one is too long to be held."""
    while data := file.readline(MAX_LINE_BYTES):
        if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
            remedy = "Write a document a line, or separate documents with blank lines."
            raise RefusedInput(f"{path} has a line of more than {MAX_LINE_BYTES >> 20} MiB", remedy)
        yield data


def read_jsonl_documents(path: Path, begin: int, line: int) -> Iterator[Document]:
    """Return the documents of a JSONL file: the "text" of each line."""
    with path.open("rb") as file:
        file.seek(begin)
        for data in read_lines(file, path):
            text = decode_line(data, path, line).lstrip("\ufeff")
            if text.strip():
                try:
                    document = json.loads(text)["text"]
                except (ValueError, KeyError, TypeError):
                    document = None
                if not isinstance(document, str):
                    remedy = 'Write one document per line: {"text": "…"}.'
                    raise RefusedInput(f'{path}, line {line} is not JSON with a "text"', remedy)
                text = document
            line += 1
            begin += len(data)
            yield Document(text.strip("\n"), begin, line)


def read_text_documents(path: Path, begin: int, line: int) -> Iterator[Document]:
    """Return the documents of plain text, separated by blank lines."""
    lines: list[str] = []
    size = 0
    with path.open("rb") as file:
        file.seek(begin)
        for data in read_lines(file, path):
            text = decode_line(data, path, line)
            lines.append(text.lstrip("\ufeff"))
            size += len(data)
            line += 1
            begin += len(data)
            if not text.strip() or size >= MAX_DOCUMENT_BYTES:
                yield Document("".join(lines).strip("\r\n"), begin, line)
                lines, size = [], 0
    if lines:
        yield Document("".join(lines).strip("\r\n"), begin, line)


def batch_documents(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Return documents in lists of about DOCUMENT_BATCH_BYTES."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text.encode("utf-8", "replace"))
        if size >= DOCUMENT_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a Hugging Face folder; RefusedInput where it cannot be loaded."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(prefix="tui-train-") as work:
        # What neither library changes is read where it lies.
        changes = hf_folder.has_tokenizer_unreadable_by_transformers_4(folder)
        readable = hf_folder.make_copy_for_transformers_4(folder, Path(work, folder.name)) if changes else folder
        try:
            return AutoTokenizer.from_pretrained(str(readable), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # noqa: BLE001 - whatever the library raises, there is no tokenizer
            words = (str(error).strip() or "?").splitlines()[0]
            remedy = "Give a Hugging Face folder with a tokenizer."
            raise RefusedInput(f"the tokenizer cannot be loaded: {words}", remedy) from None


class DataPreparation:
    """The work for one request: tokenizer, folder and progress."""

    def __init__(self, request: dict[str, Any], work_folder: Path) -> None:
        """Load the tokenizer; RefusedInput where it cannot be used."""
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

        self.work_folder = work_folder
        self.splits: dict[str, list[Path]] = {
            name: [Path(file) for file in request["splits"][name]] for name in request["splits"]
        }
        self.out: dict[str, str] = request["out"]
        self.tokenizer, self.rewritten = load_tokenizer(Path(request["tokenizer"])), ""
        if hf_folder.has_tokenizer_unreadable_by_transformers_4(Path(request["tokenizer"])):
            self.rewritten = request["rewritten"]
        if self.tokenizer.eos_token_id is None:
            remedy = "Set eos_token in its tokenizer_config.json."
            raise RefusedInput("the tokenizer has no end-of-text token", remedy)
        # Its length counts words; a number may be higher.
        most = max(len(self.tokenizer), 1 + max(self.tokenizer.get_vocab().values(), default=0))
        self.dtype = DType.optimal_dtype(most)
        self.builder = IndexedDatasetBuilder
        self.total = sum(file.stat().st_size for files in self.splits.values() for file in files)
        self.done = self.documents = self.tokens = 0
        self.reported_at = 0.0

    def report_progress(self, split: str) -> None:
        """Print the progress, once a second."""
        if time.monotonic() - self.reported_at >= PROGRESS_INTERVAL_SECONDS:
            self.reported_at = time.monotonic()
            send_line(split=split, done=self.done, total=self.total, documents=self.documents, tokens=self.tokens)

    def prepare_split(self, name: str) -> dict[str, int]:
        """Make the parts of one split and join them; return how many documents and tokens it has."""
        parts: list[Path] = []
        counted = {"documents": 0, "tokens": 0}
        for number, file in enumerate(self.splits[name]):
            begin, line, size = 0, 1, file.stat().st_size
            while begin < size:
                stem = self.work_folder / f"{name}-{number:04}-{len(parts):05}"
                parts.append(stem)
                part = self.counts_of_finished_part(stem) or self.make_part(name, file, stem, begin, line)
                self.done += part["end"] - begin
                begin, line = part["end"], part["line"]
                for key in counted:
                    counted[key] += part[key]
                self.documents += part["documents"]
                self.tokens += part["tokens"]
        if not counted["documents"]:
            raise RefusedInput(f"there is no text in {', '.join(map(str, self.splits[name]))}", "Give files with text.")
        joined = self.builder(str(self.work_folder / f"{name}.bin"), dtype=self.dtype)
        for stem in parts:
            joined.add_index(str(stem))
        joined.finalize(str(self.work_folder / f"{name}.idx"))
        return counted

    def counts_of_finished_part(self, stem: Path) -> dict[str, int] | None:
        """Return what a finished part has, None where it is not there."""
        try:
            return dict(json.loads(stem.with_suffix(".json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def make_part(self, name: str, file: Path, stem: Path, begin: int, line: int) -> dict[str, int]:
        """Make one part of a file from a byte on; return where it ends, and what it has."""
        counts = {"end": begin, "line": line, "documents": 0, "tokens": 0}
        read = read_jsonl_documents if file.suffix in {".jsonl", ".json", ".ndjson"} else read_text_documents
        builder = self.builder(str(stem.with_suffix(".bin")), dtype=self.dtype)
        before = self.done, self.documents, self.tokens
        for batch in batch_documents(read(file, begin, line)):
            counts["end"], counts["line"] = batch[-1].next_begin, batch[-1].next_line
            texts = [document.text for document in batch if document.text.strip()]
            for ids in self.encode_with_ends(texts):
                builder.add_document(ids, [len(ids)])
                counts["documents"] += 1
                counts["tokens"] += len(ids)
            self.done, self.documents, self.tokens = (
                before[0] + counts["end"] - begin,
                before[1] + counts["documents"],
                before[2] + counts["tokens"],
            )
            self.report_progress(name)
            if counts["end"] - begin >= MIN_PART_BYTES:
                break
        builder.finalize(str(stem.with_suffix(".idx")))
        self.done, self.documents, self.tokens = before
        for ending in (".bin", ".idx"):
            flush_file(stem.with_suffix(ending))
        beside = stem.with_suffix(".json.new")
        beside.write_text(json.dumps(counts), encoding="utf-8")
        beside.replace(stem.with_suffix(".json"))
        return counts

    def encode_with_ends(self, texts: list[str]) -> Iterator[list[int]]:
        """Return the tokens of texts, each with the token for its end."""
        if not texts:
            return
        for ids in self.tokenizer(texts, add_special_tokens=False)["input_ids"]:
            yield [*ids, self.tokenizer.eos_token_id]

    def move_files_into_place(self) -> None:
        """Move the joined files to where they were asked for; an index comes last, for without one there is no data."""
        if self.rewritten:
            self.tokenizer.save_pretrained(self.rewritten)
        for name, out in self.out.items():
            Path(f"{out}.idx").unlink(missing_ok=True)
            for ending in (".bin", ".idx"):
                flush_file(self.work_folder / f"{name}{ending}")
                (self.work_folder / f"{name}{ending}").replace(f"{out}{ending}")


def flush_file(path: Path) -> None:
    """Flush a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def main(question_file: Path) -> None:
    """Do what the question asks, and say in the last line what came of it."""
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    # Some libraries leave files where they are started.
    os.chdir(question_file.parent)
    with question_file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            request = json.loads(held.read())
            work = DataPreparation(request, question_file.parent)
            counts = {name: work.prepare_split(name) for name in work.splits}
            work.move_files_into_place()
        except RefusedInput as error:
            send_line(problem=error.args[0], remedy=error.args[1])
        except BlockingIOError:
            send_line(problem="another process is already preparing it", remedy="Wait for that process, or stop it.")
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
            send_line(problem=said.lower(), remedy="Start it again after solving this: finished parts are kept.")
        else:
            send_line(finished=counts, tokenizer=work.rewritten)


if __name__ == "__main__":
    main(Path(json.loads(sys.argv[1])["question"]))

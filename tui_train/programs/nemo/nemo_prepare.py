"""Turns text into the .bin and .idx files that Megatron reads, by its own IndexedDatasetBuilder.

Progress is told in lines of JSON.

Runs in the training interpreter, with the path of a question as its argument. Text is read in parts: each becomes a
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
from hf_folder import Refused

# Bytes of text in a part: what an interruption costs at most.
PART = 64 * 2**20
# A document of plain text that has no blank line ends with the line that makes it longer than this.
LONGEST = 2**20
LONGEST_LINE = 256 * 2**20
# Documents go to the tokenizer together, about so many bytes at a time.
TOGETHER = 2**20
EVERY = 1.0


class Document(NamedTuple):
    """A document's text, and where the next one begins: bytes from the start of the file, and its line."""

    text: str
    end: int
    line: int


def say(**told: Any) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def decoded(data: bytes, path: Path, line: int) -> str:
    """Return bytes as text; Refused where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        remedy = "Convert the file, such as: iconv -f GB18030 -t UTF-8 FILE > NEW."
        raise Refused(f"{path}, line {line} is not UTF-8 text", remedy) from None


def lines_of(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Return the lines of a file; Refused where one is too long to be held."""
    while data := file.readline(LONGEST_LINE):
        if len(data) == LONGEST_LINE and not data.endswith(b"\n"):
            remedy = "Write a document a line, or separate documents with blank lines."
            raise Refused(f"{path} has a line of more than {LONGEST_LINE >> 20} MiB", remedy)
        yield data


def of_jsonl(path: Path, begin: int, line: int) -> Iterator[Document]:
    """Return the documents of a JSONL file: the "text" of each line."""
    with path.open("rb") as file:
        file.seek(begin)
        for data in lines_of(file, path):
            text = decoded(data, path, line).lstrip("\ufeff")
            if text.strip():
                try:
                    document = json.loads(text)["text"]
                except (ValueError, KeyError, TypeError):
                    document = None
                if not isinstance(document, str):
                    remedy = 'Write one document per line: {"text": "…"}.'
                    raise Refused(f'{path}, line {line} is not JSON with a "text"', remedy)
                text = document
            line += 1
            begin += len(data)
            yield Document(text.strip("\n"), begin, line)


def of_text(path: Path, begin: int, line: int) -> Iterator[Document]:
    """Return the documents of plain text, separated by blank lines."""
    lines: list[str] = []
    size = 0
    with path.open("rb") as file:
        file.seek(begin)
        for data in lines_of(file, path):
            text = decoded(data, path, line)
            lines.append(text.lstrip("\ufeff"))
            size += len(data)
            line += 1
            begin += len(data)
            if not text.strip() or size >= LONGEST:
                yield Document("".join(lines).strip("\r\n"), begin, line)
                lines, size = [], 0
    if lines:
        yield Document("".join(lines).strip("\r\n"), begin, line)


def together(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Return documents in lists of about TOGETHER bytes."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text.encode("utf-8", "replace"))
        if size >= TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def loaded(folder: Path) -> Any:
    """Return the tokenizer of a Hugging Face folder; Refused where it cannot be loaded."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(prefix="tui-train-") as work:
        # What neither library changes is read where it lies.
        readable = hf_folder.readable(folder, Path(work, folder.name)) if hf_folder.newer(folder) else folder
        try:
            return AutoTokenizer.from_pretrained(str(readable), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # noqa: BLE001 - whatever the library raises, there is no tokenizer
            words = (str(error).strip() or "?").splitlines()[0]
            remedy = "Give a Hugging Face folder with a tokenizer."
            raise Refused(f"the tokenizer cannot be loaded: {words}", remedy) from None


class Preparing:
    """The work for one request: tokenizer, folder and progress."""

    def __init__(self, asked: dict[str, Any], work: Path) -> None:
        """Load the tokenizer; Refused where it cannot be used."""
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

        self.work = work
        self.splits: dict[str, list[Path]] = {
            name: [Path(file) for file in asked["splits"][name]] for name in asked["splits"]
        }
        self.out: dict[str, str] = asked["out"]
        self.tokenizer, self.rewritten = loaded(Path(asked["tokenizer"])), ""
        if hf_folder.newer(Path(asked["tokenizer"])):
            self.rewritten = asked["rewritten"]
        if self.tokenizer.eos_token_id is None:
            remedy = "Set eos_token in its tokenizer_config.json."
            raise Refused("the tokenizer has no end-of-text token", remedy)
        # Its length counts words; a number may be higher.
        most = max(len(self.tokenizer), 1 + max(self.tokenizer.get_vocab().values(), default=0))
        self.kind = DType.optimal_dtype(most)
        self.builder = IndexedDatasetBuilder
        self.total = sum(file.stat().st_size for files in self.splits.values() for file in files)
        self.done = self.documents = self.tokens = 0
        self.said = 0.0

    def tell(self, split: str) -> None:
        """Print the progress, once a second."""
        if time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            say(split=split, done=self.done, total=self.total, documents=self.documents, tokens=self.tokens)

    def split(self, name: str) -> dict[str, int]:
        """Make the parts of one split and join them; return how many documents and tokens it has."""
        parts: list[Path] = []
        counted = {"documents": 0, "tokens": 0}
        for number, file in enumerate(self.splits[name]):
            begin, line, size = 0, 1, file.stat().st_size
            while begin < size:
                stem = self.work / f"{name}-{number:04}-{len(parts):05}"
                parts.append(stem)
                part = self.finished(stem) or self.part(name, file, stem, begin, line)
                self.done += part["end"] - begin
                begin, line = part["end"], part["line"]
                for key in counted:
                    counted[key] += part[key]
                self.documents += part["documents"]
                self.tokens += part["tokens"]
        if not counted["documents"]:
            raise Refused(f"there is no text in {', '.join(map(str, self.splits[name]))}", "Give files with text.")
        joined = self.builder(str(self.work / f"{name}.bin"), dtype=self.kind)
        for stem in parts:
            joined.add_index(str(stem))
        joined.finalize(str(self.work / f"{name}.idx"))
        return counted

    def finished(self, stem: Path) -> dict[str, int] | None:
        """Return what a finished part has, None where it is not there."""
        try:
            return dict(json.loads(stem.with_suffix(".json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def part(self, name: str, file: Path, stem: Path, begin: int, line: int) -> dict[str, int]:
        """Make one part of a file from a byte on; return where it ends, and what it has."""
        numbers = {"end": begin, "line": line, "documents": 0, "tokens": 0}
        read = of_jsonl if file.suffix in {".jsonl", ".json", ".ndjson"} else of_text
        builder = self.builder(str(stem.with_suffix(".bin")), dtype=self.kind)
        before = self.done, self.documents, self.tokens
        for batch in together(read(file, begin, line)):
            numbers["end"], numbers["line"] = batch[-1].end, batch[-1].line
            texts = [document.text for document in batch if document.text.strip()]
            for ids in self.numbers(texts):
                builder.add_document(ids, [len(ids)])
                numbers["documents"] += 1
                numbers["tokens"] += len(ids)
            self.done, self.documents, self.tokens = (
                before[0] + numbers["end"] - begin,
                before[1] + numbers["documents"],
                before[2] + numbers["tokens"],
            )
            self.tell(name)
            if numbers["end"] - begin >= PART:
                break
        builder.finalize(str(stem.with_suffix(".idx")))
        self.done, self.documents, self.tokens = before
        for ending in (".bin", ".idx"):
            flush(stem.with_suffix(ending))
        beside = stem.with_suffix(".json.new")
        beside.write_text(json.dumps(numbers), encoding="utf-8")
        beside.replace(stem.with_suffix(".json"))
        return numbers

    def numbers(self, texts: list[str]) -> Iterator[list[int]]:
        """Return the tokens of texts, each with the token for its end."""
        if not texts:
            return
        for ids in self.tokenizer(texts, add_special_tokens=False)["input_ids"]:
            yield [*ids, self.tokenizer.eos_token_id]

    def publish(self) -> None:
        """Move the joined files to where they were asked for; an index comes last, for without one there is no data."""
        if self.rewritten:
            self.tokenizer.save_pretrained(self.rewritten)
        for name, out in self.out.items():
            Path(f"{out}.idx").unlink(missing_ok=True)
            for ending in (".bin", ".idx"):
                flush(self.work / f"{name}{ending}")
                (self.work / f"{name}{ending}").replace(f"{out}{ending}")


def flush(path: Path) -> None:
    """Flush a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def main(question: Path) -> None:
    """Do what the question asks, and say in the last line what came of it."""
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    with question.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            request = json.loads(held.read())
            work = Preparing(request, question.parent)
            counts = {name: work.split(name) for name in work.splits}
            work.publish()
        except Refused as error:
            say(problem=error.args[0], remedy=error.args[1])
        except BlockingIOError:
            say(problem="another process is already preparing it", remedy="Wait for that process, or stop it.")
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
            say(problem=said.lower(), remedy="Start it again after solving this: finished parts are kept.")
        else:
            say(finished=counts, tokenizer=work.rewritten)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Turns text files into blocks of tokens, and assigns blocks to ranks and steps."""

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from arguments import BadInput
from numpy.typing import NDArray

END_OF_TEXT = 256
_PIECE = 1 << 20


@dataclass(frozen=True)
class Batch:
    """The batch sizes of one optimizer step, in samples."""

    micro: int
    accumulation: int
    world: int

    @property
    def per_rank(self) -> int:
        """Samples per rank and step."""
        return self.micro * self.accumulation

    @property
    def in_all(self) -> int:
        """The global batch."""
        return self.per_rank * self.world


@dataclass(frozen=True)
class Samples:
    """Blocks of tokens, shape (blocks, sequence length), in an order that depends only on the seed."""

    blocks: NDArray[Any]
    seed: int

    def indices(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the block numbers of samples `first` to `first + count` of the endless sequence of shuffled epochs."""
        total = len(self.blocks)
        taken = [np.empty(0, np.int64)]
        end = first + count
        while first < end:
            epoch, start = divmod(first, total)
            part = _shuffled(total, self.seed, epoch)[start : start + end - first]
            taken.append(part)
            first += len(part)
        return np.concatenate(taken)

    def micro_batches(self, step: int, rank: int, batch: Batch) -> Iterator[NDArray[np.int64]]:
        """Yield what `rank` trains on in the 0-based `step`: `accumulation` arrays of (micro, sequence length)."""
        # The samples of a rank are contiguous, so that they do not depend on the micro batch.
        share = self.indices(step * batch.in_all + rank * batch.per_rank, batch.per_rank)
        for start in range(0, batch.per_rank, batch.micro):
            yield self.blocks[share[start : start + batch.micro]].astype(np.int64)


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def cut(tokens: NDArray[Any], length: int) -> NDArray[Any]:
    """Return the tokens as blocks of `length`, without the remainder; BadInput if there is no full block."""
    count = len(tokens) // length
    if count == 0:
        message = f"the data has {len(tokens)} tokens, less than one block of --sequence-length={length}"
        raise BadInput(message, "Add data, or shorten the sequence length.")
    return tokens[: count * length].reshape(count, length)


def read_tokens(paths: Sequence[Path], text_field: str, tokenizer: Any | None) -> NDArray[Any]:
    """Return the tokens of all documents: UTF-8 bytes (uint16), or the tokenizer's ids (uint32)."""
    tokens = array("I" if tokenizer else "H")
    end = END_OF_TEXT if tokenizer is None else tokenizer.eos_token_id
    for path in paths:
        for begins, text in _pieces(path, text_field):
            if begins and end is not None and len(tokens):
                tokens.append(end)
            ids = tokenizer.encode(text, add_special_tokens=False) if tokenizer else _bytes(text)
            tokens.frombytes(np.asarray(ids, tokens.typecode).tobytes())
    if not tokens:
        names = ", ".join(map(str, paths))
        raise BadInput(f"there is no text in {names}", "Give files with text.")
    return np.frombuffer(tokens, tokens.typecode)


def _bytes(text: str) -> NDArray[np.uint8]:
    # JSON can contain half a surrogate pair, which is not valid UTF-8.
    return np.frombuffer(text.encode(errors="replace"), np.uint8)


def _pieces(path: Path, text_field: str) -> Iterator[tuple[bool, str]]:
    """Yield the text of a file, and whether it starts a document; BadInput if it cannot be read."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            if path.suffix == ".jsonl":
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield True, _field(line, text_field, f"{path}, line {number}")
                return
            begins = True
            # Pieces end with a line, so that words are not split.
            while piece := file.read(_PIECE) + file.readline():
                yield begins, piece
                begins = False
    except UnicodeDecodeError as error:
        remedy = "Convert it, as with `iconv -f latin1 -t utf-8`, or give text files only."
        raise BadInput(f"{path} is not UTF-8 text ({error.reason})", remedy) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "Check the permissions and the disk.") from error


def _field(line: str, text_field: str, where: str) -> str:
    """Return the text of one line of a .jsonl file; BadInput names the line."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        remedy = "Write one JSON object per line, or rename the file to .txt to train on it as plain text."
        raise BadInput(f"{where} is not JSON: {error.msg}", remedy) from error
    if not isinstance(record, dict):
        raise BadInput(f"{where} is not a JSON object", f'Write lines as {{"{text_field}": "..."}}.')
    text = record.get(text_field)
    if not isinstance(text, str):
        found = ", ".join(name for name, value in record.items() if isinstance(value, str)) or "none"
        message = f'{where} has no text in the field "{text_field}"'
        raise BadInput(message, f"Give --text-field=NAME; fields with text there: {found}.")
    return text

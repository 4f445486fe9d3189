"""Quoting for bash; no other module quotes for a shell."""

import re
from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct

from tui_train.base.command import CommandWord, RuntimeVariable

_UNQUOTED_WORD_PATTERN = re.compile(r"[A-Za-z0-9_@%+:./-][A-Za-z0-9_@%+=:./-]*")
_BASH_EXPANSION_BY_VARIABLE = {
    "RUN_DIR": "$run_dir",
    "CHECKPOINT": "$checkpoint",
    "PYTHONPATH": "${PYTHONPATH:+:$PYTHONPATH}",
    "NODE_RANK": "$node_rank",
    "PROCESSES": "$processes",
    "ADDRESS": "$address",
    "PORT": "$port",
    "GPUS": "$gpus",
    "CONTAINER": "${TUI_TRAIN_CONTAINER_NAME:-tui-train-plain-$$}",
    "USER": "${TUI_TRAIN_CONTAINER_USER:---user=$(id -u):$(id -g)}",
    "MEMLOCK": "${TUI_TRAIN_MEMLOCK:--1}",
    "RUN_MOUNT": "$run_mount",
    "CACHE_MOUNT": "$cache_mount",
    "HUGGING_FACE_MOUNT": "$hugging_face_mount",
    "CARD_DEVICES": "${devices[@]/#/--device=nvidia.com/gpu=}",
}
_ANSI_ESCAPE_BY_CHARACTER = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


class BashExpansion(Struct, frozen=True):
    """A text that bash expands inside double quotes, such as `$micro_batch`."""

    text: str


WordPiece = str | RuntimeVariable | BashExpansion


def word_pieces(word: CommandWord) -> tuple[str | RuntimeVariable, ...]:
    """Return the pieces of a word; none for an empty one."""
    if isinstance(word, str):
        return (word,) if word else ()
    return word.pieces


def quoted_word(*parts: CommandWord | WordPiece) -> str:
    """Return the parts as one word, quoted as simply as possible; invisible characters are escaped."""
    flat = [piece for part in parts for piece in _part_pieces(part)]
    if all(isinstance(piece, str) for piece in flat):
        return _quoted_text("".join(map(str, flat)))
    runs = groupby(flat, key=lambda piece: not isinstance(piece, str) or piece.isprintable())
    return "".join(
        _double_quoted_word(run) if printable else f"$'{_escape_for_ansi_quotes(''.join(map(str, run)))}'"
        for printable, run in runs
    )


def quoted_with_home(path: str) -> str:
    """Return a quoted path; a leading ~ is expanded where the words run."""
    return f"~/{quoted_word(path[2:])}" if path.startswith("~/") else quoted_word(path)


def _part_pieces(part: CommandWord | WordPiece) -> tuple[WordPiece, ...]:
    return (part,) if isinstance(part, RuntimeVariable | BashExpansion) else word_pieces(part)


def _quoted_text(text: str) -> str:
    if _UNQUOTED_WORD_PATTERN.fullmatch(text):
        return text
    if not text.isprintable():
        return f"$'{_escape_for_ansi_quotes(text)}'"
    if text.isascii() and not {*text} & {*"'\\$`"}:
        return f"'{text}'"
    return f'"{_escape_for_double_quotes(text)}"'


def _double_quoted_word(pieces: Iterable[WordPiece]) -> str:
    inner = ""
    for piece in pieces:
        if isinstance(piece, str):
            # Braces, where the next letter would be read as part of the name.
            if re.match(r"[A-Za-z0-9_\[]", piece):
                inner = re.sub(r"\$([a-z_][a-z0-9_]*)$", r"${\1}", inner)
            inner += _escape_for_double_quotes(piece)
        else:
            inner += _BASH_EXPANSION_BY_VARIABLE[piece.variable] if isinstance(piece, RuntimeVariable) else piece.text
    return f'"{inner}"'


def _escape_for_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _escape_for_ansi_quotes(text: str) -> str:
    """Return text escaped for $'...'; unprintable characters as bytes, which do not depend on the locale."""
    return "".join(
        _ANSI_ESCAPE_BY_CHARACTER.get(char) or (char if char.isprintable() else _hex_byte_escapes(char))
        for char in text
    )


def _hex_byte_escapes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))

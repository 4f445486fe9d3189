"""Commands as words, variables with their reasons, files as data; nothing here is quoted."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from tui_train.supervisor import fill

Origin = Literal["profile", "machine", "launcher", "ladder", "container"]


_Name = Literal[
    "RUN_DIR", "CHECKPOINT", "PYTHONPATH", "NODE_RANK", "CARDS",
    "CONTAINER", "USER", "MEMLOCK", "RUN_MOUNT", "CACHE_MOUNT", "HUGGING_FACE_MOUNT", "CARD_DEVICES",
]  # fmt: skip
# Without the checkpoint, for whose words there is a rule of their own.
VARIABLES: tuple[str, ...] = tuple(name for name in get_args(_Name) if name != "CHECKPOINT")

# What a configuration file may hold.
Plain = str | int | float | bool | None | list[Any] | dict[str, Any]


class Variable(Struct, frozen=True):
    """A value that only the running script knows; PYTHONPATH is one with a colon before it, or nothing.

    Those of containers: its name; who it runs as, in the engine's own word; how much memory it may lock, in bytes; the
    words that mount the run folder, the caches and Hugging Face's folder; podman's words for a machine's own cards, one
    for each.
    """

    variable: _Name


class Joined(Struct, frozen=True):
    """A word made of literal text and variables, joined without spaces."""

    pieces: tuple[str | Variable, ...]


Word = str | Joined

RUN_DIR = Variable("RUN_DIR")
CHECKPOINT = Variable("CHECKPOINT")
PYTHONPATH = Variable("PYTHONPATH")
# Which of several machines this is, 0 the first; and the UUIDs of its cards, which no other machine knows.
NODE_RANK = Variable("NODE_RANK")
CARDS = Variable("CARDS")

# They stand in files for what only the running script knows.
MARKS = {"RUN_DIR": fill.RUN_DIR, "CHECKPOINT": fill.CHECKPOINT}


def in_run_dir(path: str, before: str = "") -> Joined:
    """Return the word `before` + the run folder's path + / + `path`."""
    return joined((before, RUN_DIR, f"/{path}" if path else ""))


def joined(pieces: Iterable[str | Variable]) -> Joined:
    """Return pieces as one word, neighbouring text merged and empty text dropped."""
    merged: list[str | Variable] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return Joined(tuple(merged))


class Setting(Struct, frozen=True):
    """An environment variable, why it is set, and who asked for it."""

    name: str
    value: Word
    why: str
    origin: Origin


class Part(Struct, frozen=True):
    """Words of a command that belong together, with the reason that the script prints beside them.

    `resumes`: they are only passed where there is a checkpoint, as all words that name it.
    """

    words: tuple[Word, ...]
    why: str = ""
    resumes: bool = False


class Command(Struct, frozen=True):
    """A command to start: its words in parts, its variables, its folder."""

    parts: tuple[Part, ...]
    env: tuple[Setting, ...]
    cwd: Word


class Wrapping(Struct, frozen=True, kw_only=True):
    """The container around every attempt: `parts` are its engine's words before variables, folder and image.

    `folders` are made on the machine before it starts, for what is not there cannot be mounted. `before` are words
    inside the image, before the command.
    """

    engine: str
    image: str
    parts: tuple[Part, ...]
    folders: tuple[Word, ...] = ()
    before: tuple[Word, ...] = ()


class ConfigFile(Struct, frozen=True):
    """A file that a launcher or a trainer reads, as data: the renderer writes it, `why` at its head."""

    path: str
    why: str
    values: dict[str, Plain]


class ProgramFile(Struct, frozen=True):
    """A file of ours that the run needs: `resource` is its place in this package."""

    path: str
    resource: str


def argv(command: Command, run_dir: str, checkpoint: str = "", node_rank: int = 0) -> list[str]:
    """Return the exact words that the command is started with; those of the checkpoint are left out without one."""
    values = {"RUN_DIR": run_dir, "CHECKPOINT": checkpoint, "NODE_RANK": str(node_rank)}
    parts = [part for part in command.parts if checkpoint or not needs_checkpoint(part)]
    return [expand(word, values) for part in parts for word in part.words]


def needs_checkpoint(part: Part) -> bool:
    """Tell whether a part is only there when a checkpoint is."""
    return part.resumes or any(isinstance(word, Joined) and CHECKPOINT in word.pieces for word in part.words)


def marked(word: Word) -> str:
    """Return a word with marks for its variables, for a file in which the script replaces them."""
    return (
        word
        if isinstance(word, str)
        else "".join(item if isinstance(item, str) else MARKS[item.variable] for item in word.pieces)
    )


def expand(word: Word, values: Mapping[str, str]) -> str:
    """Return a word with its variables' values filled in."""
    if isinstance(word, str):
        return word
    return "".join(piece if isinstance(piece, str) else values[piece.variable] for piece in word.pieces)

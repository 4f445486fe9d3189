"""Commands, environment variables and files as data; nothing here is quoted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from tui_train.runner.run_folder import fill_config

SettingOrigin = Literal["profile", "machine", "launcher", "ladder", "container"]
_RuntimeVariableName = Literal[
    "RUN_DIR", "CHECKPOINT", "PYTHONPATH", "NODE_RANK", "PROCESSES", "ADDRESS", "PORT", "GPUS",
    "CONTAINER", "USER", "MEMLOCK", "RUN_MOUNT", "CACHE_MOUNT", "HUGGING_FACE_MOUNT", "CARD_DEVICES",
]  # fmt: skip
# Without the checkpoint, whose arguments are handled separately.
RUNTIME_VARIABLE_NAMES: tuple[str, ...] = tuple(name for name in get_args(_RuntimeVariableName) if name != "CHECKPOINT")

# Values in a config file.
PlainData = str | int | float | bool | None | list[Any] | dict[str, Any]


class RuntimeVariable(Struct, frozen=True):
    """A value that only the running script knows; PYTHONPATH has a leading colon, or is empty.

    For containers: the name; the user option of the engine; the limit of locked memory in bytes; the options that mount
    the run folder, the caches and Hugging Face's folder; podman's option for each GPU of the machine.
    """

    variable: _RuntimeVariableName


class JoinedWord(Struct, frozen=True):
    """A word made of literal text and variables, joined without spaces."""

    pieces: tuple[str | RuntimeVariable, ...]


CommandWord = str | JoinedWord

RUN_DIR_VARIABLE = RuntimeVariable("RUN_DIR")
CHECKPOINT_VARIABLE = RuntimeVariable("CHECKPOINT")
PYTHONPATH_VARIABLE = RuntimeVariable("PYTHONPATH")
# The rank of this machine (0: the first), the number of its processes where machines differ, the address of the first
# and, where Slurm chooses it, a port there, and the UUIDs of this one's GPUs.
NODE_RANK_VARIABLE = RuntimeVariable("NODE_RANK")
PROCESSES_VARIABLE = RuntimeVariable("PROCESSES")
ADDRESS_VARIABLE = RuntimeVariable("ADDRESS")
PORT_VARIABLE = RuntimeVariable("PORT")
GPUS_VARIABLE = RuntimeVariable("GPUS")

# Placeholders in files for values that only the running script knows.
PLACEHOLDER_BY_RUNTIME_VARIABLE = {
    "RUN_DIR": fill_config.RUN_DIR_PLACEHOLDER,
    "CHECKPOINT": fill_config.CHECKPOINT_PLACEHOLDER,
}


def word_in_run_dir(path: str, prefix: str = "") -> JoinedWord:
    """Return the word `prefix` + path of the run folder + / + `path`."""
    return join_pieces((prefix, RUN_DIR_VARIABLE, f"/{path}" if path else ""))


def join_pieces(pieces: Iterable[str | RuntimeVariable]) -> JoinedWord:
    """Return pieces as one word, with adjacent texts merged and empty texts dropped."""
    merged: list[str | RuntimeVariable] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return JoinedWord(tuple(merged))


class EnvSetting(Struct, frozen=True):
    """An environment variable, why it is set, and its origin."""

    name: str
    value: CommandWord
    why: str
    origin: SettingOrigin


class CommandPart(Struct, frozen=True):
    """Words of a command that belong together, with the reason shown beside them in the script.

    `resumes`: they are passed only if there is a checkpoint, like all words that contain its path.
    """

    words: tuple[CommandWord, ...]
    why: str = ""
    resumes: bool = False


class Command(Struct, frozen=True):
    """A command: its words in parts, its environment variables, its working directory."""

    parts: tuple[CommandPart, ...]
    env: tuple[EnvSetting, ...]
    cwd: CommandWord


class ContainerWrapper(Struct, frozen=True, kw_only=True):
    """The container around every attempt: `parts` are the engine's words before variables, folder and image.

    `folders` are created on the machine before the start, because they must exist to be mounted. `before` are words
    inside the image, before the command.
    """

    engine: str
    image: str
    parts: tuple[CommandPart, ...]
    folders: tuple[CommandWord, ...] = ()
    before: tuple[CommandWord, ...] = ()


class ConfigFile(Struct, frozen=True):
    """A config file of a launcher or trainer, as data; the renderer writes it with `why` as its head comment."""

    path: str
    why: str
    values: dict[str, PlainData]


class ProgramFile(Struct, frozen=True):
    """A file of this package, at `resource`, that the run needs."""

    path: str
    resource: str


def argv(  # noqa: PLR0913 - each is a variable of its own
    command: Command,
    run_dir: str,
    checkpoint: str = "",
    node_rank: int = 0,
    address: str = "",
    *,
    uneven_processes: Sequence[int] = (),
) -> list[str]:
    """Return the exact arguments of the command; those of the checkpoint only if there is one."""
    values = {"RUN_DIR": run_dir, "CHECKPOINT": checkpoint, "NODE_RANK": str(node_rank), "ADDRESS": address}
    values |= {"PORT": "$PORT", "PROCESSES": str(uneven_processes[node_rank]) if uneven_processes else "$PROCESSES"}
    parts = [part for part in command.parts if checkpoint or not part_needs_checkpoint(part)]
    return [expand_word(word, values) for part in parts for word in part.words]


def part_needs_checkpoint(part: CommandPart) -> bool:
    """Return whether a part requires a checkpoint."""
    return part.resumes or any(
        isinstance(word, JoinedWord) and CHECKPOINT_VARIABLE in word.pieces for word in part.words
    )


def word_with_placeholders(word: CommandWord) -> str:
    """Return a word with placeholders for its variables, for a file in which the script replaces them."""
    return expand_word(word, PLACEHOLDER_BY_RUNTIME_VARIABLE)


def expand_word(word: CommandWord, values: Mapping[str, str]) -> str:
    """Return a word with the values of its variables."""
    if isinstance(word, str):
        return word
    return "".join(piece if isinstance(piece, str) else values[piece.variable] for piece in word.pieces)

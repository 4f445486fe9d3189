"""What will happen: commands as words, variables with their reasons, files; nothing here is quoted."""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

Origin = Literal["profile", "machine", "launcher", "ladder"]


class Variable(Struct, frozen=True):
    """A value that only the running script knows."""

    variable: Literal["RUN_DIR", "CHECKPOINT"]


class Joined(Struct, frozen=True):
    """A word made of literal text and variables, joined without spaces."""

    pieces: tuple[str | Variable, ...]


Word = str | Joined

RUN_DIR = Variable("RUN_DIR")
CHECKPOINT = Variable("CHECKPOINT")


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
    value: str
    why: str
    origin: Origin


class Part(Struct, frozen=True):
    """Words of a command that belong together, with the reason that the script prints beside them."""

    words: tuple[Word, ...]
    why: str = ""


class Command(Struct, frozen=True):
    """A command to start: its words in parts, its variables, its folder."""

    parts: tuple[Part, ...]
    env: tuple[Setting, ...]
    cwd: Word


class CheckpointRule(Struct, frozen=True):
    """Where checkpoints are, how they are called, and which files only a complete one holds."""

    folder: Word
    prefix: str
    complete: tuple[str, ...]


class Attempt(Struct, frozen=True, kw_only=True):
    """One try at the training: `rung` is empty for the first, `title` says what it changes, `batch` the arithmetic."""

    rung: str
    title: str
    batch: str
    command: Command
    checkpoints: CheckpointRule | None = None


class ConfigFile(Struct, frozen=True):
    """A file that a launcher reads, as data: the renderer writes it."""

    path: str
    why: str
    values: dict[str, str | int | bool]


class ProgramFile(Struct, frozen=True):
    """A file of ours that the run needs: `resource` is its place in this package."""

    path: str
    resource: str


class NemoFile(Struct, frozen=True, kw_only=True):
    """The file by which NeMo is told the training, as data; sizes of the model are 0 where it keeps its own.

    `path` ends in .py for a recipe of nemo_toolkit and in .yaml for AutoModel. `model` is a folder of weights to begin
    with, `validation` whether there is data for it; an empty `data` is mock data.
    """

    path: str
    recipe: str
    task: str
    peft: str
    data: tuple[str, ...]
    validation: bool
    tokenizer: str
    model: str
    gpus: int
    nodes: int
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    layers: int
    hidden_size: int
    heads: int
    sequence_length: int
    micro_batch: int
    global_batch: int
    learning_rate: float
    precision: str
    steps: int
    checkpoint_every: int
    seed: int


class Plan(Struct, frozen=True, kw_only=True):
    """All that a run is: the attempts in order, the files beside the script, and its numbers.

    `numbers` are in words those of learning rate and steps that reach the trainer. `backend` is what the processes have
    to talk by ("nccl", "gloo"), empty where the plan does not say. `resumes_itself` is for a trainer that finds its
    checkpoints without being told.
    """

    name: str
    title: str
    python: str
    launcher: str
    device: Literal["cpu", "cuda"]
    gpus: tuple[str, ...]
    gpu_names: tuple[str, ...] = ()
    world_size: int
    micro_batch: int
    accumulation: int
    global_batch: int
    learning_rate: float
    steps: int
    numbers: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    configs: tuple[ConfigFile, ...] = ()
    programs: tuple[ProgramFile, ...] = ()
    nemo: NemoFile | None = None
    resumes_itself: bool = False
    secrets: tuple[str, ...] = ()
    backend: str = ""
    notes: tuple[str, ...] = ()


def argv(command: Command, run_dir: str, checkpoint: str = "") -> list[str]:
    """Return the exact words that the command is started with; those of the checkpoint are left out without one."""
    values = {"RUN_DIR": run_dir, "CHECKPOINT": checkpoint}
    parts = [part for part in command.parts if checkpoint or not needs_checkpoint(part)]
    return [expand(word, values) for part in parts for word in part.words]


def needs_checkpoint(part: Part) -> bool:
    """Tell whether a part is only there when a checkpoint is."""
    return any(isinstance(word, Joined) and CHECKPOINT in word.pieces for word in part.words)


def expand(word: Word, values: Mapping[str, str]) -> str:
    """Return a word with its variables' values filled in."""
    if isinstance(word, str):
        return word
    return "".join(piece if isinstance(piece, str) else values[piece.variable] for piece in word.pieces)

"""What will happen: the attempts in order, the files beside the script, and its numbers."""

from typing import Literal

from msgspec import Struct

from tui_train.base.command import Command, ConfigFile, Plain, ProgramFile, Word, Wrapping
from tui_train.profile.fields import Value
from tui_train.trainers.nemo_file import NemoFile


class CheckpointRule(Struct, frozen=True):
    """Where checkpoints are, how they are called, and which files only a complete one holds.

    They are PREFIX + step + SUFFIX, or, where `file` is given, always that one.
    """

    folder: Word
    prefix: str
    complete: tuple[str, ...]
    suffix: str = ""
    file: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """One try at the training: `rung` is empty for the first, `title` says what it changes, `batch` the arithmetic.

    `edits` are its values where they are not the profile's own, by key. `then` is the number of the attempt after it,
    by the phase in which the GPU's memory ran out; none where it is not in there. `fills` are files of the plan that
    hold paths which only the running machine knows: supervisor/fill.py puts them in. Beside each stands the value that
    takes the place of a checkpoint where there is none.
    """

    rung: str
    title: str
    batch: str
    command: Command
    edits: dict[str, Value] = {}
    then: dict[str, int] = {}
    checkpoints: CheckpointRule | None = None
    fills: tuple[tuple[str, Plain], ...] = ()


class Log(Struct, frozen=True):
    """How a trainer's own lines are read: expressions with named groups; `steps` is 0 where they are not known."""

    expressions: tuple[str, ...] = ()
    steps: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """All that a run is: the attempts in order, the files beside the script, and its numbers.

    `world_size` counts the processes of all `nodes`, `gpus` are those of the first one, at `address`; `find_interface`
    says that each looks for the network interface that leads there. `output` is empty for the run folder's own, `port`
    is the one where the others meet, 0 where none is fixed, and `grace` the seconds in which a stop lets it save and
    end. `numbers` are in words those of learning rate and
    steps that reach the trainer. `backend` is what the processes have to talk by ("nccl", "gloo"), empty where the plan
    does not say. `resumes_itself` is for a trainer that finds its checkpoints without being told. `phases` are those in
    which GPU memory can run out.
    """

    name: str
    title: str
    python: str
    launcher: str
    device: Literal["cpu", "cuda"]
    gpus: tuple[str, ...]
    gpu_names: tuple[str, ...] = ()
    world_size: int
    nodes: int = 1
    address: str = ""
    port: int = 0
    find_interface: bool = False
    output: str = ""
    grace: int = 20
    micro_batch: int
    accumulation: int
    global_batch: int
    learning_rate: float
    steps: int
    numbers: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    phases: tuple[str, ...] = ()
    configs: tuple[ConfigFile, ...] = ()
    programs: tuple[ProgramFile, ...] = ()
    nemo: NemoFile | None = None
    resumes_itself: bool = False
    secrets: tuple[str, ...] = ()
    container: Wrapping | None = None
    backend: str = ""
    log: Log = Log()
    notes: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """How many training processes each machine starts."""
        return self.world_size // self.nodes

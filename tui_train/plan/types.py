"""Plan: what a run will do, as data."""

from typing import Literal

from msgspec import Struct

from tui_train.base.command import Command, ConfigFile, ContainerWrapper, PlainData, ProgramFile, Word
from tui_train.profile.fields import Value
from tui_train.trainers.nemo_file import NemoFile


class CheckpointRule(Struct, frozen=True):
    """Folder and names of checkpoints, and the files that only a complete one has.

    The name is PREFIX + step + SUFFIX, or always `file` if that is set.
    """

    folder: Word
    prefix: str
    complete: tuple[str, ...]
    suffix: str = ""
    file: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt at the training: `rung` is the fallback (empty for the first), `title` what it changes.

    `batch` is the arithmetic of the batch, `changes` are the titles of all that differs from the profile, `edits` its
    values, by key. `then` is the number of the next attempt, by the phase in which memory ran out. `fills` are files
    with paths that only the running machine knows (supervisor/fill.py fills them in), each with the value used if there
    is no checkpoint.
    """

    rung: str
    title: str
    batch: str
    command: Command
    changes: tuple[str, ...] = ()
    edits: dict[str, Value] = {}
    then: dict[str, int] = {}
    checkpoints: CheckpointRule | None = None
    fills: tuple[tuple[str, PlainData], ...] = ()


class Preparation(Struct, frozen=True):
    """A step of launch.sh before the training: its name (lower-case letters), purpose and command.

    It runs before each attempt, so its program must do nothing where all is done.
    """

    name: str
    why: str
    command: Command


class LogRules(Struct, frozen=True):
    """Rules to read a trainer's log lines: regular expressions with named groups; `steps` is 0 if not known.

    `nameable`: where none fits, the profile's trainer.progress can be one.
    """

    expressions: tuple[str, ...] = ()
    steps: int = 0
    nameable: bool = False


class SlurmJob(Struct, frozen=True, kw_only=True):
    """Resources that each job asks Slurm for; `gpus` and `cpus` per machine, the rest as in Profile."""

    gpus: int
    cpus: int
    partition: str = ""
    account: str = ""
    time: str = ""
    options: tuple[str, ...] = ()


class Notification(Struct, frozen=True):
    """Notification at the end of a run: the words of a command, and `$NAME` or the file of an address."""

    command: tuple[str, ...] = ()
    webhook: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """A run: the preparations and attempts in order, the files beside the script, and its numbers.

    `world_size` counts the processes of all `nodes`, `uneven` those of each, empty where all have as many; `gpus` are
    those of the first machine, at `address`; `find_interface`: each machine looks for the network interface that leads
    there. `output` is empty for the folder in the run folder, `port` 0 if none is fixed, `grace` the seconds to save
    after a stop. `numbers` are learning rate and steps as text. `backend` is "nccl", "gloo", or empty if the plan does
    not set it. `resumes_itself`: the trainer finds its own checkpoints. `phases` are those in which GPU memory can run
    out. `slurm`: Slurm starts it, and chooses machines and cards, so that `gpus` and `address` are empty. `hosts` are
    the machines by their names for ssh, where the first of them starts the others; without an `address` they find one
    of it. `others` are the GPUs of those after the first, where they are known.
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
    uneven: tuple[int, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
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
    preparations: tuple[Preparation, ...] = ()
    attempts: tuple[Attempt, ...]
    phases: tuple[str, ...] = ()
    configs: tuple[ConfigFile, ...] = ()
    programs: tuple[ProgramFile, ...] = ()
    nemo: NemoFile | None = None
    resumes_itself: bool = False
    secrets: tuple[str, ...] = ()
    container: ContainerWrapper | None = None
    backend: str = ""
    log: LogRules = LogRules()
    notes: tuple[str, ...] = ()
    notify: Notification | None = None
    slurm: SlurmJob | None = None
    hosts: tuple[str, ...] = ()

    @property
    def is_started_by_hand(self) -> bool:
        """Return whether each of several machines is started by hand, with its rank."""
        return self.nodes > 1 and self.slurm is None and not self.hosts

    def fallback_path(self, phase: str) -> tuple[int, ...]:
        """Return the numbers of the attempts, from the first, that follow each other while memory runs out there."""
        numbers = [1]
        while next_number := self.attempts[numbers[-1] - 1].then.get(phase):
            numbers.append(next_number)
        return tuple(numbers)

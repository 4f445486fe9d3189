"""Plan: what a run will do, as data."""

from typing import Literal

from msgspec import Struct

from tui_train.base.command import Command, CommandWord, ConfigFile, ContainerWrapper, PlainData, ProgramFile
from tui_train.plan.run_files import LogReadingRules
from tui_train.profile.fields import FieldValue
from tui_train.trainers.nemo import NemoFile


class CheckpointLayout(Struct, frozen=True):
    """Folder and names of checkpoints, and the files that only a complete one has.

    The name is PREFIX + step + SUFFIX, or always `file` if that is set.
    """

    folder: CommandWord
    prefix: str
    complete: tuple[str, ...]
    suffix: str = ""
    file: str = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt at the training."""

    rung: str
    """The fallback, empty for the first."""
    title: str
    """What the fallback changes."""
    batch: str
    """The arithmetic of the batch."""
    command: Command
    changes: tuple[str, ...] = ()
    """The titles of all that differs from the profile."""
    edits: dict[str, FieldValue] = {}
    """The values of all that differs from the profile, by key."""
    then: dict[str, int] = {}
    """The number of the next attempt, by the phase in which memory ran out."""
    checkpoints: CheckpointLayout | None = None
    fills: tuple[tuple[str, PlainData], ...] = ()
    """Files whose paths runner/run_folder/fill_config.py fills in, each with its value if there is no checkpoint."""


class PlannedPreparation(Struct, frozen=True):
    """A step of launch.sh before the training: its name (lower-case letters), purpose and command.

    It runs before each attempt, so its program must do nothing where all is done.
    """

    name: str
    why: str
    command: Command


class SlurmJob(Struct, frozen=True, kw_only=True):
    """Resources that each job asks Slurm for; `gpus` and `cpus` per machine, the rest as in Profile."""

    gpus: int
    cpus: int
    partition: str = ""
    account: str = ""
    time: str = ""
    options: tuple[str, ...] = ()


class EndNotification(Struct, frozen=True):
    """Notification at the end of a run: the words of a command, and `$NAME` or the file of an address."""

    command: tuple[str, ...] = ()
    webhook: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """A run: the preparations and attempts in order, the files beside the script, and its numbers."""

    name: str
    title: str
    python: str
    launcher: str
    device: Literal["cpu", "cuda"]
    gpus: tuple[str, ...]
    """The GPUs of the first machine; empty if Slurm chooses them."""
    gpu_names: tuple[str, ...] = ()
    gpu_pool: tuple[str, ...] = ()
    """All GPUs of that kind that can train, where there are more: as many of them as `gpus` may be taken instead."""
    gpu_memory: int = 0
    """The bytes that each GPU has to have free by the estimate; 0 where there is none."""
    world_size: int
    """The processes of all machines."""
    nodes: int = 1
    uneven: tuple[int, ...] = ()
    """The processes of each machine, empty where all have as many."""
    others: tuple[tuple[str, ...], ...] = ()
    """The GPUs of the machines after the first, where they are known."""
    address: str = ""
    """The first machine's; empty where Slurm chooses it, or the hosts find one of it."""
    port: int = 0
    """0: none is fixed."""
    find_interface: bool = False
    """Each machine looks for the network interface that leads to the address."""
    output: str = ""
    """Empty for the folder in the run folder."""
    grace: int = 20
    """The seconds to save after a stop."""
    connection_wait: int = 60
    """The seconds after which a connection between machines that gets no answer is named."""
    micro_batch: int
    accumulation: int
    global_batch: int
    learning_rate: float
    steps: int
    numbers: tuple[str, ...]
    """Learning rate and steps as text."""
    preparations: tuple[PlannedPreparation, ...] = ()
    attempts: tuple[Attempt, ...]
    phases: tuple[str, ...] = ()
    """The phases in which GPU memory can run out."""
    configs: tuple[ConfigFile, ...] = ()
    programs: tuple[ProgramFile, ...] = ()
    nemo: NemoFile | None = None
    resumes_itself: bool = False
    """The trainer finds its own checkpoints."""
    secrets: tuple[str, ...] = ()
    container: ContainerWrapper | None = None
    backend: str = ""
    """"nccl", "gloo", or empty if the plan does not set it."""
    log: LogReadingRules = LogReadingRules()
    notes: tuple[str, ...] = ()
    notify: EndNotification | None = None
    slurm: SlurmJob | None = None
    """Slurm starts it, and chooses machines and cards."""
    hosts: tuple[str, ...] = ()
    """The machines by their names for ssh, where the first of them starts the others."""

    @property
    def may_wait(self) -> bool:
        """Return whether a start can wait for its GPUs or CPU cores: Slurm has a queue of its own."""
        return self.nodes == 1 and self.slurm is None

    @property
    def is_started_by_hand(self) -> bool:
        """Return whether each of several machines is started by hand, with its rank."""
        return self.nodes > 1 and self.slurm is None and not self.hosts

    def fallback_attempt_numbers(self, phase: str) -> tuple[int, ...]:
        """Return the numbers of the attempts, from the first, that follow each other while memory runs out there."""
        numbers = [1]
        while next_number := self.attempts[numbers[-1] - 1].then.get(phase):
            numbers.append(next_number)
        return tuple(numbers)

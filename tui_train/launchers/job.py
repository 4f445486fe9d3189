"""What a launcher is told about the training that it starts."""

from msgspec import Struct

from tui_train.profile.types import Strategy


class Job(Struct, frozen=True, kw_only=True):
    """One attempt on one of `nodes` machines: its Python, its processes there, devices, and how the model is held.

    `gpus` are UUIDs of the first machine, empty on the CPU. `torchrun` are the flags that the Python's takes, empty
    where that is not known, `config` is the file in the run folder that the launcher reads, `clipping` the largest
    gradient norm that DeepSpeed is to allow.
    """

    python: str
    processes: int
    gpus: tuple[str, ...]
    precision: str
    torchrun: tuple[str, ...] = ()
    nodes: int = 1
    address: str = ""
    port: int = 0
    strategy: Strategy = "ddp"
    offload: bool = False
    accumulation: int = 1
    clipping: float = 1.0
    config: str = ""

    @property
    def world_size(self) -> int:
        """The processes of all machines."""
        return self.processes * self.nodes

"""What a launcher is told about the training that it starts."""

from msgspec import Struct


class Job(Struct, frozen=True, kw_only=True):
    """One host's share of a training: its Python, processes and devices (`gpus` are UUIDs, empty on the CPU)."""

    python: str
    world_size: int
    gpus: tuple[str, ...]
    precision: str

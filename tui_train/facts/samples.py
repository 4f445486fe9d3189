"""What a card does at a moment: memory, use, temperature, power, and what has befallen it."""

import msgspec
from msgspec import Struct

from tui_train.facts.types import Machine

SILENT = "it does not answer"


class Sample(Struct, frozen=True, kw_only=True):
    """One card, or MIG instance, now: bytes in whole MiB, use in %, °C, W; None is "the driver does not tell".

    With a `problem`, which says what is wrong with the card, the values may be the last ones known.
    """

    uuid: str
    memory_free: int | None = None
    memory_total: int | None = None
    use: int | None = None
    temperature: int | None = None
    power: int | None = None
    problem: str = ""


Samples = tuple[Sample, ...]


def with_samples(machine: Machine, now: Samples) -> Machine:
    """Return the machine with what has befallen its cards since it was looked at."""
    problems = {sample.uuid: sample.problem for sample in now if sample.problem}
    if not any(gpu.uuid in problems and not gpu.problem for gpu in machine.gpus):
        return machine
    gpus = (msgspec.structs.replace(gpu, problem=gpu.problem or problems.get(gpu.uuid, "")) for gpu in machine.gpus)
    return msgspec.structs.replace(machine, gpus=tuple(gpus))


def with_problem(known: Samples, problem: str) -> Samples:
    """Return the samples as last known, with the problem that they are not of now."""
    return tuple(msgspec.structs.replace(sample, problem=problem) for sample in known)

"""Samples of a card: memory, utilization, temperature, power, problem."""

import msgspec
from msgspec import Struct

from tui_train.facts.types import Machine

NO_RESPONSE_PROBLEM = "it does not respond"


class CardSample(Struct, frozen=True, kw_only=True):
    """One card or MIG instance now: bytes in whole MiB, utilization in %, °C, W; None is "not reported".

    With a `problem`, the values may be the last known ones.
    """

    uuid: str
    memory_free: int | None = None
    memory_total: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: int | None = None
    problem: str = ""


CardSamples = tuple[CardSample, ...]


def machine_with_new_problems(machine: Machine, samples: CardSamples) -> Machine:
    """Return the machine with the problems of its cards since it was read."""
    problems = {sample.uuid: sample.problem for sample in samples if sample.problem}
    if not any(gpu.uuid in problems and not gpu.problem for gpu in machine.gpus):
        return machine
    gpus = (msgspec.structs.replace(gpu, problem=gpu.problem or problems.get(gpu.uuid, "")) for gpu in machine.gpus)
    return msgspec.structs.replace(machine, gpus=tuple(gpus))


def samples_with_problem(samples: CardSamples, problem: str) -> CardSamples:
    """Return the last known samples with a problem."""
    return tuple(msgspec.structs.replace(sample, problem=problem) for sample in samples)

"""Bytes that are estimated for a model."""

from tui_train.memory.estimate import estimate_memory


def peak(model, how):
    return estimate_memory(model, how).peak_phase.total_bytes


def bytes_of_phase(number, model, how):
    return estimate_memory(model, how).phases[number].total_bytes

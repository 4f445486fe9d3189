"""The weights of a training's data files."""

from tui_train.base.text import quantity
from tui_train.profile.types import Profile

DATA_WEIGHTS_REMEDY = "Give one number from 0 up for each file of the training data, in their order."


def valid_data_weights(profile: Profile) -> tuple[float, ...]:
    """Return the weights of the data files in their order; nothing where none are set, or they are wrong."""
    chosen = profile.data.weights
    return () if data_weights_problem(chosen, len(profile.trainer.data)) else chosen


def data_weights_problem(weights: tuple[float, ...], file_count: int) -> str:
    """Return what is wrong with weights for so many files, as a sentence; empty where nothing is."""
    if not weights:
        return ""
    if not any(weights):
        return "all weights are 0"
    return (
        f"{quantity(len(weights), 'weight')} for {quantity(file_count, 'file')}" if len(weights) != file_count else ""
    )

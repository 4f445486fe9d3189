"""The weights of a training's data files."""

import math

from tui_train.profile.types import Profile


def weights(profile: Profile) -> tuple[float, ...]:
    """Return the weights of the data files in their order; nothing where none are set, or they are wrong."""
    return () if wrong(profile) else tuple(map(_number, profile.data.weights))


def wrong(profile: Profile) -> str:
    """Return what is wrong with the weights, as a sentence; empty where nothing is."""
    words, files = profile.data.weights, len(profile.trainer.data)
    if not words:
        return ""
    if strange := [word for word in words if not math.isfinite(_number(word))]:
        return f"{strange[0]} is not a number"
    if negative := [word for word in words if _number(word) < 0]:
        return f"{negative[0]} is negative"
    if not any(map(_number, words)):
        return "all weights are 0"
    return f"there are {len(words)} weights, and {files} of files" if len(words) != files else ""


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan

"""Filling placeholders such as {micro_batch} into words."""

from collections.abc import Mapping, Sequence

from tui_train.base.command import Joined, Word, joined
from tui_train.presets import PLACEHOLDER, PresetArgument, condition_holds

Values = Mapping[str, Sequence[Word]]


def fill(argument: PresetArgument, values: Values) -> tuple[tuple[Word, ...], ...]:
    """Return the words with placeholders filled: none if one is empty, once for each value if one has several."""
    if not condition_holds(argument.when, plain(values)):
        return ()
    named = [name for name in PLACEHOLDER.findall("\n".join(argument.words)) if name in values]
    times = min((len(values[name]) for name in named), default=1)
    if times:
        times = max((len(values[name]) for name in named), default=1)
    return tuple(tuple(_word(word, values, turn) for word in argument.words) for turn in range(times))


def plain(values: Values) -> dict[str, str]:
    """Return the first of each placeholder's values as text, for conditions."""
    return {name: str(texts[0]) if texts else "" for name, texts in values.items()}


def _word(word: str, values: Values, turn: int) -> Word:
    filled: list[Word] = []
    for position, piece in enumerate(PLACEHOLDER.split(word)):
        if position % 2 and piece in values:
            choices = values[piece]
            filled.append(choices[min(turn, len(choices) - 1)])
        else:
            filled.append(f"{{{piece}}}" if position % 2 else piece)
    if all(isinstance(piece, str) for piece in filled):
        return "".join(str(piece) for piece in filled)
    return joined(part for piece in filled for part in (piece.pieces if isinstance(piece, Joined) else (piece,)))

"""Filling placeholders such as {micro_batch} into words."""

from collections.abc import Mapping, Sequence

from tui_train.base.command import CommandWord, JoinedWord, join_pieces
from tui_train.profile.presets import PLACEHOLDER_PATTERN, PresetArgument, condition_holds

PlaceholderWords = Mapping[str, Sequence[CommandWord]]


def fill_placeholders(argument: PresetArgument, values: PlaceholderWords) -> tuple[tuple[CommandWord, ...], ...]:
    """Return the words with placeholders filled: none if one is empty, once for each value if one has several."""
    if not condition_holds(argument.when, first_value_texts(values)):
        return ()
    named = [name for name in PLACEHOLDER_PATTERN.findall("\n".join(argument.words)) if name in values]
    repeats = min((len(values[name]) for name in named), default=1)
    if repeats:
        repeats = max((len(values[name]) for name in named), default=1)
    return tuple(tuple(_fill_word(word, values, turn) for word in argument.words) for turn in range(repeats))


def first_value_texts(values: PlaceholderWords) -> dict[str, str]:
    """Return the first of each placeholder's values as text, for conditions."""
    return {name: str(texts[0]) if texts else "" for name, texts in values.items()}


def _fill_word(word: str, values: PlaceholderWords, value_index: int) -> CommandWord:
    filled: list[CommandWord] = []
    for position, piece in enumerate(PLACEHOLDER_PATTERN.split(word)):
        if position % 2 and piece in values:
            choices = values[piece]
            filled.append(choices[min(value_index, len(choices) - 1)])
        else:
            filled.append(f"{{{piece}}}" if position % 2 else piece)
    if all(isinstance(piece, str) for piece in filled):
        return "".join(str(piece) for piece in filled)
    return join_pieces(
        part for piece in filled for part in (piece.pieces if isinstance(piece, JoinedWord) else (piece,))
    )

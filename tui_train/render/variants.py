"""One command for all attempts: what differs among them becomes variables, and a table says what each attempt sets."""

import re
from collections.abc import Sequence

from msgspec import Struct

from tui_train.base.command import CARDS, Part, Setting, Word, joined, needs_checkpoint
from tui_train.plan.types import Plan
from tui_train.render.quoting import Expansion, pieces, quoted

# Names that the script has for itself.
_TAKEN = frozenset(
    {
        "attempt", "auto_resume", "become", "cache", "cache_mount", "cards", "checkpoint", "choose", "command",
        "devices", "dry_run", "folder", "folders", "histchars", "hugging_face", "hugging_face_mount", "node_rank",
        "option", "own_cards", "plain", "python", "refuse", "run_dir", "run_mount", "settings", "title", "usage",
        "yours",
    }
)  # fmt: skip
_YES = "yes"


class Line(Struct, frozen=True):
    """Words of the script's one command, ready to be written, and why they are there."""

    words: str
    why: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it begins with an option that is always there."""
        return self.words.lstrip("\"'").startswith("-")

    @property
    def waits(self) -> bool:
        """Whether it is an option whose value may be the next word."""
        return self.is_option and not {*self.words} & {" ", "="}


class Value(Struct, frozen=True):
    """A variable of the script: its value in each attempt, empty text where it is unset."""

    name: str
    values: tuple[Word, ...]


class Variants(Struct, frozen=True):
    """What attempts start, as one: the variables' values, the settings' and the command's lines, the folder."""

    values: tuple[Value, ...]
    settings: tuple[Line, ...]
    command: tuple[Line, ...]
    folder: Word | Expansion


class _Slot(Struct, frozen=True):
    """A place in the command: the part that each attempt has there, None where it has none."""

    parts: tuple[Part | None, ...]

    @property
    def distinct(self) -> tuple[Part, ...]:
        """The different parts, in order."""
        return tuple(dict.fromkeys(part for part in self.parts if part is not None))


class _Names:
    """Gives out variables for what differs, each name once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.made: dict[str, Value] = {}

    def flag(self, present: tuple[bool, ...], otherwise: str) -> str:
        """Return the variable that is set in these attempts; one is enough for all that come together."""
        values = tuple(_YES if there else "" for there in present)
        key = next(
            (key for key in self._edited() if present == tuple(key in it.edits for it in self.plan.attempts)), ""
        )
        return self._name(key.rpartition(".")[2] or otherwise, values, shared=True)

    def value(self, values: tuple[Word, ...], otherwise: str) -> str:
        """Return the variable that has these values."""
        numbers = (("micro_batch", self._micro_batches()), ("accumulation", self._accumulations()))
        known = next((name for name, wanted in numbers if _same(values, wanted)), "")
        return self._name(known or otherwise, values, shared=any(not str(value).isalnum() for value in values))

    def _edited(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for attempt in self.plan.attempts for key in attempt.edits))

    def _micro_batches(self) -> tuple[int, ...]:
        found = (attempt.edits.get("recipe.micro_batch") for attempt in self.plan.attempts)
        return tuple(value if isinstance(value, int) else self.plan.micro_batch for value in found)

    def _accumulations(self) -> tuple[int, ...]:
        whole = self.plan.micro_batch * self.plan.accumulation
        return tuple(whole // max(1, micro) for micro in self._micro_batches())

    def _name(self, wanted: str, values: tuple[Word, ...], *, shared: bool) -> str:
        if shared and (same := next((it for it in self.made.values() if it.values == values), None)):
            return same.name
        plain = re.sub(r"[^a-z0-9]+", "_", wanted.lower()).strip("_")
        name = plain = plain if re.match(r"[a-z]", plain) else f"value_{plain}".rstrip("_")
        number = 2
        while name in self.made or name in _TAKEN:
            name, number = f"{plain}_{number}", number + 1
        self.made[name] = Value(name, values)
        return name


def variants(plan: Plan, prefix: str = "") -> Variants:
    """Return what the attempts of a plan start, `prefix` before the name of each setting."""
    names = _Names(plan)
    commands = [attempt.command for attempt in plan.attempts]
    settings = _slots([[_setting(item, plan) for item in command.env] for command in commands])
    made = _lines(settings, names, prefix=prefix), _lines(_slots([it.parts for it in commands]), names, python=True)
    folders = tuple(command.cwd for command in commands)
    folder = folders[0] if len({*folders}) == 1 else Expansion(f"${names.value(folders, 'working_directory')}")
    return Variants(tuple(names.made.values()), *made, folder)


def _setting(item: Setting, plan: Plan) -> Part:
    # The cards stand once in the script, for others may be chosen where it runs.
    pinned = item.name == "CUDA_VISIBLE_DEVICES" and plan.gpus and item.value == ",".join(plan.gpus)
    return Part((joined((f"{item.name}=", *((CARDS,) if pinned else pieces(item.value)))),), item.why)


def _slots(sequences: Sequence[Sequence[Part]]) -> list[_Slot]:
    """Return the attempts' parts side by side; each attempt's own stay in their order."""
    slots = [_Slot((part,)) for part in sequences[0]]
    for number, parts in enumerate(sequences[1:], start=1):
        slots = _merged(slots, parts, number)
    return [single for slot in slots for single in _split(slot)]


def _merged(slots: list[_Slot], parts: Sequence[Part], before: int) -> list[_Slot]:
    """Return slots with the parts of one more attempt, put where most of them fit."""
    fits = [[max((_fit(other, part) for other in slot.distinct), default=0) for part in parts] for slot in slots]
    best = [[0] * (len(parts) + 1) for _ in range(len(slots) + 1)]
    for row in range(len(slots) - 1, -1, -1):
        for column in range(len(parts) - 1, -1, -1):
            taken = best[row + 1][column + 1] + fits[row][column] if fits[row][column] else 0
            best[row][column] = max(taken, best[row + 1][column], best[row][column + 1])
    merged, row, column = [], 0, 0
    while row < len(slots) or column < len(parts):
        both = row < len(slots) and column < len(parts)
        if both and fits[row][column] and best[row][column] == best[row + 1][column + 1] + fits[row][column]:
            merged.append(_Slot((*slots[row].parts, parts[column])))
            row, column = row + 1, column + 1
        elif column == len(parts) or (both and best[row][column] == best[row + 1][column]):
            merged.append(_Slot((*slots[row].parts, None)))
            row += 1
        else:
            merged.append(_Slot((*(None for _ in range(before)), parts[column])))
            column += 1
    return merged


def _fit(one: Part, other: Part) -> int:
    """Return how well two parts are the same words with other values, 0 where they are not."""
    if one == other:
        return 3
    if len(one.words) != len(other.words) or needs_checkpoint(one) != needs_checkpoint(other):
        return 0
    return 2 if all(_stem(a) == _stem(b) for a, b in zip(one.words, other.words, strict=True)) else 0


def _stem(word: Word) -> str:
    """Return an option up to its value; a word that is none has only a value."""
    first = next(iter(pieces(word)), "")
    text = first if isinstance(first, str) else ""
    if "=" in text:
        return text[: text.index("=") + 1]
    return text if text.startswith("-") else ""


def _rest(word: Word) -> Word:
    """Return what follows the stem of a word."""
    first, *more = pieces(word) or ("",)
    if not isinstance(first, str):
        return word
    rest = joined((first[len(_stem(word)) :], *more)).pieces
    return "".join(map(str, rest)) if all(isinstance(piece, str) for piece in rest) else joined(rest)


def _split(slot: _Slot) -> list[_Slot]:
    """Return a slot as one for each of its parts, where one variable could not say which of them is there."""
    if len(slot.distinct) == 1 or None not in slot.parts:
        return [slot]
    rows = list(zip(*(part.words for part in slot.distinct), strict=True))
    differing = [row for row in rows if len({*row}) > 1]
    if len(differing) == 1 and all(_rest(word) != "" for word in differing[0]):
        return [slot]
    return [_Slot(tuple(part if part == only else None for part in slot.parts)) for only in slot.distinct]


def _lines(slots: Sequence[_Slot], names: _Names, *, prefix: str = "", python: bool = False) -> tuple[Line, ...]:
    lines = []
    option = ""
    for slot in slots:
        part = slot.distinct[0]
        words, flag = [], ""
        for position, word in enumerate(part.words):
            first = python and slot is slots[0] and position == 0
            found = tuple(it.words[position] if it else "" for it in slot.parts)
            if first or len({it.words[position] for it in slot.distinct}) == 1:
                words.append(quoted(Expansion("$python")) if first else quoted(prefix, word))
            else:
                stem = _stem(word)
                flag = names.value(tuple(_rest(it) for it in found), _telling(stem, option, word))
                words.append(quoted(prefix, stem, Expansion(f"${flag}")))
            option = word if isinstance(word, str) and word.startswith("-") and "=" not in word else ""
        text = " ".join(words)
        if None in slot.parts:
            flag = flag or names.flag(
                tuple(it is not None for it in slot.parts), _telling(_stem(part.words[0]), "", part.words[0])
            )
            text = f"${{{flag}:+{text}}}"
        lines.append(Line(f"${{checkpoint:+{text}}}" if needs_checkpoint(part) else text, part.why))
    return tuple(lines)


def _telling(stem: str, option: str, word: Word) -> str:
    """Return what a value is best called: by its option, by the one before it, or by the file that it names."""
    if stem or option:
        return (stem or option).strip("-=").rpartition(".")[2]
    last = next((piece for piece in reversed(pieces(word)) if isinstance(piece, str)), "")
    return last.rpartition("/")[2].partition(".")[0]


def _same(values: tuple[Word, ...], wanted: tuple[int, ...]) -> bool:
    return values == tuple(map(str, wanted)) and len({*values}) > 1

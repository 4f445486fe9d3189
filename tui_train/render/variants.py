"""One command for all attempts: differences become variables, and a table lists their values per attempt."""

import re
from collections.abc import Sequence

from msgspec import Struct

from tui_train.base.command import GPUS, Part, Setting, Word, joined, needs_checkpoint
from tui_train.plan.types import Plan
from tui_train.render.quoting import Expansion, pieces, quoted

# Names of variables and functions of the script.
_RESERVED = frozenset(
    {
        "address", "attempt", "auto_resume", "become", "cache", "cache_mount", "caller_env", "checkpoint", "choose",
        "command", "devices", "dry_run", "folder", "folders", "gpus", "histchars", "hugging_face", "hugging_face_mount",
        "node_rank", "option", "own_gpus", "plain", "port", "preparation", "prepared", "processes",
        "processes_of", "python", "refuse",
        "run_dir", "run_mount", "settings", "title", "usage",
    }
)  # fmt: skip
_YES = "yes"


class Line(Struct, frozen=True):
    """A line of the command: words, already quoted, and the reason for them."""

    words: str
    why: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it starts with an unconditional option."""
        return self.words.lstrip("\"'").startswith("-")

    @property
    def waits(self) -> bool:
        """Whether it is an option whose value may be the next word."""
        return self.is_option and not {*self.words} & {" ", "="}


class Value(Struct, frozen=True):
    """A variable of the script: its value in each attempt, empty if unset."""

    name: str
    values: tuple[Word, ...]


class Variants(Struct, frozen=True):
    """The attempts merged: variables, lines of the settings and of the command, and the folder."""

    values: tuple[Value, ...]
    settings: tuple[Line, ...]
    command: tuple[Line, ...]
    folder: Word | Expansion


class _Slot(Struct, frozen=True):
    """A position in the command: the part of each attempt there, None if it has none."""

    parts: tuple[Part | None, ...]

    @property
    def distinct(self) -> tuple[Part, ...]:
        """The different parts, in order."""
        return tuple(dict.fromkeys(part for part in self.parts if part is not None))


class _Names:
    """Creates variables for differences, each with a unique name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.variables: dict[str, Value] = {}

    def flag(self, present: tuple[bool, ...], otherwise: str) -> str:
        """Return the variable that is set in exactly these attempts; equal variables are shared."""
        values = tuple(_YES if is_set else "" for is_set in present)
        key = next(
            (key for key in self._edited() if present == tuple(key in attempt.edits for attempt in self.plan.attempts)),
            "",
        )
        return self._name(key.rpartition(".")[2] or otherwise, values, shared=True)

    def value(self, values: tuple[Word, ...], otherwise: str) -> str:
        """Return the variable with these values."""
        numbers = (("micro_batch", self._micro_batches()), ("accumulation", self._accumulations()))
        number = next((name for name, expected in numbers if _same(values, expected)), "")
        return self._name(number or otherwise, values, shared=any(not str(value).isalnum() for value in values))

    def _edited(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for attempt in self.plan.attempts for key in attempt.edits))

    def _micro_batches(self) -> tuple[int, ...]:
        edited = (attempt.edits.get("recipe.micro_batch") for attempt in self.plan.attempts)
        return tuple(value if isinstance(value, int) else self.plan.micro_batch for value in edited)

    def _accumulations(self) -> tuple[int, ...]:
        samples = self.plan.micro_batch * self.plan.accumulation
        return tuple(samples // max(1, micro) for micro in self._micro_batches())

    def _name(self, preferred: str, values: tuple[Word, ...], *, shared: bool) -> str:
        if shared and (equal := next((item for item in self.variables.values() if item.values == values), None)):
            return equal.name
        plain = re.sub(r"[^a-z0-9]+", "_", preferred.lower()).strip("_")
        name = plain = plain if re.match(r"[a-z]", plain) else f"value_{plain}".rstrip("_")
        number = 2
        while name in self.variables or name in _RESERVED:
            name, number = f"{plain}_{number}", number + 1
        self.variables[name] = Value(name, values)
        return name


def variants(plan: Plan, prefix: str = "") -> Variants:
    """Return the merged attempts of a plan, with `prefix` before the name of each setting."""
    names = _Names(plan)
    commands = [attempt.command for attempt in plan.attempts]
    settings = _slots([[_setting(item, plan) for item in command.env] for command in commands])
    setting_lines = _lines(settings, names, prefix=prefix)
    command_lines = _lines(_slots([command.parts for command in commands]), names, python=plan.python)
    folders = tuple(command.cwd for command in commands)
    folder = folders[0] if len({*folders}) == 1 else Expansion(f"${names.value(folders, 'working_directory')}")
    return Variants(tuple(names.variables.values()), setting_lines, command_lines, folder)


def _setting(item: Setting, plan: Plan) -> Part:
    # The GPUs are listed once in the script, because --gpus replaces them.
    pinned = item.name == "CUDA_VISIBLE_DEVICES" and plan.gpus and item.value == ",".join(plan.gpus)
    return Part((joined((f"{item.name}=", *((GPUS,) if pinned else pieces(item.value)))),), item.why)


def _slots(sequences: Sequence[Sequence[Part]]) -> list[_Slot]:
    """Return the parts of all attempts aligned; the order of each attempt is kept."""
    slots = [_Slot((part,)) for part in sequences[0]]
    for number, parts in enumerate(sequences[1:], start=1):
        slots = _merged(slots, parts, number)
    return [single for slot in slots for single in _split(slot)]


def _merged(slots: list[_Slot], parts: Sequence[Part], before: int) -> list[_Slot]:
    """Return the slots with the parts of one more attempt, aligned for the best fit."""
    fits = [[max((_fit(other, part) for other in slot.distinct), default=0) for part in parts] for slot in slots]
    best = [[0] * (len(parts) + 1) for _ in range(len(slots) + 1)]
    for row in range(len(slots) - 1, -1, -1):
        for column in range(len(parts) - 1, -1, -1):
            matched = best[row + 1][column + 1] + fits[row][column] if fits[row][column] else 0
            best[row][column] = max(matched, best[row + 1][column], best[row][column + 1])
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


def _fit(first: Part, second: Part) -> int:
    """Return how well two parts match: 3 equal, 2 same options with other values, 0 different."""
    if first == second:
        return 3
    if len(first.words) != len(second.words) or needs_checkpoint(first) != needs_checkpoint(second):
        return 0
    return 2 if all(_stem(a) == _stem(b) for a, b in zip(first.words, second.words, strict=True)) else 0


def _stem(word: Word) -> str:
    """Return an option up to its value; empty for a word that is not an option."""
    first = next(iter(pieces(word)), "")
    text = first if isinstance(first, str) else ""
    if "=" in text:
        return text[: text.index("=") + 1]
    return text if text.startswith("-") else ""


def _rest(word: Word) -> Word:
    """Return the part of a word after its stem."""
    first, *more = pieces(word) or ("",)
    if not isinstance(first, str):
        return word
    rest = joined((first[len(_stem(word)) :], *more)).pieces
    return "".join(map(str, rest)) if all(isinstance(piece, str) for piece in rest) else joined(rest)


def _split(slot: _Slot) -> list[_Slot]:
    """Return one slot per distinct part if a single variable cannot tell which one an attempt has."""
    if len(slot.distinct) == 1 or None not in slot.parts:
        return [slot]
    rows = list(zip(*(part.words for part in slot.distinct), strict=True))
    differing = [row for row in rows if len({*row}) > 1]
    if len(differing) == 1 and all(_rest(word) != "" for word in differing[0]):
        return [slot]
    return [_Slot(tuple(part if part == only else None for part in slot.parts)) for only in slot.distinct]


def _lines(slots: Sequence[_Slot], names: _Names, *, prefix: str = "", python: str = "") -> tuple[Line, ...]:
    """Return the lines of some parts; the word that is the training Python is left to TUI_TRAIN_PYTHON."""
    interpreter = next((slot for slot in slots if python and slot.distinct[0].words[0] == python), None)
    lines = []
    option = ""
    for slot in slots:
        part = slot.distinct[0]
        words, flag = [], ""
        for position, word in enumerate(part.words):
            first = slot is interpreter and position == 0
            values = tuple(part.words[position] if part else "" for part in slot.parts)
            if first or len({part.words[position] for part in slot.distinct}) == 1:
                words.append(quoted(Expansion("$python")) if first else quoted(prefix, word))
            else:
                stem = _stem(word)
                flag = names.value(tuple(_rest(value) for value in values), _value_name(stem, option, word))
                words.append(quoted(prefix, stem, Expansion(f"${flag}")))
            option = word if isinstance(word, str) and word.startswith("-") and "=" not in word else ""
        text = " ".join(words)
        if None in slot.parts:
            flag = flag or names.flag(
                tuple(part is not None for part in slot.parts), _value_name(_stem(part.words[0]), "", part.words[0])
            )
            text = f"${{{flag}:+{text}}}"
        lines.append(Line(f"${{checkpoint:+{text}}}" if needs_checkpoint(part) else text, part.why))
    return tuple(lines)


def _value_name(stem: str, option: str, word: Word) -> str:
    """Return a name for a value: that of its option, of the option before it, or of its file."""
    if stem or option:
        return (stem or option).strip("-=").rpartition(".")[2]
    last = next((piece for piece in reversed(pieces(word)) if isinstance(piece, str)), "")
    return last.rpartition("/")[2].partition(".")[0]


def _same(values: tuple[Word, ...], numbers: tuple[int, ...]) -> bool:
    return values == tuple(map(str, numbers)) and len({*values}) > 1

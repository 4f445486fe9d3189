"""One command for all attempts: differences become variables, and a table lists their values per attempt."""

import re
from collections.abc import Sequence
from itertools import chain

from msgspec import Struct

from tui_train.base.command import (
    GPUS_VARIABLE,
    CommandPart,
    CommandWord,
    EnvSetting,
    join_pieces,
    part_needs_checkpoint,
)
from tui_train.plan.render.quoting import BashExpansion, quoted_word, word_pieces
from tui_train.plan.types import Plan
from tui_train.runner.containers.container import ENGINES_STOPPED_BY_NAME

# Names of variables and functions of the script.
_RESERVED_VARIABLE_NAMES = frozenset(
    {
        "address", "attempt", "auto_resume", "become", "cache", "cache_mount", "caller_env", "checkpoint", "choose",
        "command", "devices", "dry_run", "folder", "folders", "gpus", "histchars", "hugging_face", "hugging_face_mount",
        "node_rank", "option", "own_gpus", "plain", "port", "preparation", "prepared", "processes",
        "processes_of", "python", "refuse",
        "run_dir", "run_mount", "settings", "title", "usage",
    }
)  # fmt: skip
_VALUE_OF_SET_FLAG = "yes"


class ScriptLine(Struct, frozen=True):
    """A line of the command: words, already quoted, and the reason for them."""

    words: str
    why: str = ""

    @property
    def is_option(self) -> bool:
        """Return whether it starts with an unconditional option."""
        return self.words.lstrip("\"'").startswith("-")

    @property
    def is_bare_option(self) -> bool:
        """Return whether it is an option without a reason, which may share a line."""
        return self.is_option and not self.why

    @property
    def may_take_next_word(self) -> bool:
        """Return whether it is an option whose value may be the next word."""
        return self.is_option and not {*self.words} & {" ", "="}


def pack_words(words: Sequence[str], width: int) -> list[str]:
    """Return words in as few lines as possible, of at most this many characters where a word is not longer."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


class ScriptVariable(Struct, frozen=True):
    """A variable of the script: its value in each attempt, empty if unset."""

    name: str
    values: tuple[CommandWord, ...]


class MergedAttempts(Struct, frozen=True):
    """The attempts merged: variables, lines of the settings and of the command, and the folder."""

    values: tuple[ScriptVariable, ...]
    settings: tuple[ScriptLine, ...]
    command: tuple[ScriptLine, ...]
    folder: CommandWord | BashExpansion


class _CommandSlot(Struct):
    """A position in the command: its options, and by the number of an attempt the part that it has there."""

    options: tuple[str, ...]
    parts: dict[int, CommandPart]

    @property
    def first_part(self) -> CommandPart:
        """The part of the first attempt that has one."""
        return next(iter(self.parts.values()))


class _VariableRegistry:
    """Creates variables for differences, each with a unique name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.variables: dict[str, ScriptVariable] = {}

    def flag_variable(self, present: tuple[bool, ...], fallback_name: str) -> str:
        """Return the variable that is set in exactly these attempts; equal variables are shared."""
        values = tuple(_VALUE_OF_SET_FLAG if is_set else "" for is_set in present)
        edits = [attempt.edits for attempt in self.plan.attempts]
        key = next((key for key in chain(*edits) if present == tuple(key in each for each in edits)), "")
        return self._add_variable(key.rpartition(".")[2] or fallback_name, values, shared=True)

    def value_variable(self, values: tuple[CommandWord, ...], fallback_name: str) -> str:
        """Return the variable with these values."""
        numbers = (("micro_batch", self._micro_batches()), ("accumulation", self._accumulations()))
        number = next((name for name, expected in numbers if _equals_varying_numbers(values, expected)), "")
        return self._add_variable(
            number or fallback_name, values, shared=any(not str(value).isalnum() for value in values)
        )

    def _micro_batches(self) -> tuple[int, ...]:
        edited = (attempt.edits.get("recipe.micro_batch") for attempt in self.plan.attempts)
        return tuple(value if isinstance(value, int) else self.plan.micro_batch for value in edited)

    def _accumulations(self) -> tuple[int, ...]:
        samples = self.plan.micro_batch * self.plan.accumulation
        return tuple(samples // max(1, micro) for micro in self._micro_batches())

    def _add_variable(self, preferred: str, values: tuple[CommandWord, ...], *, shared: bool) -> str:
        if shared and (equal := next((item for item in self.variables.values() if item.values == values), None)):
            return equal.name
        plain = re.sub(r"[^a-z0-9]+", "_", preferred.lower()).strip("_")
        name = plain = plain if re.match(r"[a-z]", plain) else f"value_{plain}".rstrip("_")
        number = 2
        while name in self.variables or name in _RESERVED_VARIABLE_NAMES:
            name, number = f"{plain}_{number}", number + 1
        self.variables[name] = ScriptVariable(name, values)
        return name


def merge_attempts(plan: Plan) -> MergedAttempts:
    """Return the merged attempts of a plan; in a container its settings have the prefix that passes them into it."""
    names = _VariableRegistry(plan)
    commands = [attempt.command for attempt in plan.attempts]
    settings = _align_parts_in_slots([[_setting_part(item, plan) for item in command.env] for command in commands])
    setting_lines = _slot_lines(settings, len(commands), names, prefix=_setting_prefix(plan))
    command_lines = _slot_lines(
        _align_parts_in_slots([command.parts for command in commands]), len(commands), names, python=plan.python
    )
    folders = tuple(command.cwd for command in commands)
    folder = (
        folders[0] if len({*folders}) == 1 else BashExpansion(f"${names.value_variable(folders, 'working_directory')}")
    )
    return MergedAttempts(tuple(names.variables.values()), setting_lines, command_lines, folder)


def _setting_prefix(plan: Plan) -> str:
    if plan.container is None:
        return ""
    return "--env=" if plan.container.engine in ENGINES_STOPPED_BY_NAME else "APPTAINERENV_"


def _setting_part(setting: EnvSetting, plan: Plan) -> CommandPart:
    # The GPUs are listed once in the script, because --gpus replaces them.
    pinned = setting.name == "CUDA_VISIBLE_DEVICES" and plan.gpus and setting.value == ",".join(plan.gpus)
    return CommandPart(
        (join_pieces((f"{setting.name}=", *((GPUS_VARIABLE,) if pinned else word_pieces(setting.value)))),), setting.why
    )


def _align_parts_in_slots(sequences: Sequence[Sequence[CommandPart]]) -> list[_CommandSlot]:
    """Return the parts of all attempts by their slots; the order of each attempt is kept."""
    slots: list[_CommandSlot] = []
    for number, parts in enumerate(sequences):
        merged: list[_CommandSlot] = []
        added: list[_CommandSlot] = []
        start = 0
        for part in parts:
            options = _options_deciding_slot(part)
            index = next((index for index in range(start, len(slots)) if slots[index].options == options), None)
            if index is None:
                added.append(_CommandSlot(options, {number: part}))
                continue
            slots[index].parts[number] = part
            merged += [*slots[start:index], *added, slots[index]]
            added, start = [], index + 1
        slots = [*merged, *slots[start:], *added]
    return [single for slot in slots for single in _split_ambiguous_slot(slot, len(sequences))]


def _options_deciding_slot(part: CommandPart) -> tuple[str, ...]:
    """Return what the parts of a slot share: the option of each word, and whether they need a checkpoint."""
    return (*map(_option_name_part, part.words), str(part_needs_checkpoint(part)))


def _option_name_part(word: CommandWord) -> str:
    """Return an option up to its value; empty for a word that is not an option."""
    first = next(iter(word_pieces(word)), "")
    text = first if isinstance(first, str) else ""
    if "=" in text:
        return text[: text.index("=") + 1]
    return text if text.startswith("-") else ""


def _word_after_option_name(word: CommandWord) -> CommandWord:
    first, *more = word_pieces(word) or ("",)
    if not isinstance(first, str):
        return word
    rest = join_pieces((first[len(_option_name_part(word)) :], *more)).pieces
    return "".join(map(str, rest)) if all(isinstance(piece, str) for piece in rest) else join_pieces(rest)


def _split_ambiguous_slot(slot: _CommandSlot, attempt_count: int) -> list[_CommandSlot]:
    """Return one slot per distinct part if a single variable cannot tell which one an attempt has."""
    distinct = tuple(dict.fromkeys(slot.parts.values()))
    if len(distinct) == 1 or len(slot.parts) == attempt_count:
        return [slot]
    rows = zip(*(part.words for part in distinct), strict=True)
    differing = [row for row in rows if len({*row}) > 1]
    if len(differing) == 1 and all(_word_after_option_name(word) != "" for word in differing[0]):
        return [slot]
    return [
        _CommandSlot(slot.options, {number: part for number, part in slot.parts.items() if part == only})
        for only in distinct
    ]


def _slot_lines(
    slots: Sequence[_CommandSlot],
    attempt_count: int,
    variable_registry: _VariableRegistry,
    *,
    prefix: str = "",
    python: str = "",
) -> tuple[ScriptLine, ...]:
    """Return the lines of some parts; the word that is the training Python is left to TUI_TRAIN_PYTHON."""
    interpreter = next((slot for slot in slots if python and slot.first_part.words[0] == python), None)
    lines = []
    option = ""
    for slot in slots:
        part = slot.first_part
        present = tuple(slot.parts.get(number) for number in range(attempt_count))
        words, flag = [], ""
        for position, word in enumerate(part.words):
            first = slot is interpreter and position == 0
            if first or all(other.words[position] == word for other in slot.parts.values()):
                words.append(quoted_word(BashExpansion("$python")) if first else quoted_word(prefix, word))
            else:
                stem = _option_name_part(word)
                values = tuple(_word_after_option_name(part.words[position]) if part else "" for part in present)
                flag = variable_registry.value_variable(values, _variable_name_for_value(stem, option, word))
                words.append(quoted_word(prefix, stem, BashExpansion(f"${flag}")))
            option = word if isinstance(word, str) and word.startswith("-") and "=" not in word else ""
        text = " ".join(words)
        if None in present:
            name = _variable_name_for_value(_option_name_part(part.words[0]), "", part.words[0])
            flag = flag or variable_registry.flag_variable(tuple(part is not None for part in present), name)
            text = f"${{{flag}:+{text}}}"
        lines.append(ScriptLine(f"${{checkpoint:+{text}}}" if part_needs_checkpoint(part) else text, part.why))
    return tuple(lines)


def _variable_name_for_value(option_name: str, option: str, word: CommandWord) -> str:
    """Return a name for a value: that of its option, of the option before it, or of its file."""
    if option_name or option:
        return (option_name or option).strip("-=").rpartition(".")[2]
    last = next((piece for piece in reversed(word_pieces(word)) if isinstance(piece, str)), "")
    return last.rpartition("/")[2].partition(".")[0]


def _equals_varying_numbers(values: tuple[CommandWord, ...], numbers: tuple[int, ...]) -> bool:
    return values == tuple(map(str, numbers)) and len({*values}) > 1

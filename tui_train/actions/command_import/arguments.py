"""The arguments of a training: those that its preset passes are values of the recipe, all others stay as they are."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tui_train.actions.command_import.shell import Word
from tui_train.actions.command_import.table import ImportTable
from tui_train.base.errors import BadInput
from tui_train.profile import batch
from tui_train.profile.presets import (
    KEY_BY_PLACEHOLDER,
    PLACEHOLDER_PATTERN,
    Preset,
    PresetArgument,
    condition_placeholder,
)
from tui_train.setup.recipe.options import UserOption, given_options, normalized_option
from tui_train.trainers import trainer_of

# They are counted with the processes, which makes others of them.
_PROCESS_DEPENDENT_PLACEHOLDERS = ("total_batch", "accumulation", "total_accumulation")
_PLACEHOLDERS_NOT_TAKEN = frozenset({
    *_PROCESS_DEPENDENT_PLACEHOLDERS, "data", "data_format", "validation_data", "test_data", "world_size", "device",
    "backend", "tensorboard", "wandb", "trackio", "trackers", "report_to", "log_with", "trackio_project",
})  # fmt: skip


def import_arguments(table: ImportTable, words: Sequence[Word], preset: Preset | None = None) -> None:
    """Take or keep the words after the script or module that the table has by now; `preset`: another one takes them."""
    known = words_with_known_text(table, words)
    preset = preset or trainer_of(table.profile).preset
    options = {option.position: option for option in given_options(known, accept_without_dashes=False)}
    count_by_name = Counter(option.option for option in options.values())
    sure = {option.option: option for option in options.values() if count_by_name[option.option] == 1}
    last_plain = max((at for at, word in enumerate(known) if _is_positional(at, word, options)), default=-1)
    if preset.user_arguments_first:
        # A config file among the arguments overrides what stands before it.
        sure = {name: option for name, option in sure.items() if option.position > last_plain}
    taken = set[int]()
    for argument in () if "--" in known else preset.arguments:
        if not argument.after and (matched := _matching_options(argument, sure)):
            taken |= _take_argument(table, argument, matched)
    taken |= _take_process_dependent_batch(table, preset.arguments, sure)
    for word in preset.stop.arguments:
        if word in known:
            taken.add(known.index(word))
            table.note_replaced(word, "the plan passes it where a run saves as it is stopped")
    table.keep_as_arguments(each for at, each in _options_and_words(known, options) if at not in taken)


def _options_and_words(
    words: tuple[str, ...], options: Mapping[int, UserOption]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each option with its value, and each other word, with its position."""
    at = 0
    while at < len(words):
        end = at + (len(options[at].words) if at in options else 1)
        yield at, words[at:end]
        at = end


def words_with_known_text(table: ImportTable, words: Sequence[Word]) -> tuple[str, ...]:
    """Return the words whose text is known, and say why others are not; with such a value goes its option."""
    known: list[str] = []
    for word in words:
        if not word.problem:
            known.append(word.text)
            continue
        takes_option = known and known[-1].startswith("-") and "=" not in known[-1] and not word.text.startswith("-")
        table.leave_out(" ".join([*([known.pop()] if takes_option else []), word.text]), word.problem)
    return tuple(known)


def _is_positional(position: int, word: str, options: dict[int, UserOption]) -> bool:
    before = options.get(position - 1)
    return not word.startswith("-") and not (before and len(before.words) == 2)


def _matching_options(argument: PresetArgument, sure: dict[str, UserOption]) -> list[tuple[UserOption, str]]:
    """Return the options that are all of what a preset passes together, each with the template of its value."""
    matched: list[tuple[UserOption, str]] = []
    for name, template in _options_of_argument(argument):
        spellings = (name, *map(normalized_option, argument.also))
        option = next((sure[spelling] for spelling in spellings if spelling in sure), None)
        placeholder = PLACEHOLDER_PATTERN.fullmatch(template)
        if option is None or not (placeholder or option.value.lower() == template.lower()):
            return []
        matched.append((option, placeholder[1] if placeholder else ""))
    return matched


def _options_of_argument(argument: PresetArgument) -> Iterator[tuple[str, str]]:
    """Yield the options of an argument of a preset, each with its value."""
    previous = ""
    for word in argument.words:
        option, equals, value = word.partition("=")
        if equals or (word.startswith("-") and word == argument.words[-1]):
            yield normalized_option(option), value or "true"
        elif not word.startswith("-") and previous:
            yield normalized_option(previous), word
        previous = word


def _take_argument(table: ImportTable, argument: PresetArgument, matched: list[tuple[UserOption, str]]) -> set[int]:
    """Take options as the value that has the preset pass the same ones, and return the positions of what is taken."""
    shown = " ".join(" ".join(option.words) for option, _ in matched)
    names = [(name, option.value) for option, name in matched if name]
    condition, _, wanted = argument.when.partition("=")
    if condition and not condition.endswith("!") and not names:
        names = [(condition, wanted)]
    if len(names) > 1 or any(name in _PLACEHOLDERS_NOT_TAKEN or name not in KEY_BY_PLACEHOLDER for name, _ in names):
        return set()
    if names:
        ((name, text),) = names
        is_taken = _take_value(table, shown, name, text)
    else:
        is_taken = not argument.when or _condition_surely_holds(table, argument.when)
        if is_taken:
            table.note_replaced(shown, "the preset passes it")
    return {option.position for option, _ in matched} if is_taken else set()


def _condition_surely_holds(table: ImportTable, condition: str) -> bool:
    """Return whether the condition of an argument surely holds: here only that the precision is another one."""
    precision = table.profile.recipe.precision
    return (
        condition_placeholder(condition) == "precision" and bool(precision) and condition != f"precision!={precision}"
    )


def _take_value(table: ImportTable, words: str, name: str, text: str) -> bool:
    """Set the key of a placeholder, and return whether that has the same meaning for the training."""
    key = KEY_BY_PLACEHOLDER[name]
    try:
        value = table.value_of_text(key, text)
        is_share = isinstance(value, float) and 0 < value < 1
        if value in {None, ""} or (key == "recipe.warmup" and is_share != (name == "warmup_ratio") and value):
            return False
        if name == "whole_epochs" and isinstance(value, float) and not value.is_integer():
            return False
        table.take_value(words, key, value, _whose_batch_text(table, words, value) if name == "micro_batch" else "")
    except BadInput:
        return False
    return True


def _whose_batch_text(table: ImportTable, words: str, value: object) -> str:
    """Return that a batch is taken as that of each process, where its option does not say so and there are several."""
    processes = _process_count(table)
    if processes == 1 or any(name in words for name in ("device", "micro", "per_gpu")):
        return ""
    share = f" recipe.micro_batch={value // processes}" if isinstance(value, int) and processes else ""
    return f"of each process; if it is the batch of all of them: trainer.preset=total-batch{share}"


def _take_process_dependent_batch(
    table: ImportTable, arguments: Sequence[PresetArgument], sure: dict[str, UserOption]
) -> set[int]:
    """Take what is counted with the processes, where their number is known: the accumulation as the global batch.

    It returns the positions of what is taken.
    """
    taken, processes = set[int](), _process_count(table)
    for argument in arguments if processes else ():
        matched = [] if argument.after else _matching_options(argument, sure)
        if len(matched) != 1 or matched[0][1] not in _PROCESS_DEPENDENT_PLACEHOLDERS:
            continue
        ((option, name),) = matched
        words, number = " ".join(option.words), int(option.value) if option.value.isdecimal() else 0
        if name == "total_batch" and number and number % processes == 0:
            table.take_value(words, "recipe.micro_batch", number // processes, "of each process")
            taken.add(option.position)
        elif name != "total_batch" and number and (micro_batch := table.profile.recipe.micro_batch):
            copies = 1 if name == "total_accumulation" else processes
            whole = micro_batch * number * copies
            if batch.gradient_accumulation(whole, micro_batch, processes) is not None:
                table.take_value(words, "recipe.global_batch", whole, f"{micro_batch} x {number} x {copies}")
                taken.add(option.position)
    return taken


def _process_count(table: ImportTable) -> int:
    """Return the processes of all machines, 0 where that depends on the GPUs of the machine."""
    hardware, machines = table.profile.hardware, table.profile.nodes.count
    return (hardware.processes or len(hardware.gpus)) * machines

"""The arguments of TRL's programs but its SFT: the fine-tuning, the adapter, the rewards and the data of a profile."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from tui_train.actions.command_import.arguments import import_arguments, words_with_known_text
from tui_train.actions.command_import.shell import Word
from tui_train.actions.command_import.table import ImportTable
from tui_train.base.errors import BadInput
from tui_train.facts.yaml_documents import read_document
from tui_train.profile import fields
from tui_train.profile.presets import Preset, PresetArgument, shipped_presets
from tui_train.profile.rewards import TRL_REWARD_NAMES
from tui_train.profile.types import FinetuneMethod
from tui_train.setup.recipe.options import normalized_option

_MODULE_PREFIX = "trl.scripts."
# `trl sft` stays the preset of that name, which takes its configuration file as it is.
FINETUNE_METHODS = frozenset(get_args(FinetuneMethod)) - {"sft"}
_KEY_BY_OPTION = {
    "beta": "finetune.beta",
    "lora_r": "finetune.rank",
    "lora_alpha": "finetune.alpha",
    "lora_dropout": "finetune.dropout",
}
_DATA_OPTIONS = frozenset({"dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming"})
_SWITCHED_ON = frozenset({"true", "yes", "1", ""})


def finetune_method_of_module(module: str) -> str:
    """Return the method whose program a module is, empty for another module."""
    method = module.removeprefix(_MODULE_PREFIX)
    return method if module.startswith(_MODULE_PREFIX) and method in FINETUNE_METHODS else ""


def import_finetuning(table: ImportTable, method: str, shown: str, words: Sequence[Word]) -> None:
    """Take a command of TRL's program for a method; without an adapter it trains all weights."""
    table.profile = fields.profile_with_value(table.profile, "trainer.kind", "finetune")
    table.take_value(shown, "finetune.method", method)
    options = _with_values_of_config(table, [*_options_with_values(words_with_known_text(table, words))])
    by_name = {name: values for _, name, values in options}
    adapter, quantized = (_is_on(by_name.get(name)) for name in ("use_peft", "load_in_4bit"))
    table.profile = fields.profile_with_value(
        table.profile, "finetune.tuning", "qlora" if adapter and quantized else "lora" if adapter else "full"
    )
    rest: list[Word] = []
    for option_words, name, values in options:
        take = _TAKE_BY_OPTION.get(name)
        if take is None:
            rest += map(Word, option_words)
        else:
            take(table, " ".join(option_words), name, values)
    import_arguments(table, rest, _recipe_preset())


def _options_with_values(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield each option with all of its words, its name, and its values; words before the first have no name."""
    at = 0
    while at < len(words):
        end = at + 1
        while end < len(words) and not words[end].startswith("--"):
            end += 1
        option, equals, value = words[at].partition("=")
        yield tuple(words[at:end]), normalized_option(option), (*([value] if equals else []), *words[at + 1 : end])
        at = end


def _with_values_of_config(
    table: ImportTable, options: list[tuple[tuple[str, ...], str, tuple[str, ...]]]
) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Return the options with those of TRL's configuration file before them, which arguments override."""
    given = {name for _, name, _ in options}
    found: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
    for words, name, values in options:
        if name != "config" or len(values) != 1:
            found.append((words, name, values))
            continue
        document = read_document(str(table.folder / Path(values[0]).expanduser()))
        if document.problem:
            table.leave_out(" ".join(words), document.problem)
            continue
        table.note_replaced(" ".join(words), "its values are taken one by one")
        of_file: list[str] = []
        for key, value in document.values.items():
            if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value)):
                table.leave_out(f"{key}:", "only plain values of the file are taken")
            elif normalized_option(key) not in given and value is not None:
                of_file += [f"--{key}", *map(str, value)] if isinstance(value, list) else [f"--{key}={value}"]
        found = [*_options_with_values(of_file), *found]
    return found


def _is_on(values: tuple[str, ...] | None) -> bool:
    return values is not None and "".join(values).lower() in _SWITCHED_ON


def _take_tuning(table: ImportTable, words: str, name: str, values: tuple[str, ...]) -> None:
    tuning = table.profile.finetune.tuning
    if _is_on(values) and name == "load_in_4bit" and tuning != "qlora":
        table.leave_out(words, "weights in 4 bits learn by an adapter alone: finetune.tuning=qlora")
    elif _is_on(values):
        table.take_value(words, "finetune.tuning", tuning)
    else:
        table.note_replaced(words, "that is so where nothing is set")


def _take_value(table: ImportTable, words: str, name: str, values: tuple[str, ...]) -> None:
    table.take(words, _KEY_BY_OPTION[name], " ".join(values))


def _take_targets(table: ImportTable, words: str, _name: str, values: tuple[str, ...]) -> None:
    names = () if values == ("all-linear",) else values
    try:
        table.take_value(words, "finetune.targets", names)
    except BadInput as error:
        table.leave_out(words, error.message)


def _take_rewards(table: ImportTable, words: str, _name: str, values: tuple[str, ...]) -> None:
    """Take rewards; TRL imports a module from the folder in which it is started."""
    table.take_value(words, "finetune.rewards", tuple(_reward_of_dotted_path(table, value) for value in values))


def _reward_of_dotted_path(table: ImportTable, dotted: str) -> str:
    module, _, function = dotted.rpartition(".")
    file = table.folder / f"{module}.py"
    is_here = dotted not in TRL_REWARD_NAMES and module.isidentifier() and file.is_file()
    return f"{table.path_on_machine(str(file))}:{function}" if is_here else dotted


def _take_data(table: ImportTable, words: str, _name: str, values: tuple[str, ...]) -> None:
    path = table.folder / Path(" ".join(values)).expanduser()
    if path.exists():
        table.take_value(words, "trainer.data", (table.path_on_machine(str(path)),))
    else:
        table.leave_out(words, "data of the Hub is not fetched: save it as a file, and name that (trainer.data)")


def _leave_out_data_option(table: ImportTable, words: str, _name: str, _values: tuple[str, ...]) -> None:
    table.leave_out(words, "the plan prepares the files of trainer.data itself")


_TAKE_BY_OPTION: dict[str, Callable[[ImportTable, str, str, tuple[str, ...]], None]] = {
    **dict.fromkeys(_KEY_BY_OPTION, _take_value),
    **dict.fromkeys(_DATA_OPTIONS, _leave_out_data_option),
    "use_peft": _take_tuning,
    "load_in_4bit": _take_tuning,
    "lora_target_modules": _take_targets,
    "reward_funcs": _take_rewards,
    "dataset_name": _take_data,
}


def _recipe_preset() -> Preset:
    """Return how TRL's programs take the recipe: as its SFT does, and the answers of a model."""
    preset = shipped_presets()["trl"]
    answers = (PresetArgument(("--num_generations={generations}",)),
               PresetArgument(("--max_completion_length={completion_length}",)))  # fmt: skip
    return replace(preset, arguments=(*(each for each in preset.arguments if "lora" not in each.when), *answers))

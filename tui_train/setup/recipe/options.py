"""Options in the user's arguments, and the options and keys by which a preset passes the same values."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from tui_train.facts.types import YamlDocument
from tui_train.profile import batch
from tui_train.profile.presets import PLACEHOLDER_PATTERN, Preset
from tui_train.profile.types import Profile
from tui_train.trainers import trainer_of

# The next word is an option, not a value; a negative number is a value.
_OPTION_PATTERN = re.compile(r"--|-[A-Za-z]")
# Defaults of a trainer that others do not have.
_DEFAULTS_BY_LIBRARY = {"llama-factory": {"finetuning_type": "lora", "lora_target": "all"}}
# The presets that were asked about last, by identity: what holds a mapping has no hash.
_OPTION_NAMES_CACHE: deque[tuple[Preset, Mapping[str, frozenset[str]]]] = deque(maxlen=16)


class UserOption(NamedTuple):
    """An option that an argument sets, in the one or two `words` from `position` on.

    `option` has no dashes; `value` is "true" for a switch.
    """

    position: int
    words: tuple[str, ...]
    option: str
    value: str

    def arguments_without_it(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the arguments it was found in, without its own words."""
        return (*arguments[: self.position], *arguments[self.position + len(self.words) :])


class PresetPassingRule(NamedTuple):
    """The rule by which a preset passes a value: as the value of an option or key, or by a `fixed_value` for it.

    One that is not `readable_back` passes other text too, so that the value cannot be read back.
    """

    name: str
    option: str
    fixed_value: object = None
    stands_for: str = ""
    readable_back: bool = True


# The names that libraries have for one option, the likelier first.
_LIBRARY_NAMES_BY_OPTION = {
    "model": ("model_name_or_path", "base_model", "model_name", "model"),
    "dtype": ("torch_dtype", "dtype", "model_init_dtype"),
    "length": ("max_length", "max_seq_length", "block_size", "cutoff_len", "sequence_len"),
    "micro_batch": ("per_device_train_batch_size", "micro_batch_size", "micro_batch"),
    "eval_batch": ("per_device_eval_batch_size", "eval_batch_size"),
    "evaluates": ("do_eval", "eval_on_start"),
    "eval_strategy": ("eval_strategy", "evaluation_strategy"),
    "optimizer": ("optim", "optimizer"),
    "attention": ("attn_implementation", "flash_attn", "flash_attention"),
    "data_workers": ("dataloader_num_workers", "num_workers"),
    "liger": ("use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy"),
    "compile": ("torch_compile", "compile"),
    "double_quantization": ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "double_quantization"),
    "adapter": ("adapter", "finetuning_type", "peft_method"),
    "lora_rank": ("lora_r", "lora_rank", "r"),
    "lora_targets": ("lora_target_modules", "lora_target", "target_modules"),
}


class TrainerOptions(dict[str, Any]):
    """Options of a trainer; a question names one of them, or what several libraries call by a name each."""

    def _values_by_any_name(self, name: str) -> list[Any]:
        return [self[each] for each in _LIBRARY_NAMES_BY_OPTION.get(name, (name,)) if each in self]

    def is_on(self, name: str) -> bool:
        """Return whether it is on, by any of its names."""
        return any(text in {"true", "yes", "1", "auto"} for text in self.texts(name))

    def text(self, name: str) -> str:
        """Return the first value that is not empty, its items as words; empty for none."""
        value = next(filter(None, self._values_by_any_name(name)), "")
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return what is set under each of its names, in lower case."""
        return tuple(str(value).lower() for value in self._values_by_any_name(name))

    def integer(self, name: str, default: int = 0) -> int:
        """Return the first value that is a number, the default for none and for 0."""
        return int(next((text for text in self.texts(name) if re.fullmatch(r"\d{1,9}", text)), 0)) or default


def given_options(words: tuple[str, ...], *, accept_without_dashes: bool = True) -> tuple[UserOption, ...]:
    """Return the options that arguments set; `accept_without_dashes`: OPTION=VALUE without dashes is one too."""
    return _dashed_and_all_options(words)[accept_without_dashes]


@lru_cache(maxsize=64)
def _dashed_and_all_options(words: tuple[str, ...]) -> tuple[tuple[UserOption, ...], tuple[UserOption, ...]]:
    """Return the options with dashes, and all; the arguments of a plan are asked for all the time."""
    every: list[UserOption] = []
    for position, (word, after) in enumerate(pairwise((*words, "--"))):
        option, equals, value = word.partition("=")
        if not (option.startswith("-") or equals):
            continue
        split = not equals and not _OPTION_PATTERN.match(after)
        value = after if split else value or "true"
        every.append(UserOption(position, (word, after) if split else (word,), normalized_option(option), value))
    return tuple(each for each in every if each.words[0].startswith("-")), tuple(every)


def script_options(profile: Profile, documents: Mapping[str, YamlDocument]) -> TrainerOptions:
    """Return the options of a script: the values of its YAML file, overridden by its arguments."""
    document = documents.get(profile.trainer.config)
    usual = _DEFAULTS_BY_LIBRARY.get(trainer_of(profile).library_preset_name(), {})
    by_argument = given_options(profile.trainer.arguments, accept_without_dashes=bool(profile.trainer.config))
    options = {argument.option: argument.value for argument in by_argument}
    return TrainerOptions({**usual, **(document.values if document else {}), **options})


def preset_passing_rules(preset: Preset) -> Iterator[PresetPassingRule]:
    """Yield how a preset passes values, by its arguments and in its file."""
    for argument in preset.arguments:
        name, equals, meaning = argument.when.partition("=")
        if equals and not name.endswith("!"):
            option, _, value = argument.words[0].partition("=")
            yield PresetPassingRule(name, normalized_option(option), value or "true", meaning)
        for previous_word, word in pairwise(("", *argument.words)):
            option, _, value = word.partition("=") if "=" in word else (previous_word, "", word)
            for name in PLACEHOLDER_PATTERN.findall(value) if option else ():
                for spelling in (option, *argument.also):
                    yield PresetPassingRule(name, normalized_option(spelling), readable_back=value == f"{{{name}}}")
    conditions: set[str] = set()
    for entry in preset.file.values if preset.file else ():
        name, equals, meaning = entry.when.partition("=")
        if equals and not name.endswith("!") and entry.when not in conditions:
            # The first key with a condition is its switch; the others accompany it.
            conditions.add(entry.when)
            yield PresetPassingRule(name, entry.key, entry.value, meaning)
        elif isinstance(entry.value, str) and (placeholder := PLACEHOLDER_PATTERN.fullmatch(entry.value)):
            yield PresetPassingRule(placeholder[1], entry.key)


def option_names_of_value(name: str, preset: Preset) -> frozenset[str]:
    """Return the options and keys, without dashes, by which a preset passes a value.

    Options that only depend on a batch size are left out.
    """
    return _option_names_by_value(preset).get(name, frozenset())


def _option_names_by_value(preset: Preset) -> Mapping[str, frozenset[str]]:
    """Return the options of all values that a preset passes; the same preset is asked for them all the time."""
    for recent, names_by_value in tuple(_OPTION_NAMES_CACHE):  # another thread may add to it
        if recent is preset:
            return names_by_value
    names_by_value = {}
    for rule in preset_passing_rules(preset):
        if rule.fixed_value is None or rule.name not in batch.BATCH_PLACEHOLDERS:
            names_by_value[rule.name] = names_by_value.get(rule.name, frozenset()) | {rule.option}
    _OPTION_NAMES_CACHE.appendleft((preset, names_by_value))
    return names_by_value


def user_options_for_value(name: str, profile: Profile, preset: Preset) -> tuple[UserOption, ...]:
    """Return the user's arguments that set the value of a placeholder which the preset passes too."""
    names = option_names_of_value(name, preset)
    matching: list[UserOption] = []
    for argument in given_options(profile.trainer.arguments) if names else ():
        if argument.option not in names:
            continue
        if f"{{{name}}}" in argument.value:
            # The last one wins.
            matching.clear()
        else:
            matching.append(argument)
    return tuple(matching)


def user_batch_options(profile: Profile, preset: Preset) -> tuple[UserOption, ...]:
    """Return the user's arguments that set the batch."""
    return tuple(
        argument
        for name in sorted(batch.BATCH_PLACEHOLDERS)
        for argument in user_options_for_value(name, profile, preset)
    )


def normalized_option(option: str) -> str:
    """Return an option as it is spelled in files."""
    return option.lstrip("-+").replace("-", "_")


def get_nested_value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value at a key with dots between levels, None where there is none."""
    value: Any = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value

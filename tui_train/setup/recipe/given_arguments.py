"""The arguments that a script declares, as the user's own arguments give them: the only place where they are kept."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from tui_train.base.text import names_text, quantity, visible
from tui_train.facts.types import Facts, ScriptParameter, ScriptSource
from tui_train.profile.presets import PLACEHOLDER_PATTERN, Preset, PresetArgument
from tui_train.profile.types import Profile
from tui_train.setup.recipe.options import given_options
from tui_train.trainers.auto_preset import argument_file_given_alone, help_contradicts_name, parameters_in_scope
from tui_train.trainers.script import script_or_module_to_start

# Others read values or names in ways of their own: Fire takes positional ones by name, typer those in Annotated.
_LIBRARIES_PARSING_AS_WE_DO = frozenset({"argparse", "click"})
# Where each word is a known option or stands without a name, it is sure also of them what is not given.
_LIBRARIES_WITH_SURE_MISSING_ARGUMENTS = _LIBRARIES_PARSING_AS_WE_DO | {"typer", "fire"}
_KINDS_WITH_DATACLASSES = frozenset({"hf-trainer", "dataclass"})
# What follows is read otherwise, or from a file that may hold more arguments, or nothing is read at all.
_WORDS_HIDING_ARGUMENTS = frozenset({"--", "--config", "--flagfile", "--version", "--help"})
_OPTION_PATTERN = re.compile(r"--?[A-Za-z]")
_NUMBER_TYPE_BY_NAME = {"int": int, "float": float}
LABEL_BY_TYPE_NAME = {"int": "a whole number", "float": "a number"}
MAX_CHOICES_SHOWN = 6  # choices that a sentence names


_NAMES_OF_STEPS = frozenset({
    "steps", "nsteps", "numsteps", "iterations", "niterations", "numiterations", "iters", "niters", "numiters", "niter",
    "totalsteps", "numbatches",
})  # fmt: skip
_NAMES_OF_EPOCHS = frozenset({"epoch", "nepoch", "numepoch", "maxepoch", "totalepochs", "passes"})
# Names that may mean a value of the recipe, by its placeholder; dashes and underscores left out. Where a help says
# that it is not the first, the next holds.
_LIKELY_NAMES_BY_PLACEHOLDER: Mapping[str, tuple[str, frozenset[str]]] = {
    "learning_rate": ("float", frozenset({"eta", "eta0", "rate", "stepsize", "initlr", "baselr", "peaklr", "lr0"})),
    "micro_batch": ("int", frozenset({"bs", "bsz", "b", "batch", "batchsz", "minibatch", "minibatchsize", "batchgpu",
                                      "batchpergpu", "batchsizepergpu", "perdevicebatch", "perdevicebatchsize"})),
    "steps": ("int", _NAMES_OF_STEPS),
    "whole_epochs": ("int", _NAMES_OF_EPOCHS | _NAMES_OF_STEPS),
    "epochs": ("float", _NAMES_OF_EPOCHS),
    "sequence_length": ("int", frozenset({"seqlen", "ctx", "contextlength", "maxlen", "maxlength"})),
    "weight_decay": ("float", frozenset({"wd", "decay"})),
    "seed": ("int", frozenset({"randomstate", "rngseed", "manualseed"})),
    "output": ("str", frozenset({"out", "outdir", "output", "outputpath", "save", "savepath", "savedir", "saveto",
                                 "dest", "destdir", "destination", "workdir", "ckptdir", "checkpointdir",
                              "checkpointsdir", "defaultrootdir"})),
}  # fmt: skip
# What a name of a parameter says that is only read; a dataset's folder may be made by a download.
_WORDS_IN_INPUT_NAMES = frozenset({
    "corpus", "data", "dataset", "eval", "evaluation", "input", "json", "jsonl", "test", "train", "training", "val",
    "valid", "validation",
})  # fmt: skip
_WORDS_IN_OUTPUT_NAMES = frozenset({"cache", "log", "out", "output", "result", "results", "save", "to", "write"})
_DATA_FILE_SUFFIXES = frozenset({".arrow", ".csv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".tsv", ".txt"})
_PRETRAINED_NAME_ENDING = "name_or_path"
_NO_SINGLE_PATH_PATTERN = re.compile(r"://|[*?\[\]{},|~$]")


_NAMES_OF_DATA = frozenset({
    "corpus", "data", "dataset", "datasets", "dataroot", "datadir", "datafile", "datafiles", "datapath", "datasetdir",
    "datasetname", "datasetpath", "traindata", "traindataset", "traindatadir", "traindatapath", "traindir", "trainfile",
    "trainfiles", "trainpath",
})  # fmt: skip


class GivenArgument(NamedTuple):
    """Indexes and values of the words given for one parameter."""

    word_indexes: tuple[int, ...] = ()
    values: tuple[str, ...] = ()


class ValueInForce(NamedTuple):
    """The values in force of a script's parameter: those of the arguments, else its default."""

    parameter: ScriptParameter
    values: tuple[str, ...]
    is_from_arguments: bool


def given_arguments(source: ScriptSource, words: Sequence[str]) -> Mapping[str, GivenArgument]:
    """Return what the arguments give each parameter, by its name: the last, or all where it takes several."""
    parameters = parameters_in_scope(source, words)
    flags = {flag: parameter for parameter in parameters for flag in _all_flags(parameter)}
    positional = [parameter for parameter in parameters if parameter.form == "positional"]
    given_by_name: dict[str, GivenArgument] = {}
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        parameter = flags.get(name) or _abbreviated_parameter(name, flags)
        end = index + 1
        values: tuple[str, ...]
        if parameter and parameter.form in {"switch", "pair"}:
            turns_off = name not in parameter.flags and any(flag.startswith(name) for flag in parameter.off_flags)
            values = ("no" if turns_off else "yes",)
        elif parameter and equals:
            end = _end_of_option_values(words, end, max(parameter.value_count - 1, 0))
            values = (value, *words[index + 1 : end])
        elif _OPTION_PATTERN.match(name):
            most = _max_values_at_once(parameter, words) if parameter else 1
            end = _end_of_option_values(words, end, most) if not equals else end
            values = tuple(words[index + 1 : end])
        else:
            values = (words[index],)
            is_argument = words[index] not in source.subcommands and words[index] != "--"
            parameter = _next_positional_parameter(positional, given_by_name) if is_argument else None
        if parameter:
            earlier = given_by_name.get(parameter.name, GivenArgument())
            earlier_values = earlier.values if parameter.takes_several else ()
            given_by_name[parameter.name] = GivenArgument(
                (*earlier.word_indexes, *range(index, end)), (*earlier_values, *values)
            )
        index = end
    return given_by_name


def arguments_with_values(
    source: ScriptSource, words: Sequence[str], parameter: ScriptParameter, values: Sequence[str]
) -> tuple[str, ...]:
    """Return the arguments with these values of one parameter; without it, where there are none."""
    given_by_name = given_arguments(source, words)
    own_indexes = given_by_name.get(parameter.name, GivenArgument()).word_indexes
    insert_at = own_indexes[0] if own_indexes else _insertion_index(source, words, parameter, given_by_name)
    before = (word for at, word in enumerate(words) if at < insert_at and at not in own_indexes)
    after = (word for at, word in enumerate(words) if at >= insert_at and at not in own_indexes)
    return (*before, *_words_giving_values(parameter, values), *after)


def missing_parameters(source: ScriptSource, words: Sequence[str]) -> tuple[ScriptParameter, ...]:
    """Return the parameters that the script requires and the arguments lack, none where that is not sure."""
    if source.kind in _KINDS_WITH_DATACLASSES:
        return _missing_dataclass_fields(source, words)
    if not _are_all_arguments_declared(source, words):
        return ()
    given_by_name = given_arguments(source, words)
    # Where values may be as many as there are, they may have been meant for it.
    took_more = any(
        _takes_any_number_of_values(parameter) and parameter.name in given_by_name for parameter in source.parameters
    )
    return tuple(
        parameter
        for parameter in parameters_in_scope(source, words)
        if parameter.is_required
        and parameter.name not in given_by_name
        and not (took_more and parameter.form == "positional")
    )


def _missing_dataclass_fields(source: ScriptSource, words: Sequence[str]) -> tuple[ScriptParameter, ...]:
    """Return the fields without a default that no argument gives; those of a library's classes have one."""
    names = [word.partition("=")[0].replace("-", "_") for word in words if word.startswith("--")]
    if _may_hide_arguments(words) or argument_file_given_alone(source, words) or source.unreadable_argument_line:
        return ()
    return tuple(
        parameter
        for parameter in source.parameters
        if parameter.is_required and not any(parameter.name.replace("-", "_").startswith(name) for name in names)
    )


def unknown_option_indexes(source: ScriptSource, words: Sequence[str]) -> tuple[int, ...]:
    """Return where options are that no declared one begins with, as far as that is sure: those with two dashes."""
    known = {*(flag for parameter in source.parameters for flag in _all_flags(parameter)), "--help"}
    if _may_hide_arguments(words):
        return ()
    options = ((at, word.partition("=")[0]) for at, word in enumerate(words) if word.startswith("--"))
    return tuple(at for at, name in options if not any(flag.startswith(name) for flag in known))


def _may_hide_arguments(words: Sequence[str]) -> bool:
    return any(word.startswith("@") or word.partition("=")[0] in _WORDS_HIDING_ARGUMENTS for word in words)


def does_library_parse_as_we_do(source: ScriptSource) -> bool:
    """Return whether the words of a script are read by its library as they are here."""
    return source.kind in _LIBRARIES_PARSING_AS_WE_DO and not source.unreadable_argument_line


def _are_all_arguments_declared(source: ScriptSource, words: Sequence[str]) -> bool:
    """Return whether each argument is known: a file, flags written together or unknown ones may give others."""
    flags = {flag: parameter for parameter in source.parameters for flag in _all_flags(parameter)}
    names = [word.partition("=")[0] for word in words]
    return (
        source.kind in _LIBRARIES_WITH_SURE_MISSING_ARGUMENTS
        and not source.unreadable_argument_line
        and sum(word in source.subcommands for word in words) <= 1
        and not _may_hide_arguments(words)
        and all(name in flags or _abbreviated_parameter(name, flags) for name in names if _OPTION_PATTERN.match(name))
    )


def argument_value_problem(parameter: ScriptParameter, values: Sequence[str]) -> str:
    """Return what is wrong with values for a parameter, as the end of a sentence; empty for nothing."""
    # How many words a positional one takes depends on those before it.
    if parameter.value_count and parameter.form != "positional" and len(values) % parameter.value_count:
        return f"takes {parameter.value_count} values, and {quantity(len(values), 'is', 'are')} given"
    folded = {choice.casefold() for choice in parameter.choices}  # click may ignore the case
    for value in values:
        if parameter.form in {"switch", "pair"} or PLACEHOLDER_PATTERN.search(value):
            continue
        if not _is_value_of_type(parameter.type, value):
            return f"is {visible(value)!r}, which is not {LABEL_BY_TYPE_NAME[parameter.type]}"
        if parameter.choices and parameter.type == "str" and value.casefold() not in folded:
            choices = visible(names_text(parameter.choices, MAX_CHOICES_SHOWN))
            return f"is {visible(value)!r}, which is none of {choices}"
    return ""


def argument_row_key(name: str) -> str:
    """Return the key of the row of a parameter; a profile has no such key."""
    return f"trainer.arguments {name}"


def script_source(profile: Profile, facts: Facts, preset: Preset) -> ScriptSource | None:
    """Return the facts on the source of the script that is started, None where there is none or it is not Python."""
    path = profile.trainer.script
    source = facts.sources.get(path) if path and script_or_module_to_start(profile, preset) == path else None
    return None if source is None or source.problem else source


def preset_arguments_of_parameter(preset: Preset, parameter: ScriptParameter) -> tuple[PresetArgument, ...]:
    """Return the arguments of a preset that are this parameter of the script."""
    names = parameter.flags or (parameter.name,)
    return tuple(argument for argument in preset.arguments if argument.words[0].partition("=")[0] in names)


def likely_placeholder(parameter: ScriptParameter) -> str:
    """Return the placeholder of the recipe that a parameter's name may mean, empty for none.

    An output whose default is a file is none: the recipe's is a folder.
    """
    name = _likely_placeholder_of_name(parameter)
    return "" if name == "output" and PurePath(parameter.default).suffix else name


def _likely_placeholder_of_name(parameter: ScriptParameter) -> str:
    plain_names = _simplified_spellings(parameter)
    if parameter.form not in {"option", "key"} or parameter.takes_several or parameter.choices:
        return ""
    matches = (
        name
        for name, (kind, names) in _LIKELY_NAMES_BY_PLACEHOLDER.items()
        if kind == parameter.type and names & plain_names and not help_contradicts_name(parameter, name)
    )
    return next(matches, "")


def _simplified_spellings(parameter: ScriptParameter) -> frozenset[str]:
    """Return the spellings of a parameter without dashes, underscores and capitals."""
    return frozenset(re.sub("[-_]", "", flag).lower() for flag in (parameter.name, *parameter.flags))


def likely_output_paths(source: ScriptSource, words: Sequence[str]) -> tuple[str, ...]:
    """Return where a script may write, as its arguments or their defaults give it, by the names of the arguments."""
    outputs = (
        each.values[-1:]
        for each in _values_in_force(source, words)
        if _likely_placeholder_of_name(each.parameter) == "output"
    )
    return tuple(value for values in outputs for value in values)


def likely_data(source: ScriptSource, words: Sequence[str]) -> ValueInForce | None:
    """Return what a script reads as its data, by the names of its arguments; None where none is known."""
    return next((each for each in _values_in_force(source, words) if _is_data_parameter(each.parameter)), None)


def likely_steps(source: ScriptSource, words: Sequence[str]) -> ValueInForce | None:
    """Return the number of steps that a script takes, by the names of its arguments; None where none is known."""
    likely = (each for each in _values_in_force(source, words) if likely_placeholder(each.parameter) == "steps")
    if source.parameters:
        return next(likely, None)
    # Of a script that declares nothing only the user's own words say so.
    options = given_options((*words,), accept_without_dashes=False)
    named = (each for each in options if re.sub("[-_]", "", each.option).lower() in _NAMES_OF_STEPS | {"maxsteps"})
    return next((ValueInForce(ScriptParameter(name=each.words[0]), (each.value,), True) for each in named), None)


def _is_data_parameter(parameter: ScriptParameter) -> bool:
    return parameter.form not in {"switch", "pair"} and not _NAMES_OF_DATA.isdisjoint(_simplified_spellings(parameter))


def _values_in_force(source: ScriptSource, words: Sequence[str]) -> Iterator[ValueInForce]:
    """Yield what a script takes for each of its parameters, as far as that is plain text."""
    given_by_name = given_arguments(source, words)
    for parameter in parameters_in_scope(source, words):
        given = given_by_name.get(parameter.name)
        values = given.values if given else (parameter.default,)
        if plain := tuple(value for value in values if value and not PLACEHOLDER_PATTERN.search(value)):
            yield ValueInForce(parameter, plain, given is not None)


def likely_input_paths_by_name(source: ScriptSource, profile: Profile) -> Mapping[str, tuple[str, ...]]:
    """Return the whole paths of files that the arguments have a script read, by the name of the parameter.

    By their names they hold data, or a model where they begin as paths do.
    """
    words = profile.trainer.arguments
    start = PurePath(profile.trainer.working_directory or PurePath(profile.trainer.script).parent)
    return {
        name: tuple(str(start / value) for value in given.values if _is_likely_input(name, value))
        for name, given in given_arguments(source, words).items()
    }


def _is_likely_input(name: str, value: str) -> bool:
    if _NO_SINGLE_PATH_PATTERN.search(value):
        return False
    if name.replace("-", "_").endswith(_PRETRAINED_NAME_ENDING):
        return value.startswith(("/", "./", "../"))
    words = {*re.split(r"[-_.]+", name.lower())}
    is_data = PurePath(value).suffix.lower() in _DATA_FILE_SUFFIXES
    return is_data and bool(words & _WORDS_IN_INPUT_NAMES) and not words & _WORDS_IN_OUTPUT_NAMES


def _is_value_of_type(type_name: str, value: str) -> bool:
    try:
        _NUMBER_TYPE_BY_NAME.get(type_name, str)(value)
    except ValueError:
        return False
    return True


def _all_flags(parameter: ScriptParameter) -> tuple[str, ...]:
    if parameter.form == "positional":
        return ()
    return (*(parameter.flags or (parameter.name,)), *parameter.off_flags)


def _abbreviated_parameter(name: str, flags: Mapping[str, ScriptParameter]) -> ScriptParameter | None:
    """Return the only parameter whose spelling begins so, as argparse takes it."""
    if not name.startswith("--") or name == "--":
        return None
    matches = [parameter for flag, parameter in flags.items() if flag.startswith(name)]
    return matches[0] if len(matches) == 1 else None


def _takes_any_number_of_values(parameter: ScriptParameter) -> bool:
    """Return whether it takes as many values at once as there are."""
    return parameter.takes_several and not parameter.repeats_name_per_value and not parameter.value_count


def _max_values_at_once(parameter: ScriptParameter, words: Sequence[str]) -> int:
    return parameter.value_count or (len(words) if _takes_any_number_of_values(parameter) else 1)


def _end_of_option_values(words: Sequence[str], index: int, most: int) -> int:
    """Return where the values of an option end: after the most that it takes, or before the next option."""
    end = min(index + most, len(words))
    return next((at for at in range(index, end) if _OPTION_PATTERN.match(words[at])), end)


def _next_positional_parameter(
    positional: Sequence[ScriptParameter], given_by_name: Mapping[str, GivenArgument]
) -> ScriptParameter | None:
    """Return the parameter that takes the next word without a name."""
    return next((each for each in positional if _takes_another_word(each, given_by_name.get(each.name))), None)


def _takes_another_word(parameter: ScriptParameter, given: GivenArgument | None) -> bool:
    """Return whether a positional parameter takes one more word."""
    if given is None or _takes_any_number_of_values(parameter):
        return True
    return len(given.values) < parameter.value_count


def _insertion_index(
    source: ScriptSource, words: Sequence[str], parameter: ScriptParameter, given_by_name: Mapping[str, GivenArgument]
) -> int:
    """Return where a parameter goes that is not there yet: its command, and positional ones, keep their order."""
    command = next((at for at, word in enumerate(words) if word in source.subcommands), len(words))
    if parameter.form != "positional":
        return len(words) if parameter.subcommand else command
    order = [other.name for other in parameters_in_scope(source, words) if other.form == "positional"]
    earlier = order[: order.index(parameter.name)] if parameter.name in order else []
    ends = [given_by_name[name].word_indexes[-1] + 1 for name in earlier if name in given_by_name]
    return max(ends, default=command + 1 if parameter.subcommand else 0)


def _words_giving_values(parameter: ScriptParameter, values: Sequence[str]) -> tuple[str, ...]:
    name = parameter.name
    if not values:
        return ()
    if parameter.form in {"switch", "pair"}:
        return (name,) if values[0] == "yes" else parameter.off_flags[:1]
    if parameter.form == "positional":
        return tuple(values)
    if parameter.repeats_name_per_value:
        one_each = ((f"{name}={value}",) if name.startswith("--") else (name, value) for value in values)
        return tuple(word for words in one_each for word in words)
    if parameter.form == "key" or (name.startswith("--") and not parameter.takes_several):
        return (f"{name}={values[0]}",)
    return (name, *values)

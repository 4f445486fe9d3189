"""The preset `auto`: what suits a script by its source; nothing is passed that the source does not declare."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import ScriptParameter, ScriptSource
from tui_train.profile import fields
from tui_train.profile.presets import (
    NAMES_OF_DECLARABLE_DEFAULTS,
    OTHER_FORM_PLACEHOLDERS_BY_NAME,
    SCRIPT_LABEL,
    Preset,
    PresetArgument,
    Scalar,
    accepted_placeholders,
    shipped_presets,
)
from tui_train.profile.rows import Field
from tui_train.profile.types import AUTO_PRESET, Profile

SCRIPT_OWN_VALUE_SOURCE_TEXT = "up to the script"
SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT = f"{SCRIPT_LABEL}'s default"

# Names of arguments that leave no doubt, dashes as underscores, by the placeholder that they take.
_SURE_ARGUMENT_NAMES_BY_PLACEHOLDER: Mapping[str, frozenset[str]] = {
    "output": frozenset({"output_dir", "out_dir", "output_folder", "save_dir"}),
    "model": frozenset({"model_name_or_path"}),
    "micro_batch": frozenset({"batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size"}),
    "accumulation": frozenset(
        {
            "gradient_accumulation_steps",
            "accumulation_steps",
            "grad_accum_steps",
            "gradient_accumulate_every",
            "grad_accum_every",
            "accumulate_grad_batches",
        }
    ),
    "learning_rate": frozenset({"lr", "learning_rate"}),
    "epochs": frozenset({"epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs"}),
    "steps": frozenset({"max_steps", "max_train_steps", "num_train_steps", "train_steps", "max_iters"}),
    "num_warmup_steps": frozenset({"warmup_steps", "num_warmup_steps", "warmup_iters"}),
    "warmup_ratio": frozenset({"warmup_ratio"}),
    "weight_decay": frozenset({"weight_decay"}),
    "sequence_length": frozenset({"sequence_length", "seq_length", "seq_len", "max_seq_length", "block_size"}),
    "checkpoint_every": frozenset({"save_steps", "save_every", "checkpoint_every", "checkpointing_steps"}),
    "evaluate_every": frozenset({"eval_steps", "eval_every"}),
    "seed": frozenset({"seed", "random_seed"}),
}
_INTEGER_PLACEHOLDER_BY_PLACEHOLDER = {"epochs": "whole_epochs"}
# A help in which the first is found, and the second is not, says that an argument is something else than its name.
_CONTRADICTING_AND_USUAL_HELP_PATTERNS_BY_PLACEHOLDER = {
    "micro_batch": (
        re.compile(r"\b(total|global|effective|overall)\b[\w -]{0,12}\bbatch|\btokens\b|\b(across|of|over) all "),
        re.compile(r"\b(per|each|every|micro|(one|a|single) (gpu|device|process))\b"),
    ),
    "steps": (re.compile(r"\bepochs?\b"), re.compile(r"\b(steps?|iterations?|iters?|updates?|batches)\b")),
    "epochs": (re.compile(r"\b(steps?|iterations?|batches)\b"), re.compile(r"\b(epochs?|pass(es)?|data|dataset)\b")),
    "output": (re.compile(r"\bfiles?\b"), re.compile(r"\b(folders?|dir|directory|directories)\b")),
}
# What a name says in so many words, no help takes back: it speaks of what is written there, or follows from it.
_UNMISTAKABLE_ARGUMENT_NAME_PATTERN = re.compile(r"dir$|folder$|^per_device_|^micro_batch")
_RECIPE_NAME_BY_PLACEHOLDER = {"whole_epochs": "epochs", "num_warmup_steps": "warmup", "warmup_ratio": "warmup"}
_TRL_CONFIGS_WITHOUT_SEQUENCE_LENGTH = frozenset({"GRPOConfig", "RLOOConfig", "PPOConfig"})
_MIXED_PRECISION_BY_PRECISION = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
_ENDINGS_OF_ARGUMENT_FILES = (".json", ".yaml", ".yml", "{config}")
_ACCUMULATION_FIELD = Field(key="accumulation", label="Accumulation", kind="integer", help="", minimum=1)
_LABEL_BY_SOURCE_KIND = {
    "": "arguments not known", "none": "no arguments", "hf-trainer": "HfArgumentParser", "trl": "TRL's parser",
    "lightning": "LightningCLI", "nanogpt": "nanoGPT's configurator", "hydra": "Hydra", "argparse": "argparse",
    "dataclass": "HfArgumentParser", "click": "click", "typer": "typer", "fire": "fire", "absl": "absl",
    "help": "arguments",
}  # fmt: skip
_MAX_NAMES_LISTED = 8


def preset_for_source(source: ScriptSource | None, user_arguments: Sequence[str]) -> Preset:
    """Return the preset that suits a script with this source and the user's arguments, which may choose a subcommand.

    It passes nothing where no source is known.
    """
    source = _source_without_parameters_if_file_given_alone(source or ScriptSource(), user_arguments)
    source = msgspec.structs.replace(source, parameters=parameters_in_scope(source, user_arguments))
    if named := _shipped_preset_name_for_source(source):
        return _preset_with_declared_arguments(
            _preset_without_sequence_length_if_unsuitable(shipped_presets()[named], source), source, takes_all=True
        )
    like = "nanogpt" if source.kind == "nanogpt" else "accelerate" if source.creates_accelerator else ""
    own = Preset(label=SCRIPT_LABEL, about="what its source declares")
    return _preset_with_declared_arguments(
        _script_preset_limited_to_declared(shipped_presets()[like], own, source) if like else own, source
    )


def argument_file_given_alone(source: ScriptSource, user_arguments: Sequence[str]) -> str:
    """Return the user's only argument where it is a file from which the script reads all values; empty for none."""
    name = user_arguments[0] if source.takes_single_argument_file and len(user_arguments) == 1 else ""
    return name if name.endswith(_ENDINGS_OF_ARGUMENT_FILES) and not name.startswith("-") else ""


def _source_without_parameters_if_file_given_alone(source: ScriptSource, user_arguments: Sequence[str]) -> ScriptSource:
    """Return the source without arguments where the user's only one is a file that the script reads if it is alone."""
    file = argument_file_given_alone(source, user_arguments)
    if not file:
        return source
    why = f"it reads them from {file}, as long as that is its only argument"
    return msgspec.structs.replace(source, kind="", base_class="", why_unread=why, parameters=())


def chosen_subcommand(source: ScriptSource, user_arguments: Sequence[str]) -> str:
    """Return the subcommand that the arguments choose, empty for none."""
    return next((word for word in user_arguments if word in source.subcommands), "")


def parameters_in_scope(source: ScriptSource, user_arguments: Sequence[str]) -> tuple[ScriptParameter, ...]:
    """Return the parameters that the script takes with these arguments: its own and those of the subcommand there."""
    word = chosen_subcommand(source, user_arguments)
    command = source.subcommand_by_alias.get(word, word)
    in_scope = (parameter for parameter in source.parameters if parameter.subcommand in {"", command})
    # It is passed after the word that the user chose.
    return tuple(
        msgspec.structs.replace(each, subcommand=word) if each.subcommand and word != command else each
        for each in in_scope
    )


def arguments_summary(source: ScriptSource | None, user_arguments: Sequence[str] = ()) -> str:
    """Return in one line what a script's source says of its arguments, and where; safe to show, empty for no script.

    The user's arguments may choose a subcommand.
    """
    if source is None:
        return ""
    source = _source_without_parameters_if_file_given_alone(source, user_arguments)
    if source.problem:
        return visible(f"its arguments are not known: {source.problem}")
    line = f", line {source.line}" if source.line else ""
    where = f"{line} of {source.file}" if source.file else line
    command = chosen_subcommand(source, user_arguments)
    names = [
        parameter.name for parameter in (parameters_in_scope(source, user_arguments) if command else source.parameters)
    ]
    more = f" and {len(names) - _MAX_NAMES_LISTED} more" if len(names) > _MAX_NAMES_LISTED else ""
    inherits = f"{', ' if source.kind == 'none' else ' with '}{source.base_class}" if source.base_class else ""
    listed = (
        f": {' '.join(names[:_MAX_NAMES_LISTED])}{more}"
        if names
        else f": {source.why_unread}"
        if source.why_unread
        else ""
    )
    accelerated = ", accelerate" if source.creates_accelerator else ""
    accelerated += ", read from --help" if source.was_help_read else ""
    chosen = f", {command}" if command else ""
    said = source.why_unread if source.kind == "help" and source.why_unread else _LABEL_BY_SOURCE_KIND[source.kind]
    return visible(f"{said}{inherits}{accelerated}{where}{chosen}{listed}")


def _shipped_preset_name_for_source(source: ScriptSource) -> str:
    """Return the shipped preset that suits a source as it is, empty for none."""
    return source.kind if source.kind in {"hf-trainer", "trl"} else ""


def profile_with_shipped_preset_for_auto(profile: Profile, sources: Mapping[str, ScriptSource]) -> Profile:
    """Return the profile with the shipped preset that `auto` stands for, where it stands for one."""
    source = sources.get(profile.trainer.script)
    if source is None or profile.trainer.preset != AUTO_PRESET:
        return profile
    name = _shipped_preset_name_for_source(
        _source_without_parameters_if_file_given_alone(source, profile.trainer.arguments)
    )
    chosen = msgspec.structs.replace(profile.trainer, preset=name)
    return msgspec.structs.replace(profile, trainer=chosen) if name else profile


def _preset_with_declared_arguments(preset: Preset, source: ScriptSource, *, takes_all: bool = False) -> Preset:
    """Return the preset with what the source declares under sure names; `takes_all`: the script takes all of it."""
    passed = accepted_placeholders(preset)
    matched = dict(_placeholders_and_sure_parameters(source.parameters))
    more = [
        PresetArgument(
            (f"{each.name}={{{name}}}",),
            after=each.subcommand,
            also=tuple(flag for flag in each.flags if flag != each.name),
        )
        for name, each in matched.items()
        if not passed & _placeholders_of_same_value(name)
    ]
    return msgspec.structs.replace(
        preset,
        arguments=(*preset.arguments, *more),
        defaults={**(preset.defaults if takes_all else {}), **dict(_nonzero_number_defaults_by_recipe_name(matched))},
    )


def names_of_declared_defaults(source: ScriptSource, user_arguments: Sequence[str]) -> Iterator[str]:
    """Yield the recipe's names of the defaults that a script's own source writes out."""
    matched = dict(_placeholders_and_sure_parameters(parameters_in_scope(source, user_arguments)))
    return (name for name, _ in _nonzero_number_defaults_by_recipe_name(matched))


def _preset_without_sequence_length_if_unsuitable(preset: Preset, source: ScriptSource) -> Preset:
    """Return the preset without the length of a sequence for what has none: GRPO and similar count two of them."""
    if source.base_class not in _TRL_CONFIGS_WITHOUT_SEQUENCE_LENGTH:
        return preset
    kept = tuple(each for each in preset.arguments if not any("{sequence_length}" in word for word in each.words))
    return msgspec.structs.replace(preset, arguments=kept)


def _script_preset_limited_to_declared(preset: Preset, script_preset: Preset, source: ScriptSource) -> Preset:
    """Return that of a kind of scripts, with no more than this source declares of it."""
    own_parameters = tuple(each for each in source.parameters if not each.subcommand)
    options = {
        _normalized_flag(flag): parameter
        for parameter in _single_value_options(own_parameters)
        for flag in parameter.flags
    }
    declared = {flag: parameter.name for flag, parameter in options.items()}
    arguments = filter(None, (_argument_in_script_spelling(argument, declared) for argument in preset.arguments))
    resume = preset.checkpoints.resume if preset.checkpoints else ()
    resumes = all(_normalized_flag(word.partition("=")[0]) in declared for word in resume)
    precision = options.get("mixed_precision")
    return msgspec.structs.replace(
        script_preset,
        arguments=(*arguments, *(_precision_arguments(precision) if precision else ())),
        variables=() if precision or source.sets_precision else preset.variables,
        user_arguments_first=preset.user_arguments_first,
        checkpoints=preset.checkpoints if resumes else None,
        log=preset.log,
    )


def _precision_arguments(parameter: ScriptParameter) -> Iterator[PresetArgument]:
    """Yield how a precision is passed, as far as the script takes it."""
    for precision, value in _MIXED_PRECISION_BY_PRECISION.items():
        if not parameter.choices or value in parameter.choices:
            yield PresetArgument((f"{parameter.name}={value}",), f"precision={precision}")


def _argument_in_script_spelling(argument: PresetArgument, declared: Mapping[str, str]) -> PresetArgument | None:
    """Return an argument in the script's own spelling, None where the script does not take it."""
    words = [
        (declared.get(_normalized_flag(option)), equals, value)
        for option, equals, value in (word.partition("=") for word in argument.words)
    ]
    if not all(name for name, _, _ in words):
        return None
    return PresetArgument(tuple(f"{name}{equals}{value}" for name, equals, value in words), argument.when)


def _single_value_options(parameters: tuple[ScriptParameter, ...]) -> Iterator[ScriptParameter]:
    return (each for each in parameters if each.form in {"option", "key"} and not each.takes_several)


def _placeholders_and_sure_parameters(
    parameters: tuple[ScriptParameter, ...],
) -> Iterator[tuple[str, ScriptParameter]]:
    """Yield each placeholder that exactly one argument takes by its name."""
    for placeholder, names in _SURE_ARGUMENT_NAMES_BY_PLACEHOLDER.items():
        matches = [
            each
            for each in _single_value_options(parameters)
            if names & {_normalized_flag(flag) for flag in (each.name, *each.flags)}
            and not help_contradicts_name(each, placeholder)
        ]
        if len(matches) == 1 and not matches[0].choices:
            integer_form = matches[0].type in {"int", ""} and _INTEGER_PLACEHOLDER_BY_PLACEHOLDER.get(placeholder)
            yield integer_form or placeholder, matches[0]


def help_contradicts_name(parameter: ScriptParameter, placeholder: str) -> bool:
    """Return whether the help of an argument says that it is something else than the value that its name may mean."""
    if any(
        _UNMISTAKABLE_ARGUMENT_NAME_PATTERN.search(_normalized_flag(flag))
        for flag in (parameter.name, *parameter.flags)
    ):
        return False
    name, help_text = _RECIPE_NAME_BY_PLACEHOLDER.get(placeholder, placeholder), parameter.help.lower()
    contradicting, usual = _CONTRADICTING_AND_USUAL_HELP_PATTERNS_BY_PLACEHOLDER.get(name, (None, None))
    return bool(contradicting and usual and contradicting.search(help_text) and not usual.search(help_text))


def _placeholders_of_same_value(placeholder: str) -> set[str]:
    """Return a placeholder with those that stand for the same value in another form, or of all processes."""
    name = _RECIPE_NAME_BY_PLACEHOLDER.get(placeholder, placeholder)
    of_all_processes = {"total_accumulation"} if name == "accumulation" else set()
    return {placeholder, name, *OTHER_FORM_PLACEHOLDERS_BY_NAME.get(name, ()), *of_all_processes}


def _normalized_flag(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_").lower()


def _nonzero_number_defaults_by_recipe_name(matched: Mapping[str, ScriptParameter]) -> Iterator[tuple[str, Scalar]]:
    """Yield the defaults that a source writes out, for values of which a preset may say one."""
    for placeholder, parameter in matched.items():
        name = _RECIPE_NAME_BY_PLACEHOLDER.get(placeholder, placeholder)
        row = _ACCUMULATION_FIELD if name == "accumulation" else fields.FIELDS.get(f"recipe.{name}")
        if name not in NAMES_OF_DECLARABLE_DEFAULTS or row is None or not parameter.default:
            continue
        with contextlib.suppress(BadInput):
            value = fields.parse_value(row, parameter.default)
            if isinstance(value, (int, float)) and value:
                yield name, value

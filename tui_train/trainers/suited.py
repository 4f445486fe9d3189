"""The preset `auto`: what suits a script by its source; nothing is passed that the source does not declare."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import Parameter, Source
from tui_train.presets import (
    DEFAULT_NAMES,
    SCRIPT,
    Preset,
    PresetArgument,
    Scalar,
    accepted_placeholders,
    shipped_presets,
)
from tui_train.profile import fields
from tui_train.profile.rows import Field
from tui_train.profile.types import AUTO, Profile

OWN = "the script's own"

# Names of arguments that leave no doubt, dashes as underscores, by the placeholder that they take.
_NAMES: Mapping[str, frozenset[str]] = {
    "output": frozenset({"output_dir", "out_dir", "output_folder", "save_dir"}),
    "model": frozenset({"model_name_or_path"}),
    "micro_batch": frozenset({"batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size"}),
    "accumulation": frozenset({"gradient_accumulation_steps", "accumulation_steps", "grad_accum_steps"}),
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
_WHOLE = {"epochs": "whole_epochs"}
_STANDS_FOR = {"whole_epochs": "epochs", "num_warmup_steps": "warmup", "warmup_ratio": "warmup"}
# Placeholders that stand for the same value in another form.
_SAME = {
    "epochs": ("epochs", "whole_epochs"),
    "warmup": ("warmup_steps", "warmup_ratio", "num_warmup_steps"),
    "accumulation": ("accumulation", "total_accumulation"),
}
_NO_LENGTH = frozenset({"GRPOConfig", "RLOOConfig", "PPOConfig"})
_PRECISION = (
    PresetArgument(("--mixed_precision=no",), "precision=fp32"),
    PresetArgument(("--mixed_precision={precision}",), "precision!=fp32"),
)
_ACCUMULATION = Field(key="accumulation", label="Accumulation", kind="integer", help="", minimum=1)
_SAID = {
    "": "arguments not known", "none": "no arguments", "hf-trainer": "HfArgumentParser", "trl": "TRL's parser",
    "lightning": "LightningCLI", "nanogpt": "nanoGPT's configurator", "hydra": "Hydra", "argparse": "argparse",
    "dataclass": "HfArgumentParser", "click": "click", "typer": "typer", "fire": "fire", "absl": "absl",
    "help": "arguments",
}  # fmt: skip
_NAMED = 8


def suited(source: Source | None, words: Sequence[str] = ()) -> Preset:
    """Return the preset that suits a script with this source and the user's arguments, which may choose a subcommand.

    It passes nothing where no source is known.
    """
    source = source or Source()
    source = msgspec.structs.replace(source, parameters=in_scope(source, words))
    if named := base(source):
        return _extended(_without_length(shipped_presets()[named], source), source, whole=True)
    like = "nanogpt" if source.kind == "nanogpt" else "accelerate" if source.accelerates else ""
    own = Preset(label=SCRIPT, about="what its source declares")
    return _extended(_like(shipped_presets()[like], own, source) if like else own, source)


def command_of(source: Source, words: Sequence[str]) -> str:
    """Return the subcommand that the arguments choose, empty for none."""
    return next((word for word in words if word in source.commands), "")


def in_scope(source: Source, words: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters that the script takes with these arguments: its own and those of the subcommand there."""
    command = command_of(source, words)
    return tuple(parameter for parameter in source.parameters if parameter.command in {"", command})


def read(source: Source | None, words: Sequence[str] = ()) -> str:
    """Return in one line what a script's source says of its arguments, and where; safe to show, empty for no script.

    The user's arguments may choose a subcommand.
    """
    if source is None:
        return ""
    if source.problem:
        return visible(f"its arguments are not known: {source.problem}")
    line = f", line {source.line}" if source.line else ""
    where = f"{line} of {source.file}" if source.file else line
    command = command_of(source, words)
    names = [parameter.name for parameter in (in_scope(source, words) if command else source.parameters)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    inherits = f"{', ' if source.kind == 'none' else ' with '}{source.base}" if source.base else ""
    listed = f": {' '.join(names[:_NAMED])}{more}" if names else f": {source.unread}" if source.unread else ""
    accelerated = ", accelerate" if source.accelerates else ""
    accelerated += ", read from --help" if source.helped else ""
    chosen = f", {command}" if command else ""
    said = source.unread if source.kind == "help" and source.unread else _SAID[source.kind]
    return visible(f"{said}{inherits}{accelerated}{where}{chosen}{listed}")


def base(source: Source | None) -> str:
    """Return the shipped preset that suits a source as it is, empty for none."""
    return source.kind if source and source.kind in {"hf-trainer", "trl"} else ""


def named(profile: Profile, sources: Mapping[str, Source]) -> Profile:
    """Return the profile with the shipped preset that `auto` stands for, where it stands for one."""
    name = base(sources.get(profile.trainer.script)) if profile.trainer.preset == AUTO else ""
    chosen = msgspec.structs.replace(profile.trainer, preset=name)
    return msgspec.structs.replace(profile, trainer=chosen) if name else profile


def _extended(preset: Preset, source: Source, *, whole: bool = False) -> Preset:
    """Return the preset with what the source declares under sure names; `whole`: the script takes all of it."""
    there = accepted_placeholders(preset)
    found = dict(_matched(source.parameters))
    more = [
        PresetArgument((f"{each.name}={{{name}}}",), after=each.command)
        for name, each in found.items()
        if not there & {name, *_SAME.get(_STANDS_FOR.get(name, name), ())}
    ]
    arguments = (*preset.arguments, *more)
    return msgspec.structs.replace(
        preset, arguments=arguments, defaults={**(preset.defaults if whole else {}), **dict(_defaults(found))}
    )


def _without_length(preset: Preset, source: Source) -> Preset:
    """Return the preset without the length of a sequence for what has none: GRPO and similar count two of them."""
    if source.base not in _NO_LENGTH:
        return preset
    kept = tuple(each for each in preset.arguments if not any("{sequence_length}" in word for word in each.words))
    return msgspec.structs.replace(preset, arguments=kept)


def _like(preset: Preset, own: Preset, source: Source) -> Preset:
    """Return that of a kind of scripts, with no more than this source declares of it."""
    own_parameters = tuple(each for each in source.parameters if not each.command)
    taken = {_plain(flag): parameter.name for parameter in _usable(own_parameters) for flag in parameter.flags}
    arguments = filter(None, (_spelled(argument, taken) for argument in preset.arguments))
    resume = preset.checkpoints.resume if preset.checkpoints else ()
    resumes = all(_plain(word.partition("=")[0]) in taken for word in resume)
    precision = "mixed_precision" in taken
    return msgspec.structs.replace(
        own,
        arguments=(*arguments, *(_PRECISION if precision else ())),
        variables=() if precision or source.mixes else preset.variables,
        user_arguments_first=preset.user_arguments_first,
        checkpoints=preset.checkpoints if resumes else None,
        log=preset.log,
    )


def _spelled(argument: PresetArgument, taken: Mapping[str, str]) -> PresetArgument | None:
    """Return an argument in the script's own spelling, None where the script does not take it."""
    words = [(taken.get(_plain(option)), equals, value) for option, equals, value in map(_parts, argument.words)]
    if not all(name for name, _, _ in words):
        return None
    return PresetArgument(tuple(f"{name}{equals}{value}" for name, equals, value in words), argument.when)


def _parts(word: str) -> tuple[str, str, str]:
    return word.partition("=")


def _usable(parameters: tuple[Parameter, ...]) -> Iterator[Parameter]:
    """Yield the arguments that take one value."""
    for each in parameters:
        if each.form in {"option", "key"} and not each.several:
            yield each


def _matched(parameters: tuple[Parameter, ...]) -> Iterator[tuple[str, Parameter]]:
    """Yield each placeholder that exactly one argument takes by its name."""
    for placeholder, names in _NAMES.items():
        found = [each for each in _usable(parameters) if names & {_plain(flag) for flag in (each.name, *each.flags)}]
        if len(found) == 1 and not found[0].choices:
            whole = found[0].type in {"int", ""} and _WHOLE.get(placeholder)
            yield whole or placeholder, found[0]


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_").lower()


def _defaults(matched: Mapping[str, Parameter]) -> Iterator[tuple[str, Scalar]]:
    """Yield the defaults that a source writes out, for values of which a preset may say one."""
    for placeholder, parameter in matched.items():
        name = _STANDS_FOR.get(placeholder, placeholder)
        row = _ACCUMULATION if name == "accumulation" else fields.FIELDS.get(f"recipe.{name}")
        if name not in DEFAULT_NAMES or row is None or not parameter.default:
            continue
        with contextlib.suppress(BadInput):
            value = fields.parse(row, parameter.default)
            if isinstance(value, (int, float)) and value:
                yield name, value

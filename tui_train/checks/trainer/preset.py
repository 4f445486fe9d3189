"""Checks of the preset, of the trainer's file, and of the arguments that the script declares."""

from collections.abc import Iterator, Sequence

from tui_train.base.text import display_path, names_text, visible
from tui_train.checks.finding import Finding, error, warning
from tui_train.checks.trainer.module_packages import pip_package
from tui_train.facts.types import ScriptSource, YamlDocument
from tui_train.profile.changes import Change
from tui_train.profile.fields import FieldValue
from tui_train.profile.presets import shipped_presets
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.setup.recipe.config_file import keys_holding_value_instead_of_table
from tui_train.setup.recipe.options import UserOption, user_options_for_value
from tui_train.setup.recipe.placeholder_values import (
    DATASETS_FORMAT_BY_ENDING,
    datasets_library_format,
    fill_placeholders,
    placeholder_values,
    placeholder_words,
    recipe_keys_to_pass,
    save_on_stop_arguments,
)
from tui_train.setup.setup import Setup
from tui_train.trainers.script import script_or_module_to_start

# Every Python is probed for these.
_PRESET_PACKAGES_PROBED = frozenset({"axolotl", "llamafactory"})
USE_AUTO_PRESET_CHANGE = Change(
    "preset auto", "it passes only what the script takes", (("trainer.preset", AUTO_PRESET),)
)
_MAX_FLAGS_SHOWN = 4  # arguments that a sentence names


def missing_preset_package(setup: Setup) -> Iterator[Finding]:
    """A package whose module a preset starts, and that the chosen Python lacks."""
    package, tool = setup.preset.module.partition(".")[0], setup.toolchain
    starts = script_or_module_to_start(setup.profile, setup.preset) == setup.preset.module
    # Python looks for another module in the folder where it starts as well.
    is_library = package in _PRESET_PACKAGES_PROBED or bool(tool and tool.modules and pip_package(package))
    if starts and is_library and tool and package not in {*tool.packages, *tool.modules}:
        message = f"{tool.python} has no {package}, which {setup.preset.name_in_sentence} needs"
        remedy = f"Install it there (`pip install {package}`), or choose another Python (trainer.python)."
        yield error("trainer.python", message, remedy, machine=True)


def unusable_trainer_config_file(setup: Setup) -> Iterator[Finding]:
    """A YAML file that the recipe cannot be put into: missing, unreadable, or without tables where they must be."""
    profile, facts = setup.profile, setup.facts
    path, key = profile.trainer.config, "trainer.config"
    if options := user_options_for_value("config", profile, setup.preset):
        yield _unread_config_option_finding(profile, options[-1])
    file = setup.preset.file
    is_passed = "config" in setup.ladder_context.accepted_placeholders
    if not path:
        if file.needs_user_file if file else is_passed:
            message = f"{setup.preset.name_in_sentence} needs a config file, and none is set"
            yield error(key, message, "Name the YAML file that the training reads (trainer.config).")
        return
    if file is None and not is_passed:
        return
    state = facts.paths.get(path, "file")
    if state != "file":
        what = {"missing": "does not exist", "unreadable": "cannot be read"}.get(state, "is not a file")
        message = f"config file: {path} {what}"
        yield error(key, message, "Name a file that exists and that you may read (trainer.config).")
    elif file:
        yield from _config_document_findings(facts.documents.get(path), path, setup)


def _unread_config_option_finding(profile: Profile, option: UserOption) -> Finding:
    """Return the finding that a file among the arguments is not read, so that fallbacks could override it."""
    trainer, words = profile.trainer, " ".join(option.words)
    remaining = option.arguments_without_it(trainer.arguments)
    change = None
    if option.value.startswith("/") and not trainer.config:
        edits: tuple[tuple[str, FieldValue], ...] = (("trainer.arguments", remaining), ("trainer.config", option.value))
        change = Change("set it as the config file", "its values are read and shown", edits)
    message = f"tui-train does not read the file in {words}: its values are unknown, and fallbacks could override them"
    remedy = "Name that file under trainer.config instead."
    return error("trainer.arguments", message, remedy, change=change)


def _config_document_findings(document: YamlDocument | None, path: str, setup: Setup) -> Iterator[Finding]:
    key = "trainer.config"
    if document is None:
        message = f"the config file {display_path(path)} is still being read"
        yield error(key, message, "Run the command again.", keys="Wait a moment, or press r on Hardware.")
    elif document.problem:
        message = f"the config file {display_path(path)} cannot be used: {document.problem}"
        yield error(key, message, "Fix that file, or name another one (trainer.config).")
    else:
        for name in keys_holding_value_instead_of_table(document.values, setup.preset):
            message = f"{name} in {display_path(path)} is a single value, but the preset needs a mapping there"
            remedy = "Make it a mapping in that file, or choose another preset (trainer.preset)."
            yield error(key, message, remedy)
        yield from _missing_required_values(document, path, setup)


def _missing_required_values(document: YamlDocument, path: str, setup: Setup) -> Iterator[Finding]:
    """Values of the file without which the trainer would end without training."""
    for name, required_value in (setup.preset.file.required if setup.preset.file else {}).items():
        if document.values.get(name) != required_value:
            text = f"{name}: {str(required_value).lower()}"
            named = setup.preset.name_in_sentence
            message = f"{display_path(path)} does not set {text}, and without that {named} trains nothing"
            yield error("trainer.config", message, f"Write {text} into that file.")


def unknown_data_format(setup: Setup) -> Iterator[Finding]:
    """Data files whose format does not follow from their ending, or is not the same for all."""
    trainer = setup.profile.trainer
    if not trainer.data or "data_format" not in setup.ladder_context.accepted_placeholders:
        return
    if not datasets_library_format(trainer.data):
        message = f"the name of the data file does not say its format: {trainer.data[0]}"
        endings = ", ".join(f".{ending}" for ending in DATASETS_FORMAT_BY_ENDING)
        remedy = f"Name files of one format (trainer.data), ending in one of {endings}."
        yield error("trainer.data", message, remedy)


def user_preset_named_as_shipped_preset(setup: Setup) -> Iterator[Finding]:
    """A preset of the user's with a shipped preset's name, which therefore is not used."""
    name = setup.profile.trainer.preset
    own_preset = setup.facts.presets.get(name)
    if own_preset and name in shipped_presets():
        remedy = "Give the file of your preset another name, and choose that (trainer.preset)."
        yield warning("trainer.preset", own_preset.problem, remedy)


def preset_arguments_refused_by_script(setup: Setup) -> Iterator[Finding]:
    """Arguments that the preset passes and the script does not take, by its source, or else by its own --help."""
    profile, facts = setup.profile, setup.facts
    script = script_or_module_to_start(profile, setup.preset)
    script_help, source = facts.help.get(script), facts.sources.get(script)
    is_complete = source is not None and are_arguments_fully_known(source)
    if is_complete and source:
        accepted, evidence = declared_argument_names(source), declared_arguments_text(source)
    elif script_help and not script_help.problem:
        accepted = {flag.name for flag in script_help.flags}
        evidence = f"it takes {flag_list_text(sorted(accepted)) or 'none'} (its --help)"
    else:
        return
    # argparse takes the beginning of a name for all of it.
    missing = [flag for flag in _options_passed_by_preset(setup) if not any(name.startswith(flag) for name in accepted)]
    if missing:
        # Its --help may leave some out.
        yield (error if is_complete else warning)(
            "trainer.preset",
            f"the script does not take {flag_list_text(missing)},"
            f" which the preset {setup.preset.name_in_sentence} passes; {evidence}",
            "Choose trainer.preset=auto, which passes only what the script takes; or custom, which passes your "
            "arguments alone.",
            change=USE_AUTO_PRESET_CHANGE if profile.trainer.preset != AUTO_PRESET else None,
        )


def _options_passed_by_preset(setup: Setup) -> dict[str, None]:
    """Return the options that the preset passes to the first attempt."""
    profile = setup.profile
    output = profile.trainer.output or "output"
    keeps_user_output = bool(setup.user_output_folder) and not profile.trainer.output
    filled_values = placeholder_values(
        setup, output, profile.trainer.config, recipe_keys_to_pass(profile, ()), user_output=keeps_user_output
    )
    preset_words = (
        word
        for argument in setup.preset.arguments
        if fill_placeholders(argument, placeholder_words(filled_values))
        for word in argument.words
    )
    all_words = [*preset_words, *save_on_stop_arguments(setup, filled_values)]
    return dict.fromkeys(word.partition("=")[0] for word in all_words if word.startswith("--"))


def are_arguments_fully_known(source: ScriptSource) -> bool:
    """Return whether all that a script takes is known from its source."""
    uncertain = (
        source.problem
        or source.base_class
        or source.why_unread
        or source.unreadable_argument_line
        or source.subcommands
        or source.ignores_unknown_arguments
    )
    return source.kind == "argparse" and not uncertain


def declared_argument_names(source: ScriptSource) -> set[str]:
    """Return every name of the arguments that a source declares."""
    return {flag for parameter in source.parameters for flag in (parameter.name, *parameter.flags)}


def declared_arguments_text(source: ScriptSource) -> str:
    """Return in words which arguments a script takes, and where its source declares them; safe to show."""
    place = f"{source.kind}, line {source.line}{' of ' + source.file if source.file else ''}"
    declared = flag_list_text([parameter.name for parameter in source.parameters]) or "none"
    return f"it takes {declared} ({visible(place)})"


def flag_list_text(flags: Sequence[str]) -> str:
    """Return some flags in words, of many the first; safe to show."""
    return visible(names_text(flags, _MAX_FLAGS_SHOWN))

"""Detection of a script's command-line library, from its source and its imports."""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tui_train.facts.scripts.script_syntax import (
    ScriptModule,
    argument_values,
    called_function_name,
    dotted_name,
    elements_or_itself,
    keyword_value,
    last_dotted_name,
)
from tui_train.facts.types import ScriptKind

DATACLASS_PARSERS = ("TrlParser", "HfArgumentParser", "H4ArgumentParser")
_PARSE_FUNCTION_PATTERN = re.compile(
    r"(parse|get)_(known_|cli_|cmd_|command_line_|train(ing)?_)?(args|arguments|opts|options)"
)
_PARSER_OBJECT_PATTERN = re.compile("opt|arg|pars|flag|conf", re.IGNORECASE)
_ARGPARSE_METHODS = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
_MAX_NAME_LENGTH_SHOWN = 60
_FILE_PARSE_METHODS = frozenset({"parse_json_file", "parse_yaml_file"})
_TRAINING_ARGUMENTS_PATTERN = re.compile(r"TrainingArguments$")
_TRL_CONFIG_PATTERN = re.compile(r"(SFT|DPO|GRPO|KTO|Reward|RLOO|PPO|ORPO|CPO|BCO|GKD|XPO|NashMD|PRM|MiniLLM)Config$")
_TRAINER_CLASS_PATTERN = re.compile(r"(lightning|pytorch_lightning|transformers|trl)\.(\w+\.)*\w*Trainer")
# What is called, or decorates a function, by its whole name.
_KIND_BY_NAME_PATTERN: dict[re.Pattern[str], ScriptKind] = {
    re.compile(r"hydra\.main"): "hydra",
    re.compile(r"click\.(command|group|option|argument)"): "click",
    re.compile(r"typer\.(run|Typer)"): "typer",
    re.compile(r"fire\.Fire"): "fire",
    re.compile(r"absl\.(app\.run|flags\.DEFINE_\w+)"): "absl",
    re.compile(r"(.+\.)?LightningCLI"): "lightning",
    re.compile(r"(.+\.)?ArgumentParser"): "argparse",
}
# Libraries that read the command line in a way that is not read here, with their functions.
_UNREADABLE_PARSERS_BY_LIBRARY = {
    "tyro": {"cli"},
    "jsonargparse": {"CLI", "auto_cli", "ArgumentParser", "ActionParser"},
    "docopt": {"docopt"},
    "draccus": {"parse", "wrap"},
    "pyrallis": {"parse", "wrap"},
    "simple_parsing": {"parse", "ArgumentParser"},
    "chz": {"entrypoint", "nested_entrypoint"},
    "omegaconf.OmegaConf": {"from_cli"},
}

# For these --help is a value like any other.
_LIBRARIES_WITHOUT_HELP = frozenset({"omegaconf"})


class CommandLineKind(NamedTuple):
    """Command-line library of a script, with the line and file (empty: the script) that show it."""

    kind: ScriptKind = ""
    line: int = 0
    file: str = ""
    base_class: str = ""
    why_unread: str = ""
    help_may_say_more: bool = False


def command_line_kind(modules: tuple[ScriptModule, ...]) -> CommandLineKind:
    """Return how a script reads its command line, by the first of its modules that does; "none" if no one does.

    The script itself comes first.
    """
    argparse_input = _argparse_input_kind(modules)
    return next(
        (possible for module in modules for possible in _command_line_kinds_in_module(module, modules, argparse_input)),
        _kind_without_command_line(modules),
    )


def _kind_without_command_line(modules: tuple[ScriptModule, ...]) -> CommandLineKind:
    """Return what is known of a script that reads no command line: whose Trainer it makes."""
    if found := next(filter(None, (_kind_if_parsed_in_unread_file(module, modules) for module in modules)), None):
        return found
    for module in modules:
        for line, name in _call_lines_and_names(module, imported_name_by_alias(module)):
            if _TRAINER_CLASS_PATTERN.fullmatch(name):
                return CommandLineKind("none", line, module.file, name)
    return CommandLineKind("none")


def _command_line_kinds_in_module(
    module: ScriptModule, modules: tuple[ScriptModule, ...], argparse_input: str
) -> Iterator[CommandLineKind]:
    """Yield what in a module reads the command line, the surest first."""
    for call in module.calls(*DATACLASS_PARSERS):
        yield _kind_of_dataclass_parser(call, module, modules)
    imported = imported_name_by_alias(module)
    for line, name in (*_decorator_lines_and_names(module, imported), *_call_lines_and_names(module, imported)):
        library, _, last = name.rpartition(".")
        if library in _UNREADABLE_PARSERS_BY_LIBRARY and last in _UNREADABLE_PARSERS_BY_LIBRARY[library]:
            first = library.split(".")[0]
            yield CommandLineKind(
                "",
                line,
                module.file,
                why_unread=f"{first} reads them",
                help_may_say_more=first not in _LIBRARIES_WITHOUT_HELP,
            )
        else:
            yield from (
                CommandLineKind(found, line, module.file)
                for pattern, found in _KIND_BY_NAME_PATTERN.items()
                if pattern.fullmatch(name) and (found != "argparse" or argparse_input == "command line")
            )
    for call in module.calls("exec"):
        if "configurator" in ast.unparse(call):
            yield CommandLineKind("nanogpt", call.lineno, module.file)
    attributes = (node for node in module.nodes if isinstance(node, ast.Attribute))
    if lines := [node.lineno for node in attributes if _resolved_name(node, imported) == "sys.argv"]:
        yield CommandLineKind("", min(lines), module.file, why_unread="it reads sys.argv itself")
    if argparse_input == "not read":
        for call in module.calls("ArgumentParser"):
            unread = "the file that parses them was not read"
            yield CommandLineKind("", call.lineno, module.file, why_unread=unread, help_may_say_more=True)


def _argparse_input_kind(modules: tuple[ScriptModule, ...]) -> str:
    """Return what parsers of argparse parse: the command line, only words of the source, or what was not read."""
    calls = [call for module in modules for call in module.calls(*_ARGPARSE_METHODS)]
    if any(not _parses_constant_words(call) for call in calls):
        return "command line"
    return "fixed words" if calls else "not read"


def _parses_constant_words(call: ast.Call) -> bool:
    """Return whether what is parsed stands in the source, as in parse_args([]), and is no command line."""
    words = keyword_value(call, "args") or next(iter(call.args), None)
    of_parser = called_function_name(call) in _ARGPARSE_METHODS and isinstance(call.func, ast.Attribute)
    if not of_parser or words is None or (isinstance(words, ast.Constant) and words.value is None):
        return False
    return not any(isinstance(node, ast.Name) for node in ast.walk(words))


def _kind_of_dataclass_parser(
    call: ast.Call, module: ScriptModule, modules: tuple[ScriptModule, ...]
) -> CommandLineKind:
    """Return whose fields a parser of dataclasses takes: those of TRL, of TrainingArguments, or the script's own."""
    if _parses_file_only(modules):
        return CommandLineKind(
            "", call.lineno, module.file, why_unread="it takes a file with the values of all, and no options"
        )
    names = [last_dotted_name(node) for argument in argument_values(call) for node in elements_or_itself(argument)]
    lineage = [*_library_base_classes(names, modules)]
    base = next(
        (
            name
            for pattern in (_TRL_CONFIG_PATTERN, _TRAINING_ARGUMENTS_PATTERN)
            for name in lineage
            if pattern.search(name)
        ),
        "",
    )
    if called_function_name(call) == "TrlParser" or _TRL_CONFIG_PATTERN.search(base):
        return CommandLineKind("trl", call.lineno, module.file, base)
    if base:
        return CommandLineKind("hf-trainer", call.lineno, module.file, base)
    defined = {node.name for each in modules for node in each.classes}
    unread = "" if names and {*names} <= defined else "the source does not define its classes"
    return CommandLineKind("dataclass", call.lineno, module.file, why_unread=unread, help_may_say_more=bool(unread))


def _kind_if_parsed_in_unread_file(module: ScriptModule, modules: tuple[ScriptModule, ...]) -> CommandLineKind | None:
    """Return that a function of a file which was not read parses the command line, as its name says."""
    defined = {node.name for each in modules for node in each.functions}
    for call in module.calls():
        name, of = called_function_name(call), ast.unparse(call.func)
        options = name == "parse" and not call.args and _PARSER_OBJECT_PATTERN.search(of.rpartition(".")[0])
        parses = _PARSE_FUNCTION_PATTERN.fullmatch(name) or options
        if parses and name not in defined and not _parses_constant_words(call):
            unread = f"{of[:_MAX_NAME_LENGTH_SHOWN]}() is defined in a file that was not read"
            return CommandLineKind("", call.lineno, module.file, why_unread=unread, help_may_say_more=True)
    return None


def _parses_file_only(modules: tuple[ScriptModule, ...]) -> bool:
    """Return whether a parser of dataclasses is only given a file: an option before its name would be taken for it."""
    calls = [
        called_function_name(call)
        for module in modules
        for call in module.calls()
        if isinstance(call.func, ast.Attribute)
    ]
    return any(name in _FILE_PARSE_METHODS for name in calls) and not any(
        name.startswith("parse") and name not in _FILE_PARSE_METHODS for name in calls
    )


def may_parse_file_of_unknown_name(modules: tuple[ScriptModule, ...]) -> bool:
    """Return whether a parser of dataclasses may be given a file whose name the source does not say."""
    calls = (call for module in modules for call in module.calls(*_FILE_PARSE_METHODS))
    return any(not isinstance(argument, ast.Constant) for call in calls for argument in argument_values(call))


def _library_base_classes(class_names: Iterable[str], modules: tuple[ScriptModule, ...]) -> Iterator[str]:
    """Yield which classes of libraries some classes are or inherit from, as far as the modules define them."""
    bases: dict[str, list[str]] = {}
    for module in modules:
        for node in module.classes:
            bases.setdefault(node.name, [last_dotted_name(base) for base in node.bases])
    waiting, seen = deque(class_names), set[str]()
    while waiting:
        current = waiting.popleft()
        if current and current not in seen:
            seen.add(current)
            if current not in bases:
                yield current
            waiting += bases.get(current, [])


def _decorator_lines_and_names(module: ScriptModule, name_by_alias: dict[str, str]) -> list[tuple[int, str]]:
    """Return the line and the whole name of what decorates functions, the first line first."""
    found = [each for node in module.functions for each in node.decorator_list]
    return sorted(
        (each.lineno, _resolved_name(each.func if isinstance(each, ast.Call) else each, name_by_alias))
        for each in found
    )


def _call_lines_and_names(module: ScriptModule, name_by_alias: dict[str, str]) -> list[tuple[int, str]]:
    """Return the line and the whole name of what is called, the first line first."""
    return [(call.lineno, _resolved_name(call.func, name_by_alias)) for call in module.calls()]


def imported_name_by_alias(module: ScriptModule) -> dict[str, str]:
    """Return what each imported name stands for, as its whole name."""
    return {each.used_name: each.whole_name for each in module.imports if not each.level}


def _resolved_name(node: ast.AST, name_by_alias: dict[str, str]) -> str:
    """Return the whole name of a.b.c, with what `a` was imported as."""
    first, dot, rest = dotted_name(node).partition(".")
    return f"{name_by_alias.get(first, first)}{dot}{rest}" if first else ""

"""Reads a training script without running it: whether it resumes, and what it expects of its launcher."""

import ast
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from tui_train.base.files import read_error_reason, read_regular_file
from tui_train.base.text import visible
from tui_train.facts.scripts.script_arguments import unreadable_argument_line
from tui_train.facts.scripts.script_declared import declared_arguments, first_name_by_subcommand, requires_subcommand
from tui_train.facts.scripts.script_imports import required_outside_imports
from tui_train.facts.scripts.script_kind import (
    command_line_kind,
    imported_name_by_alias,
    may_parse_file_of_unknown_name,
)
from tui_train.facts.scripts.script_modules import (
    DEPTH_ERRORS,
    MAX_SCRIPT_BYTES,
    PARSE_ERRORS,
    folder_by_package_above,
    parse_script_and_its_imports,
    parse_without_warnings,
)
from tui_train.facts.scripts.script_ranks import first_required_rank_line_and_name, surely_makes_no_process_group
from tui_train.facts.scripts.script_syntax import (
    ScriptModule,
    called_function_name,
    keyword_value,
    last_dotted_name,
    nested_fstring_line,
    text_constant,
    text_constants,
)
from tui_train.facts.types import ScriptSource

# They surely have arguments, or commands, of their own.
_KINDS_THAT_DECLARE_ARGUMENTS = frozenset({"click", "typer", "fire", "absl"})
# Of the Pythons that run trainings.
_OLDEST_MINOR_VERSION = 8
_MINOR_VERSION_NESTING_FSTRINGS = 12
_RESUME_ARGUMENT = "resume_from_checkpoint"
_UPCAST_FUNCTION = "prepare_model_for_kbit_training"
_LOCAL_RANK_FLAGS = {"--local_rank", "--local-rank"}
_MAX_TRAINER_NAME_LENGTH = 100
# Scripts of Hugging Face's form train only where they are given it.
_TRAIN_SWITCH_NAME = "do_train"
_TRAIN_SWITCH_SPELLINGS = frozenset({"do_train", "--do_train", "--do-train"})
_TRAINING_METHODS = frozenset({"train", "hyperparameter_search"})
_SHELL_SHEBANG_PATTERN = re.compile(rb"#![^\n]{0,200}\b(ba|da|z|k|c|tc|fi)?sh\b")
_PYTHON_SHEBANG_PATTERN = re.compile(rb"#![^\n]{0,200}python")


def read_script_source(path: str, *, with_imports: bool = False) -> ScriptSource:
    """Return the facts in the text of a script, or a `problem` if it cannot be read or parsed."""
    try:
        data = read_regular_file(path, MAX_SCRIPT_BYTES)
    except OSError as error:
        return ScriptSource(problem=f"it cannot be read: {read_error_reason(error)}")
    # Python looks for modules beside the file that a link leads to.
    return parse_script_source(data, os.path.realpath(path).rpartition("/")[0], with_imports=with_imports)


def parse_script_source(
    data: bytes, folder: str = "", names_beside: Collection[str] = (), *, with_imports: bool = True
) -> ScriptSource:
    """Return the facts in the text of a script; what it imports from its folder is read as well, where one is given.

    `names_beside` are the names in the folder of a script elsewhere, of which `folder` has a copy of some.
    """
    try:
        modules = parse_script_and_its_imports(data, folder)
        script = modules[0]
        script_tree = next(node for node in script.nodes if isinstance(node, ast.Module))
        line, words = _line_and_correction_of_train_without_checkpoint(script)
        command_line = command_line_kind(modules)
        parameters = tuple(declared_arguments(command_line.kind, command_line.file, modules))
        subcommands = first_name_by_subcommand(command_line.kind, modules)
        others = _unnamed_argument_or_second_parser_line(modules) if command_line.kind == "argparse" else 0
        rank_line, rank = first_required_rank_line_and_name(script.nodes)
        imports = required_outside_imports(data, script_tree, folder, names_beside) if with_imports else ()
        minor_version, minor_version_line = _oldest_minor_version_and_line(data)
    except DEPTH_ERRORS as error:
        return ScriptSource(why_unread=f"it is too deep to be read: {type(error).__name__}")
    except PARSE_ERRORS as error:
        why = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)
        return ScriptSource(
            problem=visible(f"it is not Python: {why[:200]}"), non_python_label=_non_python_file_label(data)
        )
    if other := _data_file_label(script.nodes[0]):
        return ScriptSource(problem="it is not Python", non_python_label=other)
    return ScriptSource(
        kind=command_line.kind,
        line=command_line.line,
        file=command_line.file,
        base_class=command_line.base_class,
        why_unread=command_line.why_unread,
        parameters=parameters,
        subcommands=tuple(subcommands),
        subcommand_by_alias={name: first for name, first in subcommands.items() if name != first},
        requires_subcommand=requires_subcommand(command_line.kind, modules),
        unreadable_argument_line=others,
        takes_single_argument_file=may_parse_file_of_unknown_name(modules),
        help_may_say_more=command_line.help_may_say_more
        or bool(others)
        or (command_line.kind in _KINDS_THAT_DECLARE_ARGUMENTS and not parameters),
        train_without_checkpoint_line=line,
        corrected_train_call=words,
        creates_accelerator=any(script.calls("Accelerator")),
        sets_precision=any(keyword_value(call, "mixed_precision") for call in script.calls("Accelerator")),
        mentions_checkpoint=_RESUME_ARGUMENT.encode() in data,
        upcasts_unquantized_weights=any(any(module.calls(_UPCAST_FUNCTION)) for module in modules),
        local_rank_line=_local_rank_line(script),
        reads_local_rank=b"LOCAL_RANK" in data,
        ignores_unknown_arguments=any(map(_ignores_unknown_arguments, modules))
        # Fire hands all others to them.
        or (command_line.kind == "fire" and any(each.args.kwarg for module in modules for each in module.functions)),
        rank_line=rank_line,
        rank_name=rank,
        no_process_group=surely_makes_no_process_group(modules),
        train_switch_line=_train_switch_line(modules) if command_line.kind == "hf-trainer" else 0,
        imports=imports,
        minor_version=minor_version,
        minor_version_line=minor_version_line,
        parent_packages=folder_by_package_above(script, "" if names_beside else folder),
    )


def _oldest_minor_version_and_line(data: bytes) -> tuple[int, int]:
    """Return the number after the dot of the oldest Python 3 that reads a source, and the line that needs it."""
    line = 0
    for minor_version in range(_OLDEST_MINOR_VERSION, sys.version_info.minor):
        try:
            parse_without_warnings(data, minor_version)
        except SyntaxError as error:
            if _has_parentheses_of_any_python(error, data):
                break
            line = error.lineno or 0
        else:
            break
    else:
        minor_version = sys.version_info.minor
    if minor_version < _MINOR_VERSION_NESTING_FSTRINGS and (nested_line := nested_fstring_line(data)):
        return _MINOR_VERSION_NESTING_FSTRINGS, nested_line
    return (minor_version, line) if line else (0, 0)


def _has_parentheses_of_any_python(error: SyntaxError, data: bytes) -> bool:
    """Return whether an error is of a `with (expression):`, which the parser takes for the newer form of several."""
    if not error.msg.startswith("Parenthesized context managers"):
        return False
    nodes = (node for node in ast.walk(parse_without_warnings(data)) if isinstance(node, (ast.With, ast.AsyncWith)))
    items = [item for node in nodes if node.lineno == error.lineno for item in node.items]
    return len(items) == 1 and items[0].optional_vars is None


def _ignores_unknown_arguments(module: ScriptModule) -> bool:
    """Return whether a parser goes on with arguments that it does not know, or hands all that follow to one."""
    rest = (keyword_value(call, "nargs") for call in module.calls("add_argument"))
    takes_rest = any(text_constant(nargs) == "..." or last_dotted_name(nargs) == "REMAINDER" for nargs in rest)
    return takes_rest or any(module.calls("parse_known_args", "parse_known_intermixed_args"))


def _unnamed_argument_or_second_parser_line(modules: Sequence[ScriptModule]) -> int:
    """Return the line that adds arguments which the source does not name, or that makes another parser; 0 for none."""
    parsers = [call.lineno for module in modules for call in module.calls("ArgumentParser")]
    return unreadable_argument_line(modules) or (parsers[1] if len(parsers) > 1 else 0)


def _data_file_label(tree: ast.AST) -> str:
    """Return what a text is that Python could read and that trains nothing, as it holds no more than values."""
    body = tree.body if isinstance(tree, ast.Module) else []
    values = [each.value for each in body if isinstance(each, ast.Expr)]
    if len(values) == len(body) and all(isinstance(each, ast.Constant) for each in values):
        return "a file without code"
    if len(values) != len(body) or not all(isinstance(each, ast.Dict | ast.List) for each in values):
        return ""
    first = values[0]
    keys = {key.value for key in first.keys if isinstance(key, ast.Constant)} if isinstance(first, ast.Dict) else ()
    return "a notebook" if "cells" in keys else "data"


def _non_python_file_label(data: bytes) -> str:
    """Return what a text is that Python cannot read, empty where it may be Python of another version."""
    if _SHELL_SHEBANG_PATTERN.match(data):
        return "a shell script"
    if data.startswith(b"{"):
        return "a notebook" if b'"cells"' in data else "JSON"
    # An archive that Python starts, as zipapp makes them, may begin with its interpreter.
    if b"\0" in data and not data.startswith(b"PK") and not _PYTHON_SHEBANG_PATTERN.match(data):
        return "a program"
    return ""


def _line_and_correction_of_train_without_checkpoint(script: ScriptModule) -> tuple[int, str]:
    """Return the line of a trainer's train() without a checkpoint and its correction; 0 if one is passed."""
    trainers = {
        text: call
        for node in script.nodes
        for text, call in _assigned_texts_and_calls(node)
        if called_function_name(call).endswith("Trainer")
    }
    bare: list[tuple[int, str]] = []
    for call in script.calls("train"):
        if not isinstance(call.func, ast.Attribute):
            continue
        text = ast.unparse(call.func.value)
        direct = isinstance(call.func.value, ast.Call) and called_function_name(call.func.value).endswith("Trainer")
        if not (direct or text in trainers or text.lower().endswith("trainer")):
            continue
        if call.args or any(word.arg in {None, _RESUME_ARGUMENT} for word in call.keywords):
            return 0, ""
        bare.append((call.lineno, _train_call_with_checkpoint("trainer" if direct else text, trainers.get(text))))
    return min(bare, default=(0, ""))


def _train_call_with_checkpoint(trainer: str, call: ast.Call | None) -> str:
    """Return the corrected call, with the names that the script uses."""
    arguments = next((ast.unparse(word.value) for word in call.keywords if word.arg == "args"), "") if call else ""
    arguments = arguments if arguments.isidentifier() else "training_args"
    trainer = trainer if len(trainer) <= _MAX_TRAINER_NAME_LENGTH else "trainer"
    return f"{trainer}.train({_RESUME_ARGUMENT}={arguments}.{_RESUME_ARGUMENT})"


def _assigned_texts_and_calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield ast.unparse(target), node.value


def _local_rank_line(script: ScriptModule) -> int:
    added = script.calls("add_argument")
    return next((call.lineno for call in added if not _LOCAL_RANK_FLAGS.isdisjoint(text_constants(call.args))), 0)


def _train_switch_line(modules: Sequence[ScriptModule]) -> int:
    """Return the line that asks for do_train alone and then trains; 0 for none, and where that is not sure.

    It is not where the source may set it, trains elsewhere as well, or takes its arguments from a class not read.
    """
    script = modules[0]
    may_be_set = any(_may_set_train_switch(node) for module in modules for node in module.nodes)
    if may_be_set or _has_unread_training_arguments(modules):
        return 0
    branches = [node for node in script.nodes if isinstance(node, ast.If) and not node.orelse]
    inside = {
        id(call): branch.lineno
        for branch in branches
        if isinstance(branch.test, ast.Attribute) and branch.test.attr == _TRAIN_SWITCH_NAME
        for statement in branch.body
        for call in _training_calls(ast.walk(statement))
    }
    everywhere = {id(call) for call in _training_calls(script.nodes)}
    return min(inside.values(), default=0) if inside.keys() >= everywhere else 0


def _training_calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls that train: of a trainer or a function; `model.train()` only says how a model computes."""
    for node in nodes:
        if isinstance(node, ast.Call) and called_function_name(node) in _TRAINING_METHODS:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if owner is None or "trainer" in ast.unparse(owner).lower():
                yield node


def _may_set_train_switch(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "set_training" or (node.attr == _TRAIN_SWITCH_NAME and isinstance(node.ctx, ast.Store))
    if isinstance(node, ast.keyword):
        return node.arg in {_TRAIN_SWITCH_NAME, "args_file_flag", "args_filename"}
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _TRAIN_SWITCH_SPELLINGS


def _has_unread_training_arguments(modules: Sequence[ScriptModule]) -> bool:
    """Return whether a class of the name of transformers' own is imported from another library."""
    defined = {node.name for module in modules for node in module.classes}
    imported = (name for module in modules for name in imported_name_by_alias(module).values())
    return any(
        name.endswith("TrainingArguments")
        and not name.startswith("transformers.")
        and name.rpartition(".")[2] not in defined
        for name in imported
    )

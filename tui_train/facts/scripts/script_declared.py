"""The arguments that a script declares by decorators, signatures, dataclasses and constants, as its source says."""

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.facts.scripts.script_arguments import absl_arguments, argparse_arguments, argparse_subcommands
from tui_train.facts.scripts.script_kind import DATACLASS_PARSERS
from tui_train.facts.scripts.script_syntax import (
    ScriptModule,
    called_name,
    is_constant_true,
    keyword_value,
    last_name,
    one_line_text,
    plain_value,
    plain_values,
    text_constant,
    text_constants,
)
from tui_train.facts.types import ParameterForm, ScriptKind, ScriptParameter

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN_TYPE_NAMES = {"int", "float", "str", "bool"}


def declared_arguments(
    script_kind: ScriptKind, file: str, modules: tuple[ScriptModule, ...]
) -> Iterator[ScriptParameter]:
    """Yield the arguments of a script that reads its command line in this way, in this file."""
    in_file = [module for module in modules if module.file == file]
    if script_kind == "argparse":
        # Another file with a parser of its own is a program of its own.
        helpers = [module for module in modules if module not in in_file and not any(module.calls("ArgumentParser"))]
        yield from (parameter for module in (*in_file, *helpers) for parameter in argparse_arguments(module))
    for module in in_file:
        if script_kind == "click":
            yield from click_arguments(module)
        elif script_kind == "nanogpt":
            yield from constant_arguments(module)
        elif script_kind in {"typer", "fire"}:
            yield from typer_or_fire_arguments(module)
        elif script_kind in {"dataclass", "hf-trainer", "trl"}:
            classes = _dataclasses_given_to_parser(module)
            yield from (parameter for each in modules for parameter in dataclass_arguments(each, classes))
    if script_kind == "absl":
        yield from (parameter for module in modules for parameter in absl_arguments(module))


def script_subcommands(script_kind: ScriptKind, modules: tuple[ScriptModule, ...]) -> tuple[str, ...]:
    """Return the subcommands of a script, in the order of their lines, or of its nodes."""
    found: Iterator[str] = (name for module in modules for name in argparse_subcommands(module))
    if script_kind in {"click", "typer"}:
        found = (name for module in modules for name in _decorated_subcommands(module, script_kind))
    return tuple(dict.fromkeys(found))


def requires_subcommand(script_kind: ScriptKind, modules: tuple[ScriptModule, ...]) -> bool:
    """Return whether a script that has subcommands surely ends without one."""
    if script_kind in {"click", "typer"}:
        made = [call for module in modules for call in module.calls("group", "Typer", "callback")]
        other = any(_has_command_outside_groups(module) for module in modules) if script_kind == "click" else False
        return not other and not any(is_constant_true(keyword_value(call, "invoke_without_command")) for call in made)
    return any(
        is_constant_true(keyword_value(call, "required"))
        for module in modules
        for call in module.calls("add_subparsers")
    )


def _has_command_outside_groups(module: ScriptModule) -> bool:
    """Return whether a function is a command of no group: it may be what the script runs."""
    functions = [node for node in module.nodes if isinstance(node, _FunctionNode)]
    groups = _command_groups(module)
    return any(
        _decorator_name(each) == "command" and _command_owner(each) not in groups
        for node in functions
        for each in node.decorator_list
    )


def _decorated_subcommands(module: ScriptModule, script_kind: ScriptKind) -> Iterator[str]:
    functions = [node for node in module.nodes if isinstance(node, _FunctionNode)]
    groups = _command_groups(module)
    owned = [(each, node) for node in functions for each in node.decorator_list if _command_owner(each)]
    if script_kind == "click":
        yield from (_command_name(each, node) for each, node in owned if _command_owner(each) in groups)
    elif len(owned) > 1:
        yield from (_command_name(each, node) for each, node in owned)


def click_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the options and arguments that decorate functions, each with the subcommand that takes it."""
    groups = _command_groups(module)
    for node in module.nodes:
        if not isinstance(node, _FunctionNode):
            continue
        calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
        command = next(
            (_command_name(each, node) for each in node.decorator_list if _command_owner(each) in groups), ""
        )
        for call in calls:
            if called_name(call) in {"option", "argument"} and (parameter := _click_argument(call)):
                yield replace(parameter, file=module.file, command=command)


def typer_or_fire_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the parameters of the functions that typer or fire runs."""
    run = {last_name(argument) for call in module.calls("run", "Fire") for argument in call.args[:1]}
    functions = [node for node in module.nodes if isinstance(node, _FunctionNode)]
    fire = any(module.calls("Fire"))
    by_app = {node: each for node in functions for each in node.decorator_list if _command_owner(each)}
    for node in functions:
        if node.name in run or node in by_app:
            command = _command_name(by_app[node], node) if node in by_app and len(by_app) > 1 else ""
            parameters = _function_arguments(node, module.file, is_fire=fire)
            yield from (replace(parameter, command=command) for parameter in parameters)


def _function_arguments(node: _FunctionNode, file: str, *, is_fire: bool) -> Iterator[ScriptParameter]:
    """Yield the parameters of a function: options, or positional where there is no default.

    Where typer takes --dry-run and --no-dry-run, fire takes --dry_run and --nodry_run.
    """
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    for each, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        typed = last_name(each.annotation)
        option = isinstance(default, ast.Call) and called_name(default) == "Option"
        value = default.args[0] if isinstance(default, ast.Call) and default.args else default
        names, off = _on_and_off_flags(text_constants(default.args[1:]) if isinstance(default, ast.Call) else ())
        usual = each.arg if is_fire else each.arg.replace("_", "-")
        lists = not is_fire and each.annotation is not None and "list" in ast.unparse(each.annotation).lower()
        form: ParameterForm = "positional" if default is None else "option"
        if typed == "bool" and default is not None:
            form = "switch" if names and not off else "pair"
            off = off or (() if names else (f"--no{'' if is_fire else '-'}{usual}",))
        name = max(names, key=len, default=f"--{usual}")
        yield ScriptParameter(
            name=each.arg if form == "positional" else name,
            flags=names or ((name,) if form != "positional" else ()),
            off=off,
            form=form,
            takes_several=lists,
            repeats=lists and form == "option",
            type=typed or _constant_type(value),
            default="" if default is None else plain_value(value),
            help=one_line_text(keyword_value(default, "help")) if option and isinstance(default, ast.Call) else "",
            required=default is None,
            line=each.lineno,
            file=file,
        )


def dataclass_arguments(module: ScriptModule, classes: frozenset[str]) -> Iterator[ScriptParameter]:
    """Yield the fields of these classes, where a module defines them."""
    for node in module.nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in classes:
            continue
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield _dataclass_field_argument(each, each.target.id, module.file)


def constant_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the plain values at the top of a script, which nanoGPT's configurator takes as --NAME=VALUE."""
    for node in module.nodes:
        if not isinstance(node, ast.Assign) or node.col_offset or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if not name.startswith("_") and _constant_type(node.value):
            flag = f"--{name}"
            typed, value = _constant_type(node.value), plain_value(node.value)
            yield ScriptParameter(
                name=flag, flags=(flag,), type=typed, default=value, line=node.lineno, file=module.file
            )


def _dataclasses_given_to_parser(module: ScriptModule) -> frozenset[str]:
    """Return the classes that a parser of dataclasses is given."""
    calls = module.calls(*DATACLASS_PARSERS)
    given = [argument for call in calls for argument in (*call.args, *(word.value for word in call.keywords))]
    items = [item for each in given for item in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])]
    return frozenset(map(last_name, items))


def _click_argument(call: ast.Call) -> ScriptParameter | None:
    """Return an option or argument of click, None where it has no name."""
    names = text_constants(call.args)
    flags = tuple(flag for flag in names if flag.startswith("-"))
    positional = called_name(call) == "argument"
    if not names or not (flags or positional):
        return None
    flags, off = _on_and_off_flags(flags)
    if not (flags or positional):
        return None
    switch = is_constant_true(keyword_value(call, "is_flag")) or is_constant_true(keyword_value(call, "count"))
    form: ParameterForm = "positional" if positional else "pair" if off else "switch" if switch else "option"
    typed, default = keyword_value(call, "type"), keyword_value(call, "default")
    choices = typed.args[0] if isinstance(typed, ast.Call) and called_name(typed) == "Choice" and typed.args else None
    bounded = {"IntRange": "int", "FloatRange": "float", "Path": "str", "Choice": "str"}
    named = called_name(typed) if isinstance(typed, ast.Call) else last_name(typed)
    required = plain_value(keyword_value(call, "required"))
    nargs, multiple = plain_value(keyword_value(call, "nargs")), is_constant_true(keyword_value(call, "multiple"))
    return ScriptParameter(
        name=names[0] if positional else max(flags, key=lambda flag: (flag.startswith("--"), len(flag))),
        flags=() if positional else flags,
        off=off,
        form=form,
        type="bool"
        if form in {"pair", "switch"}
        else bounded.get(named, named.lower()) or _constant_type(default) or "str",
        default=plain_value(default),
        choices=plain_values(choices),
        help=one_line_text(keyword_value(call, "help")),
        required=required == "True" or (positional and not required and default is None and nargs != "-1"),
        takes_several=multiple or nargs not in {"", "1"},
        repeats=multiple and nargs in {"", "1"},
        line=call.lineno,
    )


def _on_and_off_flags(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that click's --on/--off declares: those that turn it on, and those that turn it off."""
    halves = [[half.strip() for half in flag.split("/", 1)] for flag in flags]
    on = tuple(each[0] for each in halves if each[0])
    return on, tuple(each[1] for each in halves if len(each) > 1 and each[1])


def _command_groups(module: ScriptModule) -> frozenset[str]:
    """Return the functions that are groups of commands."""
    functions = [node for node in module.nodes if isinstance(node, _FunctionNode)]
    return frozenset(
        node.name for node in functions if any(_decorator_name(each) == "group" for each in node.decorator_list)
    )


def _decorator_name(decorator: ast.expr) -> str:
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _command_owner(decorator: ast.expr) -> str:
    """Return what a decorator a.command belongs to."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(function.value) if isinstance(function, ast.Attribute) and function.attr == "command" else ""


def _command_name(decorator: ast.expr, node: _FunctionNode) -> str:
    named = text_constant(decorator.args[0]) if isinstance(decorator, ast.Call) and decorator.args else ""
    return named or node.name.replace("_", "-")


def _dataclass_field_argument(node: ast.AnnAssign, name: str, file: str) -> ScriptParameter:
    """Return a field of a dataclass, as HfArgumentParser takes it."""
    call = node.value if isinstance(node.value, ast.Call) and called_name(node.value) in {"field", "HfArg"} else None
    value = keyword_value(call, "default") if call else node.value
    metadata = keyword_value(call, "metadata") if call else None
    metadata_values = (
        dict(zip(map(text_constant, metadata.keys), metadata.values, strict=True))
        if isinstance(metadata, ast.Dict)
        else {}
    )
    typed = _annotation_type(node.annotation)
    return ScriptParameter(
        name=f"--{name}",
        flags=(f"--{name}",),
        form="option",
        type=typed,
        default=plain_value(value),
        help=one_line_text(metadata_values.get("help") or (keyword_value(call, "help") if call else None)),
        required=node.value is None or bool(call and value is None and keyword_value(call, "default_factory") is None),
        takes_several="list" in ast.unparse(node.annotation).lower(),
        line=node.lineno,
        file=file,
    )


def _annotation_type(node: ast.expr) -> str:
    """Return the plain type in an annotation such as Optional[int] or float | None."""
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in _PLAIN_TYPE_NAMES]
    return names[0] if names else last_name(node)


def _constant_type(node: ast.AST | None) -> str:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return type(value.value).__name__ if isinstance(value, ast.Constant) and value.value is not None else ""

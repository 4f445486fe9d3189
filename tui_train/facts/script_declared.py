"""The arguments that a script declares by decorators, signatures, dataclasses and constants, as its source says."""

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.facts.script_arguments import by_absl, by_argparse, parsers
from tui_train.facts.script_calls import (
    Module,
    called,
    is_true,
    keyword,
    last_name,
    plain,
    plains,
    sentence,
    text,
    texts,
)
from tui_train.facts.script_kind import PARSERS
from tui_train.facts.types import Parameter, ParameterForm, ScriptKind

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_TYPES = {"int", "float", "str", "bool"}


def declared(kind: ScriptKind, file: str, modules: tuple[Module, ...]) -> Iterator[Parameter]:
    """Yield the arguments of a script that reads its command line in this way, in this file."""
    there = [module for module in modules if module.file == file]
    if kind == "argparse":
        # Another file with a parser of its own is a program of its own.
        helpers = [module for module in modules if module not in there and not any(module.calls("ArgumentParser"))]
        yield from (parameter for module in (*there, *helpers) for parameter in by_argparse(module))
    for module in there:
        if kind == "click":
            yield from by_click(module)
        elif kind == "nanogpt":
            yield from by_constants(module)
        elif kind in {"typer", "fire"}:
            yield from by_signature(module)
        elif kind in {"dataclass", "hf-trainer", "trl"}:
            classes = _parsed(module)
            yield from (parameter for each in modules for parameter in by_dataclass(each, classes))
    if kind == "absl":
        yield from (parameter for module in modules for parameter in by_absl(module))


def commands(kind: ScriptKind, modules: tuple[Module, ...]) -> tuple[str, ...]:
    """Return the subcommands of a script, in the order of their lines, or of its nodes."""
    found: Iterator[str] = (name for module in modules for name in parsers(module))
    if kind in {"click", "typer"}:
        found = (name for module in modules for name in _by_decorators(module, kind))
    return tuple(dict.fromkeys(found))


def needs_command(kind: ScriptKind, modules: tuple[Module, ...]) -> bool:
    """Return whether a script that has subcommands surely ends without one."""
    if kind in {"click", "typer"}:
        made = [call for module in modules for call in module.calls("group", "Typer", "callback")]
        other = any(_called_alone(module) for module in modules) if kind == "click" else False
        return not other and not any(is_true(keyword(call, "invoke_without_command")) for call in made)
    return any(is_true(keyword(call, "required")) for module in modules for call in module.calls("add_subparsers"))


def _called_alone(module: Module) -> bool:
    """Return whether a function is a command of no group: it may be what the script runs."""
    functions = [node for node in module.nodes if isinstance(node, _Function)]
    groups = _groups(module)
    return any(
        _last(each) == "command" and _owner(each) not in groups for node in functions for each in node.decorator_list
    )


def _by_decorators(module: Module, kind: ScriptKind) -> Iterator[str]:
    functions = [node for node in module.nodes if isinstance(node, _Function)]
    groups = _groups(module)
    owned = [(each, node) for node in functions for each in node.decorator_list if _owner(each)]
    if kind == "click":
        yield from (_command(each, node) for each, node in owned if _owner(each) in groups)
    elif len(owned) > 1:
        yield from (_command(each, node) for each, node in owned)


def by_click(module: Module) -> Iterator[Parameter]:
    """Yield the options and arguments that decorate functions, each with the subcommand that takes it."""
    groups = _groups(module)
    for node in module.nodes:
        if not isinstance(node, _Function):
            continue
        calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
        command = next((_command(each, node) for each in node.decorator_list if _owner(each) in groups), "")
        for call in calls:
            if called(call) in {"option", "argument"} and (parameter := _click(call)):
                yield replace(parameter, file=module.file, command=command)


def by_signature(module: Module) -> Iterator[Parameter]:
    """Yield the parameters of the functions that typer or fire runs."""
    run = {last_name(argument) for call in module.calls("run", "Fire") for argument in call.args[:1]}
    functions = [node for node in module.nodes if isinstance(node, _Function)]
    fire = any(module.calls("Fire"))
    by_app = {node: each for node in functions for each in node.decorator_list if _owner(each)}
    for node in functions:
        if node.name in run or node in by_app:
            command = _command(by_app[node], node) if node in by_app and len(by_app) > 1 else ""
            parameters = _signature(node, module.file, fire=fire)
            yield from (replace(parameter, command=command) for parameter in parameters)


def _signature(node: _Function, file: str, *, fire: bool) -> Iterator[Parameter]:
    """Yield the parameters of a function: options, or positional where there is no default.

    Where typer takes --dry-run and --no-dry-run, fire takes --dry_run and --nodry_run.
    """
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    for each, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        typed = last_name(each.annotation)
        option = isinstance(default, ast.Call) and called(default) == "Option"
        value = default.args[0] if isinstance(default, ast.Call) and default.args else default
        names, off = _both(texts(default.args[1:]) if isinstance(default, ast.Call) else ())
        usual = each.arg if fire else each.arg.replace("_", "-")
        lists = not fire and each.annotation is not None and "list" in ast.unparse(each.annotation).lower()
        form: ParameterForm = "positional" if default is None else "option"
        if typed == "bool" and default is not None:
            form = "switch" if names and not off else "pair"
            off = off or (() if names else (f"--no{'' if fire else '-'}{usual}",))
        name = max(names, key=len, default=f"--{usual}")
        yield Parameter(
            name=each.arg if form == "positional" else name,
            flags=names or ((name,) if form != "positional" else ()),
            off=off,
            form=form,
            several=lists,
            repeats=lists and form == "option",
            type=typed or _type(value),
            default="" if default is None else plain(value),
            help=sentence(keyword(default, "help")) if option and isinstance(default, ast.Call) else "",
            required=default is None,
            line=each.lineno,
            file=file,
        )


def by_dataclass(module: Module, classes: frozenset[str]) -> Iterator[Parameter]:
    """Yield the fields of these classes, where a module defines them."""
    for node in module.nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in classes:
            continue
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield _field(each, each.target.id, module.file)


def by_constants(module: Module) -> Iterator[Parameter]:
    """Yield the plain values at the top of a script, which nanoGPT's configurator takes as --NAME=VALUE."""
    for node in module.nodes:
        if not isinstance(node, ast.Assign) or node.col_offset or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if not name.startswith("_") and _type(node.value):
            flag = f"--{name}"
            typed, value = _type(node.value), plain(node.value)
            yield Parameter(name=flag, flags=(flag,), type=typed, default=value, line=node.lineno, file=module.file)


def _parsed(module: Module) -> frozenset[str]:
    """Return the classes that a parser of dataclasses is given."""
    calls = module.calls(*PARSERS)
    given = [argument for call in calls for argument in (*call.args, *(word.value for word in call.keywords))]
    items = [item for each in given for item in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])]
    return frozenset(map(last_name, items))


def _click(call: ast.Call) -> Parameter | None:
    """Return an option or argument of click, None where it has no name."""
    names = texts(call.args)
    flags = tuple(flag for flag in names if flag.startswith("-"))
    positional = called(call) == "argument"
    if not names or not (flags or positional):
        return None
    flags, off = _both(flags)
    if not (flags or positional):
        return None
    switch = is_true(keyword(call, "is_flag")) or is_true(keyword(call, "count"))
    form: ParameterForm = "positional" if positional else "pair" if off else "switch" if switch else "option"
    typed, default = keyword(call, "type"), keyword(call, "default")
    choices = typed.args[0] if isinstance(typed, ast.Call) and called(typed) == "Choice" and typed.args else None
    bounded = {"IntRange": "int", "FloatRange": "float", "Path": "str", "Choice": "str"}
    named = called(typed) if isinstance(typed, ast.Call) else last_name(typed)
    nargs, multiple = plain(keyword(call, "nargs")), is_true(keyword(call, "multiple"))
    return Parameter(
        name=names[0] if positional else max(flags, key=lambda flag: (flag.startswith("--"), len(flag))),
        flags=() if positional else flags,
        off=off,
        form=form,
        type="bool" if form in {"pair", "switch"} else bounded.get(named, named.lower()) or _type(default) or "str",
        default=plain(default),
        choices=plains(choices),
        help=sentence(keyword(call, "help")),
        required=is_true(keyword(call, "required")) or (positional and default is None and nargs != "-1"),
        several=multiple or nargs not in {"", "1"},
        repeats=multiple and nargs in {"", "1"},
        line=call.lineno,
    )


def _both(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that click's --on/--off declares: those that turn it on, and those that turn it off."""
    halves = [[half.strip() for half in flag.split("/", 1)] for flag in flags]
    on = tuple(each[0] for each in halves if each[0])
    return on, tuple(each[1] for each in halves if len(each) > 1 and each[1])


def _groups(module: Module) -> frozenset[str]:
    """Return the functions that are groups of commands."""
    functions = [node for node in module.nodes if isinstance(node, _Function)]
    return frozenset(node.name for node in functions if any(_last(each) == "group" for each in node.decorator_list))


def _last(decorator: ast.expr) -> str:
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _owner(decorator: ast.expr) -> str:
    """Return what a decorator a.command belongs to."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(function.value) if isinstance(function, ast.Attribute) and function.attr == "command" else ""


def _command(decorator: ast.expr, node: _Function) -> str:
    named = text(decorator.args[0]) if isinstance(decorator, ast.Call) and decorator.args else ""
    return named or node.name.replace("_", "-")


def _field(node: ast.AnnAssign, name: str, file: str) -> Parameter:
    """Return a field of a dataclass, as HfArgumentParser takes it."""
    call = node.value if isinstance(node.value, ast.Call) and called(node.value) in {"field", "HfArg"} else None
    value = keyword(call, "default") if call else node.value
    metadata = keyword(call, "metadata") if call else None
    told = dict(zip(map(text, metadata.keys), metadata.values, strict=True)) if isinstance(metadata, ast.Dict) else {}
    typed = _plain_type(node.annotation)
    return Parameter(
        name=f"--{name}",
        flags=(f"--{name}",),
        form="option",
        type=typed,
        default=plain(value),
        help=sentence(told.get("help") or (keyword(call, "help") if call else None)),
        required=node.value is None or bool(call and value is None and keyword(call, "default_factory") is None),
        several="list" in ast.unparse(node.annotation).lower(),
        line=node.lineno,
        file=file,
    )


def _plain_type(node: ast.expr) -> str:
    """Return the plain type in an annotation such as Optional[int] or float | None."""
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in _TYPES]
    return names[0] if names else last_name(node)


def _type(node: ast.AST | None) -> str:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return type(value.value).__name__ if isinstance(value, ast.Constant) and value.value is not None else ""

"""The arguments that a script declares by decorators, signatures, dataclasses and constants, as its source says."""

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.facts.script_arguments import by_absl, by_argparse
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
    by_app = [node for node in functions if any(_owner(each) for each in node.decorator_list)]
    for node in functions:
        if node.name in run or node in by_app:
            command = node.name.replace("_", "-") if node in by_app and len(by_app) > 1 else ""
            yield from (replace(parameter, command=command) for parameter in _signature(node, module.file))


def _signature(node: _Function, file: str) -> Iterator[Parameter]:
    """Yield the parameters of a function: options, or positional where there is no default."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    for each, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        typed = last_name(each.annotation)
        option = isinstance(default, ast.Call) and called(default) == "Option"
        value = default.args[0] if isinstance(default, ast.Call) and default.args else default
        names = texts(default.args[1:]) if isinstance(default, ast.Call) else ()
        form: ParameterForm = "positional" if default is None else "pair" if typed == "bool" else "option"
        name = max(names, key=len, default=f"--{each.arg}")
        yield Parameter(
            name=each.arg if form == "positional" else name,
            flags=names or ((name,) if form != "positional" else ()),
            form=form,
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
    pair = any("/" in flag for flag in flags)
    flags = tuple(part.strip() for flag in flags for part in flag.split("/")[:1])
    switch = is_true(keyword(call, "is_flag")) or is_true(keyword(call, "count"))
    form: ParameterForm = "positional" if positional else "pair" if pair else "switch" if switch else "option"
    typed, default = keyword(call, "type"), keyword(call, "default")
    choices = typed.args[0] if isinstance(typed, ast.Call) and called(typed) == "Choice" and typed.args else None
    bounded = {"IntRange": "int", "FloatRange": "float", "Path": "str", "Choice": "str"}
    named = called(typed) if isinstance(typed, ast.Call) else last_name(typed)
    nargs = plain(keyword(call, "nargs"))
    return Parameter(
        name=names[0] if positional else max(flags, key=lambda flag: (flag.startswith("--"), len(flag))),
        flags=() if positional else flags,
        form=form,
        type="bool" if form in {"pair", "switch"} else bounded.get(named, named.lower()) or _type(default) or "str",
        default=plain(default),
        choices=plains(choices),
        help=sentence(keyword(call, "help")),
        required=is_true(keyword(call, "required")) or (positional and default is None and nargs != "-1"),
        several=is_true(keyword(call, "multiple")) or nargs not in {"", "1"},
        line=call.lineno,
    )


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

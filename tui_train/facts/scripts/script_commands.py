"""The functions that click, typer and fire run, and by which subcommands."""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tui_train.facts.scripts.script_kind import imported_name_by_alias
from tui_train.facts.scripts.script_syntax import (
    FunctionNode,
    ScriptModule,
    has_unknown_keywords,
    keyword_value,
    last_name,
    text_constant,
)

# click leaves them out since 8.2.
_SUFFIXES_DROPPED_BY_CLICK = frozenset({"command", "cmd", "group", "grp"})
_CLICK_LIBRARIES = frozenset({"click", "rich_click", "asyncclick"})
_CLICK_DECORATORS = frozenset({"command", "group"})


class CommandFunction(NamedTuple):
    """A function that the command line runs, with the names of its subcommand: none where it needs no name."""

    function: FunctionNode
    names: tuple[str, ...] = ()


def click_functions(module: ScriptModule) -> Iterator[CommandFunction]:
    """Yield the functions that click runs, but for those of which the source does not say by which subcommand."""
    called = {call.func.id for call in module.calls() if isinstance(call.func, ast.Name)}
    attached, commands = _add_command_call_by_function(module), [*_functions_and_click_decorators(module)]
    has_groups = bool(attached) or any(is_group for _, _, is_group, _ in commands)
    for function, decorator, is_group, is_owned in commands:
        if is_owned or function.name in attached:
            names = _click_names(function, decorator, attached.get(function.name))
            if names and not is_group:
                yield CommandFunction(function, names)
        elif is_group or not has_groups or function.name in called:
            yield CommandFunction(function)


def needs_click_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether click surely ends without a subcommand, all of which are known."""
    for module in modules:
        attached, commands = _add_command_call_by_function(module), [*_functions_and_click_decorators(module)]
        groups = {function.name for function, _, is_group, _ in commands if is_group}
        if {*attached} - {function.name for function, *_ in commands}:
            return False
        for function, decorator, is_group, is_owned in commands:
            if is_group and _may_run_without_subcommand(decorator):
                return False
            if is_owned and not (_decorator_owner_name(decorator) in groups and _click_names(function, decorator)):
                return False
            if not is_group and not is_owned and function.name not in attached:
                return False
    return True


def _functions_and_click_decorators(module: ScriptModule) -> Iterator[tuple[FunctionNode, ast.expr | None, bool, bool]]:
    """Yield the decorated functions, with what makes a command of each, whether a group, and whether one of a group."""
    name_by_alias = imported_name_by_alias(module)
    for function in module.functions:
        made = (each for each in function.decorator_list if decorator_name(each) in _CLICK_DECORATORS)
        decorator = next(made, None)
        if decorator is None and function.decorator_list:
            yield function, None, False, False
        elif decorator is not None:
            owner = _decorator_owner_name(decorator)
            is_owned = bool(owner) and name_by_alias.get(owner, owner) not in _CLICK_LIBRARIES
            yield function, decorator, decorator_name(decorator) == "group", is_owned


def _add_command_call_by_function(module: ScriptModule) -> dict[str, ast.Call]:
    """Return the calls of add_command by the name of the function that each makes a subcommand of a group."""
    return {last_name(argument): call for call in module.calls("add_command") for argument in call.args[:1]}


def _click_names(
    function: FunctionNode, decorator: ast.expr | None, attaching_call: ast.Call | None = None
) -> tuple[str, ...]:
    """Return the names that a subcommand has in one version of click or another."""
    if attaching_call and (len(attaching_call.args) > 1 or attaching_call.keywords):
        return tuple(filter(None, map(text_constant, _name_nodes(attaching_call, attaching_call.args[1:]))))
    whole = function.name.lower().replace("_", "-")
    start, _, suffix = whole.rpartition("-")
    usual = (start, whole) if start and suffix in _SUFFIXES_DROPPED_BY_CLICK else (whole,)
    return _names_of_decorator(decorator, usual)


def _names_of_decorator(decorator: ast.expr | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name that a decorator says, the usual ones where it says none; nothing where it is not known."""
    if not isinstance(decorator, ast.Call):
        return usual
    nodes = _name_nodes(decorator, decorator.args)
    if not nodes and not has_unknown_keywords(decorator):
        return usual
    return tuple(filter(None, map(text_constant, nodes[:1])))


def _name_nodes(call: ast.Call, positional: Sequence[ast.expr]) -> list[ast.expr]:
    named = keyword_value(call, "name")
    return [*positional[:1], *([named] if named else [])]


def _may_run_without_subcommand(group: ast.expr | None) -> bool:
    """Return whether a group of click may run without a subcommand, or has a class of its own that decides it."""
    return isinstance(group, ast.Call) and (
        has_unknown_keywords(group) or any(word.arg in {"invoke_without_command", "cls"} for word in group.keywords)
    )


def typer_or_fire_functions(module: ScriptModule, modules: Sequence[ScriptModule]) -> Iterator[CommandFunction]:
    """Yield the functions that typer or fire runs, but for those of which the source does not say the subcommand."""
    run = {last_name(argument) for call in module.calls("run", "Fire") for argument in call.args[:1]}
    has_groups = _takes_typer_subcommand(modules)
    for function in module.functions:
        commands = (each for each in function.decorator_list if decorator_name(each) == "command")
        decorator = next(filter(_decorator_owner_name, commands), None)
        if decorator is None:
            if function.name in run:
                yield CommandFunction(function)
            continue
        names = _names_of_decorator(decorator, (function.name.lower().replace("_", "-"),)) if has_groups else ()
        if names or not has_groups:
            yield CommandFunction(function, names)


def _takes_typer_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether typer takes the name of a subcommand: of a single one only beside a callback or an app."""
    commands = [call for module in modules for call in module.calls("command")]
    made = (keyword_value(call, "callback") for module in modules for call in module.calls("Typer"))
    decorators = (each for module in modules for function in module.functions for each in function.decorator_list)
    has_callback = any(made) or any(decorator_name(each) == "callback" for each in decorators)
    return len(commands) > 1 or has_callback or any(any(module.calls("add_typer")) for module in modules)


def needs_typer_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether typer surely ends without a subcommand."""
    made = [call for module in modules for call in module.calls("Typer", "callback")]
    return not any(map(_may_run_without_subcommand, made))


def decorator_name(decorator: ast.expr) -> str:
    """Return the last name of a decorator, called or not."""
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _decorator_owner_name(decorator: ast.expr | None) -> str:
    """Return the name of a in @a.command."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(function.value) if isinstance(function, ast.Attribute) else ""

"""The functions that click, typer and fire run, by which subcommands, and the arguments that they declare.

Arguments are declared by decorators and signatures.
"""

import ast
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tui_train.facts.scripts.script_arguments import fixed_value_count
from tui_train.facts.scripts.script_kind import imported_name_by_alias
from tui_train.facts.scripts.script_syntax import (
    FUNCTION_NODES,
    FunctionNode,
    ScriptModule,
    called_function_name,
    constant_type_name,
    has_unknown_keywords,
    is_true_constant,
    keyword_value,
    last_dotted_name,
    plain_value_text,
    plain_value_texts,
    text_constant,
    text_constants,
    text_on_one_line,
)
from tui_train.facts.types import ParameterForm, ScriptParameter

_PLAIN_TYPE_NAMES = frozenset({"str", "int", "float", "bool", "Path"})
_KEYWORDS_THAT_MAY_GIVE_A_VALUE = ("default", "envvar", "cls")
# click leaves them out since 8.2.
_SUFFIXES_DROPPED_BY_CLICK = frozenset({"command", "cmd", "group", "grp"})
_CLICK_LIBRARIES = frozenset({"click", "rich_click", "asyncclick"})
_CLICK_DECORATORS = frozenset({"command", "group"})


class _CommandFunction(NamedTuple):
    """A function that the command line runs, with the names of its subcommand: none where it needs no name."""

    function: FunctionNode
    names: tuple[str, ...] = ()


class _ClickCommand(NamedTuple):
    """A decorated function, with the decorator that makes a command of it (None: none does)."""

    function: FunctionNode
    decorator: ast.expr | None
    is_group: bool = False
    is_in_group: bool = False


def click_functions(module: ScriptModule) -> Iterator[_CommandFunction]:
    """Yield the functions that click runs, but for those of which the source does not say by which subcommand."""
    called = {call.func.id for call in module.calls() if isinstance(call.func, ast.Name)}
    attached, commands = _add_command_call_by_function(module), [*_click_commands(module)]
    has_groups = bool(attached) or any(command.is_group for command in commands)
    for function, decorator, is_group, is_in_group in commands:
        if is_in_group or function.name in attached:
            names = _click_command_names(function, decorator, attached.get(function.name))
            if names and not is_group:
                yield _CommandFunction(function, names)
        elif is_group or not has_groups or function.name in called:
            yield _CommandFunction(function)


def needs_click_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether click surely ends without a subcommand, all of which are known."""
    for module in modules:
        attached, commands = _add_command_call_by_function(module), [*_click_commands(module)]
        groups = {command.function.name for command in commands if command.is_group}
        if {*attached} - {command.function.name for command in commands}:
            return False
        for function, decorator, is_group, is_in_group in commands:
            if is_group and _may_run_without_subcommand(decorator):
                return False
            if is_in_group and not (
                _decorator_owner_name(decorator) in groups and _click_command_names(function, decorator)
            ):
                return False
            if not is_group and not is_in_group and function.name not in attached:
                return False
    return True


def _click_commands(module: ScriptModule) -> Iterator[_ClickCommand]:
    name_by_alias = imported_name_by_alias(module)
    for function in module.functions:
        made = (each for each in function.decorator_list if _decorator_name(each) in _CLICK_DECORATORS)
        decorator = next(made, None)
        if decorator is None and function.decorator_list:
            yield _ClickCommand(function, None)
        elif decorator is not None:
            owner = _decorator_owner_name(decorator)
            is_in_group = bool(owner) and name_by_alias.get(owner, owner) not in _CLICK_LIBRARIES
            yield _ClickCommand(function, decorator, _decorator_name(decorator) == "group", is_in_group)


def _add_command_call_by_function(module: ScriptModule) -> dict[str, ast.Call]:
    """Return the calls of add_command by the name of the function that each makes a subcommand of a group."""
    return {last_dotted_name(argument): call for call in module.calls("add_command") for argument in call.args[:1]}


def _click_command_names(
    function: FunctionNode, decorator: ast.expr | None, attaching_call: ast.Call | None = None
) -> tuple[str, ...]:
    """Return the names that a subcommand has in one version of click or another."""
    if attaching_call and (len(attaching_call.args) > 1 or attaching_call.keywords):
        return tuple(filter(None, map(text_constant, _command_name_nodes(attaching_call, attaching_call.args[1:]))))
    whole = function.name.lower().replace("_", "-")
    start, _, suffix = whole.rpartition("-")
    usual = (start, whole) if start and suffix in _SUFFIXES_DROPPED_BY_CLICK else (whole,)
    return _command_names_in_decorator(decorator, usual)


def _command_names_in_decorator(decorator: ast.expr | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name that a decorator says, the usual ones where it says none; nothing where it is not known."""
    if not isinstance(decorator, ast.Call):
        return usual
    nodes = _command_name_nodes(decorator, decorator.args)
    if not nodes and not has_unknown_keywords(decorator):
        return usual
    return tuple(filter(None, map(text_constant, nodes[:1])))


def _command_name_nodes(call: ast.Call, positional: Sequence[ast.expr]) -> list[ast.expr]:
    named = keyword_value(call, "name")
    return [*positional[:1], *([named] if named else [])]


def _may_run_without_subcommand(group: ast.expr | None) -> bool:
    """Return whether a group of click may run without a subcommand, or has a class of its own that decides it."""
    return isinstance(group, ast.Call) and (
        has_unknown_keywords(group) or any(word.arg in {"invoke_without_command", "cls"} for word in group.keywords)
    )


def typer_or_fire_functions(module: ScriptModule, modules: Sequence[ScriptModule]) -> Iterator[_CommandFunction]:
    """Yield the functions that typer or fire runs, but for those of which the source does not say the subcommand."""
    run = {last_dotted_name(argument) for call in module.calls("run", "Fire") for argument in call.args[:1]}
    has_groups = _takes_typer_subcommand(modules)
    for function in module.functions:
        commands = (each for each in function.decorator_list if _decorator_name(each) == "command")
        decorator = next(filter(_decorator_owner_name, commands), None)
        if decorator is None:
            if function.name in run:
                yield _CommandFunction(function)
            continue
        names = _command_names_in_decorator(decorator, (function.name.lower().replace("_", "-"),)) if has_groups else ()
        if names or not has_groups:
            yield _CommandFunction(function, names)


def _takes_typer_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether typer takes the name of a subcommand: of a single one only beside a callback or an app."""
    commands = [call for module in modules for call in module.calls("command")]
    made = (keyword_value(call, "callback") for module in modules for call in module.calls("Typer"))
    decorators = (each for module in modules for function in module.functions for each in function.decorator_list)
    has_callback = any(made) or any(_decorator_name(each) == "callback" for each in decorators)
    return len(commands) > 1 or has_callback or any(any(module.calls("add_typer")) for module in modules)


def needs_typer_subcommand(modules: Sequence[ScriptModule]) -> bool:
    """Return whether typer surely ends without a subcommand."""
    made = [call for module in modules for call in module.calls("Typer", "callback")]
    return not any(map(_may_run_without_subcommand, made))


def _decorator_name(decorator: ast.expr) -> str:
    """Return the last name of a decorator, called or not."""
    return last_dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _decorator_owner_name(decorator: ast.expr | None) -> str:
    """Return the name of a in @a.command."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_dotted_name(function.value) if isinstance(function, ast.Attribute) else ""


def click_arguments(module: ScriptModule, modules: tuple[ScriptModule, ...]) -> Iterator[ScriptParameter]:
    """Yield the options and arguments that decorate functions, each with the subcommand that takes it."""
    other_sources = _may_values_come_from_elsewhere(modules)
    for function, names in click_functions(module):
        calls = (each for each in function.decorator_list if isinstance(each, ast.Call))
        for call in calls:
            if called_function_name(call) in {"option", "argument"} and (parameter := _parameter_of_click_call(call)):
                required = parameter.is_required and not other_sources
                command = names[0] if names else ""
                yield replace(parameter, file=module.file, subcommand=command, is_required=required)


def _may_values_come_from_elsewhere(modules: tuple[ScriptModule, ...]) -> bool:
    """Return whether click may read the values of all options from variables, or from a table of defaults."""
    words = {word.arg for module in modules for call in module.calls() for word in call.keywords}
    words |= {text_constant(node) or last_dotted_name(node) for module in modules for node in module.nodes}
    return not words.isdisjoint({"auto_envvar_prefix", "default_map"})


def _parameter_of_click_call(call: ast.Call) -> ScriptParameter | None:
    """Return an option or argument of click, None where it has no name."""
    names = text_constants(call.args)
    flags = tuple(flag for flag in names if flag.startswith("-"))
    positional = called_function_name(call) == "argument"
    if not names or not (flags or positional):
        return None
    flags, off = _on_and_off_flags(flags)
    if not (flags or positional):
        return None
    switch = any(is_true_constant(keyword_value(call, each)) for each in ("is_flag", "count"))
    switch = switch or bool(keyword_value(call, "flag_value") and keyword_value(call, "is_flag") is None)
    form: ParameterForm = "positional" if positional else "pair" if off else "switch" if switch else "option"
    typed, default = keyword_value(call, "type"), keyword_value(call, "default")
    choices = (
        typed.args[0]
        if isinstance(typed, ast.Call) and called_function_name(typed) == "Choice" and typed.args
        else None
    )
    bounded = {"IntRange": "int", "FloatRange": "float", "Path": "str", "Choice": "str"}
    named = called_function_name(typed) if isinstance(typed, ast.Call) else last_dotted_name(typed)
    nargs, multiple = _click_nargs_text(call), is_true_constant(keyword_value(call, "multiple"))
    return ScriptParameter(
        name=names[0] if positional else max(flags, key=lambda flag: (flag.startswith("--"), len(flag))),
        flags=() if positional else flags,
        off_flags=off,
        form=form,
        type="bool"
        if form in {"pair", "switch"}
        else bounded.get(named, named.lower()) or constant_type_name(default) or "str",
        default=plain_value_text(default),
        choices=plain_value_texts(choices),
        help=text_on_one_line(keyword_value(call, "help")),
        is_required=_is_required_by_click(call, nargs),
        takes_several=multiple or nargs != "1",
        value_count=fixed_value_count(nargs),
        repeats_name_per_value=multiple and nargs == "1",
        line=call.lineno,
    )


def _click_nargs_text(call: ast.Call) -> str:
    """Return how many values an option or argument takes, empty where it is not known."""
    node, typed = keyword_value(call, "nargs"), keyword_value(call, "type")
    if isinstance(typed, ast.Call) and called_function_name(typed) == "Tuple":
        return ""
    if isinstance(typed, ast.Tuple):
        return str(len(typed.elts))
    return plain_value_text(node) if node else "1"


def _is_required_by_click(call: ast.Call, nargs: str) -> bool:
    """Return whether click surely ends without a value for an option or argument."""
    said = keyword_value(call, "required")
    if has_unknown_keywords(call) or any(keyword_value(call, each) for each in _KEYWORDS_THAT_MAY_GIVE_A_VALUE):
        return False
    return is_true_constant(said) or (
        called_function_name(call) == "argument" and said is None and nargs not in {"", "-1"}
    )


def _on_and_off_flags(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that click's --on/--off declares: those that turn it on, and those that turn it off."""
    halves = [[half.strip() for half in flag.split("/", 1)] for flag in flags]
    on = tuple(each[0] for each in halves if each[0])
    return on, tuple(each[1] for each in halves if len(each) > 1 and each[1])


def typer_or_fire_arguments(module: ScriptModule, modules: tuple[ScriptModule, ...]) -> Iterator[ScriptParameter]:
    """Yield the parameters of the functions that typer or fire runs."""
    fire = any(module.calls("Fire"))
    assigned, other_sources = dict(_assigned_names_and_values(module)), _may_values_come_from_elsewhere(modules)
    for function, names in typer_or_fire_functions(module, modules):
        is_certain = not other_sources and _gets_values_from_command_line_only(function, module, is_fire=fire)
        for parameter in _parameters_of_function(function, module.file, assigned, is_fire=fire):
            command, required = names[0] if names else "", parameter.is_required and is_certain
            yield replace(parameter, subcommand=command, is_required=required)


def _gets_values_from_command_line_only(function: FunctionNode, module: ScriptModule, *, is_fire: bool) -> bool:
    """Return whether the words of the command line, as they are, surely are all that a function is given."""
    decorators = {_decorator_name(each) for each in function.decorator_list}
    if (
        function.col_offset
        or decorators - {"command", "callback"}
        or not (is_fire or _has_plain_types_and_defaults(function))
    ):
        return False
    apps = {
        last_dotted_name(target)
        for node in module.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_function_name(node.value) == "Typer"
        for target in node.targets
    }
    starts = [call for call in module.calls() if _starts_typer_or_fire(call, apps)]
    if len(starts) != 1 or starts[0].keywords:
        return False
    given = [each.id if isinstance(each, ast.Name) else "" for each in starts[0].args]
    if given != ([] if called_function_name(starts[0]) in apps else [function.name]):
        return False
    others = (node for node in module.nodes if node is not function)
    if is_fire != (called_function_name(starts[0]) == "Fire"):
        return False
    return not any(_may_change_function_or_argv(node, function.name) for node in others)


def _has_plain_types_and_defaults(function: FunctionNode) -> bool:
    """Return whether the source says plainly of each parameter what typer makes of it."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    defaults = [each for each in (*arguments.defaults, *arguments.kw_defaults) if each is not None]
    types = [each.annotation for each in named if each.annotation]
    is_plain = all(_plain_type_name(each) in _PLAIN_TYPE_NAMES or _is_annotated_plain_type(each) for each in types)
    return is_plain and all(isinstance(each, ast.Constant) or _is_typer_declaration(each) for each in defaults)


def _is_annotated_plain_type(annotation: ast.expr) -> bool:
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    plain = inner.elts[0] if isinstance(inner, ast.Tuple) else None
    is_named = isinstance(annotation, ast.Subscript) and last_dotted_name(annotation.value) == "Annotated"
    return is_named and plain is not None and _plain_type_name(plain) in _PLAIN_TYPE_NAMES


def _starts_typer_or_fire(call: ast.Call, apps: Container[str]) -> bool:
    name = called_function_name(call)
    owner = last_dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return name in apps or name == "Fire" or (name == "run" and owner in {"", "typer"})


def _may_change_function_or_argv(node: ast.AST, name: str) -> bool:
    """Return whether a node gives the name of a function another meaning, calls it, or changes the command line."""
    if isinstance(node, (*FUNCTION_NODES, ast.ClassDef)):
        return node.name == name
    if isinstance(node, ast.Call):
        return called_function_name(node) in {name, "CliRunner"} and not isinstance(node.func, ast.Attribute)
    if isinstance(node, ast.Name):
        return (node.id == name and isinstance(node.ctx, ast.Store)) or node.id in {"argv", "globals"}
    return isinstance(node, ast.Attribute) and node.attr == "argv"


def _assigned_names_and_values(module: ScriptModule) -> Iterator[tuple[str, ast.expr]]:
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))


def _assigned_variable_name(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _ParameterDeclaration(NamedTuple):
    """A parameter as a signature declares it: type, call of typer, names, default."""

    annotation: ast.expr | None
    typer_call: ast.Call | None
    names: tuple[str, ...]
    default: ast.expr | None


def _parameters_of_function(
    node: FunctionNode, file: str, assigned: Mapping[str, ast.expr], *, is_fire: bool
) -> Iterator[ScriptParameter]:
    """Yield the parameters of a function: options, or positional where there is no default.

    Where typer takes --dry-run and --no-dry-run, fire takes --dry_run and --nodry_run.
    """
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    for each, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        plain = _ParameterDeclaration(each.annotation, None, (), default)
        declaration = plain if is_fire else _typer_declaration(each.annotation, default, assigned)
        if declaration is not None and last_dotted_name(declaration.annotation) != "Context":
            yield _parameter_of_signature(each, declaration, file, is_fire=is_fire)


def _typer_declaration(
    annotation: ast.expr | None, default: ast.expr | None, assigned: Mapping[str, ast.expr]
) -> _ParameterDeclaration | None:
    """Return how typer reads a parameter, None where the source does not say its names."""
    annotation = assigned.get(_assigned_variable_name(annotation), annotation)
    named = assigned.get(_assigned_variable_name(default))
    default = named if named and _is_typer_declaration(named) else default
    if isinstance(default, ast.Call) and _is_typer_declaration(default):
        value = default.args[0] if default.args else keyword_value(default, "default")
        made = value or keyword_value(default, "default_factory")
        no_default = made is None or (isinstance(made, ast.Constant) and made.value is ...)
        return _ParameterDeclaration(
            annotation, default, text_constants(default.args[1:]), None if no_default else made
        )
    if not (isinstance(annotation, ast.Subscript) and last_dotted_name(annotation.value) == "Annotated"):
        return _ParameterDeclaration(annotation, None, (), default)
    plain, *told = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    calls = [each for one in told if isinstance(each := assigned.get(_assigned_variable_name(one), one), ast.Call)]
    if len(calls) < len(told):
        return None
    call = next(filter(_is_typer_declaration, calls), None)
    return _ParameterDeclaration(plain, call, text_constants(call.args) if call else (), default)


def _is_typer_declaration(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_function_name(node) in {"Option", "Argument"}


def _may_get_value_elsewhere(typer_call: ast.Call) -> bool:
    """Return whether typer may find a value of a parameter elsewhere than on the command line."""
    words = ("envvar", "default_factory", "prompt", "callback", "is_eager", "count", "default")
    return has_unknown_keywords(typer_call) or any(keyword_value(typer_call, word) for word in words)


def _plain_type_name(annotation: ast.expr | None) -> str:
    """Return the name of a type, of `Optional[bool]` or `bool | None` that of bool."""
    if isinstance(annotation, ast.Subscript) and last_dotted_name(annotation.value) == "Optional":
        return _plain_type_name(annotation.slice)
    if isinstance(annotation, ast.BinOp):
        names = {_plain_type_name(annotation.left), _plain_type_name(annotation.right)} - {"None", ""}
        return next(iter(names)) if len(names) == 1 else ""
    return last_dotted_name(annotation)


def _parameter_of_signature(
    each: ast.arg, declaration: _ParameterDeclaration, file: str, *, is_fire: bool
) -> ScriptParameter:
    annotation, typer_call, names, default = declaration
    typed = _plain_type_name(annotation) or constant_type_name(default)
    names, off = _on_and_off_flags(names)
    usual = each.arg if is_fire else each.arg.replace("_", "-")
    lists = not is_fire and annotation is not None and "list" in ast.unparse(annotation).lower()
    value = default.args[0] if isinstance(default, ast.Call) and default.args else default
    positional = called_function_name(typer_call) == "Argument" if typer_call else default is None
    form: ParameterForm = "positional" if positional else "option"
    if typer_call and any(keyword_value(typer_call, word) for word in ("count", "is_flag", "flag_value")):
        form = "switch"
    elif typed == "bool" and not positional:
        form = "switch" if names and not off else "pair"
        off = off or (() if names else (f"--no{'' if is_fire else '-'}{usual}",))
    name = max(names, key=len, default=f"--{usual}")
    return ScriptParameter(
        name=each.arg if positional else name,
        flags=() if positional else names or (name,),
        off_flags=off,
        form=form,
        takes_several=lists,
        repeats_name_per_value=lists and form == "option",
        type=typed or constant_type_name(value),
        default=plain_value_text(value),
        help=text_on_one_line(keyword_value(typer_call, "help")) if typer_call else "",
        is_required=default is None and not (typer_call and _may_get_value_elsewhere(typer_call)),
        line=each.lineno,
        file=file,
    )

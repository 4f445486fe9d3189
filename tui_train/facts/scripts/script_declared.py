"""The arguments that a script declares by decorators, signatures, dataclasses and constants, as its source says."""

import ast
from collections.abc import Iterator

from tui_train.facts.scripts.script_arguments import (
    absl_arguments,
    argparse_arguments,
    argparse_subcommands,
    has_subparsers,
    has_unnamed_subcommand,
)
from tui_train.facts.scripts.script_functions import (
    click_arguments,
    click_functions,
    needs_click_subcommand,
    needs_typer_subcommand,
    typer_or_fire_arguments,
    typer_or_fire_functions,
)
from tui_train.facts.scripts.script_kind import DATACLASS_PARSERS
from tui_train.facts.scripts.script_syntax import (
    ScriptModule,
    argument_values,
    called_function_name,
    constant_type_name,
    elements_or_itself,
    is_true_constant,
    keyword_value,
    last_dotted_name,
    plain_value_text,
    text_constant,
    text_on_one_line,
)
from tui_train.facts.types import ScriptKind, ScriptParameter

_PLAIN_TYPE_NAMES = {"int", "float", "str", "bool"}


def declared_arguments(
    script_kind: ScriptKind, file: str, modules: tuple[ScriptModule, ...]
) -> Iterator[ScriptParameter]:
    """Yield the arguments of a script that reads its command line in this way, in this file."""
    in_file = [module for module in modules if module.file == file]
    if script_kind == "argparse":
        # Another file with a parser of its own is a program of its own.
        helpers = [module for module in modules if module not in in_file and not any(module.calls("ArgumentParser"))]
        beside_subparsers = has_subparsers(modules)
        for module in (*in_file, *helpers):
            yield from argparse_arguments(module, beside_subparsers=beside_subparsers)
    for module in in_file:
        if script_kind == "click":
            yield from click_arguments(module, modules)
        elif script_kind == "nanogpt":
            yield from _nanogpt_arguments(module)
        elif script_kind in {"typer", "fire"}:
            yield from typer_or_fire_arguments(module, modules)
        elif script_kind in {"dataclass", "hf-trainer", "trl"}:
            classes = _dataclasses_given_to_parser(module)
            yield from (parameter for each in modules for parameter in _dataclass_arguments(each, classes))
    if script_kind == "absl":
        yield from (parameter for module in modules for parameter in absl_arguments(module))


def first_name_by_subcommand(script_kind: ScriptKind, modules: tuple[ScriptModule, ...]) -> dict[str, str]:
    """Return the names of a script's subcommands, each with the first name of the same one, in the order of lines."""
    if script_kind == "click":
        found = [each for module in modules for each in click_functions(module)]
    elif script_kind == "typer":
        found = [each for module in modules for each in typer_or_fire_functions(module, modules)]
    else:
        return {name: first for module in modules for name, first in argparse_subcommands(module)}
    return {name: each.names[0] for each in found for name in each.names}


def requires_subcommand(script_kind: ScriptKind, modules: tuple[ScriptModule, ...]) -> bool:
    """Return whether a script that has subcommands surely ends without one of those that are known."""
    if script_kind == "click":
        return needs_click_subcommand(modules)
    if script_kind == "typer":
        return needs_typer_subcommand(modules)
    made = [call for module in modules for call in module.calls("add_subparsers")]
    required = any(is_true_constant(keyword_value(call, "required")) for call in made)
    return required and not any(map(has_unnamed_subcommand, modules))


def _dataclass_arguments(module: ScriptModule, classes: frozenset[str]) -> Iterator[ScriptParameter]:
    """Yield the fields of these classes, where a module defines them."""
    for node in module.classes:
        for each in node.body if node.name in classes else ():
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield _dataclass_field_argument(each, each.target.id, module.file)


def _nanogpt_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the plain values at the top of a script, which nanoGPT's configurator takes as --NAME=VALUE."""
    for node in module.nodes:
        if not isinstance(node, ast.Assign) or node.col_offset or not isinstance(node.targets[0], ast.Name):
            continue
        flag, typed, value = f"--{node.targets[0].id}", constant_type_name(node.value), plain_value_text(node.value)
        if typed and not flag.startswith("--_"):
            yield ScriptParameter(
                name=flag, flags=(flag,), type=typed, default=value, line=node.lineno, file=module.file
            )


def _dataclasses_given_to_parser(module: ScriptModule) -> frozenset[str]:
    calls = module.calls(*DATACLASS_PARSERS)
    given = (argument for call in calls for argument in argument_values(call))
    return frozenset(last_dotted_name(item) for argument in given for item in elements_or_itself(argument))


def _dataclass_field_argument(node: ast.AnnAssign, name: str, file: str) -> ScriptParameter:
    """Return a field of a dataclass, as HfArgumentParser takes it."""
    call = (
        node.value
        if isinstance(node.value, ast.Call) and called_function_name(node.value) in {"field", "HfArg"}
        else None
    )
    value = keyword_value(call, "default") if call else node.value
    metadata = keyword_value(call, "metadata") if call else None
    metadata_values = (
        dict(zip(map(text_constant, metadata.keys), metadata.values, strict=True))
        if isinstance(metadata, ast.Dict)
        else {}
    )
    typed = _plain_type_in_annotation(node.annotation)
    return ScriptParameter(
        name=f"--{name}",
        flags=(f"--{name}",),
        form="option",
        type=typed,
        default=plain_value_text(value),
        help=text_on_one_line(metadata_values.get("help") or (keyword_value(call, "help") if call else None)),
        is_required=node.value is None
        or bool(call and value is None and keyword_value(call, "default_factory") is None),
        takes_several="list" in ast.unparse(node.annotation).lower(),
        line=node.lineno,
        file=file,
    )


def _plain_type_in_annotation(node: ast.expr) -> str:
    """Return the plain type in an annotation such as Optional[int] or float | None."""
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in _PLAIN_TYPE_NAMES]
    return names[0] if names else last_dotted_name(node)

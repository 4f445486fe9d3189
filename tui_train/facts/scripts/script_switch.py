"""Finds whether a script of Hugging Face's form surely trains only where it is given --do_train."""

import ast
from collections.abc import Iterator, Sequence

from tui_train.facts.scripts.script_kind import imported_name_by_alias
from tui_train.facts.scripts.script_syntax import ScriptModule, called_name

_NAME = "do_train"
_SPELLINGS = frozenset({_NAME, f"--{_NAME}", f"--{_NAME.replace('_', '-')}"})
_TRAINING_METHODS = frozenset({"train", "hyperparameter_search"})


def train_switch_line(modules: Sequence[ScriptModule]) -> int:
    """Return the line that asks for do_train alone and then trains; 0 for none, and where that is not sure.

    It is not where the source may set it, trains elsewhere as well, or takes its arguments from a class not read.
    """
    script = modules[0]
    if any(_may_set(node) for module in modules for node in module.nodes) or _has_unread_training_arguments(modules):
        return 0
    branches = [node for node in script.nodes if isinstance(node, ast.If) and _asks_for_it(node) and not node.orelse]
    inside = {id(call): branch.lineno for branch in branches for call in _training_calls(_nodes_below(branch))}
    everywhere = [id(call) for call in _training_calls(script.nodes)]
    return min(inside.values(), default=0) if inside.keys() >= {*everywhere} else 0


def _asks_for_it(branch: ast.If) -> bool:
    return isinstance(branch.test, ast.Attribute) and branch.test.attr == _NAME


def _nodes_below(branch: ast.If) -> Iterator[ast.AST]:
    for statement in branch.body:
        yield from ast.walk(statement)


def _training_calls(nodes: Iterator[ast.AST] | Sequence[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls that train: of a trainer or a function; `model.train()` only says how a model computes."""
    for node in nodes:
        if isinstance(node, ast.Call) and called_name(node) in _TRAINING_METHODS:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if owner is None or "trainer" in ast.unparse(owner).lower():
                yield node


def _may_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "set_training" or (node.attr == _NAME and isinstance(node.ctx, ast.Store))
    if isinstance(node, ast.keyword):
        return node.arg in {_NAME, "args_file_flag", "args_filename"}
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _SPELLINGS


def _has_unread_training_arguments(modules: Sequence[ScriptModule]) -> bool:
    """Return whether a class of the name of transformers' own is imported from another library."""
    defined = {node.name for module in modules for node in module.nodes if isinstance(node, ast.ClassDef)}
    imported = (name for module in modules for name in imported_name_by_alias(module).values())
    return any(
        name.endswith("TrainingArguments")
        and not name.startswith("transformers.")
        and name.rpartition(".")[2] not in defined
        for name in imported
    )

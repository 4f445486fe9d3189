"""A script's use of ranks: the line that needs them, and whether its processes surely train separately."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence

from tui_train.facts.scripts.script_syntax import FUNCTION_NODES, ScriptModule, called_function_name, last_dotted_name

_RANK_VARIABLES = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK"})
# What tells init_process_group the ranks, so that it does not look for them itself.
_PROCESS_GROUP_INIT_RANK_ARGUMENTS = frozenset({"rank", "world_size", "store", "init_method"})
_PROCESS_GROUP_INIT_FUNCTION = "init_process_group"
# Others may make one, as trainers do.
_LIBRARIES_WITHOUT_PROCESS_GROUP = frozenset(sys.stdlib_module_names) | {
    "PIL", "click", "cv2", "fire", "matplotlib", "numpy", "pandas", "scipy", "sklearn", "tensorboard", "tokenizers",
    "torch", "torchaudio", "torchmetrics", "torchvision", "tqdm", "typer", "wandb", "yaml",
}  # fmt: skip
_WORDS_OF_GROUPS = ("distributed", "parallel", "process_group")
_LATER_GPU_PATTERN = re.compile(r"cuda:0*[1-9]\d*")
_NODES_THAT_MAY_NOT_RUN = (
    ast.Try, ast.IfExp, ast.BoolOp, ast.While, *FUNCTION_NODES, ast.Lambda, ast.ClassDef
)  # fmt: skip


def surely_makes_no_process_group(modules: Sequence[ScriptModule]) -> bool:
    """Return whether no module names a process group or a second GPU, or imports a library that might make a group."""
    names = {last_dotted_name(node).lower() for module in modules for node in module.nodes}
    imports = [each for module in modules for each in module.imports]
    imported = {each.module.partition(".")[0] for each in imports if not each.level}
    own = {module.file.removesuffix(".py").partition("/")[0] for module in modules}
    texts = {node.value for module in modules for node in module.nodes if isinstance(node, ast.Constant)}
    # An alias hides what is imported: `import torch.distributed as dist`.
    names |= {word.lower() for each in imports for word in (each.module, each.name)}
    groups = any(word in name for name in names for word in _WORDS_OF_GROUPS) or not texts.isdisjoint(_RANK_VARIABLES)
    # One process that spreads its layers over GPUs itself needs all of them.
    spreads = any(isinstance(text, str) and _LATER_GPU_PATTERN.fullmatch(text) for text in texts) or any(
        any(module.calls("device_count")) for module in modules
    )
    return "torch" in imported and not (groups or spreads) and imported <= _LIBRARIES_WITHOUT_PROCESS_GROUP | own


def first_required_rank_line_and_name(nodes: Sequence[ast.AST]) -> tuple[int, str]:
    """Return the first line of a script that always runs and takes a rank from the environment, and that; 0 for none.

    `nodes` are all of the script, itself the first.

    A script that also mentions one elsewhere, as in `"RANK" in os.environ`, or below an `if` or `try`, may do without.
    """
    reads = {id(name): (name.lineno, str(name.value)) for node in nodes for name in _rank_names_read(node)}
    mentions = [node for node in nodes if isinstance(node, ast.Constant) and node.value in _RANK_VARIABLES]
    sets = any(isinstance(node, ast.keyword) and node.arg in _RANK_VARIABLES for node in nodes)
    if sets or any(id(node) not in reads for node in mentions):
        return 0, ""
    always = [each for node in _nodes_that_always_run(nodes) for each in _required_rank_lines_and_names(node)]
    return min(always, default=(0, ""))


def _required_rank_lines_and_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    for name in _rank_names_read(node):
        yield name.lineno, str(name.value)
    if isinstance(node, ast.Call) and called_function_name(node).endswith(_PROCESS_GROUP_INIT_FUNCTION):
        words = {word.arg for word in node.keywords}
        if len(node.args) <= 1 and None not in words and not words & _PROCESS_GROUP_INIT_RANK_ARGUMENTS:
            yield node.lineno, _PROCESS_GROUP_INIT_FUNCTION


def _rank_names_read(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the name of a rank that an expression reads without a default."""
    name: ast.AST | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and last_dotted_name(node.value) == "environ":
        name = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and node.args:
        # A missing one is None, which int() refuses.
        inner = node.args[0]
        if (
            isinstance(inner, ast.Call)
            and len(inner.args) == 1
            and not inner.keywords
            and _is_environment_getter(inner.func)
        ):
            name = inner.args[0]
    if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value in _RANK_VARIABLES:
        yield name


def _is_environment_getter(function: ast.AST) -> bool:
    if isinstance(function, ast.Attribute) and function.attr == "get":
        return last_dotted_name(function.value) == "environ"
    return last_dotted_name(function) == "getenv"


def _nodes_that_always_run(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes that run: not below a condition or what catches a failure, nor in what is not called."""
    functions = {node.name: node for node in nodes if isinstance(node, FUNCTION_NODES)}
    waiting: list[ast.AST] = [nodes[0]]
    while waiting:
        node = waiting.pop()
        is_condition = isinstance(node, ast.If) and not ast.unparse(node.test).startswith("__name__ ==")
        if is_condition or isinstance(node, _NODES_THAT_MAY_NOT_RUN):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call) and (called := functions.pop(ast.unparse(node.func), None)):
            waiting.extend(called.body)

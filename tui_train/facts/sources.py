"""Reads a training script without running it: whether it resumes, and what it expects of its launcher."""

import ast
import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence

from tui_train.base.files import error_reason, read_regular
from tui_train.base.text import visible
from tui_train.facts.script_arguments import unnamed
from tui_train.facts.script_calls import Module, keyword, last_name, text
from tui_train.facts.script_declared import commands, declared, needs_command
from tui_train.facts.script_kind import beside, kind
from tui_train.facts.script_ranks import needed
from tui_train.facts.types import Source

_MOST = 2**20
_MOST_IMPORTS = 400  # names; of most of them there is no file
_UNPARSED = (SyntaxError, ValueError)
_TOO_DEEP = (RecursionError, MemoryError)
# They surely have arguments, or commands, of their own.
_DECLARED = frozenset({"click", "typer", "fire", "absl"})
_RESUME = "resume_from_checkpoint"
_LOCAL_RANK = {"--local_rank", "--local-rank"}
_LONGEST = 100
_SHELL = re.compile(rb"#![^\n]{0,200}\b(ba|da|z|k|c|tc|fi)?sh\b")
_PYTHON = re.compile(rb"#![^\n]{0,200}python")


def source(path: str) -> Source:
    """Return the facts in the text of a script, or a `problem` if it cannot be read or parsed."""
    try:
        data = read_regular(path, _MOST)
    except OSError as error:
        return Source(problem=f"it cannot be read: {error_reason(error)}")
    return read(data, path.rpartition("/")[0])


def read(data: bytes, folder: str = "") -> Source:
    """Return the facts in the text of a script; what it imports from its folder is read as well, where one is given."""
    try:
        script = _module("", data)
        modules = (script, *(_beside(script, folder) if folder else ()))
        calls = [node for node in script.nodes if isinstance(node, ast.Call)]
        line, words = _bare_train([*script.nodes], calls)
        found = kind(modules)
        parameters = tuple(declared(found.kind, found.file, modules))
        others = _others(modules) if found.kind == "argparse" else 0
        rank_line, rank = needed(script.nodes)
    except _TOO_DEEP as error:
        return Source(unread=f"it is too deep to be read: {type(error).__name__}")
    except _UNPARSED as error:
        why = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)
        return Source(problem=visible(f"it is not Python: {why[:200]}"), other=_other(data))
    if other := _notebook(script.nodes[0]):
        return Source(problem="it is not Python", other=other)
    return Source(
        kind=found.kind,
        line=found.line,
        file=found.file,
        base=found.base,
        unread=found.unread,
        parameters=parameters,
        commands=commands(found.kind, modules),
        needs_command=needs_command(found.kind, modules),
        others=others,
        asks=found.asks or bool(others) or (found.kind in _DECLARED and not parameters),
        bare_train=line,
        train_words=words,
        accelerates=any(_called(call) == "Accelerator" for call in calls),
        mixes=any(_called(call) == "Accelerator" and keyword(call, "mixed_precision") for call in calls),
        names_checkpoint=_RESUME.encode() in data,
        local_rank=next((call.lineno for call in calls if _takes_local_rank(call)), 0),
        reads_local_rank=b"LOCAL_RANK" in data,
        lenient=any(map(_lenient, modules)),
        rank_line=rank_line,
        rank=rank,
    )


def _lenient(module: Module) -> bool:
    """Return whether a parser goes on with arguments that it does not know, or hands all that follow to one."""
    rest = (keyword(call, "nargs") for call in module.calls("add_argument"))
    takes_rest = any(text(nargs) == "..." or last_name(nargs) == "REMAINDER" for nargs in rest)
    return takes_rest or next(module.calls("parse_known_args", "parse_known_intermixed_args"), None) is not None


def _others(modules: Sequence[Module]) -> int:
    """Return the line that adds arguments which the source does not name, or that makes another parser; 0 for none."""
    parsers = [call.lineno for module in modules for call in module.calls("ArgumentParser")]
    return next(filter(None, map(unnamed, modules)), 0) or (parsers[1] if len(parsers) > 1 else 0)


def _module(name: str, data: bytes) -> Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Module(name, tuple(ast.walk(ast.parse(data))))


def _beside(script: Module, folder: str) -> Iterator[Module]:
    """Yield the files beside a script that it imports, as far as they can be read; those that they import are not."""
    there = (name for name in beside(script)[:_MOST_IMPORTS] if os.path.isfile(f"{folder}/{name}"))  # noqa: PTH113
    for name in there:
        with contextlib.suppress(OSError, *_UNPARSED, *_TOO_DEEP):
            yield _module(name, read_regular(f"{folder}/{name}", _MOST))


def _notebook(tree: ast.AST) -> str:
    """Return what a text is that Python could read and that trains nothing: a notebook is one literal."""
    only = tree.body[0] if isinstance(tree, ast.Module) and len(tree.body) == 1 else None
    return "a notebook" if isinstance(only, ast.Expr) and isinstance(only.value, ast.Dict) else ""


def _other(data: bytes) -> str:
    """Return what a text is that Python cannot read, empty where it may be Python of another version."""
    if _SHELL.match(data):
        return "a shell script"
    if data.startswith(b"{"):
        return "a notebook" if b'"cells"' in data else "JSON"
    # An archive that Python starts, as zipapp makes them, may begin with its interpreter.
    if b"\0" in data and not data.startswith(b"PK") and not _PYTHON.match(data):
        return "a program"
    return ""


def _bare_train(nodes: list[ast.AST], calls: list[ast.Call]) -> tuple[int, str]:
    """Return the line of a trainer's train() without a checkpoint and its correction; 0 if one is passed."""
    trainers = {text: call for node in nodes for text, call in _assigned(node) if _called(call).endswith("Trainer")}
    bare: list[tuple[int, str]] = []
    for call in calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "train":
            continue
        text = ast.unparse(call.func.value)
        direct = isinstance(call.func.value, ast.Call) and _called(call.func.value).endswith("Trainer")
        if not (direct or text in trainers or text.lower().endswith("trainer")):
            continue
        if call.args or any(word.arg in {None, _RESUME} for word in call.keywords):
            return 0, ""
        bare.append((call.lineno, _better("trainer" if direct else text, trainers.get(text))))
    return min(bare, default=(0, ""))


def _better(trainer: str, call: ast.Call | None) -> str:
    """Return the corrected call, with the names that the script uses."""
    arguments = next((ast.unparse(word.value) for word in call.keywords if word.arg == "args"), "") if call else ""
    arguments = arguments if arguments.isidentifier() else "training_args"
    trainer = trainer if len(trainer) <= _LONGEST else "trainer"
    return f"{trainer}.train({_RESUME}={arguments}.{_RESUME})"


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each name that is assigned the result of a call."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield ast.unparse(target), node.value


def _called(call: ast.Call) -> str:
    """Return the last name of the called function."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _takes_local_rank(call: ast.Call) -> bool:
    words = {word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)}
    return _called(call) == "add_argument" and bool(words & _LOCAL_RANK)

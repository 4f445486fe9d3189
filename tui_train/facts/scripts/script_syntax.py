"""Reads parts of Python code as text: names, plain values, keywords of calls; nothing is run."""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MAX_TEXT_LENGTH = 300
_MAX_DOTTED_NAMES = 60  # the most names in a row, a.b.c, that are followed
# None before Python 3.12, which splits f-strings into tokens.
_FSTRING_START, _FSTRING_MIDDLE, _FSTRING_END = (
    getattr(tokenize, f"FSTRING_{part}", None) for part in ("START", "MIDDLE", "END")
)
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class ImportedName(NamedTuple):
    """What an import brings: a `name` of a module, or the module itself (empty), where it was given an `alias`."""

    line: int
    module: str
    name: str
    alias: str
    level: int
    """The dots of a relative import."""

    @property
    def used_name(self) -> str:
        """The name by which the source uses it."""
        return self.alias or self.name or self.module.partition(".")[0]

    @property
    def whole_name(self) -> str:
        """What the used name stands for; without an alias `import a.b` makes a name of a alone."""
        return f"{self.module}.{self.name}" if self.name else self.module if self.alias else self.used_name


class ScriptModule(NamedTuple):
    """A file of a script's project: its name (empty for the script itself), and those nodes of it that may run."""

    file: str
    nodes: tuple[ast.AST, ...]

    @property
    def functions(self) -> tuple[FunctionNode, ...]:
        """The functions and methods, in the order of the nodes."""
        return tuple(node for node in self.nodes if isinstance(node, FUNCTION_NODES))

    @property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        """The classes, in the order of the nodes."""
        return tuple(node for node in self.nodes if isinstance(node, ast.ClassDef))

    @property
    def imports(self) -> Iterator[ImportedName]:
        """What is imported, in the order of the nodes."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (ImportedName(node.lineno, each.name, "", each.asname or "", 0) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                for each in node.names:
                    yield ImportedName(node.lineno, module, each.name, each.asname or "", node.level)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls of functions with one of these last names, or all, in the order of their lines."""
        matching = (
            node
            for node in self.nodes
            if isinstance(node, ast.Call) and (not names or called_function_name(node) in names)
        )
        yield from sorted(matching, key=lambda call: (call.lineno, call.col_offset))


def last_dotted_name(node: ast.AST | None) -> str:
    """Return the last name of a.b.c, empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.AST | None) -> str:
    """Return the names of a.b.c, empty for what is none."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < _MAX_DOTTED_NAMES:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def called_function_name(call: ast.Call) -> str:
    """Return the last name of the called function."""
    return last_dotted_name(call.func)


def argument_values(call: ast.Call) -> list[ast.expr]:
    """Return all that a call is passed, by position or by name."""
    return [*call.args, *(word.value for word in call.keywords)]


def elements_or_itself(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a list or tuple, and anything else as the only one."""
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword of a call, None where it has none."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def has_unknown_keywords(call: ast.Call) -> bool:
    """Return whether a call is passed keywords (**more) that the source does not name there."""
    return any(word.arg is None for word in call.keywords)


def text_constant(node: ast.AST | None) -> str:
    """Return a text constant, empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def text_constants(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Return the text constants among some nodes."""
    return tuple(value for node in nodes if (value := text_constant(node)))


def plain_value_text(node: ast.AST | None) -> str:
    """Return a plain value as text, as it would be typed: empty for None and for an expression."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    constant = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(constant, ast.Constant) or constant.value is None or constant.value is ...:
        return ""
    if isinstance(constant.value, bytes) or (negative and not isinstance(constant.value, (int, float))):
        return ""
    return ("-" if negative else "") + str(constant.value)[:_MAX_TEXT_LENGTH]


def plain_value_texts(node: ast.AST | None) -> tuple[str, ...]:
    """Return the values of a list, tuple or set, none where one of them is not plain: they would not be all."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []
    values = tuple(map(plain_value_text, items))
    return values if all(values) else ()


def is_main_guard(node: ast.AST) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and "__main__" in text_constants((test.left, *test.comparators))


def is_true_constant(node: ast.AST | None) -> bool:
    """Return whether a value is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def text_on_one_line(node: ast.AST | None) -> str:
    """Return a help text in one line."""
    return " ".join(text_constant(node).split())[:_MAX_TEXT_LENGTH]


def constant_type_name(node: ast.AST | None) -> str:
    """Return the type of a constant, empty for None and for an expression."""
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return type(value.value).__name__ if isinstance(value, ast.Constant) and value.value is not None else ""


def nested_fstring_line(data: bytes) -> int:
    """Return the line of the first f-string that holds what only Python 3.12 and later read in one, 0 for none.

    Those are its own quotes again, backslashes, comments and line ends; older Pythons do not read them here either.
    """
    if _FSTRING_START is None:
        return 0
    quotes: list[str] = []
    for token in tokenize.tokenize(io.BytesIO(data).readline):
        if token.type == _FSTRING_END:
            quotes.pop()
            continue
        around = quotes[:-1] if token.type == _FSTRING_MIDDLE else quotes
        ends_line = token.type in {tokenize.COMMENT, tokenize.NL} and any(len(quote) == 1 for quote in around)
        if ends_line or any(text in token.string for text in ("\\", *around) if around):
            return token.start[0]
        if token.type == _FSTRING_START:
            quotes.append(token.string.lstrip("fFrRbBuU"))
    return 0

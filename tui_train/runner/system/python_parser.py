"""Python's own parser, where several threads may parse at the same time."""

import ast
import threading
from typing import Any

# Before 3.13 the parser counts the depth of all threads together. Where one is interrupted by the garbage collector,
# another ends with a SystemError about its own depth (github.com/python/cpython/issues/106905).
_PARSER_LOCK = threading.RLock()  # what the garbage collector runs may parse as well


def parse_module(source: "bytes | str", minor_version: "int | None" = None) -> ast.Module:
    """Return the syntax tree of a module, as Python 3.MINOR_VERSION reads it; raises what ast.parse does."""
    with _PARSER_LOCK:
        return ast.parse(source, feature_version=minor_version and (3, minor_version))


def parse_literal(text: str) -> Any:
    """Return the value that a literal writes; raises what ast.literal_eval does."""
    with _PARSER_LOCK:
        return ast.literal_eval(text)

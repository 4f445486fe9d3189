"""Manifests as YAML that every reader reads the same: texts are quoted, files are blocks, a comment goes first."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tui_train.base.text import wrapped_lines
from tui_train.plan.render.config_yaml import QuotingDumper, SingleQuoted, register_text_style

_COMMENT_WIDTH = 116
_NAMES_READ_AS_VALUES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _BlockText(str):
    __slots__ = ()


class _ManifestDumper(QuotingDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        super().increase_indent(flow, indentless=False)


register_text_style(_ManifestDumper, _BlockText, "|")


def manifest_text(comment: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> str:
    """Return documents as one YAML file, with paragraphs as the comment at its head."""
    head = [line for paragraph in comment for line in (wrapped_lines(paragraph, _COMMENT_WIDTH, "  ") or [""])]
    lines = "".join(f"# {line}".rstrip() + "\n" for line in head)
    bodies = (
        yaml.dump(
            _with_quoting_styles(document), Dumper=_ManifestDumper, sort_keys=False, allow_unicode=True, width=10_000
        )
        for document in documents
    )
    return lines + "---\n".join(bodies)


def _with_quoting_styles(value: Any) -> Any:
    """Return a value whose texts are all quoted: to one reader or another 1e3 is a number, and no is false."""
    if isinstance(value, Mapping):
        return {
            (SingleQuoted(name) if _needs_quotes(name) else name): _with_quoting_styles(item)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_quoting_styles(item) for item in value]
    if isinstance(value, str):
        return (_BlockText if "\n" in value else SingleQuoted)(value)
    return value


def _needs_quotes(name: str) -> bool:
    """Return whether a key is more than a word, such as the name of a file or the path of a folder."""
    return not (name.isidentifier() and name.isascii()) or name.lower() in _NAMES_READ_AS_VALUES

"""Config files as YAML that reads back the same: texts are always quoted, because a bare `no` is false."""

from typing import Any

import yaml

from tui_train.base.command import PLACEHOLDER_BY_RUNTIME_VARIABLE, ConfigFile
from tui_train.base.text import visible


class SingleQuoted(str):
    """A text that is written in single quotes."""

    __slots__ = ()


class _DoubleQuoted(str):
    __slots__ = ()


class QuotingDumper(yaml.SafeDumper):
    """Writes texts in the quotes of their type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full, not as references."""
        return True


def register_text_style(dumper: type[yaml.SafeDumper], kind: type[str], style: str) -> None:
    """Have a dumper write texts of a type in a style of YAML: a quote, or | for a block."""

    def represent(writer: yaml.SafeDumper, text: str) -> yaml.Node:
        return writer.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)

    dumper.add_representer(kind, represent)


register_text_style(QuotingDumper, SingleQuoted, "'")
register_text_style(QuotingDumper, _DoubleQuoted, '"')


def render_config_yaml(config: ConfigFile) -> str:
    """Return the configuration as YAML, for any reader of YAML 1.1 or 1.2."""
    text = yaml.dump(
        _with_quoted_texts(config.values), Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return f"# {visible(config.why)}\n{text}"


def _with_quoted_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_quoted_texts(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_quoted_texts(item) for item in value]
    if isinstance(value, str):
        # The script replaces marks by text that is escaped for double quotes.
        return (
            _DoubleQuoted if any(mark in value for mark in PLACEHOLDER_BY_RUNTIME_VARIABLE.values()) else SingleQuoted
        )(value)
    return value

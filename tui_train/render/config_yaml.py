"""Config files as YAML that reads back the same: texts are always quoted, because a bare `no` is false."""

from typing import Any

import yaml

from tui_train.base.command import FILE_PLACEHOLDERS, ConfigFile
from tui_train.base.text import visible


class _Single(str):
    __slots__ = ()


class _Double(str):
    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full, not as references."""
        del data
        return True


def _single(dumper: yaml.SafeDumper, text: _Single) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="'")


def _double(dumper: yaml.SafeDumper, text: _Double) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')


_Dumper.add_representer(_Single, _single)
_Dumper.add_representer(_Double, _double)


def config_yaml(config: ConfigFile) -> str:
    """Return the configuration as YAML, for any reader of YAML 1.1 or 1.2."""
    text = yaml.dump(_quoted(config.values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return f"# {visible(config.why)}\n{text}"


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _quoted(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_quoted(item) for item in value]
    if isinstance(value, str):
        # The script replaces marks by text that is escaped for double quotes.
        return (_Double if any(mark in value for mark in FILE_PLACEHOLDERS.values()) else _Single)(value)
    return value

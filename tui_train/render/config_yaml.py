"""Configuration files as YAML that reads back the same: texts are always quoted, for a bare `no` is false."""

from typing import Any

import yaml

from tui_train.base.command import MARKS, ConfigFile
from tui_train.base.text import visible


class _Single(str):
    __slots__ = ()


class _Double(str):
    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write what stands in two places twice, not as a reference."""
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
        return {name: _quoted(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_quoted(one) for one in value]
    if isinstance(value, str):
        # The script escapes what it puts in place of a mark as a double-quoted text needs it.
        return (_Double if any(mark in value for mark in MARKS.values()) else _Single)(value)
    return value

"""accelerate.yaml: text values always quoted, for accelerate takes a bare `no` for false."""

import yaml

from tui_train.plan.types import ConfigFile, Scalar


class _Quoted(str):
    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    pass


def _represent(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="'")


_Dumper.add_representer(_Quoted, _represent)


def accelerate_yaml(config: ConfigFile) -> str:
    """Return the configuration as YAML that `accelerate launch --config_file` reads."""
    values = {name: _quoted(value) for name, value in config.values.items()}
    return f"# {config.why}\n" + yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _quoted(value: Scalar | dict[str, Scalar]) -> object:
    if isinstance(value, dict):
        return {name: _quoted(one) for name, one in value.items()}
    return _Quoted(value) if isinstance(value, str) else value

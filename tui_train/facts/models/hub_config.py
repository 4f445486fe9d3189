"""The config.json of a model of the Hub, fetched alone: a few kB that tell the sizes of a model before its download."""

from collections.abc import Mapping
from pathlib import Path

from tui_train.base.files import write_atomically
from tui_train.facts.models.hub import HubConfig, ask_child

MOST = 2**18
_DEADLINE = 10.0


def fetch(name: str, endpoint: str, revision: str = "", token: str = "", deadline: float = _DEADLINE) -> HubConfig:
    """Return a model's config.json at a revision (empty: main) within `deadline` seconds.

    `token` names the variable whose value the Hub gets; empty: none.
    """
    return ask_child("hub_config_child", (endpoint, name, revision, token), deadline, HubConfig)


def keep(environment: Mapping[str, str], name: str, revision: str, config: HubConfig) -> Path:
    """Write a fetched config.json into the Hub's cache, where huggingface_hub would; return its path; CannotWrite."""
    from tui_train.programs import hub_cache

    model = Path(hub_cache.folder_of(dict(environment)), "models--" + name.replace("/", "--"))
    path = model / "snapshots" / config.commit / "config.json"
    write_atomically(path, config.text)
    if revision != config.commit:
        write_atomically(model / "refs" / (revision or "main"), config.commit)
    return path

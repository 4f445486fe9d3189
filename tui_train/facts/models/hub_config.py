"""The config.json of a model of the Hub, fetched alone: a few kB that tell the sizes of a model before its download."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui_train.base.files import write_atomically
from tui_train.base.parse import Unparsable, json_as
from tui_train.base.text import visible
from tui_train.facts.machine.child_process import child_command, run_child
from tui_train.facts.models.hub import Refusal

MOST = 2**18
_DEADLINE = 10.0


class HubConfig(Struct, frozen=True, kw_only=True):
    """The text of a config.json and its commit, or the `refusal` with its `problem`; bare: there is no such file."""

    text: str = ""
    commit: str = ""
    refusal: Refusal | Literal["gated", "bare"] = ""
    problem: str = ""


def fetch(name: str, endpoint: str, revision: str = "", token: str = "", deadline: float = _DEADLINE) -> HubConfig:
    """Return a model's config.json at a revision (empty: main) within `deadline` seconds.

    `token` names the variable whose value the Hub gets; empty: none.
    """
    command, changes = child_command("tui_train.facts.models.hub_config_child", endpoint, name, revision, token)
    answer = run_child(command, deadline, changes)
    try:
        return json_as(answer.out, HubConfig)
    except Unparsable:
        why = "no answer in time" if answer.timed_out else answer.why_unusable()
        return HubConfig(refusal="unreachable", problem=visible(why))


def keep(environment: Mapping[str, str], name: str, revision: str, config: HubConfig) -> Path:
    """Write a fetched config.json into the Hub's cache, where huggingface_hub would; return its path; CannotWrite."""
    from tui_train.programs import hub_cache

    model = Path(hub_cache.folder_of(dict(environment)), "models--" + name.replace("/", "--"))
    path = model / "snapshots" / config.commit / "config.json"
    write_atomically(path, config.text)
    if revision != config.commit:
        write_atomically(model / "refs" / (revision or "main"), config.commit)
    return path

"""Models of Hugging Face: those in a machine's cache, and the Hub's facts on others."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from tui_train.base.files import write_atomically
from tui_train.base.parse import Unparsable, parse_json_as, type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.facts.machine.child_process import own_module_command_and_environment, run_child
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache
from tui_train.runner.system.paths import free_bytes_for_path, why_unwritable

HUB_URL = "https://huggingface.co"
# The variables that decide where models are, and whether and where others are fetched from.
_CACHE_LOCATION_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_TOKEN_PATH")
_TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_DEADLINE_SECONDS = 8.0
_CONFIG_DEADLINE_SECONDS = 10.0
# Bytes of a config.json.
MAX_CONFIG_BYTES = 2**18
HubRefusal = Literal["", "missing", "revision", "unreachable", "unusable"]


class CachedModel(Struct, frozen=True, kw_only=True):
    """A model in the cache; its texts come from files that anybody may have written."""

    id: str
    folder: str = ""
    """The folder of its files."""
    size: int = 0
    """The bytes of its files."""
    dtype: str = ""
    """In short, such as "bf16"."""
    kind: str = ""
    """The model_type of its config.json."""
    architecture: str = ""
    causal: bool = False
    """It predicts the next token."""
    missing: tuple[str, ...] = ()
    """Names of files that it lacks."""
    partial: int = 0
    """The bytes of unfinished downloads."""
    names: tuple[str, ...] = ()
    """The commit of a revision, and the branches and tags that name it."""
    revisions: "tuple[CachedModel, ...]" = ()
    """Those other than main."""

    @property
    def is_complete(self) -> bool:
        """Return whether it can be loaded without the network."""
        return not self.missing


class HubCache(Struct, frozen=True, kw_only=True):
    """The cache of a machine: its folder, the bytes free there (None: unknown), its models, or the `problem`.

    `offline`: the environment forbids to ask the Hub; `token`: there is one, by a variable or a login.
    `endpoint` is another address of the Hub, empty for the usual one; `unwritable` why nothing can be saved there.
    """

    folder: str
    free: int | None = None
    unwritable: str = ""
    offline: bool = False
    token: bool = False
    endpoint: str = ""
    models: tuple[CachedModel, ...] = ()
    problem: str = ""

    def find_model(self, name: str, revision: str = "") -> CachedModel | None:
        """Return a model by its id and revision (empty: main), None where nothing of it is in the cache."""
        main = next((model for model in self.models if model.id == name), None)
        if main is None or revision in {"", "main"}:
            return main
        return next((model for model in (main, *main.revisions) if revision in model.names), None)


class HubModel(Struct, frozen=True, kw_only=True):
    """The Hub's answer about a model: bytes to download, and whether access must be requested.

    `refusal` is the kind of the `problem`: there is none of that name (or it is private), it has no such revision, or
    there is no usable answer.
    """

    size: int = 0
    gated: bool = False
    refusal: HubRefusal = ""
    problem: str = ""


class HubModelConfig(Struct, frozen=True, kw_only=True):
    """The text of a config.json and its commit, or the `refusal` with its `problem`; bare: there is no such file."""

    text: str = ""
    commit: str = ""
    refusal: HubRefusal | Literal["gated", "bare"] = ""
    problem: str = ""


_HubAnswer = TypeVar("_HubAnswer", HubModel, HubModelConfig)


def hub_variables(profile: Profile) -> dict[str, str]:
    """Return the variables of this machine, and of the profile for the cache, that a training finds models by."""
    if profile.container.engine != "none":
        # Only HF_HOME's folder is mounted.
        return {name: os.environ[name] for name in ("HF_HOME", "XDG_CACHE_HOME") if name in os.environ}
    names = (*_CACHE_LOCATION_VARIABLES, *hub_cache.OFFLINE_VARIABLES, "HF_ENDPOINT")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    # That there is one is all that is asked.
    inherited |= {name: "set" for name in _TOKEN_VARIABLES if os.environ.get(name)}
    return inherited | cache_location_variables(profile)


def cache_location_variables(profile: Profile) -> dict[str, str]:
    """Return the variables of the profile that say where the cache is, on any machine."""
    own = profile.trainer.environment if profile.container.engine == "none" else {}
    return {name: own[name] for name in _CACHE_LOCATION_VARIABLES if name in own}


def read_hub_cache(environment: Mapping[str, str]) -> HubCache:
    """Return the cache of this machine for these variables; takes some seconds at most."""
    found = hub_cache.describe_hub_cache(dict(environment))
    folder = str(found["folder"])
    found |= {"free": free_bytes_for_path(folder), "unwritable": why_unwritable(folder)}
    return msgspec.convert(found, type_prepared_for_msgspec(HubCache))


def find_accelerate_config_path(environment: Mapping[str, str]) -> str:
    """Return the file that `accelerate config` wrote on this machine, where accelerate looks for it; empty for none."""
    return hub_cache.accelerate_config_path(dict(environment))


def snapshot_folder(environment: Mapping[str, str], model_id: str, revision: str = "") -> str:
    """Return the folder of a model's files in the cache, empty where there is none."""
    try:
        return str(hub_cache.snapshot_folder(_model_cache_folder(environment, model_id), revision) or "")
    except (OSError, ValueError):
        return ""


def query_hub_model(model_id: str, endpoint: str, revision: str = "", deadline: float = _DEADLINE_SECONDS) -> HubModel:
    """Return what the Hub says of a revision of a model (empty: main) within `deadline` seconds; without a token."""
    return _ask_hub_child(("model", endpoint, model_id, revision), deadline, HubModel)


def _ask_hub_child(arguments: tuple[str, ...], deadline: float, answer_type: type[_HubAnswer]) -> _HubAnswer:
    """Return what a child program learns from the Hub within `deadline` seconds."""
    command, changes = own_module_command_and_environment("tui_train.facts.models.hub_child", *arguments)
    answer = run_child(command, deadline, changes)
    try:
        return parse_json_as(answer.stdout, answer_type)
    except Unparsable:
        return answer_type(refusal="unreachable", problem=visible(answer.why_unusable()))


def query_hub_model_config(
    model_id: str, endpoint: str, revision: str = "", token_variable: str = ""
) -> HubModelConfig:
    """Return a model's config.json at a revision (empty: main): a few kB that tell its sizes before its download.

    `token_variable` names the variable whose value the Hub gets; empty: none.
    """
    arguments = ("config", endpoint, model_id, revision, token_variable)
    return _ask_hub_child(arguments, _CONFIG_DEADLINE_SECONDS, HubModelConfig)


def cache_model_config(environment: Mapping[str, str], model_id: str, revision: str, config: HubModelConfig) -> Path:
    """Write a fetched config.json into the Hub's cache, where huggingface_hub would; return its path; CannotWrite."""
    model_folder = _model_cache_folder(environment, model_id)
    path = model_folder / "snapshots" / config.commit / "config.json"
    write_atomically(path, config.text)
    if revision != config.commit:
        write_atomically(model_folder / "refs" / (revision or "main"), config.commit)
    return path


def _model_cache_folder(environment: Mapping[str, str], model_id: str) -> Path:
    return Path(hub_cache.hub_cache_folder(dict(environment)), "models--" + model_id.replace("/", "--"))

"""Fetches the config.json of a model whose sizes are not known here, with consent, for the memory estimate."""

from pathlib import Path

import msgspec

from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.facts.models.hub import (
    HubCache,
    HubModelConfig,
    cache_model_config,
    hub_variables,
    query_hub_model_config,
)
from tui_train.facts.types import Facts
from tui_train.places.profile_facts import read_profile_model_shape
from tui_train.profile.types import Profile
from tui_train.programs.hub_cache import is_valid_revision
from tui_train.setup.recipe.hub_model import hub_endpoint, is_hub_offline

_TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  # the name of the variable


def config_fetch_question(profile: Profile, hub: HubCache, model_id: str) -> str:
    """Return the question whether a model's config.json may be fetched: what, from where, and to where."""
    endpoint = visible(hub_endpoint(profile, hub))
    return f"Fetch config.json of {model_id}, a few kB,\nfrom {endpoint}\nto {visible(hub.folder)}?"


def fetch_model_config(profile: Profile, hub: HubCache, model_id: str) -> Path:
    """Fetch a model's config.json into the Hub's cache of this machine and return its path; takes some seconds.

    Unavailable where the Hub may not be asked or does not give it, CannotWrite where the cache cannot be written.
    """
    revision = profile.trainer.revision if model_id == profile.trainer.model else ""
    if revision and not is_valid_revision(revision):
        remedy = "Give the name of a branch or a tag, such as v1.0, or a whole commit (40 digits)."
        raise BadInput(f"{visible(revision)} cannot be the name of a revision", remedy)
    if is_hub_offline(profile, hub):
        raise Unavailable(
            f"offline (HF_HUB_OFFLINE is set): config.json of {model_id} is not fetched",
            "Unset HF_HUB_OFFLINE, or name a folder that has the model's config.json.",
        )
    at = hub_endpoint(profile, hub)
    found = query_hub_model_config(
        model_id, at, revision, _TOKEN_VARIABLE if _TOKEN_VARIABLE in profile.trainer.secrets else ""
    )
    if found.refusal:
        raise _fetch_refusal_error(model_id, visible(at), found)
    return cache_model_config(hub_variables(profile), model_id, revision, found)


def _fetch_refusal_error(model_id: str, endpoint: str, answer: HubModelConfig) -> TuiTrainError:
    message = f"config.json of {model_id} was not fetched: {answer.problem}"
    if answer.refusal == "unreachable":
        return Unavailable(f"{message} ({endpoint})", "Check the network, or name another Hub in HF_ENDPOINT.")
    token = f"name {_TOKEN_VARIABLE} under trainer.secrets, and export your token where you start tui-train"
    remedies = {
        "gated": f"Ask for access at {endpoint}/{model_id}, {token}.",
        "missing": f"Check its name. If it is private, {token}.",
        "revision": "Name a branch, a tag, or a whole commit (40 digits).",
        "bare": "Name a model in the format of transformers.",
    }
    return Unavailable(
        message, remedies.get(answer.refusal, f"Check HF_ENDPOINT: {endpoint} does not answer like a Hub.")
    )


def read_model_shape_into_facts(profile: Profile, facts: Facts, model_id: str) -> Facts:
    """Return the facts with the shape of a model whose config.json is in the cache now."""
    return msgspec.structs.replace(
        facts, models={**facts.models, model_id: read_profile_model_shape(profile, model_id)}
    )

"""Fetches the config.json of a model whose sizes are not known here, with consent, for the memory estimate."""

from pathlib import Path

import msgspec

from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.facts.models.hub import HubCache, HubConfig, fetch_config, hub_variables, keep_config
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.programs.hub_cache import valid_revision
from tui_train.setup.recipe.hub_model import hub_endpoint, is_hub_forbidden
from tui_train.targets.here import model_shape

_TOKEN = "HF_TOKEN"  # noqa: S105  # the name of the variable


def question(profile: Profile, hub: HubCache, name: str) -> str:
    """Return the question whether a model's config.json may be fetched: what, from where, and to where."""
    return (
        f"Fetch config.json of {name}, a few kB,\nfrom {visible(hub_endpoint(profile, hub))}\nto {visible(hub.folder)}?"
    )


def fetch(profile: Profile, hub: HubCache, name: str) -> Path:
    """Fetch a model's config.json into the Hub's cache of this machine and return its path; takes some seconds.

    Unavailable where the Hub may not be asked or does not give it, CannotWrite where the cache cannot be written.
    """
    revision = profile.trainer.revision if name == profile.trainer.model else ""
    if revision and not valid_revision(revision):
        remedy = "Give the name of a branch or a tag, such as v1.0, or a whole commit (40 digits)."
        raise BadInput(f"{visible(revision)} cannot be the name of a revision", remedy)
    if is_hub_forbidden(profile, hub):
        raise Unavailable(
            f"offline (HF_HUB_OFFLINE is set): config.json of {name} is not fetched",
            "Unset it, or name a folder that has the model's config.json.",
        )
    at = hub_endpoint(profile, hub)
    found = fetch_config(name, at, revision, _TOKEN if _TOKEN in profile.trainer.secrets else "")
    if found.refusal:
        raise _refused(name, visible(at), found)
    return keep_config(hub_variables(profile), name, revision, found)


def _refused(name: str, at: str, found: HubConfig) -> TuiTrainError:
    message = f"config.json of {name} was not fetched: {found.problem}"
    if found.refusal == "unreachable":
        return Unavailable(f"{message} ({at})", "Check the network, or name another Hub in HF_ENDPOINT.")
    token = f"name {_TOKEN} under secrets, and export it where you start tui-train"
    remedies = {
        "gated": f"Ask for access at {at}/{name}, {token}.",
        "missing": f"Check its name. If it is private, {token}.",
        "revision": "Name a branch, a tag, or a whole commit (40 digits).",
        "bare": "Name a model in the format of transformers.",
    }
    return Unavailable(message, remedies.get(found.refusal, f"Check HF_ENDPOINT: {at} does not answer like a Hub."))


def with_config(profile: Profile, facts: Facts, name: str) -> Facts:
    """Return the facts with the shape of a model whose config.json is in the cache now."""
    return msgspec.structs.replace(facts, models={**facts.models, name: model_shape(profile, name)})

"""Checks of a model of the Hugging Face Hub: whether it is here, and what its download needs."""

from collections.abc import Iterator
from functools import partial

from tui_train.base.text import counted, size
from tui_train.base.versions import older
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.models.hub import HubCache, HubModel
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache
from tui_train.programs.hub_cache import OFFLINE
from tui_train.setup.recipe.hub_model import (
    cached_model,
    hub_endpoint,
    is_hub_offline,
    model_id_with_revision,
    model_to_download,
)
from tui_train.setup.setup import Setup
from tui_train.trainers import model_id, trainer_of

_KEY = "trainer.model"
_error, _warning, _note = partial(error, _KEY), partial(warning, _KEY), partial(note, _KEY)
_TOKEN = "HF_TOKEN"  # noqa: S105  # the name of the variable
_MAX_NAMED_FILES = 2
_MIN_TOKENIZER_TRL = "1.13"
_USE_MAIN = Change("the main branch", "the newest revision", (("trainer.revision", ""),))
# Models of text and pictures, which train on text alone as well.
_MULTIMODAL_SUFFIX = "ForConditionalGeneration"


def folders_only(setup: Setup) -> Iterator[Finding]:
    """A folder for trainers that load nothing else."""
    profile = setup.profile
    name, trainer = model_id(profile), trainer_of(profile)
    if not name or trainer.takes_hub_ids:
        return
    model = cached_model(profile, setup.facts)
    change = None
    if model and model.is_complete:
        change = Change("the folder in the cache", model.folder, ((_KEY, model.folder),))
    message, remedy = f"{name} is not a folder, and {trainer.label} loads a folder", "Name the model's folder."
    yield error(_KEY, message, remedy, change=change)


def revision(setup: Setup) -> Iterator[Finding]:
    """A revision that git and the Hub can have."""
    named = setup.profile.trainer.revision
    if _is_invalid_revision(named):
        remedy = "Give the name of a branch or a tag, such as v1.0, or a whole commit (40 digits)."
        message = f"{named} cannot be the name of a revision"
        yield error("trainer.revision", message, remedy, change=_USE_MAIN)


def tokenizer(setup: Setup) -> Iterator[Finding]:
    """A TRL that loads the tokenizer of the revision as well: older ones take that of main."""
    profile = setup.profile
    tool = setup.toolchain
    version = tool.packages.get("trl") if tool and trainer_of(setup.effective).conventions() == "trl" else None
    if profile.trainer.revision and model_id(profile) and older(version, _MIN_TOKENIZER_TRL):
        message = f"TRL {version} takes the tokenizer of {model_id(profile)} from main, not from the revision"
        remedy = f"Install TRL {_MIN_TOKENIZER_TRL} or newer, or name a folder with that revision."
        yield warning("trainer.revision", message, remedy)


def _is_invalid_revision(name: str) -> bool:
    return bool(name) and not hub_cache.valid_revision(name)


def architecture(setup: Setup) -> Iterator[Finding]:
    """A model that predicts the next token."""
    model = cached_model(setup.profile, setup.facts)
    if model and model.architecture and not model.causal and not model.architecture.endswith(_MULTIMODAL_SUFFIX):
        message = f"{model.id} is a {model.architecture}, not a causal language model"
        yield warning(_KEY, message, "Most trainers cannot load it.")


def download(setup: Setup) -> Iterator[Finding]:
    """A model that is here, or what its download needs: the network, room, access, huggingface_hub."""
    profile, facts = setup.profile, setup.facts
    if not model_to_download(setup) or _is_invalid_revision(profile.trainer.revision):
        return
    name = model_id_with_revision(profile)
    hub = facts.hub
    if hub is None:
        message = f"it is not known whether {name} is on that machine"
        yield _note(message, "It is downloaded before the training if it is not.")
        return
    if is_hub_offline(profile, hub):
        yield _offline_finding(profile, facts, hub)
        return
    tool = setup.toolchain
    if tool and not tool.transformers and "huggingface_hub" not in tool.packages:
        message = f"{name} cannot be downloaded: this Python has no huggingface_hub"
        yield _error(message, "Install it there (`pip install huggingface_hub`), or name a folder.")
        return
    answer = facts.hub_models.get(name, HubModel())
    if answer.refusal:
        yield _refusal_finding(name, profile, hub, answer)
    else:
        yield from _access_findings(name, profile, hub, answer)
        yield _space_finding(name, profile, hub, answer)


def _offline_finding(profile: Profile, facts: Facts, hub: HubCache) -> Finding:
    own = profile.trainer.environment
    others = {name: value for name, value in own.items() if name not in OFFLINE}
    change = None
    if others != own:
        change = Change("without HF_HUB_OFFLINE", "the model can be downloaded", (("trainer.environment", others),))
    return _error(
        f"{_local_state(profile, facts)}, and HF_HUB_OFFLINE is set",
        f"Unset it, or copy the model to {hub.folder}, or name a folder.",
        change,
    )


def _local_state(profile: Profile, facts: Facts) -> str:
    """Return how much of the model is here, as a clause."""
    name, model = model_id_with_revision(profile), cached_model(profile, facts)
    if model is None or not model.folder:
        return f"{name} is not on this machine"
    more = (
        f" and {counted(len(model.missing) - _MAX_NAMED_FILES, 'file')} more"
        if len(model.missing) > _MAX_NAMED_FILES
        else ""
    )
    return f"{name} is incomplete: it lacks {', '.join(model.missing[:_MAX_NAMED_FILES])}{more}"


def _refusal_finding(name: str, profile: Profile, hub: HubCache, answer: HubModel) -> Finding:
    if answer.refusal == "revision":
        message = f"the Hub has no revision {profile.trainer.revision} of {model_id(profile)}"
        remedy = "Name a branch, a tag, or a whole commit (40 digits)."
        return error("trainer.revision", message, remedy, change=_USE_MAIN, start=True)
    if answer.refusal == "missing":
        if hub.token or _TOKEN in profile.trainer.secrets:
            message = f"{name} is not a public model of the Hub"
            return _warning(message, "Check its name. If it is private, the token must have access to it.")
        remedy = (
            f"Check its name. If it is private, name {_TOKEN} under secrets, and export it where you start the run."
        )
        return _error(f"the Hub has no public model {name}", remedy, start=True)
    where = hub_endpoint(profile, hub)
    remedy = "Check the network, the proxy (https_proxy) and HF_ENDPOINT; or copy the model here and name its folder."
    return _warning(f"{name} has to be downloaded, and {where} cannot be asked: {answer.problem}", remedy)


def _access_findings(name: str, profile: Profile, hub: HubCache, answer: HubModel) -> Iterator[Finding]:
    if not answer.gated:
        return
    page = f"{hub_endpoint(profile, hub)}/{model_id(profile)}"
    if hub.token or _TOKEN in profile.trainer.secrets:
        yield _note(f"{name} is gated", f"The token's account must have been granted access on {page}.")
        return
    remedy = f"Ask for access on {page}, name {_TOKEN} under secrets, and export it where you start the run."
    yield _error(f"{name} is gated, and there is no token", remedy, change=_token_change(profile), start=True)


def _token_change(profile: Profile) -> Change:
    edits = (("trainer.secrets", (*profile.trainer.secrets, _TOKEN)),)
    return Change(f"name {_TOKEN} as a secret", "its value is taken where the run starts, never written", edits)


def _space_finding(name: str, profile: Profile, hub: HubCache, answer: HubModel) -> Finding:
    model = hub.find_model(model_id(profile), profile.trainer.revision)
    needed_bytes = max(0, answer.size - (model.size if model else 0))
    free = f"{size(hub.free)} are free" if hub.free is not None else "the free space is not known"
    if hub.free is not None and needed_bytes > hub.free:
        other = "set HF_HOME to a folder on another disk (trainer.environment)"
        if profile.container.engine != "none":
            other = "export HF_HOME, a folder on another disk, in the shell where you start the run"
        remedy = f"Free some, or {other}."
        return _error(f"{name} needs {size(needed_bytes)} in {hub.folder}, where {free}", remedy, start=True)
    how_much = f": {size(needed_bytes)}" if needed_bytes else ""
    part = "the rest of " if model and model.folder else ""
    return _note(f"{part}{name} is downloaded before the training{how_much}", f"To {hub.folder}, where {free}.")

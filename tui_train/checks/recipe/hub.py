"""Checks of a model of the Hugging Face Hub: whether it is here, and what its download needs."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from tui_train.base.text import quantity, size_text
from tui_train.base.versions import is_known_older
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.models.hub import HubCache, HubModel
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache
from tui_train.programs.hub_cache import OFFLINE_VARIABLES
from tui_train.setup.recipe.hub_model import (
    cached_model,
    hub_endpoint,
    is_hub_offline,
    model_id_with_revision,
    model_to_download,
)
from tui_train.setup.setup import Setup
from tui_train.trainers import hub_model_id, trainer_of

_model_error = partial(error, "trainer.model")
_model_warning = partial(warning, "trainer.model")
_model_note = partial(note, "trainer.model")
_HUB_TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  # the name of the variable
_MAX_MISSING_FILES_NAMED = 2
_MIN_TRL_VERSION_FOR_TOKENIZER_REVISION = "1.13"
# Certificates are renewed every few months.
_MAX_CLOCK_LAG_SECONDS = 7 * 86400
_SET_CLOCK_REMEDY = "Set the clock: `sudo timedatectl set-ntp true`, or `sudo date -s 'YEAR-MONTH-DAY HOUR:MINUTE'`."
_CERTIFICATE_DATE_PROBLEMS = ("certificate is not yet valid", "certificate has expired")
_USE_MAIN_REVISION_CHANGE = Change("the main branch", "the newest revision", (("trainer.revision", ""),))
# Models of text and pictures, which train on text alone as well.
_MULTIMODAL_ARCHITECTURE_SUFFIX = "ForConditionalGeneration"


def hub_id_instead_of_folder(setup: Setup) -> Iterator[Finding]:
    """An id of the Hub for trainers that load only folders."""
    profile = setup.profile
    name, trainer = hub_model_id(profile), setup.trainer
    if not name or trainer.accepts_hub_model_ids:
        return
    model = cached_model(profile, setup.facts)
    change = None
    if model and model.is_complete:
        change = Change("the folder in the cache", model.folder, (("trainer.model", model.folder),))
    message = f"{name} is not a folder, and {trainer.label} loads a folder"
    remedy = "Name the model's folder (trainer.model)."
    yield error("trainer.model", message, remedy, change=change)


def invalid_revision(setup: Setup) -> Iterator[Finding]:
    """A revision that git and the Hub cannot have."""
    named = setup.profile.trainer.revision
    if _is_invalid_revision(named):
        remedy = "Give the name of a branch or a tag, such as v1.0, or a whole commit (40 digits)."
        message = f"{named} cannot be the name of a revision"
        yield error("trainer.revision", message, remedy, change=_USE_MAIN_REVISION_CHANGE)


def tokenizer_taken_from_main_revision(setup: Setup) -> Iterator[Finding]:
    """A TRL so old that it loads the tokenizer of main, whatever the revision."""
    profile = setup.profile
    tool = setup.toolchain
    trains_by_trl = trainer_of(setup.effective_profile).library_preset_name() == "trl"
    version = tool.packages.get("trl") if tool and trains_by_trl else None
    is_old = is_known_older(version, _MIN_TRL_VERSION_FOR_TOKENIZER_REVISION)
    if profile.trainer.revision and hub_model_id(profile) and is_old:
        message = f"TRL {version} takes the tokenizer of {hub_model_id(profile)} from main, not from the revision"
        remedy = f"Install TRL {_MIN_TRL_VERSION_FOR_TOKENIZER_REVISION} or newer, or name a folder with that revision."
        yield warning("trainer.revision", message, remedy)


def _is_invalid_revision(name: str) -> bool:
    return bool(name) and not hub_cache.is_valid_revision(name)


def non_causal_model(setup: Setup) -> Iterator[Finding]:
    """A model that does not predict the next token."""
    model = cached_model(setup.profile, setup.facts)
    if model is None or model.causal or not model.architecture:
        return
    if not model.architecture.endswith(_MULTIMODAL_ARCHITECTURE_SUFFIX):
        message = f"{model.id} is a {model.architecture}, not a model that writes text"
        yield warning(
            "trainer.model",
            message,
            "Most trainers cannot load such a model: choose one that writes text (…ForCausalLM).",
        )


def model_download_requirements(setup: Setup) -> Iterator[Finding]:
    """A model that is not here, and what its download lacks: the network, room, access, huggingface_hub."""
    profile, facts = setup.profile, setup.facts
    if not model_to_download(setup) or _is_invalid_revision(profile.trainer.revision):
        return
    name = model_id_with_revision(profile)
    hub = facts.hub
    if hub is None:
        message = f"unknown whether {name} is on that machine"
        yield _model_note(message, "If the model is not there, it is downloaded before the training.")
        return
    if is_hub_offline(profile, hub):
        yield _hub_offline_finding(profile, facts, hub)
        return
    if hub.unwritable:
        message = f"{name} cannot be downloaded to {hub.folder}: {hub.unwritable}"
        remedy = (
            "Set HF_HOME to a folder where you may write (trainer.environment), or have that one made yours "
            "(sudo chown)."
        )
        if profile.container.engine != "none":
            remedy = "In the shell where you start the run, `export HF_HOME=PATH`, a folder where you may write."
        yield _model_error(message, remedy, start=True)
        return
    tool = setup.toolchain
    if tool and not tool.transformers and "huggingface_hub" not in tool.packages:
        message = f"{name} cannot be downloaded: this Python has no huggingface_hub"
        yield _model_error(
            message, "Install it there (`pip install huggingface_hub`), or name a model folder (trainer.model)."
        )
        return
    answer = facts.hub_models.get(name, HubModel())
    if answer.refusal:
        yield _hub_refusal_finding(name, profile, hub, answer)
    else:
        yield from _gated_model_findings(name, profile, hub, answer)
        yield from _clock_behind_findings(facts)
        yield _download_size_finding(name, profile, hub, answer)


def _hub_offline_finding(profile: Profile, facts: Facts, hub: HubCache) -> Finding:
    own = profile.trainer.environment
    others = {name: value for name, value in own.items() if name not in OFFLINE_VARIABLES}
    change = None
    if others != own:
        change = Change("without HF_HUB_OFFLINE", "the model can be downloaded", (("trainer.environment", others),))
    return _model_error(
        f"{_incomplete_model_clause(profile, facts)}, and HF_HUB_OFFLINE is set",
        f"Unset HF_HUB_OFFLINE, copy the model to {hub.folder}, or name a model folder (trainer.model).",
        change,
    )


def _incomplete_model_clause(profile: Profile, facts: Facts) -> str:
    """Return how much of the model is here, as a clause."""
    name, model = model_id_with_revision(profile), cached_model(profile, facts)
    if model is None or not model.folder:
        return f"{name} is not on this machine"
    unnamed_count = len(model.missing) - _MAX_MISSING_FILES_NAMED
    more = f" and {quantity(unnamed_count, 'file')} more" if unnamed_count > 0 else ""
    return f"{name} is incomplete: it lacks {', '.join(model.missing[:_MAX_MISSING_FILES_NAMED])}{more}"


def _hub_refusal_finding(name: str, profile: Profile, hub: HubCache, hub_answer: HubModel) -> Finding:
    if hub_answer.refusal == "revision":
        message = f"the Hub has no revision {profile.trainer.revision} of {hub_model_id(profile)}"
        remedy = "Name a branch, a tag, or a whole commit (40 digits)."
        return error("trainer.revision", message, remedy, change=_USE_MAIN_REVISION_CHANGE, start=True)
    if hub_answer.refusal == "missing":
        if hub.token or _HUB_TOKEN_VARIABLE in profile.trainer.secrets:
            message = f"{name} is not a public model of the Hub"
            return _model_warning(
                message, "Check its name. If it is private, your token (HF_TOKEN) must have access to it."
            )
        remedy = (
            f"Check its name. If it is private, name {_HUB_TOKEN_VARIABLE} under secrets,"
            " and export it where you start the run."
        )
        change = None
        if near := get_close_matches(hub_model_id(profile), [model.id for model in hub.models if model.is_complete], 1):
            change = Change(near[0], "it is on this machine", (("trainer.model", near[0]),))
            remedy = f"Did you mean {near[0]}, which is already here? {remedy}"
        return _model_error(f"the Hub has no public model {name}", remedy, change, start=True)
    where = hub_endpoint(profile, hub)
    message = f"{name} has to be downloaded, and {where} cannot be reached: {hub_answer.problem}"
    if any(words in hub_answer.problem for words in _CERTIFICATE_DATE_PROBLEMS):
        return _model_warning(message, f"The clock of this machine may be wrong (`date` shows it). {_SET_CLOCK_REMEDY}")
    remedy = "Check the network, the proxy (https_proxy) and HF_ENDPOINT; or copy the model here and name its folder."
    return _model_warning(message, remedy)


def _gated_model_findings(name: str, profile: Profile, hub: HubCache, hub_answer: HubModel) -> Iterator[Finding]:
    if not hub_answer.gated:
        return
    page = f"{hub_endpoint(profile, hub)}/{hub_model_id(profile)}"
    if hub.token or _HUB_TOKEN_VARIABLE in profile.trainer.secrets:
        yield _model_note(
            f"{name} is gated: you must ask its owners for access",
            f"Ask for access on {page}, with the account of your token.",
        )
        return
    remedy = (
        f"Ask for access on {page}, add {_HUB_TOKEN_VARIABLE} to trainer.secrets, and export your token "
        "in the shell where you start the run."
    )
    change = Change(
        f"pass {_HUB_TOKEN_VARIABLE} as a secret",
        "its value is taken where the run starts, never written",
        (("trainer.secrets", (*profile.trainer.secrets, _HUB_TOKEN_VARIABLE)),),
    )
    yield _model_error(
        f"{name} is gated (you must ask its owners for access), and there is no token",
        remedy,
        change=change,
        start=True,
    )


def _clock_behind_findings(facts: Facts) -> Iterator[Finding]:
    lag = facts.machine.clock_behind
    if lag > _MAX_CLOCK_LAG_SECONDS:
        days = quantity(round(lag / 86400), "day")
        message = f"the clock is at least {days} behind: downloads may fail (certificates not yet valid)"
        yield _model_note(message, _SET_CLOCK_REMEDY)


def _download_size_finding(name: str, profile: Profile, hub: HubCache, hub_answer: HubModel) -> Finding:
    model = hub.find_model(hub_model_id(profile), profile.trainer.revision)
    needed_bytes = max(0, hub_answer.size - (model.size if model else 0))
    free = f"{size_text(hub.free)} are free" if hub.free is not None else "the free space is not known"
    if hub.free is not None and needed_bytes > hub.free:
        other = "set HF_HOME to a folder on another disk (trainer.environment)"
        if profile.container.engine != "none":
            other = "`export HF_HOME=PATH` (a folder on another disk) in the shell where you start the run"
        remedy = f"Free some space, or {other}."
        return _model_error(f"{name} needs {size_text(needed_bytes)} in {hub.folder}, where {free}", remedy, start=True)
    how_much = f": {size_text(needed_bytes)}" if needed_bytes else ""
    part = "the rest of " if model and model.folder else ""
    return _model_note(f"{part}{name} is downloaded before the training{how_much}", f"To {hub.folder}, where {free}.")

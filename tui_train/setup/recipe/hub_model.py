"""A model of the Hugging Face Hub: present here, or to be looked up or downloaded."""

from tui_train.base.command import CommandPart, ProgramFile, word_in_run_dir
from tui_train.facts.models.hub import HUB_URL, CachedModel, HubCache
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache
from tui_train.setup.setup import Setup
from tui_train.trainers import hub_model_id, trainer_of
from tui_train.trainers.trainer import PreparationStep

_DOWNLOAD_PROGRAM_PATH = "prepare/hub_download.py"
_CACHE_PROGRAM_PATH = "prepare/hub_cache.py"
_DOWNLOADED_MODEL_PATH = "prepare/model.json"


def cached_model(profile: Profile, facts: Facts) -> CachedModel | None:
    """Return what the cache has of the profile's model, None for a folder and where nothing of it is there."""
    name = hub_model_id(profile)
    return facts.hub.find_model(name, profile.trainer.revision) if name and facts.hub else None


def model_id_with_revision(profile: Profile) -> str:
    """Return the id of the profile's model, with its revision where one is chosen: ORG/NAME@REVISION."""
    name, revision = hub_model_id(profile), profile.trainer.revision
    return f"{name}@{revision}" if name and revision else name


def is_hub_offline(profile: Profile, hub: HubCache) -> bool:
    """Return whether the training may not ask the Hub; the profile's variables override those of the machine."""
    own = profile.trainer.environment
    named = next((own[name] for name in hub_cache.OFFLINE_VARIABLES if own.get(name)), None)
    return hub.offline if named is None else named.upper() in hub_cache.TRUE_WORDS


def hub_endpoint(profile: Profile, hub: HubCache) -> str:
    """Return the address of the Hub."""
    return profile.trainer.environment.get("HF_ENDPOINT", "").rstrip("/") or hub.endpoint or HUB_URL


def model_to_query(profile: Profile, facts: Facts) -> str:
    """Return the model, with its revision, whose size the Hub must be asked for; empty where it need not."""
    name = hub_model_id(profile)
    if (
        not name
        or not trainer_of(profile).accepts_hub_model_ids
        or facts.hub is None
        or is_hub_offline(profile, facts.hub)
    ):
        return ""
    if profile.trainer.revision and not hub_cache.is_valid_revision(profile.trainer.revision):
        return ""
    model = cached_model(profile, facts)
    return "" if model and model.is_complete else model_id_with_revision(profile)


def model_download_steps(setup: Setup) -> tuple[PreparationStep, ...]:
    """Return what fetches the model before the training, where it is not here or may be missing on another machine."""
    name = _model_id_fetched_by_run(setup)
    if not name:
        return ()
    revision = setup.profile.trainer.revision
    like = f"hf download {name}" + (f" --revision {revision}" if revision else "")
    parts = (
        CommandPart((word_in_run_dir(_DOWNLOAD_PROGRAM_PATH),)),
        CommandPart((name,), f"the files that transformers loads, like `{like}`"),
        CommandPart((word_in_run_dir(_DOWNLOADED_MODEL_PATH),)),
        *((CommandPart((revision,)),) if revision else ()),
    )
    return (PreparationStep("model", "downloads the model into the cache of Hugging Face; once", parts),)


def model_download_programs(setup: Setup) -> tuple[ProgramFile, ...]:
    """Return the program that fetches the model and what it reads the cache with, where they are needed."""
    if not _model_id_fetched_by_run(setup):
        return ()
    return (
        ProgramFile(_DOWNLOAD_PROGRAM_PATH, "programs/hub_download.py"),
        ProgramFile(_CACHE_PROGRAM_PATH, "programs/hub_cache.py"),
    )


def model_to_download(setup: Setup) -> str:
    """Return the id of the model that has to be downloaded before the training; empty where none has."""
    name = loaded_model_id(setup)
    model = cached_model(setup.profile, setup.facts) if name else None
    return "" if model and model.is_complete else name


def loaded_model_id(setup: Setup) -> str:
    """Return the id of the model that the training loads; empty where it loads none, or a folder."""
    profile = setup.profile
    name = hub_model_id(profile)
    return (
        name
        if name and trainer_of(profile).accepts_hub_model_ids and "model" in setup.ladder_context.accepted_placeholders
        else ""
    )


def _model_id_fetched_by_run(setup: Setup) -> str:
    """Return the id of the model that a run fetches: what other machines have is not known here."""
    if setup.profile.nodes.machine_count > 1:
        return loaded_model_id(setup)
    return model_to_download(setup)

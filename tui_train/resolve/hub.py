"""What follows for a model of the Hugging Face Hub: whether it is here, and whether the Hub has to be asked for it."""

from tui_train.base.command import Part, ProgramFile, in_run_dir
from tui_train.facts.hub import ENDPOINT, CachedModel, HubCache
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.resolve.setup import Setup
from tui_train.target import hub_cache
from tui_train.trainers import model_id, trainer_of
from tui_train.trainers.trainer import Prepares

PROGRAM = "prepare/hub_download.py"
_CACHE = "prepare/hub_cache.py"
_DONE = "prepare/model.json"


def cached(profile: Profile, facts: Facts) -> CachedModel | None:
    """Return what the cache has of the profile's model, None for a folder and where nothing of it is there."""
    name = model_id(profile)
    return facts.hub.model(name, profile.trainer.revision) if name and facts.hub else None


def pinned(profile: Profile) -> str:
    """Return the id of the profile's model, with its revision where one is chosen: ORG/NAME@REVISION."""
    name, revision = model_id(profile), profile.trainer.revision
    return f"{name}@{revision}" if name and revision else name


def offline(profile: Profile, hub: HubCache) -> bool:
    """Return whether the training may not ask the Hub; the profile's variables override those of the machine."""
    own = profile.trainer.environment
    named = next((own[name] for name in hub_cache.OFFLINE if own.get(name)), None)
    return hub.offline if named is None else named.upper() in hub_cache.TRUE


def endpoint(profile: Profile, hub: HubCache) -> str:
    """Return the address of the Hub."""
    return profile.trainer.environment.get("HF_ENDPOINT", "").rstrip("/") or hub.endpoint or ENDPOINT


def to_ask(profile: Profile, facts: Facts) -> str:
    """Return the profile's model as `pinned`, where the Hub has to be asked for its size; empty where it need not."""
    name = model_id(profile)
    if not name or not trainer_of(profile).takes_ids or facts.hub is None or offline(profile, facts.hub):
        return ""
    if profile.trainer.revision and not hub_cache.valid_revision(profile.trainer.revision):
        return ""
    model = cached(profile, facts)
    return "" if model and model.complete else pinned(profile)


def download(setup: Setup) -> tuple[Prepares, ...]:
    """Return what fetches the model before the training, where it is not here or may be missing on another machine."""
    name = _fetched(setup)
    if not name:
        return ()
    revision = setup.profile.trainer.revision
    like = f"hf download {name}" + (f" --revision {revision}" if revision else "")
    parts = (
        Part((in_run_dir(PROGRAM),)),
        Part((name,), f"the files that transformers loads, like `{like}`"),
        Part((in_run_dir(_DONE),)),
        *((Part((revision,)),) if revision else ()),
    )
    return (Prepares("model", "downloads the model into the cache of Hugging Face; once", parts),)


def programs(setup: Setup) -> tuple[ProgramFile, ...]:
    """Return the program that fetches the model and what it reads the cache with, where they are needed."""
    if not _fetched(setup):
        return ()
    return (ProgramFile(PROGRAM, "target/hub_download.py"), ProgramFile(_CACHE, "target/hub_cache.py"))


def to_download(setup: Setup) -> str:
    """Return the id of the model that has to be downloaded before the training; empty where none has."""
    name = loaded_id(setup)
    model = cached(setup.profile, setup.facts) if name else None
    return "" if model and model.complete else name


def loaded_id(setup: Setup) -> str:
    """Return the id of the model that the training loads; empty where it loads none, or a folder."""
    profile = setup.profile
    name = model_id(profile)
    return name if name and trainer_of(profile).takes_ids and "model" in setup.context.takes else ""


def _fetched(setup: Setup) -> str:
    """Return the id of the model that a run fetches: what other machines have is not known here."""
    if setup.profile.nodes.machines > 1:
        return loaded_id(setup)
    return to_download(setup)

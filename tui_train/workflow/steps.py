"""The steps that both front ends take: look, prepare, begin."""

import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base import secrets
from tui_train.base.errors import BadInput, TuiTrainError, Unavailable
from tui_train.base.files import PRIVATE, write_beside
from tui_train.base.places import last_profile
from tui_train.facts import images, models, nemo_models, probe
from tui_train.facts.documents import documents
from tui_train.facts.models import ModelFolder
from tui_train.facts.sources import source
from tui_train.facts.types import ContainerImage, Document, Facts, NemoCheckpoint, PathState, Source
from tui_train.facts.variables import variables
from tui_train.facts.wandb import has_key
from tui_train.memory import settings
from tui_train.plan.types import Plan
from tui_train.presets import Own, OwnPreset, preset
from tui_train.presets.own import own_presets
from tui_train.profile import fields, store
from tui_train.profile.types import Profile
from tui_train.render.prepare import Prepared
from tui_train.resolve.in_force import own_output
from tui_train.resolve.resolve import resolve
from tui_train.runs import rundir
from tui_train.runs.conflicts import taken
from tui_train.runs.interrupts import NONE, Interrupts
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import start
from tui_train.runs.status import status
from tui_train.trainers import paths_of, takes_field
from tui_train.trainers.script import started


class Named(Struct, frozen=True, kw_only=True):
    """What the files are that a profile names: paths, documents, presets, sources, as in Facts."""

    paths: dict[str, PathState]
    documents: dict[str, Document]
    presets: dict[str, OwnPreset]
    models: dict[str, ModelFolder]
    sources: dict[str, Source]
    wandb_key: bool
    checkpoints: dict[str, NemoCheckpoint]


def named(profile: Profile) -> Named:
    """Return what the files are that a profile names; they are read now."""
    config, script = profile.trainer.config, profile.trainer.script
    read = documents([config] if config else [])
    own = own_presets()
    return Named(
        paths=probe.paths((*paths_of(profile), *_own_output(profile, read, own))),
        documents=read,
        presets=own,
        models={path: models.folder(path) for path in settings.models_of(profile, read)},
        sources={script: source(script)} if script and takes_field(profile, "trainer.script") else {},
        wandb_key=has_key(),
        checkpoints=_checkpoints(profile),
    )


def _own_output(profile: Profile, read: dict[str, Document], own: Own) -> tuple[str, ...]:
    """Return the output folder that the profile's arguments or file name."""
    try:
        chosen = preset(profile.trainer.preset, own)
    except BadInput:
        return ()
    return tuple(filter(None, (own_output(profile, chosen, read.get(profile.trainer.config)),)))


def _checkpoints(profile: Profile) -> dict[str, NemoCheckpoint]:
    """Return what the NeMo checkpoint is that the profile begins with."""
    model = profile.trainer.model
    if not takes_field(profile, "nemo") or not model:
        return {}
    try:
        found = Path(model, "context").is_dir()
    except OSError:
        # A name that no file system takes: too long, for one.
        return {}
    return {model: nemo_models.checkpoint(model)} if found else {}


def look(profile: Profile) -> Facts:
    """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread."""
    files = named(profile)
    inside = profile.container.engine != "none"
    return Facts(
        machine=probe.machine(),
        toolchains=() if inside else probe.toolchains(named_python(profile)),
        paths=files.paths,
        documents=files.documents,
        presets=files.presets,
        models=files.models,
        sources=files.sources,
        wandb_key=files.wandb_key,
        checkpoints=files.checkpoints,
        variables=variables(),
        engines=images.engines() if inside else (),
        images=chosen_image(profile),
        taken=taken(met_at(profile)),
    )


def elsewhere(profile: Profile, found: Facts) -> Facts:
    """Return another machine's facts with what a plan needs besides, as far as it is on this one's disks.

    A YAML file and a model's shape may be on both; where they are not here, a path there is no worse for it.
    """
    config = profile.trainer.config
    read = found.documents or documents([config] if config else [])
    folders = (path for path in settings.models_of(profile, read) if Path(path, "config.json").is_file())
    return msgspec.structs.replace(
        found, documents=read, presets=own_presets(), models={path: models.folder(path) for path in folders}
    )


def met_at(profile: Profile) -> int:
    """Return the port of this machine at which several machines are to meet; 0 where one trains alone."""
    return profile.nodes.port if profile.nodes.count > 1 else 0


def chosen_image(profile: Profile) -> tuple[ContainerImage, ...]:
    """Return what the image that the profile names holds, nothing where it names none; takes up to a minute."""
    chosen = profile.container
    return (images.image(chosen.engine, chosen.image),) if chosen.engine != "none" and chosen.image else ()


def named_python(profile: Profile) -> tuple[str, ...]:
    """Return the Python that the profile names, for the probe to ask besides those that it finds."""
    return (profile.trainer.python,) if profile.trainer.python else ()


class HelpQuestion(Struct, frozen=True, kw_only=True):
    """How a script is asked for its --help; `key` is its place in Facts.help."""

    key: str
    python: str
    words: tuple[str, ...]
    folder: str


def help_question(profile: Profile, facts: Facts) -> HelpQuestion:
    """Return how the profile's script is asked for its --help; Unavailable where there is none, or no Python for it."""
    resolved = resolve(profile, facts)
    key = started(profile, resolved.preset) if takes_field(profile, "trainer.script") else ""
    if not key:
        raise Unavailable("there is no script to ask", "Name the file that trains.")
    if resolved.toolchain is None:
        raise Unavailable("no Python was found that could run the script", "Choose one (trainer.python).")
    words = ("-m", key) if key == resolved.preset.module else (key,)
    folder = profile.trainer.working_directory or key.rpartition("/")[0] or str(Path.cwd())
    return HelpQuestion(key=key, python=resolved.toolchain.python, words=words, folder=folder)


def begin(prepared: Prepared, made: Plan, interrupts: Interrupts = NONE) -> RunDir:
    """Write the run folder of these very files and start it; whoever chose here may `remember` what was chosen."""
    interrupts.check("")
    run = rundir.create(made.name, prepared.files)
    try:
        start(run, interrupts=interrupts)
    except TuiTrainError:
        # Where it never ran, nothing is lost with it, and it would be in every list.
        if status(run).state == "new":
            shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def remember(profile: Profile) -> None:
    """Keep the profile without secrets for the next session, if it can be written; nothing else depends on it."""
    hidden = store.secret_entries(profile)
    values = {name: value for name, value in profile.trainer.environment.items() if name not in hidden}
    kept = fields.put(profile, "trainer.environment", values)
    if any(sure for _, _, sure in secrets.in_words(profile.trainer.arguments)):
        kept = fields.put(kept, "trainer.arguments", ())
    try:
        write_beside(last_profile(), store.dumps(kept), PRIVATE)
    except TuiTrainError:
        return


def last() -> Profile:
    """Return the profile of the last session, the default where there is none that can be read."""
    try:
        return store.load(str(last_profile()))
    except TuiTrainError:
        return Profile()

"""This machine: its facts, and the trainings that run on it."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import BadInput, TuiTrainError
from tui_train.facts.data.data_cache import read_data_report
from tui_train.facts.data.data_report import DataQuestion, DataReport
from tui_train.facts.data.data_use import question_key as data_key
from tui_train.facts.machine import container_images, probe
from tui_train.facts.machine.inherited_variables import read_inherited_variables
from tui_train.facts.machine.wandb_key import has_wandb_key
from tui_train.facts.models import hub, model_folders, nemo_models
from tui_train.facts.models.hub import HubModel
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.facts.scripts.script_help import facts_with_script_help, read_script_help
from tui_train.facts.scripts.script_source import read_source
from tui_train.facts.types import (
    ContainerImage,
    Facts,
    NemoCheckpoint,
    NemoTokenizer,
    PathState,
    ScriptSource,
    Toolchain,
    YamlDocument,
)
from tui_train.facts.yaml_documents import read_documents
from tui_train.memory import workload
from tui_train.memory.data_defaults import set_up
from tui_train.places.help_question import help_question_for_auto
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.types import Plan
from tui_train.profile.presets import UserPreset, UserPresets, get_preset
from tui_train.profile.presets.user_presets import user_presets
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.runner.paths import free_bytes, why_unwritable
from tui_train.runner.state import Status
from tui_train.runs import rundir
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.rundir import RunDir
from tui_train.runs.start import restart_note, start_run
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_run
from tui_train.setup.recipe.data_questions import question_about_data
from tui_train.setup.recipe.effective import user_output_folder
from tui_train.setup.recipe.hub_model import hub_endpoint, model_to_query
from tui_train.trainers import profile_paths, trainer_has_own_field
from tui_train.trainers.auto_preset import preset_for_source


class ProfileFiles(Struct, frozen=True, kw_only=True):
    """The files that a profile names: paths, documents, presets, sources, as in Facts."""

    paths: dict[str, PathState]
    unwritable: dict[str, str]
    free: dict[str, int | None]
    documents: dict[str, YamlDocument]
    presets: dict[str, UserPreset]
    models: dict[str, ModelFolder]
    sources: dict[str, ScriptSource]
    wandb_key: bool
    checkpoints: dict[str, NemoCheckpoint]
    accelerate_config: str
    tokenizers: dict[str, NemoTokenizer]


def read_profile_files(profile: Profile) -> ProfileFiles:
    """Read the files that a profile names."""
    script, accelerate_config = profile.trainer.script, hub.find_accelerate_config(hub.hub_variables(profile))
    config_documents = read_documents(filter(None, (*config_file_paths(profile), accelerate_config)))
    presets = user_presets()
    sources = read_script_sources(profile)
    outputs = _user_output_folder(profile, config_documents, presets, sources.get(script))
    return ProfileFiles(
        paths=probe.read_path_states((*profile_paths(profile), *outputs)),
        unwritable={path: why_unwritable(path) for path in (profile.trainer.output, *outputs) if path},
        free={path: free_bytes(path or str(runs_folder())) for path in ("", profile.trainer.output, *outputs)},
        documents=config_documents,
        presets=presets,
        models={name: read_model_shape(profile, name) for name in workload.models_to_read(profile, config_documents)},
        sources=sources,
        wandb_key=has_wandb_key(),
        checkpoints=_read_start_checkpoint(profile),
        accelerate_config=accelerate_config,
        tokenizers=_read_nemo_tokenizer(profile),
    )


def read_script_sources(profile: Profile) -> dict[str, ScriptSource]:
    """Return the facts of the profile's training script, by its path."""
    script = profile.trainer.script
    return {script: read_source(script)} if script and trainer_has_own_field(profile, "trainer.script") else {}


def config_file_paths(profile: Profile) -> tuple[str, ...]:
    """Return the YAML files that a profile names."""
    return tuple(filter(None, (profile.trainer.config, profile.trainer.accelerate_config)))


def read_model_shape(profile: Profile, model: str) -> ModelFolder:
    """Return the shape of a model by its folder, or by its id of the Hub from the cache; empty where that lacks it."""
    if model.startswith("/"):
        return model_folders.read_model_folder(model)
    revision = profile.trainer.revision if model == profile.trainer.model else ""
    folder = hub.snapshot_folder(hub.hub_variables(profile), model, revision)
    if not folder:
        return ModelFolder()
    return msgspec.structs.replace(model_folders.read_model_folder(folder), path=folder)


def _user_output_folder(
    profile: Profile, documents: dict[str, YamlDocument], user_presets: UserPresets, source: ScriptSource | None
) -> tuple[str, ...]:
    """Return the output folder that the profile's arguments or file name."""
    try:
        named_preset, user_arguments = profile.trainer.preset, profile.trainer.arguments
        chosen = (
            get_preset(named_preset, user_presets)
            if named_preset != AUTO_PRESET
            else preset_for_source(source, user_arguments)
        )
    except BadInput:
        return ()
    return tuple(filter(None, (user_output_folder(profile, chosen, documents.get(profile.trainer.config)),)))


def _read_start_checkpoint(profile: Profile) -> dict[str, NemoCheckpoint]:
    """Return the NeMo checkpoint that the profile starts from."""
    model = profile.trainer.model
    if not trainer_has_own_field(profile, "nemo") or not model:
        return {}
    try:
        is_checkpoint = Path(model, "context").is_dir()
    except OSError:
        # A name that is invalid for the file system, such as one that is too long.
        return {}
    return {model: nemo_models.read_nemo_checkpoint(model)} if is_checkpoint else {}


def _read_nemo_tokenizer(profile: Profile) -> dict[str, NemoTokenizer]:
    """Return the tokenizer that a NeMo training names."""
    folder = profile.nemo.tokenizer
    return (
        {folder: nemo_models.read_nemo_tokenizer(folder)} if folder and trainer_has_own_field(profile, "nemo") else {}
    )


def probe_facts(profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
    """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread.

    `on_wait` gets what may take longer, before it does.
    """
    in_container = profile.container.engine != "none"
    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(probe.probe_machine)
        files = read_profile_files(profile)
        toolchains = () if in_container else probe.probe_toolchains(named_python(profile))
    facts = Facts(
        machine=machine.result(),
        toolchains=toolchains,
        paths=files.paths,
        unwritable=files.unwritable,
        free=files.free,
        documents=files.documents,
        presets=files.presets,
        models=files.models,
        sources=files.sources,
        wandb_key=files.wandb_key,
        checkpoints=files.checkpoints,
        accelerate_config=files.accelerate_config,
        tokenizers=files.tokenizers,
        variables=read_inherited_variables(),
        engines=container_images.read_engines() if in_container else (),
        images=read_chosen_image(profile),
        resources_in_use=resources_in_use(rendezvous_port(profile)),
        hub=hub.read_hub_cache(hub.hub_variables(profile)),
    )
    facts = msgspec.structs.replace(facts, hub_models=ask_hub_for_model(profile, facts))
    if question := help_question_for_auto(profile, facts):
        words = f"Running {question.key} --help, as its source does not name all arguments …"
        answer = read_script_help(question.python, question.words, question.folder, lambda: on_wait(words))
        facts = facts_with_script_help(msgspec.structs.replace(facts, help={question.key: answer}))
    return facts if in_container else msgspec.structs.replace(facts, data=read_profile_data(profile, facts))


def read_profile_data(profile: Profile, facts: Facts) -> dict[str, DataReport]:
    """Return what the Python that trains reads in the profile's data; up to two minutes, at once where it is kept."""
    asked = data_question(profile, facts)
    return {asked[0]: read_data_report(asked[2], asked[1])} if asked else {}


def data_question(profile: Profile, facts: Facts) -> tuple[str, DataQuestion, Toolchain] | None:
    """Return what is asked of the profile's data, after its key in Facts, and the Python that reads; None for none."""
    setup = set_up(profile, facts)
    asked = None if setup.recipe_problem else question_about_data(setup)
    if asked is None or setup.toolchain is None or profile.container.engine != "none":
        return None
    return data_key(asked), asked, setup.toolchain


def ask_hub_for_model(profile: Profile, facts: Facts) -> dict[str, HubModel]:
    """Return what the Hub says of the profile's model where the cache lacks it; takes up to some seconds."""
    name = model_to_query(profile, facts)
    if not name or facts.hub is None:
        return {}
    return {
        name: hub.query_hub_model(profile.trainer.model, hub_endpoint(profile, facts.hub), profile.trainer.revision)
    }


def rendezvous_port(profile: Profile) -> int:
    """Return the rendezvous port on this machine; 0 for training on one machine."""
    return profile.nodes.port if profile.nodes.machine_count > 1 else 0


def read_chosen_image(profile: Profile) -> tuple[ContainerImage, ...]:
    """Return the content of the profile's image, nothing where it has none; takes up to a minute."""
    chosen = profile.container
    return (
        (container_images.read_image(chosen.engine, chosen.image),) if chosen.engine != "none" and chosen.image else ()
    )


def named_python(profile: Profile) -> tuple[str, ...]:
    """Return the Python that the profile names, for the probe to read besides those that it finds."""
    return (profile.trainer.python,) if profile.trainer.python else ()


def submit_here(prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
    """Write the run folder of these files and start it."""
    interrupts.raise_if_interrupted("")
    run = rundir.create_run(plan.name, prepared.files)
    try:
        start_run(run, interrupts=interrupts)
    except TuiTrainError:
        # A run that never started would only clutter the list.
        if read_status(run).state == "new":
            shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


class LocalTarget:
    """This machine."""

    name = ""
    can_start: ClassVar[bool] = True

    def probe_machine_facts(self) -> Facts:
        """Return the facts of the machine, without those of a profile."""
        return probe_facts(Profile())

    def probe_for(self, profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
        """Return the facts that a profile needs; takes up to some seconds."""
        return probe_facts(profile, on_wait)

    def submit(self, prepared: PreparedPlan, plan: Plan, interrupts: Interrupts = NO_INTERRUPTS) -> RunDir:
        """Write the run folder and start it."""
        return submit_here(prepared, plan, interrupts)

    def resume(self, run: RunDir, interrupts: Interrupts = NO_INTERRUPTS) -> str:
        """Start a run again; return in words what that does which is not just going on."""
        start_run(run, resume=True, interrupts=interrupts)
        return restart_note(run)

    def state(self, run: RunDir) -> Status:
        """Return a run's state."""
        return read_status(run)

    def probe_state(self, run: RunDir) -> Status:
        """Return a run's state."""
        return read_status(run)

    def stop(self, run: RunDir, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
        """End a run and every process of it, and return its state."""
        return stop_run(run, while_waiting=while_waiting, at_once=at_once)

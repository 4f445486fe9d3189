"""The facts that a profile needs: of this machine, of a host, of the machine in a file, of a node of Slurm."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import BadInput
from tui_train.facts.answer_cache import FileState, states_behind_path
from tui_train.facts.data.data_cache import read_data_report
from tui_train.facts.data.data_report import DataQuestion, DataReport
from tui_train.facts.data.data_use import facts_key_of_question as data_key
from tui_train.facts.machine import container_images, probe
from tui_train.facts.machine.child_process import folders_of_relative_python_paths
from tui_train.facts.machine.communication_tests import Examination, load_communication_examinations
from tui_train.facts.machine.inherited_settings import read_inherited_variables, starts_without_wandb_prompt
from tui_train.facts.models import hub, model_folders, nemo_models
from tui_train.facts.models.hub import HubModel
from tui_train.facts.models.model_folders import ModelFolder
from tui_train.facts.other_machines import machine_files, remote
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.other_machines.slurm import last_gres_value, planned_machine
from tui_train.facts.scripts.script_help import facts_with_script_help, read_script_help
from tui_train.facts.scripts.script_source import read_script_source
from tui_train.facts.types import (
    ContainerImage,
    Facts,
    Machine,
    NemoCheckpoint,
    NemoTokenizer,
    PathState,
    ResourcesInUse,
    ScriptSource,
    Toolchain,
    YamlDocument,
)
from tui_train.facts.yaml_documents import read_documents
from tui_train.memory import workload
from tui_train.memory.data_defaults import make_setup
from tui_train.places.help_question import script_help_question_for_auto_preset
from tui_train.places.host_questions import make_command_runner
from tui_train.profile.presets import UserPreset, UserPresetByName, get_preset
from tui_train.profile.presets.user_presets import user_presets
from tui_train.profile.rewards import chosen_rewards
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.runner.queue.listing import list_cards_in_queue
from tui_train.runner.system.paths import free_bytes_for_path, similar_existing_path, why_unwritable
from tui_train.runs.conflicts import resources_in_use
from tui_train.runs.remote_run import RunLocation
from tui_train.setup.recipe.data_questions import question_about_data
from tui_train.setup.recipe.effective_values import user_output_folder
from tui_train.setup.recipe.given_arguments import likely_input_paths_by_name
from tui_train.setup.recipe.hub_model import hub_endpoint, model_to_query
from tui_train.trainers import profile_paths_to_check, trainer_has_own_field
from tui_train.trainers.auto_preset import preset_for_source

# Of data that a container reads: by its first rows it is told which folders of images it names.
_MAX_ROWS_FOR_MOUNTS, _MAX_SECONDS_FOR_MOUNTS = 2000, 5
_TEMPORARY_FOLDER = "/tmp"  # noqa: S108  # where programs make their files without TMPDIR


class ProfileFiles(Struct, frozen=True, kw_only=True):
    """The files that a profile names: paths, documents, presets, sources, as in Facts."""

    paths: dict[str, PathState]
    file_states: dict[str, tuple[FileState, ...]]
    similar_paths: dict[str, str]
    unwritable: dict[str, str]
    free: dict[str, int | None]
    temporary_folder: str
    documents: dict[str, YamlDocument]
    presets: dict[str, UserPreset]
    models: dict[str, ModelFolder]
    sources: dict[str, ScriptSource]
    wandb_key: bool
    checkpoints: dict[str, NemoCheckpoint]
    accelerate_config: str
    tokenizers: dict[str, NemoTokenizer]
    communication: dict[str, Examination]


def read_profile_files(profile: Profile) -> ProfileFiles:
    """Read the files that a profile names."""
    file_states = _read_file_states(profile)  # first: what changes meanwhile is read again
    script, accelerate_config = profile.trainer.script, hub.find_accelerate_config_path(hub.hub_variables(profile))
    config_documents = read_documents(filter(None, (*config_file_paths(profile), accelerate_config)))
    presets = user_presets()
    sources = read_script_sources(profile)
    outputs = _user_output_folders(profile, config_documents, presets, sources.get(script))
    temporary_folder = profile.trainer.environment.get("TMPDIR") or os.environ.get("TMPDIR") or _TEMPORARY_FOLDER
    written = (profile.trainer.output, *outputs, temporary_folder)
    read = (*profile_paths_to_check(profile), *_input_paths(profile, sources.get(script)))
    paths = probe.read_path_states((*read, *outputs, temporary_folder))
    return ProfileFiles(
        paths=paths,
        file_states=file_states,
        similar_paths={path: similar_existing_path(path) for path in read if path and paths[path] == "missing"},
        unwritable={path: why_unwritable(path) for path in written if path},
        free={path: free_bytes_for_path(path or str(runs_folder())) for path in ("", *written)},
        temporary_folder=temporary_folder,
        documents=config_documents,
        presets=presets,
        models={
            name: read_profile_model_shape(profile, name) for name in workload.models_to_read(profile, config_documents)
        },
        sources=sources,
        wandb_key=starts_without_wandb_prompt(),
        checkpoints=_read_start_checkpoint(profile),
        accelerate_config=accelerate_config,
        tokenizers=_read_nemo_tokenizer(profile),
        communication=load_communication_examinations(),
    )


def have_files_changed(profile: Profile, facts: Facts) -> bool:
    """Return whether what the profile names is no longer as it was when this machine's facts were read."""
    states = _read_file_states(profile)
    read = (*profile_paths_to_check(profile), *_input_paths(profile, facts.sources.get(profile.trainer.script)))
    paths = probe.read_path_states(read)
    return states != {path: facts.file_states.get(path) for path in states} or paths != {
        path: facts.paths.get(path) for path in paths
    }


def _read_file_states(profile: Profile) -> dict[str, tuple[FileState, ...]]:
    """Return the states of the files that a profile names and others may change; of a model those in its folder."""
    trainer = profile.trainer
    data = (*trainer.data, *trainer.validation_data, *trainer.test_data)
    rewards = (reward.file for reward in chosen_rewards(profile.finetune))
    model = trainer.model if trainer.model.startswith("/") else ""
    accelerate_config = hub.find_accelerate_config_path(hub.hub_variables(profile))
    named = (trainer.script, *config_file_paths(profile), accelerate_config, *data, *rewards, model)
    return {path: states_behind_path(path) for path in named if path}


def read_script_sources(profile: Profile) -> dict[str, ScriptSource]:
    """Return the facts of the profile's training script, by its path."""
    script = profile.trainer.script
    if not script or not trainer_has_own_field(profile, "trainer.script"):
        return {}
    source = read_script_source(script, with_imports=True)
    start_folder = Path(profile.trainer.working_directory or script.rpartition("/")[0])
    if {*folders_of_relative_python_paths(start_folder)} - {os.path.realpath(script).rpartition("/")[0]}:
        source = msgspec.structs.replace(source, imports=())  # what lies in those folders was not read
    return {script: source}


def config_file_paths(profile: Profile) -> tuple[str, ...]:
    """Return the YAML files that a profile names."""
    return tuple(filter(None, (profile.trainer.config, profile.trainer.accelerate_config)))


def read_profile_model_shape(profile: Profile, model: str) -> ModelFolder:
    """Return the shape of a model by its folder, or by its id of the Hub from the cache; empty where that lacks it."""
    if model.startswith("/"):
        return model_folders.read_model_folder(model)
    revision = profile.trainer.revision if model == profile.trainer.model else ""
    folder = hub.snapshot_folder(hub.hub_variables(profile), model, revision)
    if not folder:
        return ModelFolder()
    return msgspec.structs.replace(model_folders.read_model_folder(folder), path=folder)


def _input_paths(profile: Profile, source: ScriptSource | None) -> tuple[str, ...]:
    """Return the paths that the arguments have the script read."""
    by_name = likely_input_paths_by_name(source, profile) if source and not source.problem else {}
    return tuple(path for paths in by_name.values() for path in paths)


def _user_output_folders(
    profile: Profile, documents: dict[str, YamlDocument], user_presets: UserPresetByName, source: ScriptSource | None
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


def probe_profile_facts(profile: Profile, on_wait: Callable[[str], None] = lambda _: None) -> Facts:
    """Return the facts that a profile needs; takes up to some seconds, so never on a screen's thread.

    `on_wait` gets what may take longer, before it does.
    """
    in_container = profile.container.engine != "none"
    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(probe.probe_machine)
        files = read_profile_files(profile)
        toolchains = () if in_container else probe.probe_toolchains(python_named_in_profile(profile))
    facts = Facts(
        machine=machine.result(),
        toolchains=toolchains,
        **msgspec.structs.asdict(files),
        variables=read_inherited_variables(),
        engines=container_images.read_engines() if in_container else (),
        images=probe_chosen_image(profile),
        resources_in_use=resources_in_use(rendezvous_port(profile)),
        cards_in_queue=list_cards_in_queue(),
        hub=hub.read_hub_cache(hub.hub_variables(profile)),
    )
    facts = msgspec.structs.replace(facts, hub_models=query_uncached_hub_model(profile, facts))
    if question := script_help_question_for_auto_preset(profile, facts):
        words = f"Running {question.key} --help, as its source does not name all arguments …"
        answer = read_script_help(question.python, question.words, question.folder, lambda: on_wait(words))
        facts = facts_with_script_help(msgspec.structs.replace(facts, help={question.key: answer}))
    return msgspec.structs.replace(facts, data=_read_profile_data(profile, facts))


def _read_profile_data(profile: Profile, facts: Facts) -> dict[str, DataReport]:
    """Return what the Python that trains reads in the profile's data; up to two minutes, at once where it is kept."""
    asked = data_question_with_key_and_python(profile, facts)
    return {asked[0]: read_data_report(asked[2], asked[1])} if asked else {}


def data_question_with_key_and_python(profile: Profile, facts: Facts) -> tuple[str, DataQuestion, Toolchain] | None:
    """Return what is asked of the profile's data, after its key in Facts, and the Python that reads; None for none.

    What a container reads itself is only looked through here for images that it has to see.
    """
    setup = make_setup(profile, facts)
    asked = None if setup.preset_error else question_about_data(setup)
    if asked is None:
        return None
    if profile.container.engine != "none":
        if facts.other_machine:
            return None
        look = DataQuestion(files=asked.files, rows=_MAX_ROWS_FOR_MOUNTS, seconds=_MAX_SECONDS_FOR_MOUNTS)
        return data_key(look), look, Toolchain(python=sys.executable)
    return (data_key(asked), asked, setup.toolchain) if setup.toolchain else None


def query_uncached_hub_model(profile: Profile, facts: Facts) -> dict[str, HubModel]:
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


def probe_chosen_image(profile: Profile, host: str = "") -> tuple[ContainerImage, ...]:
    """Return the content of the profile's image on a host (empty: this machine), nothing where it names none.

    Takes up to a minute.
    """
    chosen = profile.container
    if chosen.engine == "none" or not chosen.image:
        return ()
    return (container_images.probe_image(chosen.engine, chosen.image, make_command_runner(host)),)


def python_named_in_profile(profile: Profile) -> tuple[str, ...]:
    """Return the Python that the profile names, for the probe to read besides those that it finds."""
    return (profile.trainer.python,) if profile.trainer.python else ()


def probe_host_facts(host: str, profile: Profile) -> Facts:
    """Return the facts of a host that a profile needs, with what the runs on it that are known here hold."""
    named = remote.PathsNamedByPlan(
        pythons=python_named_in_profile(profile),
        paths=profile_paths_to_check(profile),
        files=config_file_paths(profile),
        script=profile.trainer.script if trainer_has_own_field(profile, "trainer.script") else "",
        hub_variables=hub.cache_location_variables(profile),
    )
    facts = remote.read_planning_facts(host, named)
    in_container = profile.container.engine != "none"
    return msgspec.structs.replace(
        facts_with_local_files(profile, facts),
        engines=container_images.read_engines(make_command_runner(host)) if in_container else None,
        images=probe_chosen_image(profile, host),
        resources_in_use=resources_in_use(place=RunLocation(host, "")),
    )


def load_machine_file_facts(machine_file: Path, profile: Profile, *, is_node: bool) -> Facts:
    """Return the facts in a machine file that a profile needs; of a node, its files are those of this machine."""
    facts = machine_files.load_facts_for_planning(machine_file)
    if not is_node:
        return facts_with_local_files(profile, facts)
    return msgspec.structs.replace(
        facts,
        **msgspec.structs.asdict(read_profile_files(profile)),
        engines=container_images.read_engines() if profile.container.engine != "none" else (),
        images=probe_chosen_image(profile),
        other_machine="",
    )


def facts_with_local_files(profile: Profile, facts: Facts) -> Facts:
    """Return another machine's facts with the files that a plan needs, as far as they are on this one's disks.

    A YAML file and a model may be on both; one that is missing here is no error.
    """
    documents = facts.documents or read_documents(config_file_paths(profile))
    shapes = {name: read_profile_model_shape(profile, name) for name in workload.models_to_read(profile, documents)}
    known = {
        name: found
        for name, found in shapes.items()
        if found.path or (name[0] == "/" and Path(name, "config.json").is_file())
    }
    sources = facts.sources or {
        path: found for path, found in read_script_sources(profile).items() if not found.problem
    }
    return msgspec.structs.replace(
        facts,
        documents=documents,
        presets=user_presets(),
        models=known,
        sources=sources,
        communication=load_communication_examinations(),
    )


def node_for_profile(submit_machine: Machine, cluster: Cluster, profile: Profile) -> Machine:
    """Return the node that a profile's job may get, where it is submitted from a machine."""
    return planned_machine(submit_machine, cluster, profile.slurm.partition, last_gres_value(profile.slurm.options))


def resources_shared_with_nodes(in_use: tuple[ResourcesInUse, ...]) -> tuple[ResourcesInUse, ...]:
    """Return what runs hold that a job could take: cards and ports that are taken here are not those of the nodes."""
    return tuple(msgspec.structs.replace(other, gpus=(), port=0) for other in in_use if other.run)

"""Summary of a plan: its title, its numbers with their sources, its notes."""

import math
import re
from collections import Counter

from tui_train.base.text import display_path, percent, quantity, visible
from tui_train.facts.types import Facts
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.launchers.launcher import LauncherJob
from tui_train.profile import batch, fields
from tui_train.profile.types import AUTO_PRESET, WANDB_OFFLINE_MODES, Profile, Recipe
from tui_train.setup.machine import other_hosts
from tui_train.setup.machine.idle_cards import left_out_cards_sentences
from tui_train.setup.recipe import data_questions, launcher_config
from tui_train.setup.recipe.effective_values import global_batch_change_sentence, is_unset_by_user
from tui_train.setup.recipe.given_arguments import script_source
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, profile_paths_to_check, trainer_has_own_field, trainer_of
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT, arguments_summary
from tui_train.trainers.finetune import keeps_best_checkpoint

# Machines whose processes are listed one by one.
_MAX_MACHINES_LISTED = 8
# Names of arguments by which scripts take a checkpoint to go on from.
_RESUME_NAME_PATTERN = re.compile(
    r"(?:auto[-_])?(?:resume|restore|continue)(?:[-_]\w+)?|(?:load[-_])?(?:ckpt|checkpoint)(?:[-_]path)?"
)


def plan_title(setup: Setup) -> str:
    """Return what trains, what starts it, and where, in one line."""
    profile = setup.profile
    training = setup.trainer.title()
    devices = quantity(len(setup.gpus), "GPU") if setup.device == "cuda" else "the CPU"
    processes = quantity(setup.first_machine_process_count, "process", "processes")
    if uneven := profile.nodes.uneven_processes:
        processes = quantity(setup.world_size, "process", "processes")
        devices = f"{'the GPUs' if setup.device == 'cuda' else 'the CPU'} of {_machines_and_processes_text(uneven)}"
    elif profile.nodes.machine_count > 1:
        devices += f" of each of {profile.nodes.machine_count} machines"
    sharding = "" if profile.trainer.strategy == "ddp" else f" with {profile.trainer.strategy}"
    container = profile.container
    where = "" if container.engine == "none" else f", in {container.image} by {container.engine}"
    return f"{training} under {LAUNCHERS[setup.launcher].label}{sharding}, {processes} on {devices}{where}"


def _machines_and_processes_text(processes_by_machine: tuple[int, ...]) -> str:
    """Return the machines and the processes of each: 2 machines (4 + 2)."""
    listed = " + ".join(map(str, processes_by_machine))
    if len(processes_by_machine) > _MAX_MACHINES_LISTED:
        listed = ", ".join(f"{times} with {count}" for count, times in Counter(processes_by_machine).items())
    return f"{len(processes_by_machine)} machines ({listed})"


def plan_number_texts(setup: Setup) -> tuple[str, ...]:
    """Return learning rate and steps as text, each with its source unless the user set it."""
    recipe, values = setup.effective_profile.recipe, setup.effective_values
    rate, length = batch.scaled_learning_rate(recipe), values["sequence_length"]
    rate_text = values["learning_rate"].other_form_text if rate is None else f"learning rate {rate:g}"
    end = "epochs" if recipe.epochs and not recipe.steps else "steps"
    texts_and_sources = [
        (rate_text, values["learning_rate"].source if recipe.lr_scaling == "none" else ""),
        (_training_length_text(recipe) or values["steps"].other_form_text, values[end].source),
    ]
    if recipe.sequence_length and is_unset_by_user(length) and not length.source.endswith("default"):
        texts_and_sources.append((f"sequence length {recipe.sequence_length}", length.source))
    texts_and_sources += _finetune_number_texts_and_sources(setup)
    return tuple(
        visible(text + (f" ({source})" if source not in {"", "default"} else ""))
        for text, source in texts_and_sources
        if text
    )


def _finetune_number_texts_and_sources(setup: Setup) -> list[tuple[str, str]]:
    """Return what a fine-tuning does besides rate and steps, each with its source."""
    profile, values = setup.effective_profile, setup.effective_values
    if not trainer_has_own_field(profile, "finetune"):
        return []
    recipe = profile.recipe
    found = [(warm_up_text(recipe.warmup, 0), values["warmup"].source)]
    if value := setup.data_values_by_key.get(data_questions.ANSWERS_ONLY_KEY):
        found.append(("answers alone are learned", value.source))
    if value := setup.data_values_by_key.get(data_questions.EVALUATION_SHARE_KEY):
        found.append((f"{percent(profile.data.evaluation or 0.0, 1)} for evaluations", value.source))
    if keeps_best_checkpoint(profile):
        text = f"the best checkpoint by evaluation, each {recipe.checkpoint_every} steps"
        found.append((text, values["checkpoint_every"].source))
    return found


def warm_up_text(warmup: float | None, steps: int) -> str:
    """Return how long the rate rises: a warmup below 1 is a share of the steps; empty for none."""
    if not warmup:
        return ""
    if warmup < 1 and not steps:
        return f"{percent(warmup)} of the steps to warm up"
    return f"{quantity(math.ceil(warmup * steps) if warmup < 1 else round(warmup), 'step')} to warm up"


def _training_length_text(recipe: Recipe) -> str:
    """Return how long the training is, in words: its steps, or else its epochs."""
    if recipe.steps:
        return quantity(recipe.steps, "step")
    return f"{recipe.epochs:g} {'epoch' if recipe.epochs == 1 else 'epochs'}" if recipe.epochs else ""


def plan_notes(setup: Setup) -> tuple[str, ...]:
    """Return what the user should know of the plan besides its numbers."""
    profile, facts = setup.profile, setup.facts
    sentences = [f"Made for another machine: {facts.other_machine}."] if facts.other_machine else []
    if facts.other_machine and not facts.paths and profile_paths_to_check(profile):
        sentences.append("Whether its paths exist was not checked.")
    sentences += script_notes(profile, facts)
    sentences += _launcher_notes(setup)
    sentences += left_out_cards_sentences(setup)
    sentences += _accelerate_notes(setup)
    document = facts.documents.get(profile.trainer.config)
    sentences += filter(None, [global_batch_change_sentence(setup.trainer, setup.preset, document, setup.model_copies)])
    if setup.nemo_flavour:
        sentences += nemo.nemo_script_notes(profile, setup.nemo_flavour, facts, setup.toolchain)
    if profile.tracking.wandb and profile.trainer.environment.get("WANDB_MODE", "").lower() in WANDB_OFFLINE_MODES:
        sentences.append("W&B works offline: `wandb sync wandb/offline-run-…` in the run folder uploads it later.")
    resumes_itself = trainer_of(profile).resumes_itself
    if not setup.preset.checkpoints and not resumes_itself:
        by = f"The preset “{setup.preset.label}” cannot resume"
        by = "No checkpoint is passed to the script" if profile.trainer.preset == AUTO_PRESET else by
        sentences.append(f"{by}: each attempt starts from step 0{_resume_argument_hint(setup)}.")
    if profile.nodes.hosts and not setup.is_slurm_job:
        sharded = setup.preset.checkpoints and profile.trainer.strategy != "ddp"
        sentences += _ssh_host_notes(profile, needs_shared_disk=bool(sharded) or resumes_itself)
        sentences += map(visible, other_hosts.other_hosts_left_out_sentences(setup))
    elif profile.nodes.machine_count > 1 and not setup.is_slurm_job:
        last = profile.nodes.machine_count - 1
        ranks = "--node-rank=1 on the other" if last == 1 else f"--node-rank=1 to {last} on the others"
        sentences.append(f"Start it on each machine, from this folder or a copy: --node-rank=0 on the first, {ranks}.")
        sentences.append("No fallbacks with several machines: nothing coordinates them.")
        if setup.preset.checkpoints or resumes_itself:
            sentences.append("To resume, the output folder must be on a disk that all machines share.")
        if setup.preset.checkpoints and not resumes_itself:
            sentences.append("It resumes only with --resume, given on all machines.")
    return tuple(sentences)


def _resume_argument_hint(setup: Setup) -> str:
    """Return which argument of the script may take a checkpoint, and how it is passed; empty for none."""
    source = script_source(setup.profile, setup.facts, setup.preset)
    for parameter in source.parameters if source else ():
        if _RESUME_NAME_PATTERN.fullmatch(parameter.name.lstrip("-")):
            own = visible(parameter.name)
            return f", unless you give it {own}; a preset of your own can pass a checkpoint by that (docs/scripts.md)"
    return ""


def script_notes(profile: Profile, facts: Facts) -> list[str]:
    """Return what was read of the script, where the preset goes by that."""
    script = profile.trainer.script
    if profile.trainer.preset != AUTO_PRESET or not script or not trainer_has_own_field(profile, "trainer.script"):
        return []
    arguments = arguments_summary(facts.sources.get(script), profile.trainer.arguments)
    return [f"Found in {visible(script.rpartition('/')[2])}: {arguments}."]


def _launcher_notes(setup: Setup) -> list[str]:
    """Return why a single process is started by a launcher that sets its ranks, where that was chosen for it."""
    because = setup.profile.trainer.launcher == "auto" and setup.world_size == 1 and setup.line_needing_ranks_text
    return [f"Launcher {LAUNCHERS[setup.launcher].label}: {setup.line_needing_ranks_text}."] if because else []


def _accelerate_notes(setup: Setup) -> list[str]:
    """Return what is kept of the user's accelerate config, and which of its values were chosen otherwise."""
    profile = setup.profile
    config = setup.launcher_config
    if not config:
        return []
    config_values = launcher_config.recipe_values_of_config(profile, setup.preset, config)
    overridden = {
        name: value
        for name, value in config_values.items()
        if setup.effective_values.get(name, value).source != value.source
    }
    kept = [value.text for name, value in config_values.items() if name not in overridden]
    kept += accelerate_config.settings_kept_from_config(config, profile.trainer.strategy, fp8="fp8" in kept)
    path = display_path(launcher_config.launcher_config_path(profile, setup.facts))
    sentences = [f"{', '.join(kept)}: {launcher_config.CONFIG_SOURCE_TEXT} ({path})."] if kept else []
    for name, value in overridden.items():
        effective = setup.effective_values[name]
        if effective.value != value.value:
            source = effective.source or f"recipe.{name}"
            theirs = value.text
            sentences.append(
                f"{fields.format_value(effective.value)} ({source}) instead of {theirs} in your accelerate config."
            )
    return sentences


def _ssh_host_notes(profile: Profile, *, needs_shared_disk: bool) -> list[str]:
    """Return what happens on several machines that the first one starts."""
    first, *others = map(visible, profile.nodes.hosts)
    sentences = [
        f"Started on {first}, which starts {', '.join(others)} over ssh: all fall back, resume and stop together."
    ]
    sentences.append("The Python, the model and the data are not copied: each machine has them at the same paths.")
    if needs_shared_disk:
        sentences.append("To resume, the output folder must be on a disk that all machines share.")
    return sentences


def batch_arithmetic_text(setup: Setup, job: LauncherJob) -> str:
    """Return the arithmetic of an attempt's batch in words, as far as it is known, with its source."""
    recipe = setup.effective_profile.recipe
    processes = quantity(job.world_size, "process", "processes")
    if setup.model_copies != job.world_size:
        processes = f"{quantity(setup.model_copies, 'copy', 'copies')} of the model"
    effective = setup.effective_values["micro_batch"], setup.effective_values["global_batch"]
    if recipe.micro_batch is None:
        return visible(f"{processes}, batch: {effective[0].source}")
    # A changed batch no longer comes from the source.
    first = setup.effective_profile_of_first_attempt.recipe
    unchanged = (recipe.micro_batch, recipe.global_batch) == (first.micro_batch, first.global_batch)
    with_source = [
        value for value in effective if unchanged and value.source not in {"", "default", SCRIPT_OWN_VALUE_SOURCE_TEXT}
    ]
    sources = dict.fromkeys(value.source for value in with_source)
    source = visible(f" ({', '.join(sources)})") if sources else ""
    if recipe.global_batch is None:
        return f"micro batch {recipe.micro_batch}{source} x {processes}, accumulation: {SCRIPT_OWN_VALUE_SOURCE_TEXT}"
    product = f"micro batch {recipe.micro_batch} x accumulation {job.accumulation} x {processes}"
    return f"{product} = global batch {recipe.global_batch}{source}"

"""make_plan(): what a run will do, from the profile and the facts; pure, and refused if a check finds an error."""

from collections.abc import Iterable
from functools import partial

import msgspec

from tui_train.base import webhook
from tui_train.base.command import Command, CommandPart, ConfigFile, word_in_run_dir
from tui_train.base.errors import BadInput, Unavailable
from tui_train.checks import Finding
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.launchers.launcher import LauncherJob
from tui_train.memory.ladder.attempt_order import AttemptPlan, attempts_with_fallbacks
from tui_train.memory.predict import cannot_fit_on_empty_gpu, predict_memory
from tui_train.plan.attempts import attempt_output_folder, build_attempt, values_passed_to_trainer
from tui_train.plan.description import plan_notes, plan_number_texts, plan_title
from tui_train.plan.environment import preparation_variables
from tui_train.plan.run_files import LogReadingRules
from tui_train.plan.types import Attempt, EndNotification, Plan, PlannedPreparation, SlurmJob
from tui_train.profile import batch
from tui_train.profile.types import Profile
from tui_train.setup.machine import container
from tui_train.setup.machine.other_hosts import other_hosts_gpu_uuids
from tui_train.setup.profile_summary import chosen_or_derived_name
from tui_train.setup.recipe import config_file, hub_model, launcher_config
from tui_train.setup.recipe.options import given_options
from tui_train.setup.recipe.placeholder_values import effective_accumulation
from tui_train.setup.setup import Setup
from tui_train.trainers import nemo, trainer_has_own_field, trainer_of
from tui_train.trainers.nemo import NemoFile

# Of a GPU's memory: its driver and a display take the rest.
_MAX_FREE_SHARE = 0.9


def make_plan(setup: Setup, findings: Iterable[Finding]) -> Plan:
    """Return the plan of a profile on its machine; BadInput or Unavailable if a finding forbids it."""
    for finding in findings:
        if finding.forbids_plan:
            raise (Unavailable if finding.machine else BadInput)(finding.message, finding.remedy)
    steps = attempts_with_fallbacks(
        setup.effective_profile, setup.ladder_context, lambda other: cannot_fit_on_empty_gpu(setup.for_attempt(other))
    )
    setups = tuple(setup.for_attempt(step.profile) for step in steps)
    jobs, launcher_configs = _build_jobs(setups)
    attempts, configs = _build_attempts(steps, setups, jobs)
    return Plan(
        name=chosen_or_derived_name(setup.profile),
        title=plan_title(setup),
        notes=plan_notes(setup),
        **_plan_machine_fields(setup, jobs[0]).keywords,
        **_plan_number_fields(setup).keywords,
        **_plan_end_of_run_fields(setup).keywords,
        preparations=_preparations(setup, jobs[0]),
        attempts=attempts,
        phases=setup.ladder_context.out_of_memory_phases,
        configs=(*launcher_configs, *configs),
        programs=(*setup.trainer.program_files(), *hub_model.model_download_programs(setup)),
        nemo=_build_nemo_file(setup),
        container=container.container_wrapper(setup.profile, jobs[0].gpus, tuple(map(attempt_output_folder, setups))),
    )


# A part of the plan is a partial, for then its fields have types.
def _plan_machine_fields(setup: Setup, first_job: LauncherJob) -> partial[Plan]:
    """Return what starts the processes, on which machines and cards, and how these find each other."""
    profile, nodes = setup.profile, setup.profile.nodes
    slurm = _slurm_job(profile, first_job) if setup.is_slurm_job else None
    gpus = () if slurm else first_job.gpus
    several = nodes.machine_count > 1 and not slurm
    return partial(
        Plan,
        python=first_job.python,
        launcher=setup.launcher,
        device=setup.device,
        gpus=gpus,
        gpu_names=tuple(gpu.name for gpu in setup.gpus) if gpus else (),
        gpu_pool=_gpu_pool(setup) if gpus else (),
        gpu_memory=_required_gpu_memory(setup) if gpus else 0,
        world_size=setup.world_size,
        nodes=nodes.machine_count,
        uneven=nodes.uneven_processes,
        address=nodes.address if several else "",
        port=nodes.port if several else 0,
        find_interface=several and not profile.communication.interface,
        backend=setup.communication_backend,
        slurm=slurm,
        hosts=nodes.hosts if several else (),
        others=other_hosts_gpu_uuids(setup),
    )


def _gpu_pool(setup: Setup) -> tuple[str, ...]:
    """Return the GPUs of the kind of the chosen ones that can train; none where that is these alone."""
    cards = zip(setup.facts.machine.gpus, setup.gpu_verdicts, strict=True)
    kinds = {gpu.name for gpu in setup.gpus}
    pool = tuple(
        gpu.uuid for gpu, verdict in cards if gpu in setup.gpus or (gpu.name in kinds and verdict.kind == "use")
    )
    return pool if len(kinds) == 1 and len(pool) > len(setup.gpus) and setup.profile.nodes.machine_count == 1 else ()


def _required_gpu_memory(setup: Setup) -> int:
    """Return the bytes that each GPU has to have free; never more than one can have beside a display."""
    totals = [gpu.memory_total for gpu in setup.gpus if gpu.memory_total]
    return min(predict_memory(setup).reserved_bytes_at_peak, int(min(totals) * _MAX_FREE_SHARE)) if totals else 0


def _plan_number_fields(setup: Setup) -> partial[Plan]:
    """Return the batch, the learning rate and the steps; 0 for what is not known."""
    recipe = setup.effective_profile.recipe
    return partial(
        Plan,
        micro_batch=recipe.micro_batch or 0,
        accumulation=effective_accumulation(setup.effective_profile, setup.model_copies) or 0,
        global_batch=recipe.global_batch or 0,
        learning_rate=batch.scaled_learning_rate(recipe) or 0.0,
        steps=recipe.steps or 0,
        numbers=plan_number_texts(setup),
    )


def _plan_end_of_run_fields(setup: Setup) -> partial[Plan]:
    """Return what the supervisor needs to stop, resume and report a run."""
    profile = setup.profile
    return partial(
        Plan,
        output=profile.trainer.output or setup.user_output_folder,
        grace=setup.preset.stop.grace,
        connection_wait=setup.trainer.connection_wait,
        resumes_itself=setup.trainer.resumes_itself,
        secrets=profile.trainer.secrets,
        log=_log_rules_of_preset(setup),
        notify=_end_notification(profile),
    )


def _build_attempts(
    attempt_plans: tuple[AttemptPlan, ...], setups: tuple[Setup, ...], jobs: tuple[LauncherJob, ...]
) -> tuple[tuple[Attempt, ...], tuple[ConfigFile, ...]]:
    """Return the attempts, and the trainer's config files, which attempts with the same values share."""
    attempts: list[Attempt] = []
    configs: list[ConfigFile] = []
    for number, (step, setup, job) in enumerate(zip(attempt_plans, setups, jobs, strict=True), start=1):
        path = config_file.config_file_name(setup.profile, setup.preset, number)
        values = values_passed_to_trainer(step, setup, path)
        if config := config_file.build_config_file(setup, values, path):
            equal = next((earlier for earlier in configs if earlier.values == config.values), None)
            if equal is None:
                configs.append(config)
            else:
                path = equal.path
                values = {**values, "config": config_file.config_placeholder_word(setup.profile, setup.preset, path)}
        attempts.append(build_attempt(step, setup, job, values, path))
    return tuple(attempts), tuple(configs)


def _build_nemo_file(setup: Setup) -> NemoFile | None:
    kind = setup.nemo_flavour
    return kind and nemo.build_nemo_file(setup.effective_profile, kind, setup.gpus, setup.facts, setup.toolchain)


def _log_rules_of_preset(setup: Setup) -> LogReadingRules:
    profile = setup.profile
    own = (profile.trainer.progress,) if profile.trainer.progress else ()
    steps = setup.effective_profile.recipe.steps or 0
    return LogReadingRules((*own, *setup.preset.log), steps, trainer_has_own_field(profile, "trainer.progress"))


def _slurm_job(profile: Profile, job: LauncherJob) -> SlurmJob:
    chosen = profile.slurm
    return SlurmJob(
        gpus=len(job.gpus),
        cpus=chosen.cpus or job.processes,
        partition=chosen.partition,
        account=chosen.account,
        time=chosen.time,
        options=chosen.options,
    )


def _preparations(setup: Setup, job: LauncherJob) -> tuple[PlannedPreparation, ...]:
    """Return what the training's Python does before it, without GPUs."""
    profile = setup.profile
    env = preparation_variables(profile)
    # What prepares the data may need the model.
    trainer = trainer_of(setup.effective_profile, facts=setup.facts)
    items = (*hub_model.model_download_steps(setup), *trainer.preparation_steps())
    return tuple(
        PlannedPreparation(
            item.name, item.why, Command((CommandPart((job.python,)), *item.parts), env, word_in_run_dir(""))
        )
        for item in items
    )


def _end_notification(profile: Profile) -> EndNotification | None:
    chosen = profile.notify
    if not chosen.command and not chosen.webhook:
        return None
    return EndNotification(chosen.command, webhook.webhook_file_or_name(chosen.webhook))


def _build_jobs(setups: tuple[Setup, ...]) -> tuple[tuple[LauncherJob, ...], tuple[ConfigFile, ...]]:
    """Return the job of each attempt, and the launcher's config files, which attempts share."""
    jobs: list[LauncherJob] = []
    files: list[ConfigFile] = []
    for setup in setups:
        job = _build_job(setup)
        for wanted in LAUNCHERS[setup.launcher](job).config_files():
            config = next((file for file in files if file.values == wanted.values), None)
            if config is None:
                stem, dot, ending = wanted.path.rpartition(".")
                path = f"{stem}-{len(files) + 1}{dot}{ending}" if files else wanted.path
                config = msgspec.structs.replace(wanted, path=path)
                files.append(config)
            job = msgspec.structs.replace(job, config_file=config.path)
        jobs.append(job)
    return tuple(jobs), tuple(files)


def _build_job(setup: Setup) -> LauncherJob:
    """Return what the launcher starts in an attempt."""
    profile, toolchain, nodes = setup.effective_profile, setup.toolchain, setup.profile.nodes
    assert toolchain is not None, "a check refuses a profile that no Python can train"  # noqa: S101 - for the type
    return LauncherJob(
        python=toolchain.python if profile.container.engine == "none" else "python",
        torchrun_flags=toolchain.torchrun,
        processes=setup.first_machine_process_count,
        nodes=nodes.machine_count,
        uneven_processes=nodes.uneven_processes,
        user_config=setup.launcher_config,
        port=nodes.port,
        gpus=tuple(gpu.uuid for gpu in setup.gpus) if setup.device == "cuda" else (),
        precision=profile.recipe.precision or _precision_outside_recipe(setup) or "fp32",
        strategy=profile.trainer.strategy,
        offload=profile.trainer.offload and profile.trainer.strategy != "ddp",
        accumulation=effective_accumulation(profile, setup.model_copies) or 1,
        clipping_norm=_max_gradient_norm(setup),
        is_slurm_job=setup.is_slurm_job,
    )


def _precision_outside_recipe(setup: Setup) -> str:
    """Return a precision of the user's accelerate config that the recipe has no word for, such as fp8."""
    value = setup.effective_values["precision"]
    return value.other_form_text if value.source == launcher_config.CONFIG_SOURCE_TEXT else ""


def _max_gradient_norm(setup: Setup) -> float:
    """Return max_grad_norm of the arguments, with which the Hugging Face Trainer compares it, else the config's."""
    words = given_options(setup.profile.trainer.arguments)
    norms = [option.value for option in words if option.option == "max_grad_norm"]
    default = accelerate_config.deepspeed_clipping_norm(setup.launcher_config) or 1.0
    try:
        return float(norms[-1]) if norms else default
    except ValueError:
        return default

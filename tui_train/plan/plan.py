"""plan(): what a run will do, from the profile and the facts; pure, and refused if a check finds an error."""

from collections.abc import Iterable

import msgspec

from tui_train.base import webhook
from tui_train.base.command import Command, ConfigFile, Part, Word, in_run_dir
from tui_train.base.errors import BadInput, Unavailable
from tui_train.checks import Finding
from tui_train.ladder.climb import AttemptPlan, climb
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.launchers.job import Job
from tui_train.memory.predict import hopeless
from tui_train.plan.attempts import attempt, output_of
from tui_train.plan.environment import prepares
from tui_train.plan.types import Attempt, Log, Notify, Plan, Preparation, SlurmJob
from tui_train.plan.words import notes, numbers, title
from tui_train.profile import batch
from tui_train.profile.types import Profile
from tui_train.resolve import config_file, container, hub, launcher_config
from tui_train.resolve.naming import name_of
from tui_train.resolve.options import arguments
from tui_train.resolve.others import others
from tui_train.resolve.setup import Setup
from tui_train.resolve.values import accumulation
from tui_train.trainers import nemo, takes_field, trainer_of


def plan(setup: Setup, findings: Iterable[Finding]) -> Plan:
    """Return the plan of a profile on its machine; BadInput or Unavailable if a finding forbids it."""
    for finding in findings:
        if finding.forbids:
            raise (Unavailable if finding.machine else BadInput)(finding.message, finding.remedy)
    profile, settled, trainer = setup.profile, setup.settled, trainer_of(setup.profile)
    steps = climb(settled, setup.context, lambda other: hopeless(setup.at(other)))
    jobs, launcher_configs = _jobs(steps, setup)
    attempts, configs = _attempts(steps, jobs, setup)
    first, recipe = jobs[0], settled.recipe
    slurm = _slurm(profile, first) if setup.scheduled else None
    several = profile.nodes.machines > 1 and not slurm
    return Plan(
        name=name_of(profile),
        title=title(setup),
        python=first.python,
        launcher=setup.launcher,
        device=setup.device,
        gpus=() if slurm else first.gpus,
        gpu_names=tuple(gpu.name for gpu in setup.gpus) if first.gpus and not slurm else (),
        world_size=setup.world_size,
        nodes=profile.nodes.machines,
        uneven=profile.nodes.uneven,
        address=profile.nodes.address if several else "",
        port=profile.nodes.port if several else 0,
        output=profile.trainer.output or setup.user_output,
        grace=setup.preset.stop.grace,
        find_interface=several and not profile.communication.interface,
        micro_batch=recipe.micro_batch or 0,
        accumulation=accumulation(settled, setup.copies) or 0,
        global_batch=recipe.global_batch or 0,
        learning_rate=batch.learning_rate(recipe) or 0.0,
        steps=recipe.steps or 0,
        numbers=numbers(setup),
        preparations=_preparations(setup, first),
        attempts=attempts,
        phases=setup.context.phases,
        configs=(*launcher_configs, *configs),
        programs=(*trainer.files(profile), *hub.programs(setup)),
        nemo=nemo.file(settled, setup.nemo, setup.gpus, setup.facts, setup.toolchain) if setup.nemo else None,
        resumes_itself=trainer.resumes_itself,
        secrets=profile.trainer.secrets,
        backend=setup.backend,
        container=container.wrapping(profile, first.gpus, _outputs(steps, setup)),
        log=_log(setup),
        notes=notes(setup),
        notify=_notify(profile),
        slurm=slurm,
        hosts=profile.nodes.hosts if several else (),
        others=others(setup),
    )


def _attempts(
    steps: tuple[AttemptPlan, ...], jobs: tuple[Job, ...], setup: Setup
) -> tuple[tuple[Attempt, ...], tuple[ConfigFile, ...]]:
    """Return the attempts, and the trainer's config files, which attempts with the same values share."""
    attempts: list[Attempt] = []
    configs: list[ConfigFile] = []
    for number, (step, job) in enumerate(zip(steps, jobs, strict=True), start=1):
        rung = setup.at(step.profile)
        made, config = attempt(step, rung, job, config_file.path_of(setup.profile, setup.preset, number))
        equal = next((earlier for earlier in configs if config and earlier.values == config.values), None)
        if equal:
            made, _ = attempt(step, rung, job, equal.path)
        elif config:
            configs.append(config)
        attempts.append(made)
    return tuple(attempts), tuple(configs)


def _outputs(steps: tuple[AttemptPlan, ...], setup: Setup) -> tuple[Word, ...]:
    """Return the output folder of each attempt."""
    return tuple(output_of(setup.at(step.profile)) for step in steps)


def _log(setup: Setup) -> Log:
    profile = setup.profile
    own = (profile.trainer.progress,) if profile.trainer.progress else ()
    steps = setup.settled.recipe.steps or 0
    return Log((*own, *setup.preset.log), steps, takes_field(profile, "trainer.progress"))


def _slurm(profile: Profile, job: Job) -> SlurmJob:
    chosen = profile.slurm
    return SlurmJob(
        gpus=len(job.gpus),
        cpus=chosen.cpus or job.processes,
        partition=chosen.partition,
        account=chosen.account,
        time=chosen.time,
        options=chosen.options,
    )


def _preparations(setup: Setup, job: Job) -> tuple[Preparation, ...]:
    """Return what the training's Python does before it, without GPUs."""
    profile = setup.profile
    env = prepares(profile)
    # What prepares the data may need the model.
    items = (*hub.download(setup), *trainer_of(profile).preparations(setup.settled, setup.facts))
    return tuple(
        Preparation(item.name, item.why, Command((Part((job.python,)), *item.parts), env, in_run_dir("")))
        for item in items
    )


def _notify(profile: Profile) -> Notify | None:
    chosen = profile.notify
    return (
        Notify(chosen.command, webhook.webhook_reference(chosen.webhook)) if chosen.command or chosen.webhook else None
    )


def _jobs(steps: tuple[AttemptPlan, ...], setup: Setup) -> tuple[tuple[Job, ...], tuple[ConfigFile, ...]]:
    """Return the job of each attempt, and the launcher's config files, which attempts share."""
    launcher = LAUNCHERS[setup.launcher]
    jobs: list[Job] = []
    files: list[ConfigFile] = []
    for step in steps:
        job = _job(setup.at(step.profile))
        for needed in launcher.configs(job):
            config = next((file for file in files if file.values == needed.values), None)
            if config is None:
                stem, dot, ending = needed.path.rpartition(".")
                path = f"{stem}-{len(files) + 1}{dot}{ending}" if files else needed.path
                config = msgspec.structs.replace(needed, path=path)
                files.append(config)
            job = msgspec.structs.replace(job, config=config.path)
        jobs.append(job)
    return tuple(jobs), tuple(files)


def _job(setup: Setup) -> Job:
    """Return what the launcher starts in an attempt."""
    rung, toolchain, nodes = setup.rung, setup.toolchain, setup.profile.nodes
    assert toolchain is not None, "a check refuses a profile that no Python can train"  # noqa: S101 - for the type
    return Job(
        python=toolchain.python if rung.container.engine == "none" else "python",
        torchrun=toolchain.torchrun,
        processes=setup.processes,
        nodes=nodes.machines,
        uneven=nodes.uneven,
        user_config=setup.launcher_config,
        port=nodes.port,
        gpus=tuple(gpu.uuid for gpu in setup.gpus) if setup.device == "cuda" else (),
        precision=rung.recipe.precision or _other_precision(setup) or "fp32",
        strategy=rung.trainer.strategy,
        offload=rung.trainer.offload and rung.trainer.strategy != "ddp",
        accumulation=accumulation(rung, setup.copies) or 1,
        clipping=_clipping(setup),
        scheduled=setup.scheduled,
    )


def _other_precision(setup: Setup) -> str:
    """Return a precision of the user's accelerate config that the recipe has no word for, such as fp8."""
    held = setup.values["precision"]
    return held.words if held.source == launcher_config.SOURCE else ""


def _clipping(setup: Setup) -> float:
    """Return max_grad_norm of the arguments, with which the Hugging Face Trainer compares it, else the config's."""
    words = arguments(setup.profile.trainer.arguments)
    norms = [option.value for option in words if option.option == "max_grad_norm"]
    usual = accelerate_config.clipping(setup.launcher_config) or 1.0
    try:
        return float(norms[-1]) if norms else usual
    except ValueError:
        return usual

"""plan(): what a run will do, from the profile and the facts; pure, and refused if a check finds an error."""

from collections.abc import Iterable

import msgspec

from tui_train.base import webhook
from tui_train.base.command import Command, ConfigFile, Part, in_run_dir
from tui_train.base.errors import BadInput, Unavailable
from tui_train.checks import Finding
from tui_train.facts.types import Facts, Toolchain
from tui_train.ladder.climb import AttemptPlan, climb
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.launchers.job import Job
from tui_train.memory.length import resolve
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
from tui_train.resolve.resolve import Resolved
from tui_train.resolve.values import accumulation
from tui_train.trainers import nemo, takes_field, trainer_of


def plan(profile: Profile, facts: Facts, findings: Iterable[Finding]) -> Plan:
    """Return the plan of a profile on this machine; BadInput or Unavailable if a finding forbids it."""
    for finding in findings:
        if finding.forbids:
            raise (Unavailable if finding.machine else BadInput)(finding.message, finding.remedy)
    resolved = resolve(profile, facts)
    toolchain = resolved.toolchain
    assert toolchain is not None, "a check refuses a profile that no Python can train"  # noqa: S101 - for the type
    settled = resolved.settled
    tries = climb(settled, resolved.context, lambda other: hopeless(other, facts, resolved))
    jobs, configs = _jobs(tries, resolved, toolchain)
    recipe = settled.recipe
    slurm = _slurm(profile, jobs[0]) if resolved.scheduled else None
    several = profile.nodes.machines > 1 and not slurm
    outputs = tuple(output_of(step.profile, settled, resolved.user_output) for step in tries)
    built: list[tuple[Attempt, ConfigFile | None]] = []
    for number, (step, job) in enumerate(zip(tries, jobs, strict=True), start=1):
        path = config_file.path_of(profile, resolved.preset, number)
        made, config = attempt(step, profile, resolved, job, facts, path)
        equal_config = next(
            (earlier for _, earlier in built if config and earlier and earlier.values == config.values), None
        )
        built.append(
            attempt(step, profile, resolved, job, facts, equal_config.path) if equal_config else (made, config)
        )
    written = {config.path: config for _, config in built if config}
    return Plan(
        name=name_of(profile),
        title=title(profile, resolved),
        python=jobs[0].python,
        launcher=resolved.launcher,
        device=resolved.device,
        gpus=() if slurm else jobs[0].gpus,
        gpu_names=tuple(gpu.name for gpu in resolved.gpus) if jobs[0].gpus and not slurm else (),
        world_size=resolved.world_size,
        nodes=profile.nodes.machines,
        uneven=profile.nodes.uneven,
        address=profile.nodes.address if several else "",
        port=profile.nodes.port if several else 0,
        output=profile.trainer.output or resolved.user_output,
        grace=resolved.preset.stop.grace,
        find_interface=several and not profile.communication.interface,
        micro_batch=recipe.micro_batch or 0,
        accumulation=accumulation(settled, resolved.copies) or 0,
        global_batch=recipe.global_batch or 0,
        learning_rate=batch.learning_rate(recipe) or 0.0,
        steps=recipe.steps or 0,
        numbers=numbers(recipe, resolved),
        preparations=_preparations(profile, facts, resolved, jobs[0]),
        attempts=tuple(made for made, _ in built),
        phases=resolved.context.phases,
        configs=(*configs, *written.values()),
        programs=(*trainer_of(profile).files(profile), *hub.programs(profile, facts, resolved)),
        nemo=nemo.file(settled, resolved.nemo, resolved.gpus, facts, resolved.toolchain) if resolved.nemo else None,
        resumes_itself=trainer_of(profile).resumes_itself,
        secrets=profile.trainer.secrets,
        backend=resolved.backend,
        container=container.wrapping(profile, jobs[0].gpus, outputs),
        log=_log(profile, resolved),
        notes=notes(profile, facts, resolved),
        notify=_notify(profile),
        slurm=slurm,
        hosts=profile.nodes.hosts if several else (),
        others=others(profile, facts, resolved),
    )


def _log(profile: Profile, resolved: Resolved) -> Log:
    own = (profile.trainer.progress,) if profile.trainer.progress else ()
    steps = resolved.settled.recipe.steps or 0
    return Log((*own, *resolved.preset.log), steps, takes_field(profile, "trainer.progress"))


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


def _preparations(profile: Profile, facts: Facts, resolved: Resolved, job: Job) -> tuple[Preparation, ...]:
    """Return what the training's Python does before it, without GPUs."""
    env = prepares(profile)
    # What prepares the data may need the model.
    items = (*hub.download(profile, facts, resolved), *trainer_of(profile).preparations(resolved.settled, facts))
    return tuple(
        Preparation(item.name, item.why, Command((Part((job.python,)), *item.parts), env, in_run_dir("")))
        for item in items
    )


def _notify(profile: Profile) -> Notify | None:
    chosen = profile.notify
    return Notify(chosen.command, webhook.named(chosen.webhook)) if chosen.command or chosen.webhook else None


def _jobs(
    steps: tuple[AttemptPlan, ...], resolved: Resolved, toolchain: Toolchain
) -> tuple[tuple[Job, ...], tuple[ConfigFile, ...]]:
    """Return the job of each attempt, and the launcher's config files, which attempts share."""
    launcher = LAUNCHERS[resolved.launcher]
    jobs: list[Job] = []
    files: list[ConfigFile] = []
    for step in steps:
        job = _job(step.profile, resolved, toolchain)
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


def _job(profile: Profile, resolved: Resolved, toolchain: Toolchain) -> Job:
    trainer, nodes = profile.trainer, profile.nodes
    sharded = trainer.strategy != "ddp"
    return Job(
        python=toolchain.python if profile.container.engine == "none" else "python",
        torchrun=toolchain.torchrun,
        processes=resolved.processes,
        nodes=nodes.machines,
        uneven=nodes.uneven,
        user_config=resolved.launcher_config,
        port=nodes.port,
        gpus=tuple(gpu.uuid for gpu in resolved.gpus) if resolved.device == "cuda" else (),
        precision=profile.recipe.precision or _other_precision(resolved) or "fp32",
        strategy=trainer.strategy,
        offload=trainer.offload and sharded,
        accumulation=accumulation(profile, resolved.copies) or 1,
        clipping=_clipping(trainer.arguments, resolved),
        scheduled=resolved.scheduled,
    )


def _other_precision(resolved: Resolved) -> str:
    """Return a precision of the user's accelerate config that the recipe has no word for, such as fp8."""
    held = resolved.values["precision"]
    return held.words if held.source == launcher_config.SOURCE else ""


def _clipping(words: tuple[str, ...], resolved: Resolved) -> float:
    """Return max_grad_norm of the arguments, with which the Hugging Face Trainer compares it, else the config's."""
    norms = [option.value for option in arguments(words) if option.option == "max_grad_norm"]
    usual = accelerate_config.clipping(resolved.launcher_config) or 1.0
    try:
        return float(norms[-1]) if norms else usual
    except ValueError:
        return usual

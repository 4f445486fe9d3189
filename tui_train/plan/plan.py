"""plan(): what a run will do, from the profile and the facts; pure, and refused if a check finds an error."""

from collections.abc import Iterable, Mapping

import msgspec

from tui_train.base.command import CHECKPOINT, Command, ConfigFile, Part, Word, in_run_dir, joined
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.text import counted, visible
from tui_train.base.versions import known_since
from tui_train.checks import Finding
from tui_train.facts.types import Facts, Toolchain
from tui_train.ladder.climb import AttemptPlan, climb
from tui_train.launchers import LAUNCHERS
from tui_train.launchers.job import Job
from tui_train.memory.predict import hopeless
from tui_train.plan.environment import prepares, settings
from tui_train.plan.types import Attempt, CheckpointRule, Log, Notify, Plan, Preparation
from tui_train.presets import PLACEHOLDERS, Argument, applies
from tui_train.profile import batch
from tui_train.profile.types import Profile, Recipe
from tui_train.resolve import config_file, container, hub
from tui_train.resolve.arguments import fill, plain
from tui_train.resolve.idle import left_out
from tui_train.resolve.in_force import folder_of, other_global_batch
from tui_train.resolve.naming import name_of
from tui_train.resolve.options import arguments
from tui_train.resolve.resolve import Resolved, resolve
from tui_train.resolve.values import Value, accumulation, passed, values, words
from tui_train.trainers import nemo, paths_of, trainer_of

_OFFLINE = frozenset({"offline", "dryrun"})


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
    outputs = tuple(_output(step.profile, settled, resolved.user_output) for step in tries)
    built: list[tuple[Attempt, ConfigFile | None]] = []
    for number, (step, job) in enumerate(zip(tries, jobs, strict=True), start=1):
        path = config_file.path_of(profile, resolved.preset, number)
        attempt, config = _attempt(step, profile, resolved, job, facts, path)
        equal_config = next(
            (earlier for _, earlier in built if config and earlier and earlier.values == config.values), None
        )
        built.append(
            _attempt(step, profile, resolved, job, facts, equal_config.path) if equal_config else (attempt, config)
        )
    written = {config.path: config for _, config in built if config}
    return Plan(
        name=name_of(profile),
        title=_title(profile, resolved),
        python=jobs[0].python,
        launcher=resolved.launcher,
        device=resolved.device,
        gpus=jobs[0].gpus,
        gpu_names=tuple(gpu.name for gpu in resolved.gpus) if jobs[0].gpus else (),
        world_size=resolved.world_size,
        nodes=profile.nodes.count,
        address=profile.nodes.address if profile.nodes.count > 1 else "",
        port=profile.nodes.port if profile.nodes.count > 1 else 0,
        output=profile.trainer.output or resolved.user_output,
        grace=resolved.preset.stop.grace,
        find_interface=profile.nodes.count > 1 and not profile.communication.interface,
        micro_batch=recipe.micro_batch or 0,
        accumulation=accumulation(settled, resolved.copies) or 0,
        global_batch=recipe.global_batch or 0,
        learning_rate=batch.learning_rate(recipe) or 0.0,
        steps=recipe.steps or 0,
        numbers=_numbers(recipe, resolved),
        preparations=_preparations(profile, facts, resolved, jobs[0]),
        attempts=tuple(attempt for attempt, _ in built),
        phases=resolved.context.phases,
        configs=(*configs, *written.values()),
        programs=(*trainer_of(profile).files(profile), *hub.programs(profile, facts, resolved)),
        nemo=nemo.file(settled, resolved.nemo, resolved.gpus, facts, resolved.toolchain) if resolved.nemo else None,
        resumes_itself=trainer_of(profile).resumes_itself,
        secrets=profile.trainer.secrets,
        backend=resolved.backend,
        container=container.wrapping(profile, jobs[0].gpus, outputs),
        log=Log(resolved.preset.log, recipe.steps or 0),
        notes=_notes(profile, facts, resolved),
        notify=_notify(profile),
    )


def _preparations(profile: Profile, facts: Facts, resolved: Resolved, job: Job) -> tuple[Preparation, ...]:
    """Return what the training's Python does before it, without GPUs."""
    env = prepares(profile)
    # What prepares the data may need the model.
    items = (*hub.download(profile, facts, resolved), *trainer_of(profile).preparations(resolved.settled))
    return tuple(
        Preparation(item.name, item.why, Command((Part((job.python,)), *item.parts), env, in_run_dir("")))
        for item in items
    )


def _notify(profile: Profile) -> Notify | None:
    chosen = profile.notify
    return Notify(chosen.command, chosen.webhook) if chosen.command or chosen.webhook else None


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
        nodes=nodes.count,
        address=nodes.address,
        port=nodes.port,
        gpus=tuple(gpu.uuid for gpu in resolved.gpus) if resolved.device == "cuda" else (),
        precision=profile.recipe.precision or "fp32",
        strategy=trainer.strategy,
        offload=trainer.offload and sharded,
        accumulation=accumulation(profile, resolved.copies) or 1,
        clipping=_clipping(trainer.arguments),
    )


def _clipping(words: tuple[str, ...]) -> float:
    """Return max_grad_norm of the arguments: the Hugging Face Trainer rejects a DeepSpeed config with another value."""
    norms = [option.value for option in arguments(words) if option.option == "max_grad_norm"]
    try:
        return float(norms[-1]) if norms else 1.0
    except ValueError:
        return 1.0


def _title(profile: Profile, resolved: Resolved) -> str:
    training = trainer_of(profile).title(profile, resolved.preset, resolved.nemo)
    devices = counted(len(resolved.gpus), "GPU") if resolved.device == "cuda" else "the CPU"
    processes = counted(resolved.processes, "process", "processes")
    if profile.nodes.count > 1:
        devices += f" of each of {profile.nodes.count} machines"
    sharding = "" if profile.trainer.strategy == "ddp" else f" with {profile.trainer.strategy}"
    box = profile.container
    where = "" if box.engine == "none" else f", in {box.image} by {box.engine}"
    return f"{training} under {LAUNCHERS[resolved.launcher].LABEL}{sharding}, {processes} on {devices}{where}"


def _numbers(recipe: Recipe, resolved: Resolved) -> tuple[str, ...]:
    """Return learning rate and steps as text, each with its source unless the user set it."""
    rate, in_force = batch.learning_rate(recipe), resolved.values
    texts = {
        "learning_rate": f"learning rate {rate:g}" if rate is not None else in_force["learning_rate"].words,
        "steps": _length(recipe) or in_force["steps"].words,
    }
    sources = {name: in_force[name].source for name in texts}
    if recipe.epochs and not recipe.steps:
        sources["steps"] = in_force["epochs"].source
    if recipe.lr_scaling != "none":
        sources["learning_rate"] = ""
    return tuple(
        visible(words + (f" ({sources[name]})" if sources[name] not in {"", "default"} else ""))
        for name, words in texts.items()
        if words
    )


def _length(recipe: Recipe) -> str:
    """Return how long the training is, in words: its steps, or else its epochs."""
    if recipe.steps:
        return counted(recipe.steps, "step")
    return f"{recipe.epochs:g} {'epoch' if recipe.epochs == 1 else 'epochs'}" if recipe.epochs else ""


def _notes(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[str, ...]:
    notes = [f"Made for another machine: {facts.elsewhere}."] if facts.elsewhere else []
    if facts.elsewhere and not facts.paths and paths_of(profile):
        notes.append("Whether its paths exist was not checked.")
    notes += left_out(profile, facts, resolved)
    document = facts.documents.get(profile.trainer.config)
    notes += filter(None, [other_global_batch(profile, resolved.preset, document, resolved.copies)])
    notes += nemo.notes(profile, resolved.nemo, facts, resolved.toolchain) if resolved.nemo else ()
    if profile.tracking.wandb and profile.trainer.environment.get("WANDB_MODE", "").lower() in _OFFLINE:
        notes.append("W&B works offline: `wandb sync wandb/offline-run-…` in the run folder uploads it later.")
    resumes_itself = trainer_of(profile).resumes_itself
    if not resolved.preset.checkpoints and not resumes_itself:
        notes.append(f"The preset “{resolved.preset.label}” cannot resume: each attempt starts from step 0.")
    if profile.nodes.count > 1:
        last = profile.nodes.count - 1
        ranks = "--node-rank=1 on the other" if last == 1 else f"--node-rank=1 to {last} on the others"
        notes.append(f"Start it on each machine, from this folder or a copy: --node-rank=0 on the first, {ranks}.")
        notes.append("No fallbacks with several machines: nothing coordinates them.")
        if resolved.preset.checkpoints or resumes_itself:
            notes.append("To resume, the output folder must be on a disk that all machines share.")
        if resolved.preset.checkpoints and not resumes_itself:
            notes.append("It resumes only with --resume, given on all machines.")
    return tuple(notes)


def _attempt(  # noqa: PLR0913, PLR0917 - six independent inputs
    step: AttemptPlan, first: Profile, resolved: Resolved, job: Job, facts: Facts, path: str
) -> tuple[Attempt, ConfigFile | None]:
    preset, user_output = resolved.preset, resolved.user_output
    output = _output(step.profile, resolved.settled, user_output)
    passed_keys = passed(first, (key for _, change in step.changes for key, _ in change.edits))
    config_word = config_file.word_of(first, preset, path)
    keeps_output = bool(user_output) and not first.trainer.output and output == user_output
    passed_values = values(step.profile, resolved, output, config_word, passed_keys, user_output=keeps_output)
    # Placeholders in the user's arguments get all values, passed or not.
    every = frozenset(PLACEHOLDERS.values())
    all_values = values(step.profile, resolved, output, config_word, every, user_output=False)
    config = config_file.config_file(step.profile, facts, resolved, passed_values, path)
    launcher = LAUNCHERS[resolved.launcher]
    rule = preset.checkpoints
    resume = tuple(_from_checkpoint(word) for word in rule.resume) if rule else ()
    parts = (
        *launcher.parts(job),
        *trainer_of(first).program(first, resolved.preset, resolved.nemo),
        *_saving(resolved, passed_values),
        *_arguments(step.profile, resolved, passed_values, all_values),
        *([Part(resume, "only if there is a complete checkpoint", resumes=True)] if resume else []),
    )
    attempt = Attempt(
        rung=step.changes[-1][0] if step.changes else "",
        title=step.title,
        edits={key: value for _, change in step.changes for key, value in change.edits},
        then={phase: place + 1 for phase, place in step.then.items()},
        batch=_batch(step.profile, resolved, job),
        command=Command(
            parts,
            settings(step.profile, resolved, job, facts, passed_values),
            folder_of(step.profile, preset) or in_run_dir(""),
        ),
        checkpoints=CheckpointRule(output, rule.prefix, rule.complete, rule.suffix, rule.file) if rule else None,
        fills=((path, config_file.without_checkpoint(first, preset, facts)),)
        if config and config_file.holds_paths(preset)
        else (),
    )
    return attempt, config


def _batch(profile: Profile, resolved: Resolved, job: Job) -> str:
    """Return the arithmetic of an attempt's batch as text, as far as it is known, with its source."""
    recipe = profile.recipe
    processes = counted(job.world_size, "process", "processes")
    if resolved.copies != job.world_size:
        processes = f"{counted(resolved.copies, 'copy', 'copies')} of the model"
    in_force = resolved.values["micro_batch"], resolved.values["global_batch"]
    if recipe.micro_batch is None:
        return visible(f"{processes}, batch: {in_force[0].source}")
    # A changed batch no longer comes from the source.
    before = resolved.settled.recipe
    unchanged = (recipe.micro_batch, recipe.global_batch) == (before.micro_batch, before.global_batch)
    sources = dict.fromkeys(value.source for value in in_force if unchanged and value.source not in {"", "default"})
    source = visible(f" ({', '.join(sources)})") if sources else ""
    if recipe.global_batch is None:
        return f"micro batch {recipe.micro_batch} x {processes}, accumulation: the script's default{source}"
    product = f"micro batch {recipe.micro_batch} x accumulation {job.accumulation} x {processes}"
    return f"{product} = global batch {recipe.global_batch}{source}"


def _output(profile: Profile, first: Profile, user_output: str) -> Word:
    """Return the output folder: attempts that cannot resume from the others' checkpoints get a separate one.

    `user_output` is the folder in the user's arguments or file.
    """
    suffix = "" if profile.recipe.layers == first.recipe.layers else f"-{profile.recipe.layers}-layers"
    suffix += "" if profile.trainer.strategy == first.trainer.strategy else f"-{profile.trainer.strategy}"
    suffix += "-8bit" if profile.recipe.optimizer_8bit and not first.recipe.optimizer_8bit else ""
    suffix += "-lora" if profile.recipe.lora and not first.recipe.lora else ""
    output = profile.trainer.output or user_output
    return f"{output}{suffix}" if output else in_run_dir(f"output{suffix}")


def _from_checkpoint(word: str) -> Word:
    before, placeholder, after = word.partition("{checkpoint}")
    return joined((before, CHECKPOINT, after)) if placeholder else word


def _arguments(
    profile: Profile, resolved: Resolved, passed_values: Mapping[str, Value], all_values: Mapping[str, Value]
) -> tuple[Part, ...]:
    preset = [Part(filled) for argument in resolved.preset.arguments for filled in fill(argument, words(passed_values))]
    by_user = [filled for word in profile.trainer.arguments for filled in fill(Argument((word,)), words(all_values))]
    first = resolved.preset.user_arguments_first
    why = "your arguments" if first else "your arguments, from here on"
    user_parts = tuple(Part(argument, "" if index else why) for index, argument in enumerate(by_user))
    return (*user_parts, *preset) if first else (*preset, *user_parts)


def _saving(resolved: Resolved, passed_values: Mapping[str, Value]) -> tuple[Part, ...]:
    """Return the arguments that make the trainer save on SIGTERM, if its library is new enough."""
    stop, tool = resolved.preset.stop, resolved.toolchain
    library, _, since = stop.needs.partition(" ")
    versions = {"transformers": tool.transformers, **tool.packages} if tool else {}
    fits = not library or known_since(versions.get(library), since)
    passed_on = stop.arguments and fits and applies(stop.when, plain(words(passed_values)))
    return (Part(stop.arguments, "saves when the run is stopped"),) if passed_on else ()

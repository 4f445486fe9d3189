"""plan(): what will happen, from what the user chose and what is; pure, and refused when a check finds an error."""

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
from tui_train.plan.environment import settings
from tui_train.plan.types import Attempt, CheckpointRule, Log, Plan
from tui_train.presets import PLACEHOLDERS, Argument, applies
from tui_train.profile import batch
from tui_train.profile.types import Profile, Recipe
from tui_train.resolve import config_file, container
from tui_train.resolve.arguments import fill, plain
from tui_train.resolve.idle import left_out
from tui_train.resolve.in_force import folder_of, other_global_batch
from tui_train.resolve.own_words import arguments
from tui_train.resolve.resolve import Resolved, resolve
from tui_train.resolve.values import Value, accumulation, passed, values, words
from tui_train.trainers import nemo, paths_of, trainer_of


def plan(profile: Profile, facts: Facts, findings: Iterable[Finding]) -> Plan:
    """Return the plan of a profile on this machine; BadInput or Unavailable where one of its findings forbids it."""
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
    outputs = tuple(_output(step.profile, settled, resolved.own_output) for step in tries)
    made: list[tuple[Attempt, ConfigFile | None]] = []
    for number, (step, job) in enumerate(zip(tries, jobs, strict=True), start=1):
        path = config_file.path_of(profile, resolved.preset, number)
        attempt, config = _attempt(step, profile, resolved, job, facts, path)
        same = next((old for _, old in made if config and old and old.values == config.values), None)
        made.append(_attempt(step, profile, resolved, job, facts, same.path) if same else (attempt, config))
    written = {config.path: config for _, config in made if config}
    return Plan(
        name=profile.name,
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
        output=profile.trainer.output or resolved.own_output,
        grace=resolved.preset.stop.grace,
        find_interface=profile.nodes.count > 1 and not profile.communication.interface,
        micro_batch=recipe.micro_batch or 0,
        accumulation=accumulation(settled, resolved.copies) or 0,
        global_batch=recipe.global_batch or 0,
        learning_rate=batch.learning_rate(recipe) or 0.0,
        steps=recipe.steps or 0,
        numbers=_numbers(recipe, resolved),
        attempts=tuple(attempt for attempt, _ in made),
        phases=resolved.context.phases,
        configs=(*configs, *written.values()),
        programs=trainer_of(profile).files(profile),
        nemo=nemo.file(settled, resolved.nemo, resolved.gpus, facts, resolved.toolchain) if resolved.nemo else None,
        resumes_itself=trainer_of(profile).resumes_itself,
        secrets=profile.trainer.secrets,
        backend=resolved.backend,
        container=container.wrapping(profile, jobs[0].gpus, outputs),
        log=Log(resolved.preset.log, recipe.steps or 0),
        notes=_notes(profile, facts, resolved),
    )


def _jobs(
    steps: tuple[AttemptPlan, ...], resolved: Resolved, toolchain: Toolchain
) -> tuple[tuple[Job, ...], tuple[ConfigFile, ...]]:
    """Return what the launcher is told in each attempt, and the files that it reads, which attempts share."""
    launcher = LAUNCHERS[resolved.launcher]
    jobs: list[Job] = []
    files: list[ConfigFile] = []
    for step in steps:
        job = _job(step.profile, resolved, toolchain)
        for wanted in launcher.configs(job):
            config = next((file for file in files if file.values == wanted.values), None)
            if config is None:
                stem, dot, ending = wanted.path.rpartition(".")
                path = f"{stem}-{len(files) + 1}{dot}{ending}" if files else wanted.path
                config = msgspec.structs.replace(wanted, path=path)
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
    """Return the gradient norm that the Hugging Face Trainer is told: it refuses a DeepSpeed that clips to another."""
    told = [said.value for said in arguments(words) if said.option == "max_grad_norm"]
    try:
        return float(told[-1]) if told else 1.0
    except ValueError:
        return 1.0


def _title(profile: Profile, resolved: Resolved) -> str:
    what = trainer_of(profile).title(profile, resolved.preset, resolved.nemo)
    devices = counted(len(resolved.gpus), "GPU") if resolved.device == "cuda" else "the CPU"
    processes = counted(resolved.processes, "process", "processes")
    if profile.nodes.count > 1:
        devices += f" of each of {profile.nodes.count} machines"
    held = "" if profile.trainer.strategy == "ddp" else f" with {profile.trainer.strategy}"
    box = profile.container
    where = "" if box.engine == "none" else f", in {box.image} by {box.engine}"
    return f"{what} under {LAUNCHERS[resolved.launcher].LABEL}{held}, {processes} on {devices}{where}"


def _numbers(recipe: Recipe, resolved: Resolved) -> tuple[str, ...]:
    """Return learning rate and steps in words, each with its source where the user did not choose it."""
    rate, held = batch.learning_rate(recipe), resolved.values
    said = {
        "learning_rate": f"learning rate {rate:g}" if rate is not None else held["learning_rate"].words,
        "steps": counted(recipe.steps, "step") if recipe.steps else held["steps"].words,
    }
    sources = {name: held[name].source for name in said}
    if recipe.lr_scaling != "none":
        sources["learning_rate"] = ""
    return tuple(
        visible(words + (f" ({sources[name]})" if sources[name] not in {"", "default"} else ""))
        for name, words in said.items()
        if words
    )


def _notes(profile: Profile, facts: Facts, resolved: Resolved) -> tuple[str, ...]:
    notes = [f"Made for another machine: {facts.elsewhere}."] if facts.elsewhere else []
    if facts.elsewhere and not facts.paths and paths_of(profile):
        notes.append("Whether its paths are there was not looked at.")
    notes += left_out(profile, facts, resolved)
    document = facts.documents.get(profile.trainer.config)
    notes += filter(None, [other_global_batch(profile, resolved.preset, document, resolved.copies)])
    notes += nemo.notes(profile, resolved.nemo, facts, resolved.toolchain) if resolved.nemo else ()
    resumes_itself = trainer_of(profile).resumes_itself
    if not resolved.preset.checkpoints and not resumes_itself:
        notes.append(f"The preset “{resolved.preset.label}” cannot resume: each attempt starts from step 0.")
    if profile.nodes.count > 1:
        last = profile.nodes.count - 1
        ranks = "--node-rank=1 on the other" if last == 1 else f"--node-rank=1 to {last} on the others"
        notes.append(f"Start it on each machine, from this folder or a copy: --node-rank=0 on the first, {ranks}.")
        notes.append("There are no fallbacks: nothing coordinates machines that are started by hand.")
        if resolved.preset.checkpoints or resumes_itself:
            notes.append("To resume, all machines need the output folder on a disk that they share.")
        if resolved.preset.checkpoints and not resumes_itself:
            notes.append("It resumes only where it is asked to, on all of them: with --resume.")
    return tuple(notes)


def _attempt(  # noqa: PLR0913, PLR0917 - each is a thing of its own
    step: AttemptPlan, first: Profile, resolved: Resolved, job: Job, facts: Facts, path: str
) -> tuple[Attempt, ConfigFile | None]:
    preset, own = resolved.preset, resolved.own_output
    output = _output(step.profile, resolved.settled, own)
    told = passed(first, (key for _, change in step.changes for key, _ in change.edits), resolved)
    config_word = config_file.word_of(first, preset, path)
    stays = bool(own) and not first.trainer.output and output == own
    found = values(step.profile, resolved, output, config_word, told, own_output=stays)
    # Words of the user's own name what holds, whoever chose it.
    every = frozenset(PLACEHOLDERS.values())
    held = values(step.profile, resolved, output, config_word, every, own_output=False)
    config = config_file.config_file(step.profile, facts, resolved, found, path)
    launcher = LAUNCHERS[resolved.launcher]
    rule = preset.checkpoints
    resume = tuple(_from_checkpoint(word) for word in rule.resume) if rule else ()
    parts = (
        *launcher.parts(job),
        *trainer_of(first).program(first, resolved.preset, resolved.nemo),
        *_saving(resolved, found),
        *_arguments(step.profile, resolved, found, held),
        *([Part(resume, "only where there is a complete checkpoint", resumes=True)] if resume else []),
    )
    attempt = Attempt(
        rung=step.changes[-1][0] if step.changes else "",
        title=step.title,
        edits={key: value for _, change in step.changes for key, value in change.edits},
        then={phase: place + 1 for phase, place in step.then.items()},
        batch=_batch(step.profile, resolved, job),
        command=Command(
            parts,
            settings(step.profile, resolved, job, facts, found),
            folder_of(step.profile, preset) or in_run_dir(""),
        ),
        checkpoints=CheckpointRule(output, rule.prefix, rule.complete, rule.suffix, rule.file) if rule else None,
        fills=((path, config_file.without_checkpoint(first, preset, facts)),)
        if config and config_file.holds_paths(preset)
        else (),
    )
    return attempt, config


def _batch(profile: Profile, resolved: Resolved, job: Job) -> str:
    """Return the arithmetic of an attempt's batch in words, as far as it is known, with its source."""
    recipe = profile.recipe
    processes = counted(job.world_size, "process", "processes")
    if resolved.copies != job.world_size:
        processes = f"{counted(resolved.copies, 'copy', 'copies')} of the model"
    held = resolved.values["micro_batch"], resolved.values["global_batch"]
    if recipe.micro_batch is None:
        return visible(f"{processes}, with {held[0].source} batch")
    # What an attempt changes is not the trainer's own any more.
    before = resolved.settled.recipe
    same = (recipe.micro_batch, recipe.global_batch) == (before.micro_batch, before.global_batch)
    sources = dict.fromkeys(one.source for one in held if same and one.source not in {"", "default"})
    source = visible(f" ({', '.join(sources)})") if sources else ""
    if recipe.global_batch is None:
        return f"micro batch {recipe.micro_batch} x {processes}, with the script's own accumulation{source}"
    product = f"micro batch {recipe.micro_batch} x accumulation {job.accumulation} x {processes}"
    return f"{product} = global batch {recipe.global_batch}{source}"


def _output(profile: Profile, first: Profile, own: str) -> Word:
    """Return the output folder: checkpoints of another model, optimizer, method or sharding are kept apart.

    They cannot be resumed from. `own` is the folder that the user's arguments or file name.
    """
    suffix = "" if profile.recipe.layers == first.recipe.layers else f"-{profile.recipe.layers}-layers"
    suffix += "" if profile.trainer.strategy == first.trainer.strategy else f"-{profile.trainer.strategy}"
    suffix += "-8bit" if profile.recipe.optimizer_8bit and not first.recipe.optimizer_8bit else ""
    suffix += "-lora" if profile.recipe.lora and not first.recipe.lora else ""
    output = profile.trainer.output or own
    return f"{output}{suffix}" if output else in_run_dir(f"output{suffix}")


def _from_checkpoint(word: str) -> Word:
    before, found, after = word.partition("{checkpoint}")
    return joined((before, CHECKPOINT, after)) if found else word


def _arguments(
    profile: Profile, resolved: Resolved, found: Mapping[str, Value], held: Mapping[str, Value]
) -> tuple[Part, ...]:
    preset = [Part(filled) for argument in resolved.preset.arguments for filled in fill(argument, words(found))]
    yours = [filled for word in profile.trainer.arguments for filled in fill(Argument((word,)), words(held))]
    if resolved.preset.yours_first:
        return (*(Part(one, "" if place else "yours") for place, one in enumerate(yours)), *preset)
    return (*preset, *(Part(one, "" if place else "yours, from here on") for place, one in enumerate(yours)))


def _saving(resolved: Resolved, found: Mapping[str, Value]) -> tuple[Part, ...]:
    """Return the words by which the trainer saves when it is told to end, where its library is new enough for them."""
    stop, tool = resolved.preset.stop, resolved.toolchain
    library, _, since = stop.needs.partition(" ")
    told = {"transformers": tool.transformers, **tool.packages} if tool else {}
    fits = not library or known_since(told.get(library), since)
    wanted = stop.arguments and fits and applies(stop.when, plain(words(found)))
    return (Part(stop.arguments, "a stop makes it save first"),) if wanted else ()
